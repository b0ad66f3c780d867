"""Pydantic's errors as problems of a sweep file, with what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel, ValidationError

from kising.messages import did_you_mean, listing, nearest, show
from kising.option_types import REFUSED, leaves_of, option_of
from kising.options import LEAVES, OTHER_SECTIONS
from kising.sweep.spec.documents import Document, Problem

#: Mistakes beyond this number are counted, not described.
MAX_DESCRIBED = 200


def translated(
    error: ValidationError, document: Document, root: type[BaseModel], varied: Iterable[str]
) -> Iterator[Problem]:
    """Yield the errors of ``root`` as problems; the keys in ``varied`` are given by axes, not missing."""
    errors = error.errors(include_url=False)
    unknown = {
        entry["loc"]: _unknown_key(
            root, [str(part) for part in entry["loc"]], document.place(entry["loc"]).key
        )
        for entry in errors[:MAX_DESCRIBED]
        if entry["type"] == "extra_forbidden"
    }
    # A key that is misspelt, or written in the wrong place, is not missing as well.
    given = set(varied).union(*(meant for _, meant in unknown.values()))
    for entry in errors[:MAX_DESCRIBED]:
        path = entry["loc"]
        key = ".".join(str(part) for part in path)
        if entry["type"] == REFUSED:
            message = entry["ctx"]["message"]
            if key in LEAVES and isinstance(entry["input"], (list, dict)):
                message += "; to vary this key, give it under axes"
        elif path in unknown:
            message = unknown[path][0]
        elif entry["type"] == "missing":
            if key in given:
                continue
            option = option_of(_section_at(root, path[:-1]), str(path[-1]))
            message = f"missing; allowed: {option.kind.allowed if option else 'a mapping'}"
            message += ", here or as an axis" if key in LEAVES else ""
        else:
            keys = listing(_section_at(root, path).model_fields)
            message = f"{show(entry['input'])} is not a mapping; allowed: a mapping with keys {keys}"
        yield document.problem(path, message)
    if len(errors) > MAX_DESCRIBED:
        yield document.problem((), f"{len(errors) - MAX_DESCRIBED} more mistakes like these")


def _section_at(root: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel]:
    section = root
    for part in path:
        field = section.model_fields.get(str(part))
        inner = field.annotation if field else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            section = inner
    return section


def _unknown_key(root: type[BaseModel], path: list[str], written: str) -> tuple[str, set[str]]:
    """Return what to say of a key that does not exist, and the dotted keys that were probably meant."""
    *above, key = path
    keys = list(_section_at(root, above).model_fields)
    if not above and not written.startswith("presets."):
        keys.append("presets")
    message = f"unknown key; allowed: {listing(keys)}"
    others = (leaf.key for name, section in OTHER_SECTIONS.items() for leaf in leaves_of(section, f"{name}."))
    everywhere = [*root.model_fields, *LEAVES, *others]
    home, _, last = key.rpartition(".")
    if home and key in everywhere:
        return f"{message}; write {last} under {home}", {key}
    elsewhere = [known for known in everywhere if f".{known}".endswith(f".{key}")]
    if elsewhere:
        homes = [known.removesuffix(key).rstrip(".") for known in elsewhere]
        places = " or ".join(f"under {home}" if home else "at the top" for home in homes)
        return f"{message}; {key} belongs {places}", set(elsewhere)
    near = nearest(key, keys)
    return message + did_you_mean(near), {".".join([*above, near])} if near else set()
