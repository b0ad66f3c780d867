"""How fast samples along paths forget where they came from, on four networks (docs/maths.md, "The larger model"). With
-s this prints the table:

pytest -m slow -s tests/estimators/paths/test_mixing.py
"""

from __future__ import annotations

import numpy as np
import pytest

from kising import Couplings, draw_couplings, simulate
from kising.estimators.paths import sampler
from kising.estimators.paths.network import network_of
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.timeline import Timeline
from kising.estimators.slices import Slices
from kising.kernels.counter import key_of

pytestmark = pytest.mark.slow
NV, NH, STEPS, SWEEPS, SETTLING = 20, 4, 1000, 3000, 200
SEEDS = range(7, 16)
RING = 1.5 * np.roll(np.eye(NH), 1, axis=0)
NETWORKS = {
    "g=1, random M": (1.0, None),
    "K, L x0.3, M_aa = 1.5": (0.3, 1.5 * np.eye(NH)),
    "K, L x0.3, ring of 1.5": (0.3, RING),
    "K, L x0.3, dense random M x3": (0.3, 3.0),
}


def network(name: str, seed: int) -> Couplings:
    share, M = NETWORKS[name]
    drawn = draw_couplings(NV, NH, hidden_coupling=1.0, seed=seed)
    M = drawn.M if M is None else M * drawn.M if np.isscalar(M) else M
    return drawn._replace(K=share * drawn.K, L=share * drawn.L, M=M)


def correlation_time(samples: np.ndarray) -> float:
    """1 + 2 Σ ρ(k) in sweeps, of all spins together: Σ_i over their covariances, until it is lost in noise."""
    varying = samples - samples.mean(axis=0)
    n = len(varying)
    spectrum = np.fft.rfft(varying, 2 * n, axis=0)
    found = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:n].sum(axis=1)
    rho = found / found[0]
    time = 1.0
    for k in range(1, n):
        time += 2.0 * rho[k]
        if k > 6 * time:
            break
    return float(time)


def measured(couplings: Couplings) -> float:
    """The correlation time of sweeps at the true couplings."""
    timeline = Timeline.of(Slices.of([simulate(couplings, STEPS, seed=8).visible]))
    key = key_of(9)
    states = first_states(timeline, NH, key)
    drawn = np.empty((SWEEPS, 200 * NH), np.float32)
    for k in range(SETTLING + SWEEPS):
        sweep(network_of(couplings), timeline, states, key=key, iteration=k)
        if k >= SETTLING:
            drawn[k - SETTLING] = states[100:900:4, NV:].ravel()
    return correlation_time(drawn)


def test_autocorrelation_times(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    medians: dict[str, dict[str, float]] = {}
    made = sampler.tables_of
    with capsys.disabled():
        print("\nintegrated autocorrelation times of hidden spins, in sweeps, (20, 4) at the true couplings: median of "
              f"{len(SEEDS)} networks, and all")  # fmt: skip
    for name in NETWORKS:
        row = medians[name] = {}
        for move, tilted in (("path", False), ("tilt", True), ("in turn", None)):
            monkeypatch.setattr(
                sampler,
                "tables_of",
                lambda network, *, tilted, always=tilted: made(
                    network, tilted=tilted if always is None else always
                ),
            )
            times = sorted(measured(network(name, seed)) for seed in SEEDS)
            row[move] = float(np.median(times))
            with capsys.disabled():
                print(f"  {name:30} {move:8} {row[move]:6.1f}   ", *(f"{x:.1f}" for x in times))
    assert medians["g=1, random M"]["in turn"] < 1.5
    assert medians["K, L x0.3, M_aa = 1.5"]["in turn"] < 1.5
    assert medians["K, L x0.3, ring of 1.5"]["in turn"] < 2
    # The slowest of many paths counts here: how slow it is depends on the network by a factor of ten.
    assert medians["K, L x0.3, dense random M x3"]["in turn"] < 13
