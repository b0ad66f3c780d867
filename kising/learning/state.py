"""What learning works on, and what it carries from one iteration to the next.

`Problem` stays as it is while couplings are learned. `EMState` changes at every iteration. It is all that a
checkpoint holds: continuing from a saved state gives the same bits as never having stopped.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.arrays import holds_arrays
from kising.blocks import BLOCKS
from kising.estimators.chunks import cut
from kising.estimators.gibbs.chains import Chains
from kising.estimators.slices import Slices, as_slices
from kising.learning.scores import matched, rmse
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.model import Array, BondScales, Couplings, Spins


@holds_arrays
class SpinProducts(NamedTuple):
    """The part of the complete-data information that the recording alone determines. The known inputs of a spin are
    x = (s, 1, u): spins, a constant where there are biases, and inputs.
    """

    now: Array
    """mean over slices of x xᵀ, (Nv+q, Nv+q)"""
    before: Array
    """mean over slices of x⁻ x⁻ᵀ, (Nv+q, Nv+q)"""


def spin_products(recording: Slices | Spins, *, bias: bool = False) -> SpinProducts:
    """Both means, chunk by chunk."""
    slices = as_slices(recording)
    size = slices.n_visible + bias + slices.n_inputs
    now = np.zeros((size, size))
    before = np.zeros((size, size))
    for part in cut(len(slices)):
        earlier, x = slices.window(part, bias=bias)[:2]
        before += earlier.T @ earlier
        now += x.T @ x
    return SpinProducts(now / len(slices), before / len(slices))


@holds_arrays
@dataclass(frozen=True, kw_only=True)
class Problem:
    """A recording to learn from, and what the result is measured by."""

    slices: Slices
    hidden: int
    """number of hidden spins"""
    products: SpinProducts
    scales: BondScales
    """the unit of steps, of RMSE and of the prior"""
    truth: Couplings | None
    aligned: bool
    """whether hidden units are matched to the truth before RMSE is taken"""
    bias: bool
    """whether biases are learned"""
    hidden_couplings: bool = False
    """whether couplings M among hidden spins are learned"""

    @property
    def n_visible(self) -> int:
        """Number of visible spins."""
        return self.slices.n_visible

    @property
    def n_slices(self) -> int:
        """Number of slices of the recording."""
        return len(self.slices)

    @property
    def learned_blocks(self) -> list[str]:
        """The optional blocks that are learned."""
        asked = {("h", "b"): self.bias, ("F", "G"): self.slices.n_inputs > 0, ("M",): self.hidden_couplings}
        return [name for names, wanted in asked.items() if wanted for name in names]

    def rmse(self, couplings: Couplings) -> dict[str, float] | None:
        """RMSE of every block against the truth; None without a truth."""
        if self.truth is None:
            return None
        if self.aligned:
            couplings = matched(couplings, self.truth, self.scales)
        return rmse(couplings, self.truth, self.scales)


def prepare(
    recording: Slices | Spins,
    hidden: int,
    scales: BondScales,
    truth: Couplings | None = None,
    *,
    aligned: bool = False,
    bias: bool = False,
    hidden_couplings: bool = False,
) -> Problem:
    """Prepare a recording for learning."""
    slices = as_slices(recording)
    return Problem(
        slices=slices,
        hidden=hidden,
        products=spin_products(slices, bias=bias),
        scales=scales,
        truth=None if truth is None else truth.filled.with_M if hidden_couplings else truth.filled,
        aligned=aligned,
        bias=bias,
        hidden_couplings=hidden_couplings,
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
    """the last move, where steps have momentum: of plain ascent in units of the couplings, of samples in those of the
    bond scale and as it was before it was shortened (`within_reach`), towards sparse couplings as it was made, (n,)"""
    marks: Array
    """earlier couplings, oldest first, of steps that look back at how far they have come, (k, n); else empty"""

    def without_steps(self) -> "History":
        """The history without the steps that acceleration would build on."""
        return self._replace(points=self.points[:0], steps=self.steps[:0])


def no_history(size: int) -> History:
    """The history before the first step."""
    none = np.empty((0, size))
    return History(none, none, np.inf, -1, np.zeros(size), none)


@holds_arrays
class Rounds(NamedTuple):
    """Where learning stands that goes through all slices in some iterations and through part of them in the others
    (`steps.rounds`). Vectors are in units of the bond scale.
    """

    rest: Couplings
    """what the other slices added to the gradient when all were last gone through; zero before that"""
    left: int
    """iterations on part of the slices before all are gone through again"""
    arrived: bool
    """whether those of the last round came as far as they were to go"""
    given_up: int
    """the iteration from which on all slices are gone through in every one; -1 where that is not so"""
    sizes: Array
    """the largest step of any block in each iteration on all slices so far, (k,)"""
    iterations: npt.NDArray[np.int64]
    """the numbers of these iterations, (k,)"""
    start: Array
    """the couplings of the last of these, (n,)"""
    best: Array
    """the couplings of the one with the smallest step, (n,)"""
    history: History
    """of whole rounds: where they began, and how far they led"""


@holds_arrays
class Sampler(NamedTuple):
    """What learning from samples carries along."""

    key: np.uint64
    """of every random number"""
    chains: Chains
    """the hidden state of every slice, (T-2, Nh); where paths are sampled, all unknown spins, one per row"""
    averages: bool
    """whether steps shrink, and the mean of the batches is the result"""
    iterations: int
    """iterations in the batches"""
    batches: Array
    """sums of the couplings over batches of iterations, in units of the bond scale, (k, n)"""
    batch: int
    """iterations per batch"""
    zeros: npt.NDArray[np.int64]
    """for every coupling, in how many of these iterations it was zero, (n,)"""


class Mixture(NamedTuple):
    """What a step is divided by: this share of a row's own information, plus this share of its average."""

    own: float
    average: float


@holds_arrays
class Anchor(NamedTuple):
    """Where the metric of steps was taken: the metric is a function of it and of the recording."""

    couplings: Couplings
    chains: Chains
    """hidden states of the first slices, with M of the first steps; of all spins where they are sampled along paths"""
    rows: bool
    """whether every row has a matrix of its own"""
    mixture: Mixture

    @property
    def of_steps(self) -> bool:
        """Whether the chains are those of steps, not of slices: with M, or where entries are missing."""
        return self.couplings.couples_slices or self.chains.shape[1] > self.couplings.K.shape[1]


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
    rounds: Rounds | None = None
    """of learning from long recordings"""
    estimator: str | None = None
    """the one that learns; None: not known, in states that an older version saved"""
    slices: int | None = None
    """how many slices the recording has; None as above"""

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
