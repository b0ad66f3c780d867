"""The sweep files that come with kising: each loads, plans, and has a quick preset that is quick."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from support.browsers import BROWSER, look

from kising import run_sweep
from kising.report.build import build
from kising.report.tables import refresh_tables
from kising.sweep.drive.cost import CostModel
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec

FOLDER = Path(__file__).parents[1] / "sweeps"
FILES = sorted(FOLDER.glob("*.yaml"))
FIGURES = [path for path in FILES if path.stem.startswith("fig")]
# ... and what the paper proposes without a figure, and learners and rules that it does not have.
OTHERS = ("sparse", "learners", "correlations", "paths", "arrival")
REPRODUCED = [*FIGURES, *(FOLDER / f"{name}.yaml" for name in OTHERS)]
PUBLISHED = Path(__file__).parents[1] / "docs" / "paper" / "data"
QUICK_SECONDS = 2 * 120  # of one core: two cores, two minutes
HOUR_SECONDS = 2 * 3600
# Hours that were measured beside other programs on the slower of two machines, and took longer. The whole figure has
# the same runs, measured alone on the faster one: they are judged by those.
DISTURBED = ("fig3b",)
# The tables were made on two machines, one about twice as fast as the other, and the estimate has one price for both.
FACTOR = 2.0
# fig3a is one run, half of which compiles. In fig5 the uncorrected algorithm diverges in three iterations, because
# recordings are long, couplings strong and the network dense; most small networks of figure 4 took hundreds.
HARD = {"fig3a": 2.5, "fig5": 2.5}


def seconds(plan: Plan) -> float:
    # Prices that no machine has measured: the estimate is the same everywhere.
    costs = CostModel()
    return sum(costs.seconds(point) * plan.spec.realizations for point in plan.points)


def measured(name: str, plan: Plan) -> float:
    """CPU seconds of the runs of a plan in published tables."""
    runs = pd.read_parquet(PUBLISHED / name / "runs.parquet", columns=["run_id", "cpu_seconds"])
    ids = {f"{number:016x}" for number in plan.ids.tolist()}
    assert ids <= set(runs["run_id"])
    return float(runs["cpu_seconds"][runs["run_id"].isin(ids)].sum())


@pytest.mark.parametrize("name", sorted(path.name for path in PUBLISHED.iterdir()))
def test_the_estimate_is_near_what_was_measured(name: str) -> None:
    plan = Plan.of(read_spec(PUBLISHED / name / "sweep.yaml"))
    runs = pd.read_parquet(PUBLISHED / name / "runs.parquet", columns=["run_id", "cpu_seconds"])
    # Of a sweep that was published before it had ended, the runs that are there.
    there = np.flatnonzero(np.isin(plan.ids, [int(run, 16) for run in runs["run_id"]]))
    assert len(there) == len(runs) > plan.n_runs / 2
    expected = CostModel().of_run()
    factor = HARD.get(name, FACTOR)
    ratio = sum(expected(plan.run(int(index))) for index in there) / runs["cpu_seconds"].sum()
    assert 1 / factor < ratio < factor


def test_every_figure_has_its_file() -> None:
    names = {path.stem for path in FIGURES}
    assert names == {f"fig{x}" for x in ("2ab", "2c", "3a", "3b", "4", "5", "6", "7", "8", "9")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_loads_and_plans_under_its_own_name(path: Path) -> None:
    spec = read_spec(path)
    assert spec.name == path.stem
    assert Plan.of(spec).n_runs > 0
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_states_how_it_learns(path: Path) -> None:
    """Its points must not move when a default does."""
    document = yaml.safe_load(path.read_text())
    axes = document.get("axes", [])
    stated = {f"learner.{key}" for key in document.get("learner", {})}
    stated |= {key for axis in (axes if isinstance(axes, list) else [axes]) for key in axis}
    for point in Plan.of(read_spec(path)).points:
        values = point.values()
        decisive = ("learner.estimator", "learner.correlations", "learner.start")
        assert {key for key in decisive if values[key] is not None} <= stated


@pytest.mark.parametrize("path", REPRODUCED, ids=lambda path: path.stem)
def test_a_quick_preset_is_quick_and_varies_what_the_figure_varies(path: Path) -> None:
    quick, whole = Plan.of(read_spec(path, preset="quick")), Plan.of(read_spec(path))
    assert seconds(quick) <= QUICK_SECONDS
    assert seconds(quick) < seconds(whole) / 5
    assert [axis.keys for axis in quick.spec.axes] == [axis.keys for axis in whole.spec.axes]
    assert quick.spec.keep == whole.spec.keep


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_an_hour_preset_fits_in_an_hour_of_two_cores(path: Path) -> None:
    hour, quick = Plan.of(read_spec(path, preset="hour")), Plan.of(read_spec(path, preset="quick"))
    assert 5 * seconds(quick) < seconds(hour)
    text = path.read_text()
    stated = re.search(r"`--preset hour`: [\d.]+ core-hours by the same estimate; ([\d.]+) measured", text)
    if path.stem in DISTURBED:
        assert measured(path.stem, hour) <= HOUR_SECONDS
    else:
        assert (3600 * float(stated[1]) if stated else seconds(hour)) <= HOUR_SECONDS
    assert {key for axis in hour.spec.axes for key in axis.keys} == {
        key for axis in quick.spec.axes for key in axis.keys
    }
    cost = float(f"{seconds(hour) / 3600:.2g}")
    assert f"`--preset hour`: {cost:g} core-hours" in text


@pytest.mark.parametrize("name", ["fig4", "fig5", "fig6"])
def test_figures_of_the_algorithm_have_the_papers_own_and_ours(name: str) -> None:
    learners = {
        (point.learner.step, point.learner.correlations)
        for point in Plan.of(read_spec(FOLDER / f"{name}.yaml")).points
    }
    assert learners == {("gradient", "iterated"), ("gradient", "iterated-corrected"), ("scaled", "corrected")}


@pytest.mark.parametrize("path", REPRODUCED, ids=lambda path: path.stem)
def test_the_header_says_the_cost_that_plan_says(path: Path) -> None:
    cost = float(f"{seconds(Plan.of(read_spec(path))) / 3600:.2g}")
    assert f"Cost: {cost:g} core-hours" in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", REPRODUCED, ids=lambda path: path.stem)
def test_a_quick_preset_runs_and_is_reported(path: Path, tmp_path: Path) -> None:
    results = run_sweep(path, out=tmp_path / "r", preset="quick")
    assert (results.runs["status"] == "done").all()
    report = build(tmp_path / "r", refresh_tables(tmp_path / "r"))
    figures = {label for claim in report.document["claims"] for label in claim["figure"].split(", ")}
    wanted = {
        "fig2ab": {"2A", "2B"},
        "fig8": {"8", "proposed"},
        "sparse": {"proposed"},
        "learners": {"kising"},
        "correlations": {"kising"},
        "paths": {"kising"},
        "arrival": set(),
    }
    wanted_here = wanted.get(path.stem, {path.stem.removeprefix("fig").upper()})
    assert wanted_here <= figures
    assert report.document["figures"]
    if BROWSER is not None:
        for width in (360, 1280):
            seen = look(report.page, width, tmp_path)
            assert (
                seen["images"]
                == seen["drawn"]
                == sum(len(one["panels"]) for one in report.document["figures"])
            )
            assert seen["widest"] <= width
            assert (seen["overflow"], seen["small"]) == (0, 0)
