"""Which step is taken, from options and from what the estimator can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kising import draw_couplings, simulate
from kising.estimators.estep import EStep
from kising.estimators.registry import ESTIMATORS, Estimator
from kising.learning.scores import nominal_scales
from kising.learning.state import prepare
from kising.learning.steps.base import Step
from kising.learning.steps.choice import choose
from kising.learning.steps.metric import MetricStep
from kising.learning.steps.plain import PlainStep
from kising.learning.steps.sampling.sampled import SampledStep
from kising.learning.steps.scaled import ScaledStep
from kising.learning.steps.sparsity.decimated import DecimatedStep
from kising.learning.steps.sparsity.penalised import PenalisedAscent, PenalisedStep
from kising.options import Learner

TRUTH = draw_couplings(4, 2, seed=1)
PROBLEM = prepare(simulate(TRUTH, 50, seed=2).visible, 2, nominal_scales(4, 2), TRUTH)


def chosen(entry: Estimator, **options) -> Step:
    learner = Learner(**options)
    # The name is not looked at.
    estep = replace(EStep.of(learner, 2), estimator=replace(entry, name="another"))
    return choose(PROBLEM, learner, estep, patience=4)


@pytest.mark.parametrize("entry", ESTIMATORS, ids=lambda entry: entry.name)
def test_the_step_follows_from_what_the_estimator_can_do(entry: Estimator) -> None:
    expected = SampledStep if entry.samples else MetricStep if entry.unbiased else ScaledStep
    step = chosen(entry)
    assert type(step) is expected
    assert step.patience == 4


@pytest.mark.parametrize(
    ("options", "kind", "measure"),
    [
        ({"l1": 1.0}, PenalisedStep, None),
        ({"decimate": 0.5}, DecimatedStep, None),
        ({"decimate": "known"}, DecimatedStep, None),
        ({"step": "gradient"}, PlainStep, MetricStep),
        ({"step": "gradient", "l1": 1.0}, PenalisedAscent, PenalisedStep),
    ],
)
def test_the_step_follows_from_the_options(options, kind: type[Step], measure: type[Step] | None) -> None:
    exact = next(entry for entry in ESTIMATORS if entry.unbiased and not entry.samples)
    step = chosen(exact, **options)
    assert type(step) is kind
    assert type(getattr(step, "measure", None)) is (measure or type(None))
