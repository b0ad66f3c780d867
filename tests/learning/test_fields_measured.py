"""What a user may expect of biases and inputs, measured at length. With -s these tests print their numbers:

pytest -m slow -s tests/learning/test_fields_measured.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kising import Couplings, Fit, bond_scales, draw_couplings, fit, simulate
from kising.learning.scores import align

pytestmark = pytest.mark.slow
NV, NH, BIAS, INPUT = 20, 4, 0.3, 0.3
LEARNED = [name for name in Couplings._fields if name != "M"]
SCALES = bond_scales(NV, NH, strength=1.0, connectivity=1.0, bias=BIAS)._replace(F=INPUT, G=INPUT)


def network(seed: int, connectivity: float = 1.0) -> Couplings:
    drawn = draw_couplings(NV, NH, bias=BIAS, connectivity=connectivity, seed=seed)
    rng = np.random.default_rng(1000 + seed)
    return drawn._replace(F=INPUT * rng.standard_normal((NV, 2)), G=INPUT * rng.standard_normal((NH, 2)))


def recorded(truth: Couplings, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    u = np.random.default_rng(2000 + seed).standard_normal((length, 2))
    return simulate(truth, length, covariates=u, seed=seed).visible, u


def learned(seed: int, length: int, connectivity: float = 1.0, **options) -> tuple[Couplings, Fit]:
    truth = network(seed, connectivity)
    visible, u = recorded(truth, length, seed)
    return truth, fit(visible, NH, covariates=u, truth=truth, scales=SCALES, seed=seed, threads=1, **options)


def in_parallel(work, items) -> list:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, items))


@pytest.mark.parametrize("estimator", ["exact", "gibbs"])
def test_errors_of_every_block_fall_as_one_over_root_t(
    estimator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths, networks = (1_000, 10_000, 100_000), range(16)
    found = in_parallel(
        lambda item: learned(*item, estimator=estimator, starts=3, max_iterations=600)[1].rmse,
        [(n, length) for n in networks for length in lengths],
    )
    lines = [f"RMSE by block, (20, 4), biases {BIAS}, two inputs, {estimator}, {len(networks)} networks"]
    slopes = {}
    for block in LEARNED:
        errors = np.array([rmse[block] for rmse in found]).reshape(len(networks), len(lengths))
        each = [np.polyfit(np.log(lengths), np.log(row), 1)[0] for row in errors]
        slopes[block] = float(np.mean(each))
        shown = "  ".join(f"{x:.4f}" for x in errors.mean(axis=0))
        lines.append(
            f"  {block}  {shown}  slope {slopes[block]:.3f} ± {np.std(each, ddof=1) / np.sqrt(len(each)):.3f}"
        )
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert all(abs(slope + 0.5) < 0.1 for slope in slopes.values()), slopes


def test_intervals_of_every_block_hold_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    def inside(seed: int) -> dict[str, np.ndarray]:
        truth, found = learned(seed, 10_000, errors=True, starts=3)
        matching = align(found.couplings, truth, SCALES)
        x = matching.apply(found.couplings)
        errors = Couplings(*map(np.abs, matching.apply(found.standard_error)))
        return {
            k: (np.abs(getattr(x, k) - getattr(truth, k)) < 1.96 * getattr(errors, k)).ravel()
            for k in LEARNED
        }

    found = in_parallel(inside, range(100, 140))
    shares = {k: np.concatenate([row[k] for row in found]) for k in LEARNED}
    with capsys.disabled():
        print("\ncoverage of 95% intervals, (20, 4), T = 10000, 40 networks: "
              + ", ".join(f"{k} {x.mean():.3f} of {x.size}" for k, x in shares.items()))  # fmt: skip
    assert all(abs(x.mean() - 0.95) < 0.02 + 2 * np.sqrt(0.05 * 0.95 / x.size) for x in shares.values())


def test_the_false_discovery_rate_is_the_nominal_one(capsys: pytest.CaptureFixture[str]) -> None:
    def discoveries(seed: int) -> tuple[int, int, int]:
        truth, found = learned(seed, 10_000, connectivity=0.2, errors=True, starts=3)
        edges = found.edges()
        chosen = (edges[edges.block == "J"].q < 0.1).to_numpy()
        true = (truth.J != 0).ravel()
        return (
            int(chosen.sum()),
            int((chosen & ~true).sum()),
            int((chosen & true).sum()) * 1000 // max(int(true.sum()), 1),
        )

    found = np.array(in_parallel(discoveries, range(200, 240)), dtype=float)
    rate, power = float(np.mean(found[:, 1] / np.maximum(found[:, 0], 1))), float(found[:, 2].mean() / 1000)
    with capsys.disabled():
        print(
            "\n40 networks (20, 4), c = 0.2, T = 10000, J with q < 0.1: "
            f"false discovery rate {rate:.3f}, power {power:.3f}"
        )
    assert rate <= 0.12
    assert power > 0.5


def test_independent_spikes_have_no_couplings(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(5)
    rates = rng.uniform(0.02, 0.15, 20)
    spikes = rng.random((20_000, 20)) < rates
    alone = fit(spikes, 0, errors=True, seed=1)
    z = (alone.couplings.J / alone.standard_error.J).ravel()
    spread, inside = np.sqrt(np.mean(z**2)), np.mean(np.abs(z) < 1.96)
    edges = alone.edges()
    smallest = edges[edges.block == "J"].q.min()
    with capsys.disabled():
        print(
            f"\nindependent spikes, p = 0.02-0.15, T = 20000: J/error has root mean square {spread:.3f}, "
            f"{inside:.3f} within 1.96; smallest q {smallest:.3f}"
        )
    assert 0.85 < spread < 1.15
