from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.brute_force import small_network

from kising import Couplings, fit, load_fit
from kising.errors import InputError
from kising.learning.fit import Fit
from kising.learning.fitted.advice import FLAGS
from kising.learning.fitted.summary import summary

RECORDING = small_network(7, visible=6, hidden=2, length=2000)[1]


def fitted(**options) -> Fit:
    return fit(RECORDING, 2, **{"seed": 1, "max_iterations": 400, **options})


@pytest.mark.parametrize("errors", [True, False])
@pytest.mark.parametrize(
    "names",
    [None, tuple(letter * 60 for letter in "abcdef"), tuple(f"{letter}\n{letter}" for letter in "abcdef")],
)
def test_a_summary_fits_one_screen(errors: bool, names: tuple[str, ...] | None) -> None:
    found = replace(fitted(errors=errors, max_iterations=5), names=names, seed=tuple(range(100)))
    lines = found.summary().splitlines()
    assert len(lines) == len(replace(found, names=None).summary().splitlines()) <= 24
    assert max(map(len, lines)) <= 100


def test_it_says_what_was_fitted_and_how_it_ended() -> None:
    found = fitted(errors=True)
    text = found.summary()
    assert found.outcome == "converged"
    assert "6 visible and 2 hidden spins to 2000 time steps" in text
    assert f"estimator exact, seed 1: converged after {found.iterations} iterations" in text
    assert f"log-likelihood {found.log_likelihood():.5f} nats per slice" in text
    assert "(exact)" in text
    assert f"{np.median(found.standard_error.K):.3g}" in text
    assert "not converged" not in text


def test_the_strongest_edges_come_first() -> None:
    found = fitted(errors=True, max_iterations=5)
    J, error = found.couplings.J, found.standard_error.J
    target, source = np.unravel_index(np.argmax(np.abs(J / error)), J.shape)
    lines = found.summary().splitlines()
    (head,) = [k for k, line in enumerate(lines) if line.startswith("strongest edges")]
    assert lines[head + 1].split()[:5] == ["J", str(target), "<-", str(source), f"{J[target, source]:.4f}"]
    # Standard errors decide, not values.
    loud = found.standard_error._replace(J=np.where(J[target, source] == J, 1e3, error))
    first = replace(found, standard_error=loud).summary().splitlines()[head + 1].split()
    assert first[:4] != ["J", str(target), "<-", str(source)]
    bare = replace(found, standard_error=None).summary()
    assert "no standard errors: see with_errors" in bare


def test_it_says_what_to_do_about_a_fit_that_did_not_converge() -> None:
    assert "max_iterations=10, or continue with start=fit.couplings" in fitted(max_iterations=5).summary()
    reckless = fitted(step="gradient", rate=1e4, momentum=0.99)
    assert reckless.outcome == "diverged"
    assert "It diverged: fit again with a smaller rate" in reckless.summary()
    found = fitted(errors=True)
    K = found.standard_error.K.copy()
    K[0] = np.inf
    unknown = replace(found, standard_error=found.standard_error._replace(K=K))
    assert "does not determine: 2; prior=1" in unknown.summary()


@pytest.mark.parametrize("options", [{}, {"estimator": "gibbs", "max_iterations": 200}])
def test_errors_afterwards_are_those_of_asking_at_once(options) -> None:
    found = fitted(**options)
    assert (found.monte_carlo_error is not None) == (found.estimator == "gibbs")
    assert found.with_errors(RECORDING) == fitted(errors=True, **options)


def test_errors_afterwards_where_there_are_none() -> None:
    found = fitted(max_iterations=5)
    with pytest.raises(InputError, match="visible has 1999 steps, the training data had 2000"):
        found.with_errors(RECORDING[1:])
    with pytest.raises(
        InputError, match=r"errors: cannot be computed with learner.l1 or learner.decimate; leave"
    ):
        fitted(l1=1.0, max_iterations=5).with_errors(RECORDING)
    with pytest.raises(InputError, match="the fit diverged"):
        replace(found, outcome="diverged").with_errors(RECORDING)


def test_edges_of_a_fit() -> None:
    found = replace(fitted(errors=True), names=tuple("abcdef"))
    edges = found.edges()
    assert np.isfinite(edges[["value", "error", "z", "p", "q"]].to_numpy()).all()
    row = edges[(edges.block == "J") & (edges.target == "b") & (edges.source == "d")].iloc[0]
    assert (row.value, row.error) == (found.couplings.J[1, 3], found.standard_error.J[1, 3])
    assert (edges.q >= edges.p).all()
    assert replace(found, standard_error=None).edges()[["error", "z", "p", "q"]].isna().all(axis=None)
    undetermined = Couplings(*(np.full(x.shape, np.inf) for x in found.couplings))
    assert (replace(found, standard_error=undetermined).edges()[["p", "q"]] == 1).all(axis=None)


def test_inputs_keep_their_names(tmp_path) -> None:
    inputs = pd.DataFrame(np.random.default_rng(2).standard_normal((2000, 2)), columns=["light", "sound"])
    found = fitted(covariates=inputs, max_iterations=3)
    edges = found.edges()
    assert list(edges[edges.block == "F"].source.unique()) == ["light", "sound"]
    assert list(edges[edges.block == "G"].source.unique()) == ["light", "sound"]
    assert "known inputs: light, sound" in found.summary()
    found.save(tmp_path / "fit.npz")
    assert load_fit(tmp_path / "fit.npz") == found
    plain = fitted(covariates=inputs.to_numpy(), max_iterations=3)
    assert list(plain.edges().query("block == 'F'").source.unique()) == ["u0", "u1"]


def test_advice_doubles_the_limit_that_the_fit_had() -> None:
    """`auto` samples missing entries: the limit is that of sampling, not that of exact averages."""
    found = replace(fitted(max_iterations=5), missing=None)
    for estimator, limit in (("exact", 300), ("gibbs", 4000)):
        learner = found.learner.model_copy(update={"max_iterations": None})
        at_limit = replace(found, estimator=estimator, learner=learner, iterations=limit)
        assert f"fit again with max_iterations={2 * limit}" in at_limit.summary()


def test_advice_is_written_as_flags_where_flags_are_used() -> None:
    text = summary(fitted(max_iterations=5), FLAGS)
    assert "It has not converged: fit again with --max-iterations 10." in text
    assert "no standard errors: fit with --errors" in text
    reckless = fitted(step="gradient", rate=1e4, momentum=0.99)
    assert "a smaller --rate, " in summary(reckless, FLAGS)
    assert "with a smaller rate, " in summary(reckless)


def test_inputs_count_among_the_couplings_that_have_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    couplings = 6 * 6 + 2 * 12 + 8  # J, K, L, h and b
    monkeypatch.setattr("kising.conflicts.LARGEST_ERROR_MATRIX", couplings)
    inputs = np.random.default_rng(2).standard_normal(2000)
    assert fitted(errors=True, max_iterations=2).standard_error is not None
    with pytest.raises(
        InputError, match=rf"with 1 known input, has {couplings + 8}; allowed: up to {couplings}"
    ):
        fitted(errors=True, max_iterations=2, covariates=inputs)
    with pytest.raises(InputError, match="with 1 known input"):
        fitted(max_iterations=2, covariates=inputs).with_errors(RECORDING, inputs)
