from __future__ import annotations

import json

import pytest

from kising.learning.effort import PILOT_SLICES
from kising.sweep.drive import cost
from kising.sweep.drive.cost import (
    CHUNK_BYTES,
    CostModel,
    course_of,
    kind_of,
    memory,
    most_iterations,
    operations,
)
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def points(**axes):
    spec = parse_spec(
        {
            "name": "a",
            "seed": 1,
            "model": {"visible": 20, "hidden": 4},
            "data": {"length": 1000},
            "learner": {"estimator": "bp", "start": "signs"},
            "axes": axes,
        }
    )
    return list(Plan.of(spec).points)


def test_operations_grow_with_everything() -> None:
    for key, values in (
        ("data.length", [100, 1000]),
        ("model.visible", [10, 20]),
        ("model.hidden", [2, 4]),
        ("learner.correlations", ["pair", "iterated"]),
    ):
        small, large = points(**{key: values})
        assert operations(small, 10) < operations(large, 10)
    (point,) = points()
    assert operations(point, 10) < operations(point, 20)


def test_iterations_on_short_recordings_are_not_free() -> None:
    """A price learned from short recordings would otherwise be far too high for long ones."""

    def per_iteration(length: int, **values: object) -> float:
        (point,) = points(**{"data.length": [length], **{key: [value] for key, value in values.items()}})
        return operations(point, 11) - operations(point, 10)

    assert per_iteration(3) > cost.ITERATION_OVERHEAD
    assert per_iteration(100) < 2 * per_iteration(3)
    assert per_iteration(10_000) > 10 * per_iteration(3)
    # With a prior, every row of a large network has its own system, but for samplers.
    large = {"model.visible": 100, "model.hidden": 20, "learner.step": "scaled"}
    assert per_iteration(3, **large) > 5 * per_iteration(3, **large, **{"learner.prior": "none"})
    sampled = {**large, "learner.estimator": "gibbs"}
    assert per_iteration(3, **sampled) == per_iteration(3, **sampled, **{"learner.prior": "none"})
    (inference,) = Plan.of(
        parse_spec(
            {
                "name": "a",
                "seed": 1,
                "task": "infer",
                "data": {"length": 1000},
                "model": {"visible": 20, "hidden": 4},
            }
        )
    ).points
    assert operations(inference, 0) == operations(inference, 10)


def test_learning_in_single_precision_costs_less() -> None:
    def of(**values: object) -> float:
        (point,) = points(**{key: [value] for key, value in {"learner.estimator": "bp", **values}.items()})
        return operations(point, 40)

    for length, like in ((10_000, "float64"), (100_000, "float32")):
        single, double, auto = (
            of(**{"data.length": length, "learner.estep.precision": precision})
            for precision in ("float32", "float64", "auto")
        )
        assert single < 0.8 * double
        assert auto == {"float32": single, "float64": double}[like]
    ascent = {"data.length": 100_000, "learner.step": "gradient"}
    assert of(**ascent) == of(**ascent, **{"learner.estep.precision": "float64"})


def test_every_start_adds_a_pilot_on_the_beginning_of_the_recording() -> None:
    def added(starts: int, length: int) -> float:
        one, several = points(**{"learner.starts": [1, starts], "data.length": [length]})
        return operations(several, 10) - operations(one, 10)

    first = added(2, PILOT_SLICES) / 2
    assert first > PILOT_SLICES
    assert added(5, PILOT_SLICES) == pytest.approx(5 * first)
    # A longer recording costs pilots nothing, a shorter one costs less.
    assert added(2, 10 * PILOT_SLICES) == pytest.approx(2 * first)
    assert added(2, PILOT_SLICES // 10) == pytest.approx(2 * first / 10)


def test_every_thread_needs_room_for_a_chunk() -> None:
    (point,) = points()
    per_thread = memory(point, 2) - memory(point, 1)
    nv, nh = point.model.visible, point.model.hidden
    assert per_thread >= (nv + nh) * CHUNK_BYTES
    assert memory(point, 5) - memory(point, 1) == 4 * per_thread


def test_prices_are_learned_kept_and_used() -> None:
    (point,) = points()
    model = CostModel.load()
    assert not model.knows(point)
    # Eleven runs at 3 ns an operation, and one that compiled for a minute.
    for seconds in [3e-9 * operations(point, 12)] * 11 + [60.0]:
        model.learn(point, {"status": "done", "cpu_seconds": seconds, "iterations": 12})
    model.learn(point, {"status": "failed", "cpu_seconds": 1e9, "iterations": 12})
    model.settle()
    model.save()
    again = CostModel.load()
    assert again.knows(point)
    assert again.seconds(point) == pytest.approx(3e-9 * operations(point, 12))


def test_the_iterations_of_long_recordings_count_most() -> None:
    short, long = points(**{"data.length": [1000, 9000]})
    model = CostModel.load()
    for point, made in ((short, 100), (long, 20)):
        row = {"status": "done", "cpu_seconds": 3e-9 * operations(point, made), "iterations": made}
        model.learn(point, row)
    model.settle()
    assert model.iterations[course_of(long)] == pytest.approx(0.1 * 100 + 0.9 * 20)
    assert model.seconds(long) == pytest.approx(3e-9 * operations(long, 28))


def test_a_short_sweep_whose_first_runs_compiled_does_not_make_the_next_one_seem_long() -> None:
    (point,) = points()
    model = CostModel.load()
    for seconds in [45.0, 60.0, 3e-9 * operations(point, 12)]:
        model.learn(point, {"status": "done", "cpu_seconds": seconds, "iterations": 12})
    model.settle()
    assert model.seconds(point) == pytest.approx(3e-9 * operations(point, 12))


def finished(model: CostModel, point, iterations: int, *, runs: int = 10, price: float = 3e-9) -> None:
    """Take note of runs, and settle."""
    row = {"status": "done", "cpu_seconds": price * operations(point, iterations), "iterations": iterations}
    for _ in range(runs):
        model.learn(point, row)
    model.settle()


@pytest.mark.parametrize(
    "other",
    [
        {"model.visible": 80, "model.hidden": 20},
        {"learner.l1": 1.0},
        {"learner.decimate": "known"},
        {"learner.prior": "none"},
    ],
)
def test_iterations_on_other_sizes_or_with_pruning_say_nothing(other: dict[str, object]) -> None:
    """On a hundred spins the uncorrected algorithm diverges in three iterations, and on 24 it takes 460."""
    (point,) = points()
    (another,) = points(**{key: [value] for key, value in other.items()})
    model = CostModel()
    before = model.seconds(another) / cost.PRICE
    finished(model, point, 3)
    # The price counts, which depends on the kernels; not the iterations.
    assert model.seconds(another) == pytest.approx(3e-9 * before)
    assert model.seconds(point) == pytest.approx(3e-9 * operations(point, 3))


def test_a_resumed_run_adds_to_what_is_known() -> None:
    (point,) = points()
    model = CostModel()
    finished(model, point, 40, runs=99, price=1e-9)
    model.save()
    model = CostModel.load()
    finished(model, point, 240, runs=1, price=51e-9)
    assert model.prices[kind_of(point)] == pytest.approx(1.5e-9)
    assert model.iterations[course_of(point)] == pytest.approx(42)
    # However much is known, what a machine does now counts.
    finished(model, point, 40, runs=400, price=1e-9)
    for _ in range(20):
        finished(model, point, 40, runs=100, price=2e-9)
    assert model.prices[kind_of(point)] == pytest.approx(2e-9, rel=0.05)


def test_numbers_of_an_older_version_are_read_and_give_way() -> None:
    (point,) = points()
    path = cost.cache_file()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"prices": {kind_of(point): 5e-9}, "iterations": {}}))
    model = CostModel.load()
    assert model.prices == {kind_of(point): 5e-9}
    finished(model, point, 40, runs=9, price=1e-9)
    assert model.prices[kind_of(point)] == pytest.approx(1.4e-9)


def test_runs_all_over_a_plan_are_sampled() -> None:
    """The first of many runs are the short ones."""
    short, long = points(**{"data.length": [1000, 2000]})
    model = CostModel()
    for point, made in ((short, 100), (long, 10)):
        row = {"status": "done", "cpu_seconds": 3e-9 * operations(point, made), "iterations": made}
        for _ in range(3000):
            model.learn(point, row)
    model.settle()
    assert model.iterations[course_of(long)] == pytest.approx((100 + 2 * 10) / 3, rel=0.01)
    assert model.slices[course_of(long)] == pytest.approx(3000 * 3000, rel=0.01)


def test_measuring_again_replaces_prices_only() -> None:
    (point,) = points()
    model = CostModel()
    finished(model, point, 40, runs=400, price=1e-9)
    model.learn(point, {"status": "done", "cpu_seconds": 9e-9 * operations(point, 10), "iterations": 10})
    model.settle_prices()
    assert model.prices[kind_of(point)] == pytest.approx(9e-9)
    assert model.iterations[course_of(point)] == pytest.approx(40)


def test_sampling_gaps_may_take_as_many_iterations_as_sampling() -> None:
    (point,) = points(**{"learner.estimator": ["auto"], "data.missing": [0.1]})
    assert most_iterations(point) == 4000
    model = CostModel()
    finished(model, point, 2000)
    assert model.seconds(point) == pytest.approx(3e-9 * operations(point, 2000))


def test_without_hidden_spins_every_estimator_is_exact() -> None:
    exact, *others = points(
        **{
            "learner.estimator": ["exact", "bp", "tap", "gibbs"],
            "model.hidden": [0],
            "learner.start": ["random"],
        }
    )
    for point in others:
        assert kind_of(point) == kind_of(exact)
        assert CostModel().seconds(point) == CostModel().seconds(exact)
    sampled, *_ = points(**{"learner.estimator": ["gibbs"], "model.hidden": [0], "data.missing": [0.1]})
    assert "gibbs" in kind_of(sampled)


def test_a_busy_machine_does_not_raise_prices() -> None:
    (point,) = points()
    model = CostModel.load()
    price = 3e-9
    row = {"status": "done", "seconds": 1e4, "cpu_seconds": price * operations(point, 12), "iterations": 12}
    model.learn(point, row)
    model.settle()
    assert model.seconds(point) == pytest.approx(price * operations(point, 12))


def test_damaged_cache_is_as_good_as_none() -> None:
    path = cost.cache_file()
    path.parent.mkdir(parents=True)
    for text in (
        "",
        "{",
        "[]",
        json.dumps({"prices": {"a": "x"}, "iterations": {}}),
        json.dumps({"prices": 3}),
    ):
        path.write_text(text)
        assert CostModel.load() == CostModel()


def test_unwritable_cache_is_done_without(tmp_path, monkeypatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    CostModel().save()


def test_nothing_is_made_in_the_working_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "~")  # what Python makes of a user without a home
    CostModel().save()
    assert CostModel.load() == CostModel()
    assert list(tmp_path.iterdir()) == []


def test_kinds_are_the_kernels() -> None:
    kinds = {
        kind_of(p) for p in points(**{"learner.estimator": ["exact", "bp", "tap"], "data.length": [10, 20]})
    }
    assert kinds == {
        "learn exact signs scaled",
        "learn bp bounded auto signs scaled",
        "learn tap signs scaled",
    }


def test_memory_is_linear_in_length() -> None:
    a, b, c = (memory(p, 1) for p in points(**{"data.length": [1000, 2000, 3000]}))
    assert b - a == c - b == 1000 * 24
