"""What changes a sweep file before it is checked: one of its presets, then ``key=value`` overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kising.errors import SpecError
from kising.messages import did_you_mean, listing, nearest, show, show_key
from kising.options import LEAVES
from kising.sweep.spec.documents import Document, KeyPath, Place, Problem, joined, lookup, path_of
from kising.sweep.spec.loading import parse_value

#: Each preset is checked on every reading, chosen or not.
MAX_PRESETS = 100
#: The source named in messages about an override.
OVERRIDE = "--set"


def presets_of(document: Document) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """Return the presets of a document that are mappings, and the mistakes of those that are not."""
    raw = document.value.get("presets")
    if raw is None:
        return {}, []
    if not isinstance(raw, dict):
        message = f"{show(raw)} is not a mapping of presets; allowed: {{quick: {{realizations: 3}}}}"
        return {}, [document.problem(("presets",), message)]
    if len(raw) > MAX_PRESETS:
        return {}, [document.problem(("presets",), f"{len(raw)} presets; allowed: at most {MAX_PRESETS}")]
    presets = {name: {} if preset is None else preset for name, preset in raw.items()}
    problems = [
        document.problem(("presets", name), f"{show(preset)} is not a preset; allowed: {{realizations: 3}}")
        for name, preset in presets.items()
        if not isinstance(preset, dict)
    ]
    mappings = {name: preset for name, preset in presets.items() if isinstance(preset, dict)}
    problems += [
        document.problem(("presets", name, "presets"), "a preset cannot hold presets")
        for name, preset in mappings.items()
        if "presets" in preset
    ]
    return mappings, problems


def unknown_preset(document: Document, name: str) -> Problem:
    """Return the problem of a preset that was asked for and is not in the document."""
    raw = document.value.get("presets")
    names = list(raw) if isinstance(raw, dict) else []
    allowed = f"allowed: {listing(map(show_key, names))}" if names else "this sweep has no presets"
    message = f"there is no preset {show(name)}; {allowed}{did_you_mean(nearest(name, names))}"
    return Problem(Place(document.root.source), message)


def with_preset(document: Document, name: str) -> Document:
    """Return the document with a preset laid over it: sections key by key, axes and values whole."""
    preset = {key: value for key, value in presets_of(document)[0][name].items() if key != "presets"}
    return _laid(document, preset, lambda path: document.place(("presets", name, *path)))


def _laid(document: Document, over: dict[str, Any], place_of: Callable[[KeyPath], Place]) -> Document:
    """Return the document with ``over`` laid over it, whose values have the places that ``place_of`` gives."""
    places: dict[KeyPath, Place] = {}

    def lay(under: dict[str, Any], over: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        merged = dict(under)
        for key, value in over.items():
            here = (*path, key)
            below = merged.get(key)
            if isinstance(below, dict) and here != ("axes",) and (value is None or isinstance(value, dict)):
                # The section stays where it was; an empty one overrides nothing.
                merged[key] = lay(below, value or {}, here)
            else:
                merged[key] = value
                places.update(
                    {(*here, *inside): place_of((*here, *inside)) for inside in ((), *_paths(value))}
                )
        return merged

    return document.replaced(lay(document.value, over, ()), places)


def with_overrides(document: Document, overrides: Sequence[str]) -> tuple[Document, list[Problem]]:
    """Return the document with ``key=value`` strings laid over it in turn, and the mistakes among them.

    An override takes precedence: a key that it sets is no longer an axis. ``axes.data.length=[1e3, 1e4]`` sets
    one axis, ``axes=...`` all of them.
    """
    problems: list[Problem] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        place = Place(OVERRIDE, None, joined("", key.strip()))
        if not equals or not key.strip():
            message = f"{show(override)} is not an override; allowed: key=value, such as data.length=1e4"
            problems.append(Problem(Place(OVERRIDE), message))
        elif key.strip().partition(".")[0] == "presets":
            problems.append(Problem(place, "presets cannot be overridden; choose one by its name"))
        else:
            try:
                document = _with_override(document, key.strip(), parse_value(text), place)
            except SpecError as error:
                problems += [Problem(place, problem.message) for problem in error.problems]
    return document, problems


def _with_override(document: Document, key: str, new: Any, place: Place) -> Document:
    for leaf in LEAVES:
        inside = leaf.startswith(key + ".") and lookup(new, path_of(leaf.removeprefix(key + ".")))[0]
        if leaf == key or inside:
            document = _without_axis(document, leaf)
    first, _, rest = key.partition(".")
    if first == "axes" and rest:
        return _with_axis(document, rest, new, place)
    over, above = new, path_of(key)[:-1]
    for part in reversed(path_of(key)):
        over = {part: over}
    # A section made for the key was not written anywhere: what it lacks is missing at the top.
    return _laid(document, over, lambda path: document.place(path) if path == above[: len(path)] else place)


def _with_axis(document: Document, key: str, new: Any, place: Place) -> Document:
    """Give ``key`` its values: in place if it is already an axis, otherwise as a new axis."""
    axes = document.value.get("axes")
    path: KeyPath
    if isinstance(axes, list):
        having = [number for number, item in enumerate(axes) if isinstance(item, dict) and key in item]
        number = having[0] if having else len(axes)
        item = axes[number] if having else {}
        changed: Any = [*axes[:number], {**item, key: new}, *axes[number + 1 :]]
        path = ("axes", number, key)
    else:
        changed = {**axes, key: new} if isinstance(axes, dict) else {key: new}
        path = ("axes", key)
    places = {path: place} | {(*path, *inside): place for inside in _paths(new)}
    return document.replaced({**document.value, "axes": changed}, places)


def _without_axis(document: Document, key: str) -> Document:
    """Return the document without ``key`` among its axes; keys that varied together with it still vary."""
    axes = document.value.get("axes")
    places: dict[KeyPath, Place] = {}
    kept: Any = axes
    if isinstance(axes, dict):
        kept = {other: values for other, values in axes.items() if other != key}
    elif isinstance(axes, list):
        kept = []
        for number, item in enumerate(axes):
            rest = {k: v for k, v in item.items() if k != key} if isinstance(item, dict) else item
            if rest != {} or item == {}:
                # An item that moves up takes the places of its values along.
                moved = {(): None, **dict.fromkeys(_paths(rest))}
                places |= {("axes", len(kept), *p): document.place(("axes", number, *p)) for p in moved}
                kept.append(rest)
    return document.replaced({**document.value, "axes": kept}, places)


def _paths(value: Any) -> Iterator[KeyPath]:
    """Yield the path of everything inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in inner:
        yield (key,)
        yield from ((key, *path) for path in _paths(entry))
