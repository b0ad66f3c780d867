"""Every option is declared once; whatever is derived from the declarations agrees with them."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from kising import fit, gradient, infer
from kising.arguments import FIT, INFER
from kising.cli import main
from kising.option_types import Leaf, leaves_of
from kising.options import LEAVES, OTHER_SECTIONS, Header, Learner
from kising.sweep.spec import parse_spec
from kising.sweep.spec.loading import read_document
from kising.sweep.spec.reference import json_schema, markdown
from kising.sweep.store.columns import PARAMETERS
from kising.values import RefusedError

ROOT = Path(__file__).parents[1]
EVERY = [
    *leaves_of(Header),
    *LEAVES.values(),
    *(leaf for name, section in OTHER_SECTIONS.items() for leaf in leaves_of(section, f"{name}.")),
]
FILES = [*(ROOT / "sweeps").glob("*.yaml"), *(ROOT / "tests" / "sweep" / "spec" / "valid").glob("*.yaml")]
BASE = {"name": "a", "seed": 1, "model": {"visible": 4, "hidden": 2}, "data": {"length": 100}}


@pytest.mark.parametrize("leaf", EVERY, ids=lambda leaf: leaf.key)
def test_an_option_is_declared_whole(leaf: Leaf) -> None:
    text = leaf.option.help
    assert text.endswith(".")
    assert text[0].isupper() or text.startswith(("learn:", "scaled:"))
    assert "\n" not in text
    if not leaf.required:
        assert leaf.kind.parse(leaf.default) == leaf.default
    assert leaf.option.since >= 1


def test_columns_are_the_options_with_their_types() -> None:
    assert [column.name for column in PARAMETERS] == ["task", "seed", *LEAVES]
    for column in PARAMETERS[2:]:
        leaf = LEAVES[column.name]
        assert column.kind == leaf.kind.column
        assert column.nullable == leaf.nullable
        assert column.meaning == leaf.option.help


def test_defaults_agree_between_functions_commands_and_files() -> None:
    asked = parse_spec(BASE).learner
    assert asked == Learner()
    assert (asked.estimator, asked.start) == ("auto", "random")
    for function, arguments in ((fit, FIT), (infer, INFER), (gradient, INFER)):
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in arguments.leaves} == {
            name: leaf.default for name, leaf in arguments.leaves.items()
        }
        assert all(
            f"    {name}: {leaf.option.help}" in function.__doc__ for name, leaf in arguments.leaves.items()
        )
    assert FIT.learner({}, {"model.visible": 4, "model.hidden": 2}, function="fit") == asked
    assert {leaf.key for leaf in FIT.leaves.values()} == {key for key in LEAVES if key.startswith("learner.")}


def test_every_option_that_needs_no_truth_is_a_flag() -> None:
    command = main.commands["fit"]
    flags = {option.name: option for option in command.params}
    for name, leaf in FIT.leaves.items():
        assert (name in flags) == (not leaf.option.needs_truth), name
        if name in flags:
            assert leaf.option.help in flags[name].help
            assert not flags[name].required


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--rate", "0", "0 is out of range; allowed: numbers > 0"),
        ("--estimator", "bpp", "'bpp' is not an estimator; allowed: auto, exact"),
        ("--prior", "wide", "neither the word none or auto nor a number"),
        ("--estep-damping", "1", "out of range; allowed: adaptive, or a number with 0 <= number < 1"),
    ],
)
def test_a_flag_refuses_as_a_file_does(flag: str, value: str, message: str) -> None:
    result = CliRunner().invoke(main, ["fit", "x.npy", "--hidden", "2", "--seed", "1", flag, value])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@cache
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_accepts_every_right_file(path: Path) -> None:
    validator().validate(read_document(path).value)


NASTY = [None, True, False, -1, 0, 1, 2, 3, 0.5, 1.0, 2.5, 1e5, 1e-9, 1e300, 2**63, -0.5, "", "none", "known", "bp",
         "7", "adaptive", "signs", "float32", "a b", "15m", "2GiB", "5 parsecs", [], {}, [1], {"a": 1}]  # fmt: skip


@pytest.mark.parametrize("leaf", EVERY, ids=lambda leaf: leaf.key)
def test_the_schema_accepts_a_value_where_the_check_does(leaf: Leaf) -> None:
    schema = jsonschema.Draft202012Validator(leaf.kind.json_schema())
    for value in NASTY:
        try:
            leaf.kind.parse(value)
            accepted = True
        except RefusedError:
            accepted = False
        assert schema.is_valid(value) == accepted, value


@pytest.mark.parametrize(
    "wrong",
    [
        {"modle": {}},
        {"model": {"visible": 4, "hiden": 2}},
        {"axes": {"data.lenght": [1]}},
        {"axes": {"learner.estimator": {"linspace": [1, 2, 3]}}},
        {"axes": {"data.length": {"logspace": [1, 2, 3], "range": [1, 2]}}},
        {"presets": {"quick": {"presets": {}}}},
        {"presets": {"quick": {"learner": {"hold": 0}}}},
    ],
)
def test_the_schema_refuses_wrong_keys(wrong: dict) -> None:
    assert validator().is_valid(BASE)
    assert not validator().is_valid({**BASE, **wrong})


def test_the_command_prints_both_forms() -> None:
    printed = CliRunner().invoke(main, ["schema"]).output
    assert json.loads(printed) == json.loads(json.dumps(json_schema()))
    assert CliRunner().invoke(main, ["schema", "--format", "markdown"]).output == markdown()


def test_the_key_reference_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "sweep-file.md").read_text()
    assert written == markdown(), (
        "write it anew: kising schema --format markdown > docs/reference/sweep-file.md"
    )


def test_options_load_no_compiler() -> None:
    heavy = ("ray", "numba", "pandas", "scipy", "pyarrow", "matplotlib")
    script = f"import sys, kising.arguments; print([name for name in {heavy!r} if name in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed == "[]\n"


def test_an_option_added_later_leaves_old_ids_alone() -> None:
    later = [leaf for leaf in LEAVES.values() if leaf.option.since > 1]
    assert later
    for leaf in later:
        implied = leaf.default if leaf.option.implied is None else leaf.option.implied
        assert not leaf.in_id(implied)
        assert not leaf.in_id(None)
    assert LEAVES["learner.prior"].in_id(3.0)
    assert LEAVES["learner.estimator"].in_id("auto")
