"""A fit in plain text, on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kising.learning.fitted.advice import PYTHON, Spelling, cure, tighter_prior
from kising.learning.fitted.edges import labels, present_blocks

if TYPE_CHECKING:
    from kising.learning.fit import Fit

WIDTH = 100
STRONGEST = 6
# Columns for the name of a unit.
LONGEST_NAME = 24


def summary(fit: Fit, spelling: Spelling = PYTHON) -> str:
    """At most 24 lines of at most 100 columns."""
    lines = [*_about(fit), "", *_blocks(fit), "", *_strongest(fit, spelling), *_advice(fit, spelling)]
    return "\n".join(line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in lines)


def _about(fit: Fit) -> Iterator[str]:
    nv, nh = fit.couplings.K.shape
    yield f"kising fit of {nv} visible and {nh} hidden spins to {fit.steps} time steps"
    inputs = fit.couplings.F.shape[1]
    if inputs:
        known = ", ".join(map(_short, labels("input", inputs, None, fit.input_names)))
        yield f"known inputs: {known}"
    yield f"estimator {fit.estimator}, seed {fit.seed}: {fit.outcome} after {fit.iterations} iterations"
    yield f"log-likelihood {fit.training_log_likelihood:.5f} nats per slice of the training data ({fit.likelihood})"


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
    if fit.outcome != "converged":
        ended = "It diverged" if fit.outcome == "diverged" else "It has not converged"
        yield f"{ended}: fit again with {cure(fit, spelling)}."
    if fit.missing:
        yield f"Missing: {fit.missing}"
    if fit.standard_error is not None:
        unknown = sum(int(np.isinf(error).sum()) for error in fit.standard_error)
        if unknown:
            bound = spelling.option("prior", tighter_prior(fit.learner))
            yield f"Couplings that the recording does not determine: {unknown}; {bound} would bound them."
