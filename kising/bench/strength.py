"""The cost of strong couplings: `bp` and `exact` with the largest |K| at several values, in turns."""

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from kising.bench.measure import interleave
from kising.estimators.estep import EStep
from kising.estimators.gradient import checked_gradient
from kising.estimators.moments import infer
from kising.model import draw_couplings, simulate
from kising.options import Learner

STRENGTHS = (2.0, 3.5, 5.0, 8.0)
#: estimator: visible and hidden spins
NETWORKS = {"bp": (80, 20), "exact": (80, 8)}
SLICES = 4096


@dataclass(frozen=True, kw_only=True)
class Strong:
    """One estimator at one strength, one thread."""

    estimator: str
    strongest: float
    """max |K|"""
    microseconds: float
    """CPU time per slice of an E-step with gradient"""
    nanoseconds: float
    """CPU time per slice, bond and iteration; of `exact` per slice, visible spin and state"""
    ratio: float
    """nanoseconds over those at the weakest"""


def by_strength(*, rounds: int) -> list[Strong]:
    """Both estimators on sparse networks (c = 0.1) whose K is scaled. Fields and data are the same at all strengths."""
    contenders, work, labels = [], [], []
    for estimator, (visible, hidden) in NETWORKS.items():
        drawn = draw_couplings(visible, hidden, connectivity=0.1, seed=1)
        recording = simulate(drawn, SLICES + 2, seed=2).visible
        for strongest in STRENGTHS:
            couplings = drawn._replace(K=drawn.K * (strongest / np.abs(drawn.K).max()))
            estep = EStep.of(Learner(estimator=estimator), hidden)
            iterations = infer(couplings, recording, estimator=estimator).iterations.sum()
            terms = np.count_nonzero(drawn.K) if estimator == "bp" else visible * 2**hidden
            contenders.append(partial(checked_gradient, couplings, recording, estep, threads=1))
            work.append(float(iterations * terms))
            labels.append((estimator, strongest))
    best = interleave(contenders, rounds, clock=time.thread_time)
    costs = dict(zip(labels, (s / w for s, w in zip(best, work, strict=True)), strict=True))
    return [
        Strong(
            estimator=estimator,
            strongest=strongest,
            microseconds=1e6 * seconds / SLICES,
            nanoseconds=1e9 * costs[estimator, strongest],
            ratio=costs[estimator, strongest] / costs[estimator, STRENGTHS[0]],
        )
        for (estimator, strongest), seconds in zip(labels, best, strict=True)
    ]
