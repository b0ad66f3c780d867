"""The spec of a sweep: read from a YAML file or a mapping, checked as a whole, written back.

All mistakes are collected before anything is raised, and every preset is checked on every reading, chosen or not, so
that mistakes are reported before a long run and not after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, InstanceOf, PrivateAttr, ValidationError

from kising.errors import SpecError
from kising.messages import show
from kising.options import (
    LEAVES,
    OTHER_SECTIONS,
    POINT_SECTIONS,
    READING,
    Data,
    Header,
    Keep,
    Learner,
    Model,
    Resources,
    Score,
)
from kising.sweep.spec.axes import Axes, Axis, read_axes
from kising.sweep.spec.checks import check_combinations
from kising.sweep.spec.documents import Document, Problem, lookup, path_of, plain_document
from kising.sweep.spec.layers import OVERRIDE, presets_of, unknown_preset, with_overrides, with_preset
from kising.sweep.spec.loading import read_document
from kising.sweep.spec.recording import with_recording
from kising.sweep.spec.translation import translated
from kising.values import RefusedError, scalar


class SweepSpec(Header):
    """A sweep as it will run, made by ``read_spec`` or ``parse_spec``, which check it as a whole.

    In ``model``, ``data``, ``learner`` and ``score`` a key that is also an axis holds the axis's first value.
    Presets belong to the file, not to the sweep: ``changed`` applies one of them.
    """

    model: Model
    data: Data
    learner: Learner = Learner()
    score: Score = Score()
    axes: tuple[InstanceOf[Axis], ...] = ()
    keep: Keep = Keep()
    resources: Resources = Resources()
    _presets: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Specs are equal if they make the same sweep, with any presets."""
        if not isinstance(other, SweepSpec):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in SweepSpec.model_fields)

    def __hash__(self) -> int:
        return hash((self.name, self.task, self.seed, self.realizations))

    def changed(self, *, preset: str | None = None, overrides: Sequence[str] = ()) -> SweepSpec:
        """Return the spec with one of its file's presets and ``key=value`` overrides laid over it."""
        return parse_spec({**_document(self), "presets": self._presets}, preset=preset, overrides=overrides)

    def current(self) -> SweepSpec:
        """The spec for the recording as it is now; the file of a spec that was run may have changed since.

        If the file is gone, the spec stays as it is: its results can still be read, and `recording_of` reports it.
        """
        if self.data.file is None or not Path(self.data.file).exists():
            return self
        document = _document(self)
        del document["data"]["hash"]
        spec = parse_spec(document)
        spec._presets.update(self._presets)
        return spec


def read_spec(path: str | Path, *, preset: str | None = None, overrides: Sequence[str] = ()) -> SweepSpec:
    """Read the sweep file at ``path``, with one of its presets and ``key=value`` overrides laid over it."""
    return _spec(read_document(path), preset, overrides)


def parse_spec(
    mapping: Mapping[str, Any], *, preset: str | None = None, overrides: Sequence[str] = ()
) -> SweepSpec:
    """Return the spec of a mapping that holds what a sweep file would."""
    return _spec(plain_document(mapping), preset, overrides)


def dump_spec(spec: SweepSpec) -> str:
    """Return the spec as YAML, with every default written out; ``read_spec`` makes an equal spec of it."""
    return yaml.dump(
        _document(spec),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=110,
    )


def _document(spec: SweepSpec) -> dict[str, Any]:
    """Return the spec as the mapping of a sweep file."""
    left_out = {key for axis in spec.axes for key in axis.keys}
    left_out |= {key for key, leaf in LEAVES.items() if leaf.option.task not in (None, spec.task)}
    if spec.data.file is None:
        left_out |= {"data.file", "data.folds", "data.hash", "data.absent"}
    reading = {leaf.key: leaf.default for leaf in READING.values()}
    left_out |= {
        x for x, default in reading.items() if getattr(spec.data, x.removeprefix("data.")) == default
    }

    def section(value: BaseModel, prefix: str) -> dict[str, Any]:
        inner = {
            key: section(entry, f"{prefix}.{key}") if isinstance(entry, BaseModel) else entry
            for key, entry in value
            if f"{prefix}.{key}" not in left_out
        }
        return {key: entry for key, entry in inner.items() if entry != {}}

    document: dict[str, Any] = {"name": spec.name}
    if spec.description:
        document["description"] = spec.description
    document |= {"task": spec.task, "seed": spec.seed}
    if spec.data.file is None:  # otherwise data.folds says it
        document["realizations"] = spec.realizations
    for name in POINT_SECTIONS:
        document[name] = section(getattr(spec, name), name)
    document["axes"] = [dict(zip(axis.keys, axis.written, strict=True)) for axis in spec.axes]
    if spec.keep != Keep():
        document["keep"] = section(spec.keep, "keep")
    document["resources"] = section(spec.resources, "resources")
    return {key: value for key, value in document.items() if value not in ({}, [])}


class _Dumper(yaml.SafeDumper):
    """YAML as the strict loader reads it: text that it would take for a number is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if isinstance(scalar(text), str) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def _spec(document: Document, preset: str | None, overrides: Sequence[str]) -> SweepSpec:
    presets, problems = presets_of(document)
    chosen = document
    if preset in presets:
        chosen = with_preset(document, preset)
    elif preset is not None and lookup(document.value, ("presets", preset))[0] is False:
        problems.append(unknown_preset(document, preset))
    chosen, found = with_overrides(chosen, overrides)
    problems += found
    spec, found = _check(chosen)
    problems += found
    base = set(_check(document)[1]) if presets else set()
    for name in presets:
        if name != preset:
            problems += _mistakes_of_preset(document, name, base)
    # What could not be read is not reported a second time as empty.
    unread = {problem.place for problem in document.problems}
    problems = [*document.problems, *(problem for problem in problems if problem.place not in unread)]
    if problems or spec is None:
        raise SpecError(tuple(sorted(dict.fromkeys(problems), key=_order)))
    spec._presets.update(presets)
    return spec


def _mistakes_of_preset(document: Document, name: str, base: set[Problem]) -> Iterator[Problem]:
    """Yield the mistakes that a preset would bring into a sweep that has the mistakes ``base`` without it."""
    inside = document.place(("presets", name)).key
    for problem in _check(with_preset(document, name))[1]:
        if problem not in base:
            own = problem.place.key.startswith(inside)
            yield problem if own else Problem(problem.place, f"{problem.message} (with preset {show(name)})")


def _order(problem: Problem) -> tuple[bool, int]:
    return problem.place.source == OVERRIDE, problem.place.line or 0


def _check(document: Document) -> tuple[SweepSpec | None, list[Problem]]:
    """Return the spec of a document and its mistakes; no spec where there are any."""
    axes = read_axes(document)
    document, found, inputs = with_recording(document)
    problems = [*axes.problems, *found]
    value = {key: entry for key, entry in document.value.items() if key not in ("axes", "presets")}
    for name in (*POINT_SECTIONS, *OTHER_SECTIONS):
        value[name] = _copied(value.get(name))
    if isinstance(value["learner"], dict):
        value["learner"]["estep"] = _copied(value["learner"].get("estep"))
    problems += _hidden_mistakes(document, axes)
    for axis in axes.axes:
        for key, column in zip(axis.keys, axis.columns, strict=True):
            _put(value, key, column[0])
    spec = None
    try:
        spec = SweepSpec.model_validate({**value, "axes": axes.axes})
    except ValidationError as error:
        problems += translated(error, document, SweepSpec, axes.named)
    problems += check_combinations(document, axes, inputs)
    return (None if problems else spec), problems


def _copied(section: Any) -> Any:
    """Return a copy to put values of axes in; a section left empty is one without keys."""
    if section is None:
        return {}
    if not isinstance(section, dict):
        return section
    return {key: _copied(entry) if isinstance(entry, dict) else entry for key, entry in section.items()}


def _put(value: dict[str, Any], key: str, entry: Any) -> None:
    *sections, last = key.split(".")
    for name in sections:
        value = value.setdefault(name, {}) if isinstance(value, dict) else value
    if isinstance(value, dict):
        value[last] = entry


def _hidden_mistakes(document: Document, axes: Axes) -> Iterator[Problem]:
    """Yield the mistakes in values that an axis replaces, and that nothing else would look at."""
    for key in axes.named:
        given, raw = lookup(document.value, path_of(key))
        try:
            if given:
                LEAVES[key].kind.parse(raw)
        except RefusedError as refusal:
            yield document.problem(path_of(key), str(refusal))
