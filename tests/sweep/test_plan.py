"""Plans: order, ids that come from content alone, seeds, and what is loaded and kept to make them."""

import itertools
import json
import pickle
import subprocess
import sys
import tracemalloc
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kising.option_types import Gate
from kising.options import LEAVES, READING, Data, Learner, Model, Score, unused_keys
from kising.sweep.plan import Plan, point_id_of, run_id_of
from kising.sweep.spec import parse_spec

BASE = {"name": "a", "seed": 1, "model": {"visible": 20, "hidden": 4}, "data": {"length": 1000}}


#: A learner for which all keys that tests vary have an effect.
LEARNER = {"estimator": "bp", "correlations": "corrected", "start": "signs", "bias": False}


def plan_of(*overrides, learner=None, **more):
    return Plan.of(
        parse_spec({**BASE, **more, "learner": {**LEARNER, **(learner or {})}}, overrides=overrides)
    )


def point_of(*overrides, **more):
    (point,) = plan_of(*overrides, **more).points
    return point


def point_id(*overrides, **more):
    return point_of(*overrides, **more).point_id


# --- points and runs

AXES = [
    {"data.length": [10, 20, 30]},
    {"model.visible": [5, 6], "model.hidden": [1, 2]},
    {"learner.estep.damping": ["adaptive", 0, 0.5]},
]


def test_the_first_axis_is_slowest_and_keys_of_an_item_vary_together():
    found = [
        (p.data.length, p.model.visible, p.model.hidden, p.learner.estep.damping)
        for p in plan_of(axes=AXES).points
    ]
    expected = itertools.product([10, 20, 30], [(5, 1), (6, 2)], ["adaptive", 0.0, 0.5])
    assert found == [(length, *sizes, damping) for length, sizes, damping in expected]


def test_points_are_a_sequence():
    points = plan_of(axes=AXES).points
    listed = list(points)
    assert len(points) == len(listed) == 18
    assert [points[i] for i in range(18)] == listed
    assert points[-1] == listed[-1]
    assert points[3:9:2] == listed[3:9:2]
    with pytest.raises(IndexError):
        points[18]
    assert [point.point_id for point in listed] == list(points.ids())


def test_more_points_than_are_numbered_out_at_a_time():
    plan = plan_of(axes={"data.length": {"range": [3, 8003]}, "learner.estimator": ["bp", "tap"]})
    assert [point.data.length for point in plan.points][::2] == list(range(3, 8003))
    assert plan.points[9001].data.length == 3 + 9001 // 2


def test_runs_go_through_the_realizations_of_each_point_in_order():
    plan = plan_of(axes=AXES, realizations=4)
    runs = list(plan.runs())
    assert plan.n_runs == len(runs) == 72
    assert [(run.point.point_id, run.realization) for run in runs] == [
        (point.point_id, r) for point in plan.points for r in range(4)
    ]
    assert [plan.run(i) for i in range(72)] == runs
    for outside in (-1, 72):
        with pytest.raises(IndexError):
            plan.run(outside)


def test_a_point_holds_checked_sections():
    point = point_of(learner={"estimator": "tap"})
    assert (type(point.model), type(point.data), type(point.learner), type(point.score)) == (
        Model,
        Data,
        Learner,
        Score,
    )
    assert point.model == Model(visible=20, hidden=4)
    assert point.learner == Learner(estimator="tap", start="signs", bias=False)


def test_runs_travel():
    run = plan_of(axes=AXES).run(5)
    assert pickle.loads(pickle.dumps(run)) == run


def test_values_are_flat_with_one_type_a_column():
    values = point_of(learner={"estep": {"damping": 0.5}, "step": "gradient"}).values()
    assert list(values) == ["task", "seed", *LEAVES]
    assert values["model.visible"] == 20
    assert values["learner.estep.damping"] == "0.5"
    assert point_of(learner={"decimate": 0.5}).values()["learner.decimate"] == "0.5"
    assert point_of().values()["learner.estep.damping"] == "adaptive"
    assert {key for key, value in values.items() if value is None} == NOISE | PRIOR | RECORDED | LIMIT


# --- values that change nothing

LEARNING = {
    f"learner.{key}"
    for key in (
        "bias",
        "hidden_couplings",
        "start",
        "step",
        "rate",
        "momentum",
        "tolerance",
        "hold",
        "max_iterations",
        "noise",
        "l1",
        "decimate",
        "starts",
        "prior",
    )
} | {"score.pruned", "score.errors"}
ESTEP = {f"learner.estep.{key}" for key in ("tolerance", "damping", "max_iterations", "precision")}
BP = {"learner.correlations", "learner.estep.precision"}
GRADIENT = {"learner.rate", "learner.momentum"}
NOISE = {"learner.noise"}
PRIOR = {"learner.prior"}
RECORDED = {"data.file", "data.folds", "data.hash", "data.absent", *(leaf.key for leaf in READING.values())}
# The limit of iterations is null unless it is set: it follows from the estimator.
LIMIT = {"learner.max_iterations"}


@pytest.mark.parametrize(
    ("overrides", "unused"),
    [
        (["learner.step=gradient"], NOISE | PRIOR),
        ([], GRADIENT | NOISE),
        (["learner.estimator=auto"], GRADIENT | ESTEP | BP),
        (["learner.estimator=gibbs"], GRADIENT | ESTEP | BP | {"learner.tolerance"}),
        (["learner.estimator=tap", "learner.step=gradient"], BP | NOISE | PRIOR),
        (["learner.estimator=mean-field"], GRADIENT | BP | NOISE),
        (["learner.estimator=exact"], GRADIENT | ESTEP | BP | NOISE),
        (["task=infer"], LEARNING),
        (["task=infer", "learner.step=gradient"], LEARNING),
        (["task=infer", "learner.estimator=exact"], LEARNING | ESTEP | BP),
    ],
)
def test_unused_values_are_null_and_their_sections_hold_defaults(overrides, unused):
    others = {
        "learner.start": "random",
        "learner.rate": 0.7,
        "learner.momentum": 0.3,
        "learner.tolerance": 0.01,
        "learner.hold": 9,
        "learner.max_iterations": 8,
        "learner.correlations": "pair",
        "learner.estep.tolerance": 0.1,
        "learner.estep.damping": 0.2,
        "learner.estep.max_iterations": 3,
        "learner.estep.precision": "float32",
        "learner.noise": 0.3,
        "learner.starts": 3,
        "learner.prior": 5.0,
        "learner.bias": "true",
    }
    if "learner.estimator=gibbs" not in overrides:
        others["learner.l1"] = 0.5
    if "task=infer" not in overrides:
        others["score.pruned"] = "true"
        others["score.errors"] = "true"
        if not {"learner.estimator=gibbs", "learner.step=gradient"} & set(overrides):
            others["learner.decimate"] = 0.5
    point = point_of(*overrides)
    assert point.point_id == point_id_of(point.values())
    assert {key for key, value in point.values().items() if value is None} == unused | RECORDED | LIMIT
    for key, value in others.items():
        other = point_of(*overrides, f"{key}={value}")
        assert (other.point_id == point.point_id) == (key in unused)
        assert (other == point) == (key in unused)


def test_combinations_that_differ_in_nothing_are_one_point():
    axes = {
        "learner.correlations": ["closed", "pair"],
        "learner.estimator": ["tap", "bp", "exact"],
        "data.length": [10, 20],
    }
    plan = plan_of(axes=axes)
    found = [(p.learner.estimator, p.values()["learner.correlations"], p.data.length) for p in plan.points]
    assert found == [
        ("tap", None, 10),
        ("tap", None, 20),
        ("bp", "closed", 10),
        ("bp", "closed", 20),
        ("exact", None, 10),
        ("exact", None, 20),
        ("bp", "pair", 10),
        ("bp", "pair", 20),
    ]
    assert len(plan.points) == plan.n_runs == 8


choices = {
    "learner.estimator": ["bp", "tap", "exact"],
    "learner.step": ["scaled", "gradient"],
    "learner.correlations": ["closed", "pair", "corrected"],
    "learner.rate": [0.1, 0.2],
    "learner.estep.damping": ["adaptive", 0.5],
    "data.length": [10, 20],
}


@settings(deadline=None)
@given(st.permutations(list(choices)), st.integers(0, 6), st.booleans())
def test_the_points_are_the_different_combinations_in_order(keys, count, together):
    columns = {key: choices[key] for key in keys[:count]}
    axes = [{key: column} for key, column in columns.items()]
    if together and {"learner.step", "learner.rate"} <= columns.keys():
        axes = [axis for axis in axes if not axis.keys() & {"learner.step", "learner.rate"}]
        axes.append({"learner.step": ["scaled", "gradient", "scaled"], "learner.rate": [0.1, 0.2, 0.2]})
    plan = plan_of(learner={"step": "gradient"}, axes=axes)
    brute = []
    for item_choice in itertools.product(
        *([dict(zip(a, row, strict=True)) for row in zip(*a.values(), strict=True)] for a in axes)
    ):
        overrides = [f"{key}={value}" for item in item_choice for key, value in item.items()]
        brute.append(point_of(*overrides, learner={"step": "gradient"}))
    seen = set()
    first = [point for point in brute if point.point_id not in seen and not seen.add(point.point_id)]
    assert list(plan.points) == first


# --- ids

#: What was implied when the first ids were made, and has other defaults now.
FIRST = {"prior": "none", "max_iterations": 300}


def test_an_id_is_the_digest_of_canonical_json():
    point = point_of(learner=FIRST)
    values = {
        key: value
        for key, value in point.values().items()
        if key not in LEAVES or LEAVES[key].option.since == 1
    }
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    assert '"model.strength":1.0' in text
    assert '"model.visible":20' in text
    assert point.point_id == sha256(text.encode()).hexdigest()[:16] == point_id_of(point.values())
    run = plan_of(realizations=3, learner=FIRST).run(2)
    assert run.run_id == run_id_of(point.point_id, 2)
    assert run.run_id == sha256(f'["run","{point.point_id}",2]'.encode()).hexdigest()[:16]


def test_ids_of_every_point_are_those_of_its_values():
    for point in plan_of(axes=AXES).points:
        assert point.point_id == point_id_of(point.values())
        assert point.point_id == point_id_of(dict(reversed(point.values().items())))


def test_an_id_never_changes():
    # These digits were written down once: a change here orphans the results of every sweep ever run.
    assert point_id(learner=FIRST) == "f1a5a51ed8cd253e"
    assert plan_of(learner=FIRST).run(0).run_id == "2b30516f711e640f"
    assert plan_of().run(0).network_seed[:2] == (337004592, 4099994568)


@pytest.mark.parametrize("twenty", ["20", "20.0", "2e1", "+20", "0x14"])
@pytest.mark.parametrize("half", ["0.5", ".5", "5e-1", "0.50"])
def test_an_id_does_not_depend_on_how_a_number_is_written(twenty, half):
    written = point_id(f"model.visible={twenty}", f"model.strength={half}", f"learner.estep.damping={half}")
    assert written == point_id("model.visible=20", "model.strength=0.5", "learner.estep.damping=0.5")
    assert point_id("model.strength=1") == point_id("model.strength=1.0")
    assert point_id("model.strength=0") == point_id("model.strength=-0.0")


def test_an_id_does_not_depend_on_order_or_on_what_does_not_define_the_point():
    backwards = {
        "learner": dict(reversed(LEARNER.items())),
        **{"data": {"length": 1000}, "model": {"hidden": 4, "visible": 20}, "seed": 1, "name": "a"},
    }
    assert Plan.of(parse_spec(backwards)).points[0].point_id == point_id()
    same = point_id(
        name="another",
        description="words",
        realizations=50,
        resources={"cpus": 3, "memory": "1GB", "timeout": 5},
        presets={"p": {"seed": 5}},
    )
    assert same == point_id()


def test_growing_an_axis_or_the_realizations_keeps_every_id():
    small = plan_of(axes={"data.length": [10, 30]}, realizations=2)
    large = plan_of(axes=[{"model.strength": [2, 1]}, {"data.length": [10, 20, 30]}], realizations=5)
    assert {run.run_id for run in small.runs()} < {run.run_id for run in large.runs()}


def test_a_point_has_the_same_id_from_an_axis_a_section_a_preset_or_another_form():
    ids = {
        point_id(model={"visible": 20, "hidden": 4, "strength": 0.3}),
        plan_of(axes={"model.strength": [0.1, 0.2, 0.3]}).points[2].point_id,
        plan_of(axes={"model.strength": {"linspace": [0.1, 0.5, 5]}}).points[2].point_id,
        plan_of(axes={"model.strength": {"range": [0.1, 0.5, 0.1]}}).points[2].point_id,
        plan_of(axes={"model.strength": {"logspace": [0.003, 0.3, 3]}}).points[2].point_id,
        Plan.of(
            parse_spec(
                {**BASE, "learner": LEARNER, "presets": {"p": {"model": {"strength": 0.3}}}}, preset="p"
            )
        )
        .points[0]
        .point_id,
    }
    assert len(ids) == 1


values_of = {
    "seed": st.integers(0, 2**63 - 1),
    "model.visible": st.integers(1, 500),
    "model.hidden": st.integers(1, 20),
    "model.bonds": st.sampled_from(["gaussian", "binary"]),
    "model.strength": st.floats(0, 10),
    "model.connectivity": st.floats(0, 1, exclude_min=True),
    "data.length": st.integers(3, 10**7),
    "learner.estimator": st.sampled_from(["auto", "exact", "gibbs", "bp", "tap", "mean-field"]),
    "learner.correlations": st.sampled_from(
        ["iterated", "closed", "pair", "corrected", "iterated-corrected"]
    ),
    "learner.start": st.sampled_from(["signs", "random"]),
    "learner.step": st.sampled_from(["scaled", "gradient"]),
    "learner.rate": st.floats(1e-9, 10),
    "learner.momentum": st.floats(0, 1, exclude_max=True),
    "learner.tolerance": st.floats(1e-12, 1),
    "learner.hold": st.integers(1, 100),
    "learner.max_iterations": st.integers(1, 10**6),
    "learner.estep.tolerance": st.floats(1e-15, 1),
    "learner.estep.damping": st.just("adaptive") | st.floats(0, 1, exclude_max=True),
    "learner.estep.max_iterations": st.integers(1, 10**6),
    "learner.estep.precision": st.sampled_from(["auto", "float64", "float32"]),
    "learner.noise": st.floats(1e-6, 10),
}


def from_flat(flat):
    # Samples are not learned from by plain ascent.
    samples = flat["learner.estimator"] == "gibbs" or (
        flat["learner.estimator"] == "auto" and flat["model.hidden"] > 8
    )
    assume(flat.get("task") == "infer" or not samples or flat["learner.step"] == "scaled")
    mapping = {"name": "a"}
    for key, value in flat.items():
        *sections, last = key.split(".")
        inner = mapping
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    (point,) = Plan.of(parse_spec(mapping)).points
    return point


@settings(deadline=None, max_examples=200)
@given(st.fixed_dictionaries(values_of), st.sampled_from(["learn", "infer"]), st.data())
def test_changing_any_value_that_matters_changes_the_id_and_no_other(flat, task, data):
    key = data.draw(st.sampled_from(list(values_of)))
    before = {**flat, "task": task}
    after = {**before, key: data.draw(values_of[key])}
    unused = unused_keys(Gate(task, before["learner.estimator"], before["learner.step"]))
    assert from_flat(before).point_id == point_id_of(from_flat(before).values())
    matters = before[key] != after[key] and key not in unused
    assert (from_flat(before).point_id != from_flat(after).point_id) == matters


def test_task_and_score_change_the_id():
    assert len({point_id(), point_id("task=infer"), point_id("task=infer", "score.exact=true")}) == 3


def test_what_makes_couplings_sparse_changes_the_id_where_it_is_on():
    on = [
        "learner.l1=1",
        "learner.l1=2",
        "learner.decimate=known",
        "learner.decimate=0.5",
        "score.pruned=true",
        "score.errors=true",
    ]
    assert len({point_id(), *(point_id(one) for one in on)}) == 7
    for off in ("learner.l1=0", "learner.decimate=none", "score.pruned=false", "score.errors=false"):
        assert point_id(off) == point_id()


def test_ids_do_not_collide_over_realizations_and_points():
    plan = plan_of(
        axes={"data.length": {"range": [3, 203]}, "model.strength": {"linspace": [0, 1, 20]}}, realizations=5
    )
    assert len(set(plan.ids.tolist())) == plan.n_runs == 20_000


# --- order


def test_order_maps_run_ids_to_their_places():
    plan = plan_of(axes=AXES, realizations=3)
    ids = [run.run_id for run in plan.runs()]
    assert [f"{number:016x}" for number in plan.ids.tolist()] == ids
    assert plan.order(ids).tolist() == list(range(54))
    shuffled = np.random.default_rng(0).permutation(54)
    assert plan.order([ids[i] for i in shuffled]).tolist() == shuffled.tolist()
    assert plan.order(plan.ids[shuffled]).tolist() == shuffled.tolist()


def test_order_does_not_know_strangers():
    plan = plan_of()
    run_id = plan.run(0).run_id
    strangers = ["0" * 16, "f" * 16, "", "no id at all", run_id.upper() + "0", "0" + run_id]
    assert plan.order([*strangers, run_id]).tolist() == [-1] * len(strangers) + [0]
    assert plan.order([]).tolist() == []
    plan.ids = np.array([0], dtype=np.uint64)  # what is no id is a stranger even to a run with the number 0
    del plan._sorted
    assert plan.order(["no id at all", "0" * 16]).tolist() == [-1, 0]


def test_many_runs_stay_small():
    plan = plan_of(axes={"model.strength": {"linspace": [0, 1, 100]}}, realizations=1000)
    tracemalloc.start()
    assert plan.order(plan.ids[::-1][:3]).tolist() == [99_999, 99_998, 99_997]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Ids, their order and the sorting: 60 MB for a million runs. A dict of strings would take 150.
    assert peak < 60 * plan.n_runs


# --- seeds


def seeds(run):
    return run.network_seed, run.data_seed, run.start_seed


def test_points_that_differ_in_length_or_learner_share_network_and_data():
    axes = {
        "data.length": [10, 1000],
        "learner.estimator": ["bp", "exact"],
        "learner.start": ["signs", "random"],
    }
    runs = list(plan_of(axes=axes).runs())
    assert len(runs) == 8
    assert len({seeds(run) for run in runs}) == 1


@pytest.mark.parametrize("task", ["learn", "infer"])
def test_tasks_share_networks_too(task):
    assert seeds(plan_of(f"task={task}").run(0)) == seeds(plan_of().run(0))


def test_realizations_purposes_models_and_sweep_seeds_all_differ():
    variants = [
        *plan_of(realizations=20).runs(),
        *plan_of("seed=2", realizations=20).runs(),
        *plan_of("model.strength=0.5", realizations=20).runs(),
        *plan_of("model.bonds=binary", realizations=20).runs(),
        *plan_of("model.connectivity=0.5", realizations=20).runs(),
        *plan_of("model.visible=21", realizations=20).runs(),
        *plan_of("model.hidden=5", realizations=20).runs(),
    ]
    every = [seed for run in variants for seed in seeds(run)]
    assert len(set(every)) == len(every) == 7 * 20 * 3


def test_seeds_are_entropy_for_numpy():
    for seed in seeds(plan_of().run(0)):
        assert len(seed) == 8
        assert all(type(word) is int and 0 <= word < 2**32 for word in seed)
        np.random.default_rng(np.random.SeedSequence(seed)).random()


def test_a_seed_is_the_digest_of_what_it_depends_on():
    run = plan_of(realizations=4).run(3)
    model = '{"bonds":"gaussian","connectivity":1.0,"hidden":4,"strength":1.0,"visible":20}'
    digest = sha256(f'["network",1,{model},3]'.encode()).digest()
    assert run.network_seed == tuple(np.frombuffer(digest, ">u4").tolist())


# --- what is loaded


@pytest.mark.parametrize("module", ["spec.loading", "spec", "spec.axes", "plan"])
def test_importing_loads_no_heavy_package(module):
    heavy = ("ray", "numba", "pandas", "scipy", "pyarrow", "matplotlib")
    code = f"import sys, kising.sweep.{module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
