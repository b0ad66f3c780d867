"""The rules for pair averages ⟨τ_i σ_b⟩ (docs/maths.md, "Pair correlations"). This module loads no compiler."""

#: How ⟨τ_i σ_b⟩ is computed: the pair belief, linear response by one solve, or by susceptibility propagation.
PAIR, CLOSED, ITERATED = 0, 1, 2
#: What replaces a result outside [-1, 1]: nothing, m_i μ_b (the paper's correction), or the pair belief.
NOTHING, PRODUCT, BELIEF = 0, 1, 2

RULES = {
    "iterated": (ITERATED, NOTHING),
    "closed": (CLOSED, NOTHING),
    "pair": (PAIR, NOTHING),
    "corrected": (CLOSED, PRODUCT),
    "iterated-corrected": (ITERATED, PRODUCT),
    "bounded": (CLOSED, BELIEF),
}
