"""An estimator on a whole recording: chunk by chunk, on several threads."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from kising.estimators import no_hidden
from kising.estimators.chunks import Chunk, Estimate, Weights, empty_estimate
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import Errors
from kising.estimators.parallel import in_order
from kising.estimators.slices import Slices, as_slices
from kising.model import Couplings, Spins

Out = TypeVar("Out")


def each_chunk(
    couplings: Couplings,
    recording: Slices | Spins,
    estep: EStep,
    reduce: Callable[[Chunk, Estimate, Errors | None], Out],
    *,
    keep_pairs: bool,
    threads: int,
) -> Iterator[Out]:
    """`reduce` of every chunk in order, computed on `threads` threads; their number does not change the results."""
    nv, nh = couplings.K.shape
    estimate = estep.estimator.estimate if nh else no_hidden.estimate
    slices = as_slices(recording)
    weights = Weights.of(couplings, slices)

    def work(part: slice) -> Out:
        chunk = weights.fields(slices, part)
        out = empty_estimate(part.stop - part.start, nv, nh, keep_pairs=keep_pairs)
        return reduce(chunk, out, estimate(couplings, chunk, out, estep=estep, first=part.start))

    yield from in_order(work, len(slices), threads)
