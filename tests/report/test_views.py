from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.rows import make_runs

from kising.report.figures.curves import curves
from kising.report.figures.drawing import write_figure
from kising.report.figures.lines import Axis
from kising.report.figures.views import FRACTION, SIZE, numeric_axes, overlays, views, with_network


def runs(**columns):
    """Two realizations of every combination in the rows that `columns` say, all of the same length."""
    length = max(len(values) for values in columns.values())
    rows = [
        {
            "model.visible": 20, "model.hidden": 4, "data.length": 1000, "model.connectivity": 1.0,
            **{key.replace("__", "."): values[i] for key, values in columns.items()},
            "realization": r, "rmse_J": 1.0,
        }
        for i in range(length)
        for r in range(2)
    ]  # fmt: skip
    return with_network(make_runs(rows))


def test_what_varies_is_the_axis() -> None:
    assert numeric_axes(runs(model__strength=[0.1, 0.5, 1.0])) == ["model.strength"]
    assert numeric_axes(runs(learner__rate=[0.1, 0.2, 0.4])) == ["learner.rate"]
    assert numeric_axes(runs(data__length=[100, 1000])) == ["data.length"]
    assert numeric_axes(runs(learner__estimator=["bp", "tap"])) == []


def test_sizes_are_seen_as_what_they_mean() -> None:
    assert numeric_axes(runs(model__visible=[20, 40, 80], model__hidden=[5, 10, 20])) == [SIZE]
    assert numeric_axes(runs(model__visible=[10, 50, 90], model__hidden=[90, 50, 10])) == [FRACTION]


def test_few_values_make_an_axis_only_where_there_is_no_other() -> None:
    two = runs(model__connectivity=[0.1, 0.1, 0.1, 1.0, 1.0, 1.0], model__strength=[0.1, 0.5, 1.0] * 2)
    assert numeric_axes(two) == ["model.strength"]
    assert numeric_axes(runs(model__connectivity=[0.1, 1.0])) == ["model.connectivity"]


def test_two_ways_of_learning_share_a_panel_and_three_do_not() -> None:
    two = runs(learner__estimator=["bp", "bp", "tap", "tap"], data__length=[100, 1000] * 2)
    (view,) = views(two, "data.length")
    assert [series.label for series in view.series] == ["bp", "tap"]
    three = runs(
        learner__estimator=["bp", "bp", "tap", "tap", "exact", "exact"], data__length=[100, 1000] * 3
    )
    assert [view.title for view in views(three, "data.length")] == ["bp", "tap", "exact"]
    (together,) = overlays(three, "data.length")
    assert [series.label for series in together.series] == ["bp", "tap", "exact"]


def test_many_ways_of_learning_have_a_figure_in_which_each_looks_alike_throughout() -> None:
    estimators, lengths = ["bp", "tap", "exact", "tap", "exact", "gibbs"], [100, 1000]
    frame = runs(
        learner__estimator=[e for e in estimators for _ in lengths],
        model__hidden=[h for h in (4, 4, 4, 20, 20, 20) for _ in lengths],
        data__length=lengths * 6,
    )
    frame[["rmse_K", "rmse_L"]] = 1.0
    (figure,) = [figure for figure in curves(frame) if figure.name == "learners-against-length"]
    assert len(figure.panels) == 2 * 3
    looks: dict[str, set[tuple[object, ...]]] = {}
    for panel in figure.panels:
        axes = Figure().add_subplot()
        panel.draw(axes)
        for bars, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label.split(":")[0] in estimators:
                line = bars.lines[0]
                filling = line.get_markerfacecolor() == line.get_color()
                look = (line.get_color(), line.get_marker(), line.get_linestyle(), filling)
                looks.setdefault(label.split(":")[0], set()).add(look)
    assert set(looks) == set(estimators)
    assert all(len(found) == 1 for found in looks.values())
    assert len({colour for colour, *_ in set.union(*looks.values())}) == 4
    # Two share the panels that there are, and need no figure of their own.
    assert all(
        figure.name != "learners-against-length"
        for figure in curves(frame[frame["learner.estimator"] != "tap"])
    )


def test_networks_have_panels_of_their_own_and_lone_points_have_none() -> None:
    found = runs(model__connectivity=[0.1, 0.1, 1.0, 1.0, 0.5], data__length=[100, 1000, 100, 1000, 100])
    assert [view.title for view in views(found, "data.length")] == ["c = 0.1", "c = 1"]


def test_panels_stand_in_the_order_of_their_numbers_and_words_in_that_of_the_plan() -> None:
    found = runs(model__connectivity=[1.0, 1.0, 0.1, 0.1, 0.5, 0.5], data__length=[100, 1000] * 3)
    assert [view.title for view in views(found, "data.length")] == ["c = 0.1", "c = 0.5", "c = 1"]
    words = runs(learner__estimator=["tap", "tap", "bp", "bp"], data__length=[100, 1000] * 2)
    (view,) = views(words, "data.length")
    assert [series.label for series in view.series] == ["tap", "bp"]


def test_hidden_spins_of_a_recording_are_their_own_axis() -> None:
    found = runs(model__hidden=[0, 1, 2], data__file=["spikes.npz"] * 3)
    assert numeric_axes(found) == ["model.hidden"]
    found["held_out"] = -2.0
    assert [figure.name for figure in curves(found) if figure.panels][:2] == [
        *("error-against-hidden", "held-out-against-hidden")
    ]


@pytest.mark.parametrize(("low", "high", "places"), [(100.0, 10_000.0, 3), (0.0, 1.0, 2), (0.1, 1.0, 7)])
def test_marks_at_the_same_place_stand_side_by_side(low: float, high: float, places: int) -> None:
    axis = Axis("data.length", low, high, places)
    at = np.geomspace(low, high, places) if axis.logarithmic else np.linspace(low, high, places)
    moved = np.array([axis.beside(at, number, 6) for number in range(6)])
    assert (np.diff(moved, axis=0) > 0).all()
    # No mark comes nearer to another place than to its own.
    assert (moved[-1, :-1] < moved[0, 1:]).all()
    assert axis.beside(at, 0, 1) == pytest.approx(at)


def test_all_panels_of_a_figure_have_the_same_axes(tmp_path: Path) -> None:
    found = runs(model__connectivity=[0.1, 0.1, 1.0, 1.0], data__length=[100, 1000, 100, 100_000])
    found["rmse_J"] = np.repeat([0.9, 0.5, 30.0, 0.01], 2)
    figure = next(figure for figure in curves(found) if figure.name == "error-against-length")
    assert len(figure.panels) == 2
    files, limits = write_figure(figure, tmp_path)
    assert [file.suffix for file in files] == [".svg", ".png", ".csv"]
    assert limits is not None
    assert limits.x[0] < 100 < 100_000 < limits.x[1]
    assert limits.y[0] < 0.01 < 30 < limits.y[1]
    # Both axes are logarithmic, also that of the panel which spans only one decade.
    for panel in figure.panels:
        axes = Figure().add_subplot()
        panel.draw(axes)
        assert axes.get_xscale() == "log"
