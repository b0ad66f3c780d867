"""Which step a session takes: decided once, from the learner's options and what its estimator can do."""

from kising.estimators.estep import EStep
from kising.learning.state import Problem
from kising.learning.steps.base import Step
from kising.learning.steps.metric import MetricStep
from kising.learning.steps.plain import PlainStep
from kising.learning.steps.sampling.paths import PathStep
from kising.learning.steps.sampling.sampled import SampledStep
from kising.learning.steps.sampling.sparse_samples import DecimatedSamplesStep, PenalisedSamplesStep
from kising.learning.steps.scaled import ScaledStep
from kising.learning.steps.sparsity.decimated import DecimatedStep
from kising.learning.steps.sparsity.penalised import PenalisedAscent, PenalisedStep
from kising.options import Learner

#: Of each the first that applies.
SCALE_FREE: tuple[type[Step], ...] = (
    PathStep,
    DecimatedSamplesStep,
    PenalisedSamplesStep,
    SampledStep,
    DecimatedStep,
    PenalisedStep,
    MetricStep,
    ScaledStep,
)
ASCENTS: tuple[type[PlainStep], ...] = (PenalisedAscent, PlainStep)


def choose(problem: Problem, learner: Learner, estep: EStep, *, patience: int) -> Step:
    """The step for a problem: one that needs no rate, or, where it was asked for, an ascent that is measured by it."""
    scale_free = next(kind for kind in SCALE_FREE if kind.applies(learner, estep, problem))
    step = scale_free(problem, learner, estep, patience)
    for kind in ASCENTS:
        if kind.applies(learner, estep, problem):
            return kind(problem, learner, estep, patience, measure=step)
    return step
