"""What learning works on, and what it carries from one iteration to the next.

`Problem` stays as it is while couplings are learned. `EMState` changes at every iteration. It is all that a
checkpoint holds: continuing from a saved state gives the same bits as never having stopped.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kising.arrays import holds_arrays
from kising.blocks import BLOCKS
from kising.estimators.chunks import cut
from kising.estimators.gibbs.chains import Chains
from kising.learning.scores import matched, rmse
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.model import Array, BondScales, Couplings, Spins


@holds_arrays
class SpinProducts(NamedTuple):
    """The part of the complete-data information that the visible spins alone determine."""

    now: Array
    """mean over slices of s sᵀ, (Nv, Nv)"""
    before: Array
    """mean over slices of s⁻ s⁻ᵀ, (Nv, Nv)"""


def spin_products(visible: Spins) -> SpinProducts:
    """Both means, chunk by chunk."""
    nv = visible.shape[1]
    n_slices = visible.shape[0] - 2
    now = np.zeros((nv, nv))
    before = np.zeros((nv, nv))
    for part in cut(n_slices):
        spins = visible[part.start : part.stop + 1].astype(np.float64)
        before += spins[:-1].T @ spins[:-1]
        now += spins[1:].T @ spins[1:]
    return SpinProducts(now / n_slices, before / n_slices)


@holds_arrays
@dataclass(frozen=True, kw_only=True)
class Problem:
    """A recording to learn from, and what the result is measured by."""

    visible: Spins
    hidden: int
    """number of hidden spins"""
    products: SpinProducts
    scales: BondScales
    """the unit of steps, of RMSE and of the prior"""
    truth: Couplings | None
    aligned: bool
    """whether hidden units are matched to the truth before RMSE is taken"""

    @property
    def n_slices(self) -> int:
        """Slices of the recording, T - 2."""
        return len(self.visible) - 2

    def rmse(self, couplings: Couplings) -> dict[str, float] | None:
        """RMSE of every block against the truth; None without a truth."""
        if self.truth is None:
            return None
        if self.aligned:
            couplings = matched(couplings, self.truth, self.scales)
        return rmse(couplings, self.truth, self.scales)


def prepare(
    visible: Spins, hidden: int, scales: BondScales, truth: Couplings | None = None, *, aligned: bool = False
) -> Problem:
    """Prepare a recording for learning."""
    return Problem(
        visible=visible,
        hidden=hidden,
        products=spin_products(visible),
        scales=scales,
        truth=truth,
        aligned=aligned,
    )


@holds_arrays
class History(NamedTuple):
    """What a step remembers of the steps before it. Vectors are in units of the bond scale."""

    points: Array
    """the last couplings, oldest first, (k, n)"""
    steps: Array
    """the scaled steps there, (k, n)"""
    size: float
    """the length of the last scaled step"""
    shrinking: int
    """number of iterations in a row in which it has become smaller"""
    velocity: Array
    """momentum of plain ascent, in units of the couplings, (n,)"""

    def without_steps(self) -> "History":
        """The history without the steps that acceleration would build on."""
        return self._replace(points=self.points[:0], steps=self.steps[:0])


def no_history(size: int) -> History:
    """The history before the first step."""
    return History(np.empty((0, size)), np.empty((0, size)), np.inf, -1, np.zeros(size))


@holds_arrays
class Sampler(NamedTuple):
    """What learning from samples carries along."""

    key: np.uint64
    """of every random number"""
    chains: Chains
    """the hidden state of every slice, (T-2, Nh)"""
    averages: bool
    """whether steps shrink, and the mean of the batches is the result"""
    iterations: int
    """iterations in the batches"""
    batches: Array
    """sums of the couplings over batches of iterations, in units of the bond scale, (k, n)"""
    batch: int
    """iterations per batch"""
    arrived: tuple[bool, ...] = tuple(False for _ in BLOCKS)
    """for each block: whether full steps had ceased to lead anywhere when averaging began"""


class Mixture(NamedTuple):
    """What a step is divided by: this share of a row's own information, plus this share of its average."""

    own: float
    average: float


@holds_arrays
class Anchor(NamedTuple):
    """Where the metric of steps was taken: the metric is a function of it and of the recording."""

    couplings: Couplings
    chains: Chains
    """hidden states of the first slices"""
    rows: bool
    """whether every row has a matrix of its own"""
    mixture: Mixture


@holds_arrays
@dataclass(frozen=True)
class EMState:
    """Learning after some iterations."""

    couplings: Couplings
    history: History
    held: tuple[int, ...]
    """for each block: number of iterations in a row for which it has been settled"""
    trace: Array
    """one row per iteration, columns as in TRACE_COLUMNS"""
    outcome: str
    """running | converged | stalled | diverged"""
    sampler: Sampler | None = None
    """of estimators that sample"""
    anchor: Anchor | None = None
    """of steps that have a metric, once there is one"""

    @property
    def iteration(self) -> int:
        """Number of iterations made."""
        return len(self.trace)


def first_state(couplings: Couplings, sampler: Sampler | None = None) -> EMState:
    """The state before the first iteration."""
    return EMState(
        couplings,
        no_history(sum(x.size for x in couplings)),
        tuple(0 for _ in BLOCKS),
        np.empty((0, len(TRACE_COLUMNS))),
        "running",
        sampler,
    )
