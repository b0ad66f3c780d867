"""How often the number of hidden spins is found, measured at length. With -s these tests print their tables:

pytest -m slow -s tests/learning/test_choice_measured.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kising import draw_couplings, fit, simulate
from kising.learning.folds import hold_out
from kising.learning.selection import Choice, choose_hidden
from kising.recordings import as_segments

pytestmark = pytest.mark.slow
VISIBLE, LENGTH, FOLDS, NETWORKS = 20, 10_000, 5, 10
CANDIDATES = (0, 1, 2, 3, 4, 6)


def chosen(spins: np.ndarray, candidates: tuple[int, ...], seed: int, **options: object) -> Choice:
    """The choice that a sweep makes, without its baselines, which have no part in it."""
    recording = as_segments(spins)
    rows = []
    for fold in range(FOLDS):
        part = hold_out(recording, fold, FOLDS)
        for hidden in candidates:
            found = fit(part.training, hidden, seed=seed, threads=1, **options)
            score = found.log_likelihood(part.held_out)
            rows.append({"model.hidden": hidden, "realization": fold, "held_out": score})
    return choose_hidden(rows)


def in_parallel(work, items) -> list:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, items))


def test_the_number_of_hidden_spins_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    def choice_of(case: tuple[int, int]) -> int:
        true, network = case
        truth = draw_couplings(VISIBLE, true, bias=0.3, seed=100 * true + network)
        spins = simulate(truth, LENGTH, seed=5000 + 100 * true + network).visible
        return chosen(spins, CANDIDATES, network).hidden

    numbers = (0, 2, 4)
    found = in_parallel(choice_of, [(true, network) for true in numbers for network in range(NETWORKS)])
    lines = [
        f"Nh chosen among {', '.join(map(str, CANDIDATES))}; ({VISIBLE}, Nh), g = 1, c = 1, biases 0.3, "
        f"T = {LENGTH}, {FOLDS} folds, {NETWORKS} networks",
        f"{'true Nh':>8}{'right':>7}{'smaller':>9}{'larger':>8}",
    ]
    right = {}
    for place, true in enumerate(numbers):
        own = np.array(found[place * NETWORKS : (place + 1) * NETWORKS])
        right[true] = int((own == true).sum())
        lines.append(f"{true:>8}{right[true]:>7}{int((own < true).sum()):>9}{int((own > true).sum()):>8}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert min(right.values()) >= 0.9 * NETWORKS, right


def test_independent_spikes_need_no_hidden_spins(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates of 2% to 15%, no interactions."""

    def choice_of(seed: int) -> int:
        rng = np.random.default_rng(seed)
        return chosen(
            rng.random((LENGTH, VISIBLE)) < np.linspace(0.02, 0.15, VISIBLE), (0, 1, 2), seed
        ).hidden

    found = in_parallel(choice_of, range(NETWORKS))
    with capsys.disabled():
        print(f"\nindependent spikes, p = 0.02-0.15, {VISIBLE} units, T = {LENGTH}: Nh chosen {found}")
    assert found == [0] * NETWORKS
