"""The sweep file described for machines and for people: its JSON Schema, and the key reference of the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from kising.estimators.registry import AUTO, AUTO_LARGEST_COUPLED, AUTO_LARGEST_EXACT, ESTIMATORS, NAMES
from kising.options import (
    LEAVES,
    OTHER_SECTIONS,
    POINT_SECTIONS,
    Header,
    Leaf,
    Section,
    Task,
    choices,
    gates,
    leaves_of,
    option_of,
)
from kising.sweep.spec.spacing import SHAPES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a sweep file, for editors that complete and check YAML."""
    whole = {leaf.key: _leaf(leaf) for leaf in leaves_of(Header)}
    whole |= {name: _section(section) for name, section in {**POINT_SECTIONS, **OTHER_SECTIONS}.items()}
    whole["axes"] = _axes()
    presets = {
        "description": "Variants of the sweep, by name: kising run FILE --preset NAME.",
        "type": ["object", "null"],
        "additionalProperties": _mapping(whole),
    }
    return {
        "$schema": _DIALECT,
        "title": "kising sweep file",
        **_mapping({**whole, "presets": presets}),
        "type": "object",
        "required": [leaf.key for leaf in leaves_of(Header) if leaf.required],
    }


def _mapping(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": dict(properties), "additionalProperties": False}


def _section(section: type[Section]) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for leaf in leaves_of(section):
        if "." not in leaf.key:
            inner[leaf.key] = _leaf(leaf)
    for key, field in section.model_fields.items():
        if option_of(section, key) is None and isinstance(field.annotation, type):
            inner[key] = _section(field.annotation)
    return {"description": (section.__doc__ or "").strip(), **_mapping(inner)}


def _leaf(leaf: Leaf) -> dict[str, Any]:
    default = {} if leaf.required else {"default": leaf.default}
    return {"description": leaf.option.help, **leaf.kind.json_schema(), **default}


def _axes() -> dict[str, Any]:
    numbers = {"type": "array", "items": {"type": "number"}}
    forms = {form: {**numbers, "description": shape} for form, shape in SHAPES.items()}
    one_form = {"minProperties": 1, "maxProperties": 1}
    spacing = {"type": "object", "properties": forms, "additionalProperties": False, **one_form}
    keys = {}
    for key, leaf in LEAVES.items():
        if not leaf.option.varies:
            continue
        values = {"type": "array", "items": leaf.kind.json_schema(), "minItems": 1}
        keys[key] = {
            "description": leaf.option.help,
            "anyOf": [values, spacing] if leaf.kind.numeric else [values],
        }
    one = {"type": "object", "properties": keys, "additionalProperties": False, "minProperties": 1}
    return {
        "description": "Keys that take several values. A mapping: the product of its keys. A list: its items multiply, "
        "the keys inside one item vary together.",
        "anyOf": [{**one, "minProperties": 0}, {"type": "array", "items": one}, {"type": "null"}],
    }


def markdown() -> str:
    """The key reference of the documentation."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# Keys of a sweep file",
        "",
        "This page lists every key of a sweep file; [Sweeps](../sweeps.md) shows how they fit together. It is generated",
        "by `kising schema --format markdown`. `kising schema` prints the same as JSON Schema.",
        "",
        "Any key of `model`, `learner` and `score` can be an axis, and so can `data.length` and `data.missing`. Where a",
        "key has no effect, its column in the tables is null.",
        "",
        "## The sweep",
        "",
    )
    yield from _table(leaves_of(Header))
    for name, section in {**POINT_SECTIONS, **OTHER_SECTIONS}.items():
        yield from ("", f"## {name}", "", (section.__doc__ or "").strip(), "")
        yield from _table(leaves_of(section))
    yield from (
        "",
        "## Estimators",
        "",
        f"`{AUTO}` is exact up to {AUTO_LARGEST_EXACT} hidden spins (up to {AUTO_LARGEST_COUPLED} if they are coupled",
        "to each other) and gibbs beyond that and where entries are missing.",
    )
    yield from ("", "| estimator | what it is | log-likelihood | largest Nh |", "|---|---|---|---|")
    for entry in ESTIMATORS:
        largest = "any" if entry.largest_hidden is None else str(entry.largest_hidden)
        yield f"| `{entry.name}` | {entry.summary} | {entry.likelihood} | {largest} |"


def _table(leaves: Iterator[Leaf]) -> Iterator[str]:
    yield "| key | what it does | values | default | has an effect with |"
    yield "|---|---|---|---|---|"
    for leaf in leaves:
        default = "required" if leaf.required else f"`{_written(leaf.default)}`"
        allowed = leaf.kind.allowed.replace("|", "\\|")
        yield f"| `{leaf.key}` | {leaf.option.help} | {allowed} | {default} | {_effect(leaf)} |"


def _effect(leaf: Leaf) -> str:
    """Where an option has an effect, as far as task, estimator, step or a recording decide it."""
    tasks = get_args(Task) if leaf.option.task is None else (leaf.option.task,)
    simulated = [gate for task in tasks for gate in gates(task)]
    recorded = [gate._replace(file="data.file") for gate in simulated]
    drawn, read = (
        [g for g in some if not any(no(g) for no in leaf.option.applies)] for some in (simulated, recorded)
    )
    if not drawn or not read:
        return "data.file" if read else "simulated networks"
    words = {"task": get_args(Task), "estimator": NAMES, "step": choices("learner.step")}
    parts = []
    for name, every in words.items():
        used = dict.fromkeys(getattr(gate, name) for gate in drawn)
        if set(used) < set(every):
            parts.append(f"{name} {', '.join(used)}")
    return "; ".join(parts)


def _written(value: Any) -> str:
    """A default, as it is written in a sweep file."""
    words = {None: "null", True: "true", False: "false", "": '""'}
    return words[value] if isinstance(value, bool | None) or value == "" else str(value)
