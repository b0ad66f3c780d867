from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kising import Couplings, bond_scales, draw_couplings, simulate
from kising.blocks import shapes
from kising.model import as_couplings, as_spins
from kising.seeds import random_stream


@given(st.integers(1, 30), st.integers(0, 10), st.integers(0, 2**32))
def test_shapes(visible: int, hidden: int, seed: int) -> None:
    couplings = draw_couplings(visible, hidden, hidden_coupling=1.0, seed=seed)
    assert {name: x.shape for name, x in couplings._asdict().items()} == shapes(visible, hidden)
    assert all(x.dtype == np.float64 for x in couplings)
    assert not couplings.h.any()
    assert couplings == Couplings(couplings.J, couplings.K, couplings.L, M=couplings.M)


@pytest.mark.parametrize("bonds", ["gaussian", "binary"])
@pytest.mark.parametrize("connectivity", [0.1, 0.5, 1.0])
def test_ensemble_has_the_connectivity_and_spread_asked_for(bonds: str, connectivity: float) -> None:
    couplings = draw_couplings(200, 100, strength=0.7, connectivity=connectivity, bonds=bonds, seed=1)
    scales = bond_scales(200, 100, strength=0.7, connectivity=connectivity)
    for block, sd in zip(couplings[:3], scales[:3], strict=True):
        present = block[block != 0]
        n = block.size
        # Five standard errors of a binomial fraction, of a variance and of a mean.
        assert abs(present.size / n - connectivity) <= 5 * np.sqrt(connectivity * (1 - connectivity) / n)
        assert np.mean(present**2) == pytest.approx(sd**2, rel=5 * np.sqrt(2 / present.size))
        assert abs(present.mean()) < 5 * sd / np.sqrt(present.size)
        if bonds == "binary":
            np.testing.assert_allclose(np.abs(present), sd)


def test_scales_are_those_of_the_model() -> None:
    scales = bond_scales(80, 8, strength=2.0, connectivity=0.1)
    assert pytest.approx(2 / np.sqrt(2 * 80 * 0.1)) == scales.J
    assert pytest.approx(2 / np.sqrt(2 * 8 * 0.1)) == scales.K
    assert pytest.approx(2 / np.sqrt(80 * 0.1)) == scales.L


def test_biases_are_drawn_after_the_bonds_and_leave_them_alone() -> None:
    plain, biased = (draw_couplings(400, 300, bias=bias, seed=3) for bias in (0.0, 0.7))
    assert biased.only(()) == plain.only(())
    for x in (biased.h, biased.b):
        assert np.std(x) == pytest.approx(0.7, rel=5 * np.sqrt(1 / (2 * x.size)))
    assert bond_scales(400, 300, strength=1.0, connectivity=1.0, bias=0.7)[3:5] == (0.7, 0.7)


@pytest.mark.parametrize("bonds", ["gaussian", "binary"])
def test_hidden_couplings_are_drawn_last_and_leave_the_others_alone(bonds: str) -> None:
    how = {"connectivity": 0.4, "strength": 2.0, "bias": 0.3, "bonds": bonds}
    plain, coupled = (draw_couplings(5, 200, **how, hidden_coupling=r, seed=3) for r in (0.0, 0.5))
    assert plain.M.shape == (200, 0)
    assert coupled.only(("h", "b")) == plain.only(("h", "b"))
    present = coupled.M[coupled.M != 0]
    assert present.size / coupled.M.size == pytest.approx(0.4, abs=5 * np.sqrt(0.24 / coupled.M.size))
    scale = 0.5 * 2.0 / np.sqrt(2 * 200 * 0.4)
    assert np.sqrt(np.mean(present**2)) == pytest.approx(scale, rel=5 * np.sqrt(1 / present.size))
    found = bond_scales(5, 200, strength=2.0, connectivity=0.4, hidden_coupling=0.5)
    assert pytest.approx(scale) == found.M
    assert pytest.approx(found.K) == bond_scales(5, 200, strength=2.0, connectivity=0.4).M


def test_optional_blocks_are_empty_or_zero_where_they_are_absent() -> None:
    bare = Couplings(np.eye(3), np.ones((3, 2)), np.ones((2, 3)))
    assert [x.shape for x in bare[3:]] == [(3,), (2,), (3, 0), (2, 0), (2, 0)]
    assert bare.with_M.M.shape == (2, 2)
    assert not bare.with_M.M.any()
    coupled = bare._replace(M=-np.ones((2, 2)))
    assert coupled.lean.M.shape == coupled.filled.M.shape == coupled.only(("M",)).M.shape == (2, 2)
    assert coupled.only(("h", "b")).M.shape == bare.with_M.lean.M.shape == (2, 0)
    assert coupled.without_zero_M == coupled.with_M == coupled
    assert (coupled.couples_slices, bare.couples_slices) == (True, False)
    assert bare.with_M.without_zero_M == bare
    # Zero couplings are the same as none.
    assert simulate(bare, 50, seed=1) == simulate(bare.with_M, 50, seed=1)
    assert simulate(bare, 50, seed=1) != simulate(coupled, 50, seed=1)


def test_same_seed_same_network_and_another_seed_another() -> None:
    first, again, other = (draw_couplings(5, 2, seed=s) for s in (3, 3, 4))
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert not np.array_equal(first.J, other.J)


def test_nothing_is_random_without_a_seed() -> None:
    with pytest.raises(ValueError, match="explicit seed"):
        draw_couplings(5, 2, seed=None)  # type: ignore[arg-type]


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_shorter_recording_is_a_prefix_of_a_longer_one(one: int, other: int) -> None:
    couplings = draw_couplings(4, 2, seed=1)
    short, long = (simulate(couplings, length, seed=9) for length in sorted((one, other)))
    n = len(short.visible)
    assert np.array_equal(short.visible, long.visible[:n])
    assert np.array_equal(short.hidden, long.hidden[:n])


def test_transitions_have_the_probabilities_of_the_model() -> None:
    couplings = draw_couplings(3, 2, strength=1.5, seed=5)
    length = 400_000
    recording = simulate(couplings, length, seed=6)
    s, sigma = recording.visible.astype(float), recording.hidden.astype(float)
    assert set(np.unique(recording.visible)) == {-1, 1}
    f = s @ couplings.J.T + sigma @ couplings.K.T
    b = s @ couplings.L.T
    # Given the state before it, a spin less its mean is noise: its products with anything of that state
    # average to zero.
    for spin, field in ((s, f), (sigma, b)):
        noise = spin[1:] - np.tanh(field[:-1])
        state = np.hstack([s, sigma])[:-1]
        assert np.abs(noise.T @ state / length).max() < 5 / np.sqrt(length)
        assert np.abs(np.mean(noise**2 - (1 - np.tanh(field[:-1]) ** 2), axis=0)).max() < 5 / np.sqrt(length)


@pytest.mark.parametrize(("visible", "hidden"), [(5, 2), (27, 4), (28, 4), (40, 7), (60, 3)])
def test_every_step_is_what_its_fields_and_draws_say(visible: int, hidden: int) -> None:
    """Sizes with and without tables for groups of spins, and that groups and vectors divide or do not."""
    weights = np.random.default_rng(4)
    couplings = draw_couplings(visible, hidden, bias=0.5, hidden_coupling=1.0, seed=8)._replace(
        F=weights.standard_normal((visible, 2)), G=weights.standard_normal((hidden, 2))
    )
    u = weights.standard_normal((60, 2))
    recording = simulate(couplings, 60, covariates=u, seed=9)
    draws = random_stream(9)
    first = np.where(draws.random(visible + hidden) < 0.5, -1, 1)
    np.testing.assert_array_equal(np.hstack([recording.visible[0], recording.hidden[0]]), first)
    uniform = draws.random((59, visible + hidden))
    for t in range(59):
        s, sigma = recording.visible[t], recording.hidden[t]
        field = np.hstack(
            [
                couplings.h + couplings.F @ u[t] + couplings.J @ s + couplings.K @ sigma,
                couplings.b + couplings.G @ u[t] + couplings.L @ s + couplings.M @ sigma,
            ]
        )
        expected = np.where(uniform[t] < 1 / (1 + np.exp(-2 * field)), 1, -1)
        np.testing.assert_array_equal(
            np.hstack([recording.visible[t + 1], recording.hidden[t + 1]]), expected
        )


def test_extreme_couplings_simulate_without_complaint() -> None:
    couplings = Couplings(*(x * 1e308 for x in draw_couplings(3, 2, bonds="binary", seed=1)))
    assert set(np.unique(simulate(couplings, 100, seed=2).visible)) <= {-1, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"visible": 0}, "visible=0: 0 is too small; allowed: whole numbers from 1"),
        ({"hidden": -1}, "hidden=-1: -1 is too small; allowed: whole numbers from 0"),
        ({"hidden": -1, "visible": 1.5}, "visible=1.5: 1.5 is not a whole number.*; hidden=-1: "),
        ({"bias": -0.1}, "bias=-0.1: -0.1 is out of range"),
        ({"connectivity": 0.0}, "connectivity"),
        ({"connectivity": 1.5}, "connectivity"),
        ({"strength": float("nan")}, "strength"),
        ({"bonds": "cauchy"}, "allowed: gaussian, binary"),
    ],
)
def test_impossible_networks_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_couplings(**({"visible": 3, "hidden": 2, "seed": 0} | arguments))


def test_misfits_are_named() -> None:
    J, K, L, *_ = draw_couplings(3, 2, seed=0)
    with pytest.raises(ValueError, match=r"with K \(Nv, Nh\) = \(3, 2\), L is \(3, 2\), not \(2, 3\)"):
        as_couplings(Couplings(J, K, L.T))
    with pytest.raises(ValueError, match="K holds NaN"):
        as_couplings(Couplings(J, K * np.nan, L))
    with pytest.raises(ValueError, match="step 2, spin 1 is 0"):
        as_spins(np.array([[1, 1], [1, -1], [1, 0], [1, 1]]))
    with pytest.raises(ValueError, match="spins must be -1 or \\+1"):
        as_spins(np.full((4, 2), np.nan))
    with pytest.raises(ValueError, match="at least 3 steps"):
        as_spins(np.ones((2, 4)))
    with pytest.raises(ValueError, match="5 visible spins, the couplings 3"):
        as_spins(np.ones((9, 5)), width=3)


def test_memory_of_a_simulation_is_that_of_its_spins() -> None:
    couplings = draw_couplings(20, 4, seed=1)
    simulate(couplings, 10, seed=2)
    length = 200_000
    tracemalloc.start()
    try:
        simulate(couplings, length, seed=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * length + 1_000_000


def test_weights_of_inputs_on_one_kind_of_spins_are_enough() -> None:
    J, K, L = np.zeros((3, 3)), np.zeros((3, 2)), np.zeros((2, 3))
    F, G = np.ones((3, 4)), np.ones((2, 4))
    np.testing.assert_array_equal(Couplings(J, K, L, F=F).G, np.zeros((2, 4)))
    np.testing.assert_array_equal(Couplings(J, K, L, G=G).F, np.zeros((3, 4)))
    assert Couplings(J, K, L).F.shape == (3, 0)
    inputs = np.random.default_rng(1).standard_normal((20, 4))
    both = simulate(Couplings(J, K, L, F=F, G=0 * G), 20, covariates=inputs, seed=3)
    alone = simulate(Couplings(J, K, L, F=F), 20, covariates=inputs, seed=3)
    np.testing.assert_array_equal(alone.visible, both.visible)
