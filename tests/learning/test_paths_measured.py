"""What a user may expect of sampling along paths, measured at length. With -s these tests print numbers:

pytest -m slow -s tests/learning/test_paths_measured.py
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from kising import Couplings, Fit, bond_scales, draw_couplings, fit, simulate
from kising.errors import InputError, RecordingWarning
from kising.learning.scores import align
from kising.model import BondScales
from kising.recordings import as_segments

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(f"ignore::{RecordingWarning.__module__}.{RecordingWarning.__name__}"),
]
NV, NH, BIAS = 20, 4, 0.3
BLOCKS = ("J", "K", "L", "h", "b", "M")
SCALES = bond_scales(NV, NH, strength=1.0, connectivity=1.0, bias=BIAS, hidden_coupling=1.0)


def drawn(network: int, length: int, *, coupled: float = 1.0) -> tuple[Couplings, np.ndarray]:
    truth = draw_couplings(NV, NH, bias=BIAS, hidden_coupling=coupled, seed=(10, network))
    return truth, simulate(truth, length, seed=(11, network)).visible


def learned(visible: np.ndarray, truth: Couplings, network: int, **options) -> Fit:
    how = {"truth": truth, "scales": SCALES, "threads": 1, "seed": (12, network, 0)}
    return fit(visible, NH, **how, **options)


def with_gaps(visible: np.ndarray, share: float, seed) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(visible.shape) < share, np.nan, visible)


def test_samples_learn_as_well_as_exact_averages(capsys: pytest.CaptureFixture[str]) -> None:
    lengths, networks = (1_000, 10_000, 100_000), range(6)
    errors: dict[str, list[list[dict[str, float]]]] = {"exact": [], "gibbs": []}
    unfinished: list[str] = []
    for length in lengths:
        seconds, stalled = dict.fromkeys(errors, 0.0), []
        for rows in errors.values():
            rows.append([])
        for network in networks:
            truth, visible = drawn(network, length)
            for estimator, rows in errors.items():
                start = time.thread_time()
                found = learned(visible, truth, network, hidden_couplings=True, estimator=estimator)
                stalled += [f"{estimator}, network {network}: {found.missing}"] * (found.outcome == "stalled")
                rows[-1].append(found.rmse)
                seconds[estimator] += time.thread_time() - start
        with capsys.disabled():
            print(f"\nRMSE, (20, 4) with M and biases, T = {length}, six networks")
            for name, rows in errors.items():
                print(f"  {name:6}", *(f"{x} {v:.4f}" for x, v in _means(rows[-1]).items()),
                      f"  {seconds[name]:.0f} s")  # fmt: skip
            print("  ratio ", *(f"{x} {v:.3f} " for x, v in _ratios(errors, -1).items()))
            print("  stalled:", *(stalled or ["none"]), sep="\n    ")
        unfinished += stalled
    slopes = {
        name: {x: _slope(lengths, np.array([[row[x] for row in at] for at in rows])) for x in BLOCKS}
        for name, rows in errors.items()
    }
    with capsys.disabled():
        for name, found in slopes.items():
            print(f"  slope, {name:6}", *(f"{x} {v:.3f} " for x, v in found.items()))
    assert not unfinished
    assert all(max(_ratios(errors, k).values()) < 1.05 for k in range(len(lengths)))
    assert all(abs(slope + 0.5) < 0.1 for found in slopes.values() for slope in found.values())


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    return {x: float(np.mean([row[x] for row in rows])) for x in BLOCKS}


def _ratios(errors: dict[str, list[list[dict[str, float]]]], k: int) -> dict[str, float]:
    exact, gibbs = (_means(errors[name][k]) for name in ("exact", "gibbs"))
    return {x: gibbs[x] / exact[x] for x in BLOCKS}


def _slope(lengths: tuple[int, ...], errors: np.ndarray) -> float:
    """The mean over networks of the slope of log RMSE on log T; errors are (lengths, networks)."""
    return float(np.polyfit(np.log(lengths), np.log(errors), 1)[0].mean())


def test_one_start_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where averages are sampled; fits are compared by their exact likelihood."""
    behind = []
    for network in range(6):
        truth, visible = drawn(network, 1_000)
        nats = []
        for start in range(4):
            how = {
                "hidden_couplings": True,
                "estimator": "gibbs",
                "truth": truth,
                "scales": SCALES,
                "threads": 1,
            }
            found = fit(visible, NH, seed=(12, network, start), **how)
            nats.append(found.training_log_likelihood * 998)
        behind += [max(nats) - x for x in nats]
    low = sum(x > 5 for x in behind)
    with capsys.disabled():
        print(
            f"\n24 random starts of sampled fits at T = 1000, four on each of six networks: {low} end more than 5 nats "
            f"below the best of their network; the lowest {max(behind):.2f} nats, the median {np.median(behind):.2f}"
        )
    assert low <= 1


def test_the_setting_of_the_peer(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(40)
    n, nv, nh = 40, 25, 15
    W = 4.0 / np.sqrt(n) * rng.standard_normal((n, n))
    truth = Couplings(W[:nv, :nv], W[:nv, nv:], W[nv:, :nv], M=W[nv:, nv:])
    visible, hidden = simulate(truth, 6400, seed=41)
    start = time.thread_time()
    how = {"hidden_couplings": True, "bias": False, "threads": 1}
    found = fit(visible, nh, seed=42, truth=truth, **how)
    seconds = time.thread_time() - start
    matching = align(found.couplings, truth, bond_scales(nv, nh, strength=1.0, connectivity=1.0))
    x = matching.apply(found.couplings)
    rmse = {b: float(np.sqrt(np.mean((getattr(x, b) - getattr(truth, b)) ** 2))) for b in "JKLM"}
    states = found.hidden_states(visible)[:, matching.order] * matching.signs
    right = float(np.mean(np.sign(states) == hidden[1:-1]))
    with capsys.disabled():
        print(
            f"\n25 + 15 hidden spins, g = 4, T = 6400: {seconds:.1f} s, {found.iterations} iterations, {found.outcome}"
        )
        print(" ", *(f"{b} {v:.3f}" for b, v in rmse.items()), f" hidden states right {100 * right:.1f}%")
    assert right > 0.97
    assert found.outcome == "converged"


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_what_missing_entries_cost(share: float, capsys: pytest.CaptureFixture[str]) -> None:
    rows: dict[str, list[float]] = {"complete": [], "sampled": [], "dropped": []}
    left = []
    for network in range(6):
        truth, visible = drawn(network, 10_000, coupled=0.0)
        gaps = with_gaps(visible, share, (13, network))
        rows["complete"].append(learned(visible, truth, network).rmse["J"])
        rows["sampled"].append(learned(gaps, truth, network).rmse["J"])
        try:
            kept = as_segments(gaps, missing="drop")
        except InputError:  # no three steps in a row are complete
            left.append(0)
            continue
        left.append(kept.n_slices)
        rows["dropped"].append(learned(kept, truth, network).rmse["J"])
    means = {name: float(np.mean(x)) for name, x in rows.items() if x}
    with capsys.disabled():
        print(f"\nRMSE of J, (20, 4) with biases, T = 10,000, {100 * share:.0f}% missing, six networks:",
              ", ".join(f"{name} {x:.3f} (×{x / means['complete']:.2f})" for name, x in means.items()))  # fmt: skip
        print("  slices that dropping leaves:", *left)
    assert means["sampled"] < means["complete"] * (1.2 if share < 0.2 else 1.6)
    assert means["sampled"] < means.get("dropped", np.inf)


def flags_of(
    truth: Couplings, visible: np.ndarray, scales: BondScales, seed, **options
) -> dict[str, np.ndarray]:
    """For every coupling, whether its 95% interval holds the truth."""
    nh = truth.K.shape[1]
    found = fit(visible, nh, seed=seed, threads=1, estimator="gibbs", errors=True, **options)
    matching = align(found.couplings, truth, scales)
    x, errors = matching.apply(found.couplings), matching.apply(found.standard_error)
    return {
        name: (np.abs(getattr(x, name) - getattr(truth, name)) < 1.96 * np.abs(getattr(errors, name))).ravel()
        for name in found.converged
    }


# Biases of hidden spins are few: many small networks tell more about them than few large ones.
COVERED = {"(20, 4)": (20, 4, 10_000, 1.0, 12), "(8, 2)": (8, 2, 4_000, 1.5, 100)}


@pytest.mark.parametrize(("coupled", "share"), [(1.0, 0.1), (1.0, 0.0), (0.0, 0.2)])
@pytest.mark.parametrize("size", COVERED)
def test_intervals_hold_the_truth(
    size: str,
    coupled: float,
    share: float,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Errors from samples, also where exact ones are possible.
    monkeypatch.setattr("kising.learning.errors.standard.exact_errors", lambda couplings: False)
    nv, nh, length, strength, networks = COVERED[size]
    scales = bond_scales(nv, nh, strength=strength, connectivity=1.0, bias=BIAS, hidden_coupling=1.0)
    flags: list[dict[str, np.ndarray]] = []
    for network in range(100, 100 + networks):
        truth = draw_couplings(
            nv, nh, strength=strength, bias=BIAS, hidden_coupling=coupled, seed=(10, network)
        )
        visible = simulate(truth, length, seed=(11, network)).visible
        data = with_gaps(visible, share, (13, network)) if share else visible
        flags.append(flags_of(truth, data, scales, (12, network, 0), hidden_couplings=coupled > 0))
    shares = {x: np.concatenate([row[x] for row in flags]) for x in flags[0]}
    with capsys.disabled():
        gaps = f"{100 * share:.0f}% missing"
        print(f"\ncoverage from samples, {size}, M {coupled:g}, {gaps}, T = {length}, {networks} networks:")
        print(" ", ", ".join(f"{x} {v.mean():.3f} of {v.size}" for x, v in shares.items()))
    assert all(abs(v.mean() - 0.95) < 0.02 + 2 * np.sqrt(0.05 * 0.95 / v.size) for v in shares.values())
