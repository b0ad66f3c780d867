"""How close learned couplings are to the truth (docs/maths.md, "Scores"), after matching the hidden units.

The likelihood does not change when hidden units are permuted, or when one is flipped: K_·a, L_a·, b_a, G_a·, M_a· and
M_·a change sign, and M_aa, which has both, does not.
Couplings learned from a random start are therefore scored after the permutation and the signs that bring them nearest
to the truth.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from kising.blocks import BLOCKS, TABLE
from kising.model import Array, BondScales, Couplings, bond_scales

# 95% of a normal distribution lie within this many standard errors.
HALF_WIDTH = 1.96

BlockShares = Sequence[float]
"""A share of the couplings of each block, in the order of BLOCKS."""


def rmse(estimate: Couplings, truth: Couplings, scales: BondScales) -> dict[str, float]:
    """RMSE_X = √(mean over all entries of (X_rec - X)²) / sd_X of every block X that was learned; infinite where the
    estimate is not finite. A block that the truth lacks is zero there.
    """
    return {
        name: float(np.sqrt(np.mean(_off(x, true) ** 2)) / sd) if np.isfinite(x).all() else float("inf")
        for name, x, true, sd in zip(BLOCKS, estimate, truth, scales, strict=True)
        if x.size
    }


def _off(x: Array, true: Array) -> Array:
    """Difference between a block and the true one; a block that the truth lacks is zero there."""
    return x - true if true.size else x


def bond_shares(truth: Couplings) -> BlockShares:
    """The fraction of couplings that are not zero; the connectivity of a network is only its average. Biases and
    weights of inputs count as non-zero.
    """
    pairs = zip(TABLE, truth, strict=True)
    return tuple(1.0 if block.is_field or not x.size else float(np.mean(x != 0)) for block, x in pairs)


def pruned(couplings: Couplings, shares: BlockShares) -> Couplings:
    """The couplings with the weakest of each block set to zero, by the known share of bonds, and the others to the
    mean of those of their sign: for bonds that are known to be of one size.
    """
    pruned = {
        block.name: _pruned(x.ravel(), share).reshape(x.shape)
        for block, x, share in zip(TABLE, couplings, shares, strict=True)
        if not block.is_field
    }
    return couplings._replace(**pruned)


def _pruned(block: Array, share: float) -> Array:
    result = np.zeros_like(block)
    strongest = np.argsort(-np.abs(block), kind="stable")[: round(share * block.size)]
    for sign in (-1, 1):
        chosen = strongest[np.sign(block[strongest]) == sign]
        if chosen.size:
            result[chosen] = block[chosen].mean()
    return result


def coverage(
    estimate: Couplings, errors: Couplings, truth: Couplings, scales: BondScales
) -> dict[str, float | None]:
    """For every block X: error_X, the root mean square standard error in units of the bond scale, and covered_X, the
    fraction of true couplings within 95% intervals; None where no coupling has a finite error.
    """
    found: dict[str, float | None] = {}
    for name, x, error, true, sd in zip(BLOCKS, estimate, errors, truth, scales, strict=True):
        if not x.size:
            continue
        known = np.isfinite(error)
        some = bool(known.any())
        inside = np.abs(_off(x, true))[known] < HALF_WIDTH * error[known]
        found[f"error_{name}"] = float(np.sqrt(np.mean(error[known] ** 2)) / sd) if some else None
        found[f"covered_{name}"] = float(np.mean(inside)) if some else None
    return found


def baseline(connectivity: float) -> float:
    """The expected RMSE of the estimate that is zero everywhere: √c."""
    return float(np.sqrt(connectivity))


def nominal_scales(visible: int, hidden: int) -> BondScales:
    """The bond scales of a dense network of strength 1: the unit where nothing is known of the ensemble."""
    return bond_scales(visible, hidden, strength=1.0, connectivity=1.0)


def scales_of(truth: Couplings) -> BondScales:
    """The root mean square of the non-zero bonds of each block; nominal where a block has none."""
    nominal = nominal_scales(*truth.K.shape)
    present = [block[block != 0] for block in truth]
    return BondScales(
        *(
            float(np.sqrt(np.mean(bonds**2))) if bonds.size else unit
            for bonds, unit in zip(present, nominal, strict=True)
        )
    )


class Alignment(NamedTuple):
    """Which learned hidden unit stands for which true one."""

    order: np.ndarray
    """learned unit order[a] is matched with true unit a"""
    signs: np.ndarray
    """±1: whether that learned unit is flipped"""

    def apply(self, couplings: Couplings) -> Couplings:
        """The couplings with hidden units in the truth's order and orientation."""
        matched = []
        for block, x in zip(TABLE, couplings, strict=True):
            if block.rows == "hidden" and x.size:
                x = (x[self.order].T * self.signs).T
            if block.columns == "hidden" and x.size:
                x = x[:, self.order] * self.signs
            matched.append(x)
        return Couplings(*matched)


def align(estimate: Couplings, truth: Couplings, scales: BondScales) -> Alignment:
    """The permutation and signs of hidden units nearest to the truth, by squares of K/sd_K and L/sd_L."""
    learned = np.hstack([estimate.K.T / scales.K, estimate.L / scales.L])
    true = np.hstack([truth.K.T / scales.K, truth.L / scales.L])
    # |x - y|² = |x|² + |y|² - 2 x·y: over a permutation only the products matter, and each sign is chosen to make
    # its product positive.
    products = true @ np.nan_to_num(learned).T
    _, order = linear_sum_assignment(np.abs(products), maximize=True)
    signs = np.where(products[np.arange(len(order)), order] < 0, -1.0, 1.0)
    return Alignment(order, signs)


def matched(estimate: Couplings, truth: Couplings, scales: BondScales) -> Couplings:
    """The estimate with its hidden units in the truth's order and orientation."""
    return align(estimate, truth, scales).apply(estimate)
