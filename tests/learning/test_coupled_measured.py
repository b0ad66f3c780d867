"""What a user may expect of couplings M among hidden spins, measured at length. With -s these tests print numbers:

pytest -m slow -s tests/learning/test_coupled_measured.py
"""

from __future__ import annotations

import numpy as np
import pytest

from kising import Couplings, Fit, bond_scales, draw_couplings, fit, simulate
from kising.learning.scores import align

pytestmark = pytest.mark.slow
NV, NH, BIAS = 20, 4, 0.3
LEARNED = ("J", "K", "L", "h", "b", "M")
SCALES = bond_scales(NV, NH, strength=1.0, connectivity=1.0, bias=BIAS, hidden_coupling=1.0)


def learned(network: int, length: int, *, start: int = 0, **options) -> tuple[Couplings, Fit]:
    truth = draw_couplings(NV, NH, bias=BIAS, hidden_coupling=1.0, seed=(10, network))
    visible = simulate(truth, length, seed=(11, network)).visible
    how = {"truth": truth, "scales": SCALES, "hidden_couplings": True, "estimator": "exact", "threads": 1}
    return truth, fit(visible, NH, seed=(12, network, start), **{**how, "prior": "none"} | options)


@pytest.mark.parametrize("prior", ["auto", "none"])
def test_errors_of_every_block_fall_as_one_over_root_t(
    prior: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths, networks = (1_000, 10_000, 100_000), range(6)
    found = [learned(n, length, prior=prior)[1] for n in networks for length in lengths]
    assert {fitted.outcome for fitted in found} == {"converged"}
    lines = [
        f"RMSE by block, (20, 4), biases {BIAS}, M as strong as K, exact, prior {prior}, six networks, T = {lengths}"
    ]
    slopes, last = {}, {}
    for block in LEARNED:
        errors = np.array([fitted.rmse[block] for fitted in found]).reshape(len(networks), len(lengths))
        each = [np.polyfit(np.log(lengths), np.log(row), 1)[0] for row in errors]
        slopes[block] = float(np.mean(each))
        last[block] = float(np.mean(np.log10(errors[:, 2] / errors[:, 1])))
        shown = "  ".join(f"{x:.4f}" for x in errors.mean(axis=0))
        spread = np.std(each, ddof=1) / np.sqrt(len(each))
        lines.append(
            f"  {block}  {shown}  slope {slopes[block]:.3f} ± {spread:.3f}, from 10^4 on {last[block]:.3f}"
        )
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    # 600 couplings from a thousand steps are not yet in the range of large T: without a prior, errors of what such a
    # recording hardly determines are larger there than 1/√T says.
    judged = slopes if prior == "auto" else last
    assert all(abs(slope + 0.5) < 0.1 for slope in judged.values()), judged


@pytest.mark.parametrize(("length", "networks"), [(10_000, 60)])
def test_intervals_of_every_block_hold_the_truth(
    length: int, networks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    inside: dict[str, list[np.ndarray]] = {name: [] for name in LEARNED}
    for network in range(100, 100 + networks):
        truth, found = learned(network, length, errors=True)
        matching = align(found.couplings, truth, SCALES)
        x = matching.apply(found.couplings)
        errors = Couplings(*map(np.abs, matching.apply(found.standard_error)))
        for name in LEARNED:
            off = np.abs(getattr(x, name) - getattr(truth, name))
            inside[name].append((off < 1.96 * getattr(errors, name)).ravel())
    shares = {name: np.concatenate(flags) for name, flags in inside.items()}
    with capsys.disabled():
        print(f"\ncoverage of 95% intervals, (20, 4), T = {length}, {networks} networks: "
              + ", ".join(f"{k} {x.mean():.3f} of {x.size}" for k, x in shares.items()))  # fmt: skip
    assert all(abs(x.mean() - 0.95) < 0.02 + 2 * np.sqrt(0.05 * 0.95 / x.size) for x in shares.values())


def test_one_start_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    behind = []
    for network in range(6):
        nats = [learned(network, 1_000, start=k)[1].training_log_likelihood * 998 for k in range(4)]
        behind += [max(nats) - x for x in nats]
    low = sum(x > 5 for x in behind)
    with capsys.disabled():
        print(
            f"\n24 random starts at T = 1000, four on each of six networks: {low} end more than 5 nats below "
            f"the best of their network; the lowest {max(behind):.2f} nats"
        )
    assert low <= 1


def test_a_prior_helps_where_recordings_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        prior: [learned(network, 1_000, prior=prior)[1].rmse for network in range(6)]
        for prior in ("none", 3.0, 1.0)
    }
    means = {
        prior: {block: float(np.mean([rmse[block] for rmse in rows])) for block in LEARNED}
        for prior, rows in found.items()
    }
    with capsys.disabled():
        for prior, errors in means.items():
            shown = ", ".join(f"{block} {x:.3f}" for block, x in errors.items())
            print(f"\nRMSE at T = 1000, six networks, prior {prior}: {shown}", end="")
        print()
    assert all(means[1.0][block] < means[3.0][block] < means["none"][block] for block in LEARNED)
