"""The lines of Python that repeat one run of a sweep with kising's public functions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kising.arguments import FIT, INFER, Arguments
from kising.estimators.registry import resolve
from kising.options import LEAVES, READING

if TYPE_CHECKING:
    from kising.sweep.plan import Point, Run

_INDENT = "    "


def python_lines(run: Run) -> list[str]:
    """Lines that draw the run's network and data, or read its recording, and learn or infer as the run did.

    `fit.rmse`, or the averages in `moments`, are those of the run's row.
    """
    recorded = run.point.data.file is not None
    return ["import kising", *(_of_recording(run) if recorded else _of_network(run))]


def _of_network(run: Run) -> Iterator[str]:
    from kising.model import bond_scales

    point = run.point
    model = point.model.model_dump()
    sizes = [str(model.pop(name)) for name in ("visible", "hidden")]
    drawn = {key: value for key, value in model.items() if value != LEAVES[f"model.{key}"].default}
    yield from _call("network", "kising.draw_couplings", sizes, drawn | {"seed": run.network_seed})
    yield from _call(
        "visible", "kising.simulate", ["network", str(point.data.length)], {"seed": run.data_seed}, ".visible"
    )
    if point.data.missing:
        yield from _hidden_entries(run)
    if point.task == "infer":
        yield from _call(
            "moments", "kising.infer", ["network", "visible"], _options(INFER, point) | _seed(run)
        )
        return
    taken = inspect.signature(bond_scales).parameters
    # Bonds of strength 0 have no scale: sweeps measure them in that of strength 1.
    scale = {key: value for key, value in model.items() if key in taken} | {
        "strength": model["strength"] or 1.0
    }
    scale = {key: value for key, value in scale.items() if taken[key].default != value}
    yield from _call("scales", "kising.bond_scales", sizes, scale)
    named = {"truth": "network", "scales": "scales"}
    yield from _fit(run, ["visible", sizes[1]], named)
    yield "print(fit.outcome, fit.rmse)"


def _hidden_entries(run: Run) -> Iterator[str]:
    """The entries that the run does not see (`task.hide_entries`)."""
    yield from ("import numpy as np", "from kising.seeds import random_stream")
    yield from _call("chance", "random_stream", [repr(run.missing_seed)], {}, ".random(visible.shape)")
    yield f"visible = np.where(chance < {run.point.data.missing!r}, np.nan, visible)"


def _of_recording(run: Run) -> Iterator[str]:
    data = run.point.data
    yield "from kising.learning.folds import hold_out, learnable"
    yield "from kising.recordings import fittable"
    reading = {name: value for name in READING if (value := getattr(data, name)) is not None}
    yield from _call("recording", "kising.read_recording", [repr(data.file)], reading | {"missing": "drop"})
    yield from _call("recording", "learnable", ["fittable(recording)", f"{data.folds}"], {})
    folds = [f"{run.realization}", f"{data.folds}"]
    yield from _call("training, held_out", "hold_out", ["recording", *folds], {})
    yield from _fit(run, ["training", str(run.point.model.hidden)], {})
    yield "print(fit.outcome, fit.log_likelihood(held_out))"


def _fit(run: Run, arguments: list[str], named: Mapping[str, str]) -> Iterator[str]:
    point = run.point
    errors = {"errors": True} if point.score.errors else {}
    options = {"seed": run.start_seed} | errors | _options(FIT, point)
    yield from _call("fit", "kising.fit", [*arguments, *(f"{k}={v}" for k, v in named.items())], options)


def _options(taken: Arguments, point: Point) -> dict[str, Any]:
    """The options that are not at their defaults."""
    values = taken.of_learner(point.learner)
    return {name: value for name, value in values.items() if value != taken.leaves[name].default}


def _seed(run: Run) -> dict[str, Any]:
    """For estimators that sample."""
    from kising.learning.starts import chain_seed
    from kising.seeds import as_numbers

    samples = resolve(run.point.learner.estimator, run.point.model.hidden).samples
    return {"seed": as_numbers(chain_seed(run.start_seed))} if samples else {}


def _call(
    name: str, function: str, arguments: list[str], options: Mapping[str, Any], then: str = ""
) -> Iterator[str]:
    words = [*arguments, *(f"{key}={value!r}" for key, value in options.items())]
    whole = f"{name} = {function}({', '.join(words)}){then}"
    if len(whole) <= 100:
        yield whole
        return
    yield f"{name} = {function}("
    yield f"{_INDENT}{', '.join(arguments)},"
    for key, value in options.items():
        yield f"{_INDENT}{key}={value!r},"
    yield f"){then}"
