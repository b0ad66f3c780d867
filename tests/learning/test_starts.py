from __future__ import annotations

import numpy as np
import pytest

from kising import Couplings, bond_scales, draw_couplings, simulate
from kising.estimators.slices import Slices
from kising.learning.starts import fit_visible, from_data, from_signs
from kising.recordings import as_segments


def test_signs_keep_sign_and_zeros_and_randomise_magnitude() -> None:
    truth = draw_couplings(60, 20, connectivity=0.3, seed=1)
    scales = bond_scales(60, 20, strength=1.0, connectivity=0.3)
    start = from_signs(truth, scales, seed=2)
    assert [x.size for x in start[3:]] == [60, 20, 0, 0, 0]
    for x, true, sd in zip(start, truth, scales, strict=True):
        np.testing.assert_array_equal(np.sign(x), np.sign(true))
        bonds = true != 0
        if not bonds.any():
            continue
        assert np.mean(x[bonds] ** 2) == pytest.approx(sd**2, rel=0.3)
        assert abs(np.corrcoef(np.abs(x[bonds]), np.abs(true[bonds]))[0, 1]) < 0.2


def test_visible_fit_is_a_maximum_of_the_visible_likelihood() -> None:
    visible = simulate(draw_couplings(6, 2, seed=3), 3000, seed=4).visible
    J = fit_visible(visible)
    now, after = visible[1:-1].astype(float), visible[2:].astype(float)
    np.testing.assert_allclose((after - np.tanh(now @ J.T)).T @ now / len(now), 0, atol=1e-4)


def test_visible_fit_finds_the_couplings_of_a_network_without_hidden_influence() -> None:
    truth = draw_couplings(8, 1, seed=5)
    truth = Couplings(truth.J, 0 * truth.K, truth.L)
    length = 100_000
    J = fit_visible(simulate(truth, length, seed=6).visible)
    assert np.sqrt(np.mean((J - truth.J) ** 2)) < 2 / np.sqrt(length)


def test_visible_fit_survives_fewer_steps_than_spins_and_frozen_spins() -> None:
    assert np.isfinite(fit_visible(np.ones((3, 12), dtype=np.int8))).all()
    rng = np.random.default_rng(1)
    assert np.isfinite(fit_visible(rng.choice(np.array([-1, 1], dtype=np.int8), (5, 12)))).all()


def test_random_start_knows_nothing_of_the_truth() -> None:
    truth = draw_couplings(40, 20, seed=7)
    visible = simulate(truth, 2000, seed=8).visible
    start = from_data(visible, 20, bond_scales(40, 20, strength=1.0, connectivity=1.0), seed=9)
    assert abs(np.corrcoef(start.K.ravel(), truth.K.ravel())[0, 1]) < 0.15
    assert abs(np.corrcoef(start.L.ravel(), truth.L.ravel())[0, 1]) < 0.15


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_visible_fit_does_not_jump_to_and_fro_where_spins_seldom_have_a_choice(missing: float) -> None:
    """Full steps do: some couplings of this network end beyond 4, and a sampled fit with gaps diverges from there."""
    truth = draw_couplings(8, 2, strength=1.5, bias=0.3, hidden_coupling=1.0, seed=(10, 110))
    visible = simulate(truth, 4000, seed=(11, 110)).visible.astype(float)
    visible[np.random.default_rng((13, 110)).random(visible.shape) < missing] = np.nan
    segments = as_segments(visible)
    J = fit_visible(Slices.of(segments.spins, segments.covariates), bias=True)
    known = np.nan_to_num(visible)
    now, after = np.column_stack([known[1:-1], np.ones(len(known) - 2)]), known[2:]
    surprise = np.where(after == 0, 0, after - np.tanh(now @ J.T))
    np.testing.assert_allclose(surprise.T @ now / len(now), 0, atol=1e-3)
    assert np.abs(J).max() < 2
