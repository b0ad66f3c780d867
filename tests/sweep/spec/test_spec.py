"""Specs: the valid and the invalid files, presets, overrides, writing back, and no input that crashes."""

import re
import string
from decimal import Decimal
from pathlib import Path

import numpy as np
import pydantic
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kising.errors import SpecError
from kising.option_types import Option, Section
from kising.options import LEAVES, Resources
from kising.sweep.plan import Plan
from kising.sweep.spec import SweepSpec, dump_spec, parse_spec, read_spec
from kising.sweep.spec.spacing import Spacing

HERE = Path(__file__).parent
VALID = sorted((HERE / "valid").glob("*.yaml"))
INVALID = sorted((HERE / "invalid").glob("*.yaml"))

BASE = {"name": "a", "seed": 1, "model": {"visible": 20, "hidden": 4}, "data": {"length": 1000}}


def messages(mapping, **how):
    with pytest.raises(SpecError) as caught:
        parse_spec(mapping, **how)
    return str(caught.value).splitlines()


def reread(spec, tmp_path):
    path = tmp_path / "written.yaml"
    path.write_text(dump_spec(spec), encoding="utf-8")
    return read_spec(path)


# --- the two folders


def test_there_are_enough_files():
    assert len(VALID) >= 12
    assert len(INVALID) >= 30
    assert {path.stem for path in INVALID} == {path.stem for path in (HERE / "invalid").glob("*.message")}


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_valid_file_makes_the_points_and_runs_it_says(path, tmp_path):
    spec = read_spec(path)
    points, runs = map(int, re.match(r"# points: (\d+), runs: (\d+)\n", path.read_text()).groups())
    plan = Plan.of(spec)
    assert (len(plan.points), plan.n_runs) == (points, runs)
    assert reread(spec, tmp_path) == spec


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_an_invalid_file_gets_its_message(path):
    with pytest.raises(SpecError) as caught:
        read_spec(path)
    assert str(caught.value).replace(str(path), "FILE") + "\n" == path.with_suffix(".message").read_text()


def test_no_message_has_pydantics_words():
    said = "\n".join(path.with_suffix(".message").read_text() for path in INVALID)
    for words in (
        "Input should",
        "Field required",
        "Extra inputs",
        "permitted",
        "pydantic",
        "valid dictionary",
        "type=",
    ):
        assert words not in said


# --- values


def test_what_a_file_says_is_what_the_spec_holds():
    spec = read_spec(HERE / "valid" / "every-key.yaml")
    assert spec.name == "every.key_of-1"
    assert spec.description == "Every key there is,\neach with a value that is not its default.\n"
    assert (spec.task, spec.seed, spec.realizations) == ("infer", 2**63 - 1, 7)
    assert spec.model.model_dump() == {
        "visible": 40,
        "hidden": 20,
        "bonds": "binary",
        "strength": 0.0,
        "connectivity": 0.5,
        "bias": 0.25,
        "hidden_coupling": 0.0,
    }
    assert spec.data.length == 3
    assert spec.learner.model_dump() == {
        "estimator": "mean-field",
        "correlations": "iterated-corrected",
        "bias": False,
        "hidden_couplings": False,
        "start": "random",
        "starts": 1,
        "step": "gradient",
        "rate": 0.01,
        "momentum": 0.9,
        "tolerance": 0.0015,
        "hold": 10,
        "max_iterations": 1000,
        "noise": 0.1,
        "prior": "auto",
        "l1": 0.0,
        "decimate": "none",
        "estep": {"tolerance": 1e-12, "damping": 0.25, "max_iterations": 64, "precision": "auto"},
    }
    assert spec.score.exact is True
    assert spec.resources.model_dump() == {
        "cpus": 4,
        "memory": 3 * 2**29,
        "timeout": 90.0,
        "checkpoint": 60.0,
    }


def test_defaults():
    spec = parse_spec(BASE)
    assert spec.learner.model_dump() == {
        "estimator": "auto",
        "correlations": "bounded",
        "bias": True,
        "hidden_couplings": False,
        "start": "random",
        "starts": 1,
        "step": "scaled",
        "rate": 0.1,
        "momentum": 0.0,
        "tolerance": 1e-4,
        "hold": 3,
        "max_iterations": None,
        "noise": 0.1,
        "prior": "auto",
        "l1": 0.0,
        "decimate": "none",
        "estep": {"tolerance": 1e-9, "damping": "adaptive", "max_iterations": 200, "precision": "auto"},
    }
    assert (spec.description, spec.task, spec.realizations, spec.axes) == ("", "learn", 1, ())
    assert spec.resources.model_dump() == {"cpus": 1, "memory": None, "timeout": None, "checkpoint": 60.0}
    assert (spec.model.bonds, spec.model.strength, spec.model.connectivity) == ("gaussian", 1.0, 1.0)
    assert {key for key, leaf in LEAVES.items() if leaf.required} == {
        "model.visible",
        "model.hidden",
        "data.length",
    }


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("500MB", 500 * 10**6),
        ("2GiB", 2**31),
        ("1.1GB", 11 * 10**8),
        (" 3 kB ", 3000),
        (12345, 12345),
        (1e6, 10**6),
        (None, None),
    ],
)
def test_memory(said, meant):
    memory = parse_spec({**BASE, "resources": {"memory": said}}).resources.memory
    assert memory == meant
    assert type(memory) is type(meant)


@pytest.mark.parametrize(
    ("said", "meant"), [("2h", 7200), ("90s", 90), ("1.5m", 90), ("1e-1 s", 0.1), ("1d", 86400), (5, 5)]
)
def test_timeout(said, meant):
    timeout = parse_spec({**BASE, "resources": {"timeout": said}}).resources.timeout
    assert timeout == meant
    assert type(timeout) is float


def test_a_spec_cannot_be_changed():
    spec = parse_spec(BASE)
    with pytest.raises(pydantic.ValidationError):
        spec.model.visible = 3
    with pytest.raises(pydantic.ValidationError):
        spec.seed = 3


def test_every_key_has_a_kind_so_that_pydantic_never_finds_words_of_its_own():
    def check(section):
        for name, field in section.model_fields.items():
            nested = isinstance(field.annotation, type) and issubclass(field.annotation, Section)
            if nested:
                check(field.annotation)
            else:
                assert any(isinstance(entry, Option) for entry in field.metadata) or name == "axes"

    check(SweepSpec)
    check(Resources)


def test_arrays_tuples_and_numpy_numbers_are_plain_data():
    axes = {"data.length": np.array([10, 20]), "model.strength": (np.float64(0.5), 1)}
    spec = parse_spec(
        {**BASE, "seed": np.int64(1), "axes": axes, "task": "infer", "score": {"exact": np.bool_(True)}}
    )
    assert [axis.columns for axis in spec.axes] == [((10, 20),), ((0.5, 1.0),)]
    assert spec.score.exact is True
    assert type(spec.seed) is int


def test_mistakes_of_a_mapping_have_dotted_keys():
    learner = {"estimator": "bpp", "estep": {"damping": 3}}
    plain = "text, numbers, true, false, lists, mappings"
    estimators = "auto, exact, gibbs, bp, tap, mean-field"
    assert messages({**BASE, "learner": learner, 5: 6, "seed": Decimal(1)}) == [
        "the key 5 is not text; allowed: keys such as 'data.length'",
        f"seed: a value of type Decimal is not plain data; allowed: {plain}",
        f"learner.estimator: 'bpp' is not an estimator; allowed: {estimators}; did you mean 'bp'?",
        "learner.estep.damping: 3 is out of range; allowed: adaptive, or a number with 0 <= number < 1",
    ]
    assert messages([1, 2]) == ["a sweep is a mapping ({'name': ..., 'seed': ...}), this is of type list"]


def test_a_mapping_that_holds_itself_is_refused():
    loop = dict(BASE)
    loop["presets"] = loop
    assert any("nested deeper" in line for line in messages(loop))


def test_many_mistakes_are_counted_not_recited():
    with pytest.raises(SpecError) as caught:
        parse_spec({**BASE, **{f"k{i}": 1 for i in range(10_000)}})
    assert len(caught.value.problems) == 201
    lines = str(caught.value).splitlines()
    assert len(lines) == 101
    assert lines[-1] == "... and 101 more"
    assert str(caught.value.problems[-1]) == "9800 more mistakes like these"


# --- axes and points


def test_an_axis_wins_over_its_section():
    spec = parse_spec({**BASE, "axes": {"data.length": [10, 20]}})
    assert spec.data.length == 10
    assert spec == parse_spec({**BASE, "data": {"length": 555}, "axes": {"data.length": [10, 20]}})


def test_required_values_may_come_from_axes():
    spec = parse_spec(
        {
            "name": "a",
            "seed": 1,
            "axes": {k: [3, 4] for k in ("model.visible", "model.hidden", "data.length")},
        }
    )
    assert len(Plan.of(spec).points) == 8


def test_a_refused_expansion_answers_without_expanding(monkeypatch):
    monkeypatch.delattr(Spacing, "numbers")
    axes = {"data.length": {"linspace": [3, 1e9, 1e6]}, "model.strength": {"linspace": [0, 1, 1e6]}}
    assert messages({**BASE, "axes": axes}) == [
        "axes: 1000000 x 1000000 = 1000000000000 points; allowed: at most 1000000"
    ]


def test_ten_million_runs_are_allowed_and_not_one_more():
    assert parse_spec({**BASE, "realizations": 10**7}).realizations == 10**7
    assert messages({**BASE, "realizations": 10**7 + 1}) == [
        "realizations: 10000001 runs; allowed: at most 10000000"
    ]


def test_exact_is_refused_only_where_it_meets_a_large_network():
    together = [{"learner.estimator": ["exact", "bp"], "model.hidden": [20, 21]}]
    assert len(Plan.of(parse_spec({**BASE, "axes": together})).points) == 2
    crossed = {"learner.estimator": ["exact", "bp"], "model.hidden": [20, 21]}
    assert messages({**BASE, "axes": crossed}) == [
        "axes.model.hidden: 21 is too large for estimator exact, which sums over 2^hidden states; "
        "allowed: up to 20, or another estimator (gibbs, bp, tap, mean-field)"
    ]


# --- presets and overrides

PRESET = {
    **BASE,
    "realizations": 9,
    "learner": {"rate": 0.5, "estep": {"damping": 0.5, "max_iterations": 7}},
    "axes": {"data.length": [10, 20], "model.hidden": [1, 2]},
    "presets": {
        "quick": {"realizations": 2, "learner": {"estep": {"damping": 0.25}}, "axes": {"data.length": [30]}},
        "named": {"name": "b", "resources": {"timeout": "1m"}},
    },
}


def test_a_preset_overrides_sections_key_by_key_and_axes_whole():
    plain, quick = parse_spec(PRESET), parse_spec(PRESET, preset="quick")
    assert (plain.realizations, quick.realizations) == (9, 2)
    assert quick.learner.rate == 0.5
    estep = quick.learner.estep
    assert (estep.tolerance, estep.damping, estep.max_iterations) == (1e-9, 0.25, 7)
    assert [axis.keys for axis in quick.axes] == [("data.length",)]
    assert quick.model.hidden == 4
    named = parse_spec(PRESET, preset="named")
    assert (named.name, named.resources.timeout, len(named.axes)) == ("b", 60.0, 2)


def test_an_unknown_preset_lists_those_there_are():
    assert messages(PRESET, preset="quik") == [
        "there is no preset 'quik'; allowed: quick, named; did you mean 'quick'?"
    ]
    assert messages(BASE, preset="quick") == ["there is no preset 'quick'; this sweep has no presets"]


def test_a_preset_is_checked_even_when_another_is_chosen():
    mapping = {**PRESET, "presets": {**PRESET["presets"], "bad": {"realizations": 0}}}
    for preset in (None, "quick"):
        assert messages(mapping, preset=preset) == [
            "presets.bad.realizations: 0 is too small; allowed: whole numbers from 1"
        ]


def test_overrides_do_not_disturb_presets_that_are_not_chosen():
    mapping = {**BASE, "presets": {"large": {"model": {"hidden": 40}}}}
    assert parse_spec(mapping, overrides=["learner.estimator=exact"]).learner.estimator == "exact"


def test_a_preset_may_give_what_the_sweep_lacks():
    mapping = {
        "name": "a",
        "seed": 1,
        "model": {"visible": 3, "hidden": 1},
        "presets": {"p": {"data": {"length": 5}}},
    }
    assert parse_spec(mapping, preset="p").data.length == 5
    assert messages(mapping) == ["data.length: missing; allowed: whole numbers from 3, here or as an axis"]


def test_overrides_are_yaml_values_at_dotted_keys():
    spec = parse_spec(
        BASE,
        overrides=[
            "data.length=1e4",
            "name=b",
            "learner.estep.damping=0.5",
            "resources={cpus: 2, timeout: 2h}",
            "data.length = 1e5",
        ],
    )
    assert (spec.data.length, spec.name, spec.learner.estep.damping) == (100_000, "b", 0.5)
    assert (spec.resources.cpus, spec.resources.timeout) == (2, 7200)


def test_a_section_is_overridden_key_by_key():
    spec = parse_spec(
        {**BASE, "axes": {"model.hidden": [1, 2]}}, overrides=["model={hidden: 3, strength: 0.5}"]
    )
    assert spec.model.model_dump(include={"visible", "hidden", "strength"}) == {
        "visible": 20,
        "hidden": 3,
        "strength": 0.5,
    }
    assert spec.axes == ()


def test_an_override_has_the_last_word_over_presets_and_axes():
    mapping = {
        **BASE,
        "axes": [{"data.length": [10, 20]}, {"model.visible": [5, 6], "model.hidden": [1, 2]}],
        "presets": {"p": {"data": {"length": 3}, "realizations": 4}},
    }
    spec = parse_spec(
        mapping, preset="p", overrides=["data.length=99", "realizations=5", "model={visible: 7}"]
    )
    assert (spec.data.length, spec.realizations, spec.model.visible) == (99, 5, 7)
    assert [(axis.keys, axis.columns) for axis in spec.axes] == [(("model.hidden",), ((1, 2),))]


@pytest.mark.parametrize(
    "axes", [None, {"data.length": [10]}, [{"model.hidden": [3, 4], "data.length": [10, 20]}]]
)
def test_an_override_sets_one_axis(axes):
    spec = parse_spec(
        {**BASE, "axes": axes},
        overrides=["axes.data.length=[1e3, 2e3]", "axes.model.strength={linspace: [0, 1, 3]}"],
    )
    columns = {key: column for axis in spec.axes for key, column in zip(axis.keys, axis.columns, strict=True)}
    assert columns["data.length"] == (1000, 2000)
    assert columns["model.strength"] == (0.0, 0.5, 1.0)
    assert columns.get("model.hidden") == ((3, 4) if isinstance(axes, list) else None)


def test_mistaken_overrides_are_all_named():
    overrides = [
        *("data.length", "=3", "data.lenght=5", "learner.step=graident"),
        *("seed=[1", "presets.a=3", "axes.data.length=5", "model=3"),
    ]
    assert messages(BASE, overrides=overrides) == [
        "--set: 'data.length' is not an override; allowed: key=value, such as data.length=1e4",
        "--set: '=3' is not an override; allowed: key=value, such as data.length=1e4",
        "--set: seed: not readable as YAML: expected ',' or ']', but got '<stream end>' "
        "(while parsing a flow sequence that starts at line 1)",
        "--set: presets.a: presets cannot be overridden; choose one by its name",
        "--set: axes.data.length: 5 is not a list of values; allowed: a list of values, "
        "{linspace: [first, last, number]}, {logspace: [first, last, number]}, {range: [start, stop, step]}; "
        "did you mean [5]?",
        "--set: model: 3 is not a mapping; "
        "allowed: a mapping with keys visible, hidden, bonds, strength, connectivity, bias, hidden_coupling",
        "--set: data.lenght: unknown key; allowed: length, missing, file, key, bin, trials, covariates, "
        "delimiter, gaps, absent, folds, hash; did you mean 'length'?",
        "--set: learner.step: 'graident' is not a step; allowed: scaled, gradient; did you mean 'gradient'?",
    ]


def test_what_a_section_lacks_is_missing_where_the_section_stands_not_where_a_key_was_overridden(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nseed: 1\nmodel: {bonds: binary}\npresets:\n  p: {model: {strength: 2}}\n")
    lacking = "missing; allowed: whole numbers from"
    with pytest.raises(SpecError) as caught:
        read_spec(path, preset="p", overrides=["model.visible=5", "learner.estep.damping=0.5"])
    assert str(caught.value).splitlines() == [
        f"{path}:1: data.length: {lacking} 3, here or as an axis",
        f"{path}:3: model.hidden: {lacking} 0, here or as an axis",
    ]
    assert messages({"name": "a", "seed": 1, "data": {"length": 5}}, overrides=["model.visible=5"]) == [
        f"model.hidden: {lacking} 0, here or as an axis"
    ]


def test_after_an_axis_is_overridden_the_others_keep_their_lines(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: a\nseed: 1\nmodel: {visible: 5, hidden: 2}\n"
        "axes:\n- {data.length: [10, 20]}\n- {model.strength: [1, x]}\n"
    )
    with pytest.raises(SpecError) as caught:
        read_spec(path, overrides=["data.length=10"])
    assert (
        str(caught.value)
        == f"{path}:6: axes[1].model.strength[1]: 'x' is not a number; allowed: numbers >= 0"
    )


# --- writing back


def test_what_is_written_says_every_default(tmp_path):
    written = yaml.safe_load(dump_spec(parse_spec(BASE)))
    assert written["learner"]["estep"]["max_iterations"] == 200
    assert set(written) == {
        *("name", "task", "seed", "realizations", "model", "data", "learner", "score", "resources")
    }
    assert written["score"] == {"pruned": False, "errors": False}


def test_an_axis_is_written_in_the_form_it_had():
    spec = parse_spec(
        {**BASE, "axes": {"data.length": {"logspace": [10, 1000, 3]}, "model.strength": {"range": [1, 3]}}}
    )
    assert yaml.safe_load(dump_spec(spec))["axes"] == [
        {"data.length": {"logspace": [10, 1000, 3]}},
        {"model.strength": {"range": [1, 3, 1]}},
    ]


def test_specs_are_equal_if_their_values_are_however_an_axis_is_written():
    listed = parse_spec({**BASE, "axes": {"model.strength": [0.1, 0.2, 0.3]}})
    assert listed == parse_spec({**BASE, "axes": [{"model.strength": {"linspace": [0.1, 0.3, 3]}}]})
    assert listed != parse_spec({**BASE, "axes": {"model.strength": [0.1, 0.2, 0.4]}})


def test_presets_and_overrides_are_settled_in_what_is_written(tmp_path):
    spec = parse_spec(PRESET, preset="quick", overrides=["seed=77"])
    assert reread(spec, tmp_path) == spec
    assert "presets" not in dump_spec(spec)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(st.characters(codec="utf-8")))
@example("1e5")
@example("yes")
@example("2015-07-01\n")
@example("\x85\u2028\ufeff\x00 ")
def test_any_description_is_read_back(tmp_path, text):
    spec = parse_spec({**BASE, "description": text})
    assert spec.description == text
    assert reread(spec, tmp_path) == spec


@pytest.mark.parametrize("name", ["1e5", "true", "no", "null", "0x10", "2015", "1.5", "a"])
def test_a_name_that_looks_like_something_else_is_read_back(tmp_path, name):
    assert reread(parse_spec({**BASE, "name": name}), tmp_path).name == name


# --- nothing but a spec or a SpecError, whatever is given

telling = [0, 1, 3, 20, 21, 1e5, 10**400, "bp", "exact", "infer", "2h", "5GB", "adaptive", "\ud800"]
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(telling)
)
forms = st.fixed_dictionaries(
    {}, optional={form: st.lists(scalars, max_size=4) for form in ("linspace", "logspace", "range")}
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def mapping_of(keys, values):
    return st.dictionaries(
        st.sampled_from(keys) | st.text(string.ascii_letters, max_size=4), values, max_size=6
    )


leaf_keys = list(LEAVES)
axes_like = mapping_of(leaf_keys, st.lists(scalars, max_size=3) | forms | scalars)
section_like = mapping_of(
    [key.rpartition(".")[2] for key in leaf_keys] + ["estep"], scalars | mapping_of(["damping"], scalars)
)
top = dict.fromkeys(("model", "data", "learner", "score", "resources"), section_like | anything)
top |= {
    "axes": axes_like | st.lists(axes_like, max_size=3) | anything,
    "task": st.sampled_from(["learn", "infer", 3]),
}
top |= dict.fromkeys(("name", "seed", "realizations", "description"), scalars)
sweep_like = st.fixed_dictionaries({}, optional=top)
whole = st.fixed_dictionaries({}, optional=top | {"presets": mapping_of(["p"], sweep_like) | anything})
override = st.builds(
    "{}={}".format,
    st.sampled_from([*leaf_keys, "axes", "axes.data.length", "seed", "model"]) | st.text(max_size=5),
    st.text(max_size=5) | scalars,
)


def only_spec_error(call):
    """Return the spec, or None after a SpecError that says something printable on each line."""
    try:
        answer = call()
    except SpecError as error:
        answer = error
    if isinstance(answer, SweepSpec):
        return answer
    assert answer.problems
    assert all(problem.message and str(problem).isprintable() for problem in answer.problems)
    assert "Input should" not in str(answer)
    return None


@settings(max_examples=150, deadline=None)
@given(whole, st.sampled_from([None, "p", "q"]), st.lists(override, max_size=2))
def test_no_mapping_crashes(mapping, preset, overrides):
    only_spec_error(lambda: parse_spec(mapping, preset=preset, overrides=overrides))
    only_spec_error(lambda: parse_spec({**BASE, **mapping}, preset=preset, overrides=overrides))


@pytest.mark.parametrize(
    "key", [*LEAVES, *SweepSpec.model_fields, "resources.memory", "resources.timeout", "presets"]
)
def test_no_value_of_any_key_crashes(key):
    nasty = [
        *telling,
        None,
        True,
        -1,
        0.5,
        1e308,
        5e-324,
        -0.0,
        float("nan"),
        float("inf"),
        -(10**400),
        "",
        "1",
        "\n",
    ]
    for value in [*nasty, [], [[]], {}, {"range": [0, 10**400]}, {"linspace": [0, 1e308, 10**400]}, object()]:
        inner = value
        for part in reversed(key.split(".")):
            inner = {part: inner}
        only_spec_error(lambda inner=inner: parse_spec({**BASE, **inner}))
        only_spec_error(lambda value=value: parse_spec({**BASE, "axes": {key: value}}))
        only_spec_error(lambda value=value: parse_spec({**BASE, "axes": {key: [value]}}))


@given(anything)
def test_no_value_crashes(value):
    only_spec_error(lambda: parse_spec(value))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(":-[]{}&*!|>'\"%@#?, \n\tab1e.", max_size=60).map(str.encode))
def test_no_file_crashes(tmp_path, content):
    path = tmp_path / "garbage.yaml"
    path.write_bytes(content)
    only_spec_error(lambda: read_spec(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.data())
def test_no_damaged_file_crashes(tmp_path, data):
    content = bytearray(data.draw(st.sampled_from(VALID)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        content[start : start + data.draw(st.integers(0, 6))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b": ", b"[", b"1e9"])
        )
    path = tmp_path / "damaged.yaml"
    path.write_bytes(content)
    spec = only_spec_error(lambda: read_spec(path))
    if spec is not None:
        assert reread(spec, tmp_path) == spec
