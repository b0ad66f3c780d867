"""A fit in plain text, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kising.learning.effort import iteration_limit
from kising.learning.fitted.edges import labels, present_blocks
from kising.learning.fitted.heldout import likelihood_kind
from kising.options import Learner

if TYPE_CHECKING:
    from kising.learning.fit import Fit

WIDTH = 100
STRONGEST = 6
# Columns for the name of a unit.
LONGEST_NAME = 24


@dataclass(frozen=True)
class Spelling:
    """How advice is written, so that it can be copied."""

    option: Callable[[str, object], str]
    """from the name of an option and its value"""
    errors: str
    """how to get standard errors"""
    continued: str
    """how to go on from where learning stopped; empty where there is no way"""


PYTHON: Final = Spelling(
    lambda name, value: f"{name}={value}", "see with_errors", ", or continue with start=fit.couplings"
)
FLAGS: Final = Spelling(lambda name, value: f"--{name.replace('_', '-')} {value}", "fit with --errors", "")


def summary(fit: Fit, spelling: Spelling = PYTHON) -> str:
    """At most 24 lines of at most 100 columns."""
    lines = [*_about(fit), "", *_blocks(fit), "", *_strongest(fit, spelling), *_advice(fit, spelling)]
    return "\n".join(line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in lines)


def _about(fit: Fit) -> Iterator[str]:
    nv, nh = fit.couplings.K.shape
    kind = likelihood_kind(fit.estimator, nh, coupled=bool(fit.couplings.M.any()))
    yield f"kising fit of {nv} visible and {nh} hidden spins to {fit.steps} time steps"
    inputs = fit.couplings.F.shape[1]
    if inputs:
        known = ", ".join(map(_short, labels("input", inputs, None, fit.input_names)))
        yield f"known inputs: {known}"
    yield f"estimator {fit.estimator}, seed {fit.seed}: {fit.outcome} after {fit.iterations} iterations"
    yield f"log-likelihood {fit.training_log_likelihood:.5f} nats per slice of the training data ({kind})"


def _blocks(fit: Fit) -> Iterator[str]:
    yield f"{'block':<24}{'couplings':>10}{'rms':>10}{'median error':>15}{'converged':>12}"
    for block in present_blocks(fit.couplings):
        value = getattr(fit.couplings, block.name)
        source = "constant" if block.columns == "one" else block.columns
        error = "-"
        if fit.standard_error is not None:
            error = f"{np.median(getattr(fit.standard_error, block.name)):.3g}"
        converged = "yes" if fit.converged.get(block.name, False) else "no"
        yield (
            f"{block.name + '  ' + block.rows + ' <- ' + source:<24}{value.size:>10}"
            f"{np.sqrt(np.mean(value**2)):>10.4f}{error:>15}{converged:>12}"
        )


def _strongest(fit: Fit, spelling: Spelling) -> Iterator[str]:
    """Couplings between visible spins: those of hidden spins have another scale."""
    edges = fit.edges()
    edges = edges[edges["block"] == "J"]
    known = fit.standard_error is not None
    order = edges["z" if known else "value"].abs().sort_values(ascending=False, kind="stable").index
    rows = edges.loc[order[:STRONGEST]]
    pairs = [f"J  {_short(row.target)} <- {_short(row.source)}" for row in rows.itertuples()]
    width = max([24, *(len(pair) + 2 for pair in pairs)])
    tests = f"{'error':>10}{'z':>9}{'q':>10}" if known else f"   (no standard errors: {spelling.errors})"
    yield f"{'strongest edges':<{width}}{'value':>10}{tests}"
    for pair, row in zip(pairs, rows.itertuples(), strict=True):
        tests = f"{row.error:>10.3g}{row.z:>9.1f}{row.q:>10.2g}" if known else ""
        yield f"{pair:<{width}}{row.value:>10.4f}{tests}"


def _short(name: object) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 3] + "..."


def _advice(fit: Fit, spelling: Spelling) -> Iterator[str]:
    if fit.outcome == "diverged":
        smaller = f"a smaller {spelling.option('rate', '').rstrip(' =')}"
        cure = (
            smaller
            if fit.learner.step == "gradient"
            else spelling.option("prior", tighter_prior(fit.learner))
        )
        yield f"It diverged: fit again with {cure}, with fewer hidden spins, or with more data."
    elif fit.outcome != "converged":
        more = spelling.option("max_iterations", 2 * iteration_limit(fit.learner, fit.hidden))
        yield f"It has not converged: fit again with {more}{spelling.continued}."
        yield f"Missing: {fit.missing}"
    if fit.standard_error is not None:
        unknown = sum(int(np.isinf(error).sum()) for error in fit.standard_error)
        if unknown:
            cure = spelling.option("prior", tighter_prior(fit.learner))
            yield f"Couplings that the recording does not determine: {unknown}; {cure} would bound them."


def tighter_prior(learner: Learner) -> str:
    """A prior that bounds couplings more than the one that a fit had."""
    return "auto" if learner.prior == "none" else "1"
