"""Strict YAML for sweep files, read into plain data that knows its lines.

A safe subset of YAML is read, so that a file means what it looks like: ``1e5`` is a number; ``yes``, ``no``,
``on``, ``off``, ``010`` as octal, ``1:30`` and dates have no hidden meanings; a key given twice is a mistake;
there are no tags and no aliases, so nothing is constructed or repeated invisibly.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kising.errors import SpecError
from kising.messages import did_you_mean, nearest, show
from kising.sweep.spec.documents import MAX_DEPTH, Document, KeyPath, Place, Problem, joined
from kising.values import scalar

MAX_BYTES = 1_000_000


def read_document(path: str | Path) -> Document:
    """Read the sweep file at ``path``; SpecError where it cannot be read as one mapping."""
    return parse_yaml(_read_text(Path(path)), source=str(path))


def parse_yaml(text: str, *, source: str) -> Document:
    """Read YAML text whose top is a mapping; SpecError where it is not, or not readable."""
    document = _Builder(source).build(text)
    if not document.value and document.value != {}:
        raise SpecError((Problem(Place(source), "is empty; a sweep file holds at least name and seed"),))
    if not isinstance(document.value, dict):
        message = f"a sweep file is a mapping (name: ..., seed: ...), this is {_kind(document.value)}"
        raise SpecError((Problem(document.root, message),))
    return document


def parse_value(text: str) -> Any:
    """Read one value as it would stand in a sweep file: ``1e5``, ``bp``, ``{logspace: [1, 10, 3]}``."""
    document = _Builder("").build(text)
    if document.problems:
        raise SpecError(document.problems)
    return document.value


# YAML forbids control characters; found here, the message can name the line.
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _kind(value: object) -> str:
    return show(value) if isinstance(value, (list, dict)) else f"only {show(value)}"


def _read_text(path: Path) -> str:
    def refuse(message: str, line: int | None = None) -> SpecError:
        return SpecError((Problem(Place(str(path), line), message),))

    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise refuse("is a directory, not a sweep file")
        if not stat.S_ISREG(mode):  # opening a pipe could block forever
            raise refuse("is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except SpecError:
        raise
    except FileNotFoundError:
        raise refuse("no such file" + did_you_mean(_nearest_file(path))) from None
    except OSError as error:
        raise refuse(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # a path with a null character
        raise refuse("is not a path") from None
    if len(content) > MAX_BYTES:
        raise refuse(f"is larger than {MAX_BYTES} bytes, so it is hardly a sweep file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        culprit = f"byte 0x{content[error.start]:02x}"
        raise refuse(f"{culprit} is not UTF-8 text; save the file as UTF-8", line) from None


def _nearest_file(path: Path) -> str | None:
    try:
        names = sorted(other.name for other in path.parent.iterdir() if other.suffix in (".yaml", ".yml"))
    except OSError:
        return None
    near = nearest(path.name, names)
    return None if near is None else str(path.with_name(near))


@dataclass
class _Open:
    """A collection whose end has not been read yet, and in a mapping the key that waits for its value."""

    value: Any
    path: KeyPath
    key: str | None = None
    key_path: KeyPath = ()


class _Builder:
    """Turns YAML's events into plain data, keeping lines and collecting the keys given twice."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []
        self.open: list[_Open] = []
        self.value: Any = None
        self.root: Place | None = None

    def build(self, text: str) -> Document:
        for line, event in self._events(text):
            self._take(event, line)
        return Document(self.value, self.root or Place(self.source), self.places, tuple(self.problems))

    def _events(self, text: str) -> Iterator[tuple[int, Any]]:
        unreadable = _UNREADABLE.search(text)
        if unreadable:
            line = text.count("\n", 0, unreadable.start()) + 1
            raise self._fatal(line, f"the character {unreadable[0]!r} cannot stand in a sweep file")
        # The pure Python parser: its messages are the same everywhere and name the character found.
        loader = yaml.SafeLoader(text)
        try:
            while loader.check_event():
                event = loader.get_event()  # type: ignore[no-untyped-call]
                yield event.start_mark.line + 1, event
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._fatal(mark.line + 1 if mark else None, _syntax_message(error)) from None
        except yaml.YAMLError as error:
            raise self._fatal(None, f"not readable as YAML: {error}") from None
        except (ValueError, OverflowError):  # "\UFFFFFFFF", which the parser hands to chr()
            raise self._fatal(
                loader.line + 1, "not readable as YAML: an escape stands for no character"
            ) from None

    def _fatal(self, line: int | None, message: str) -> SpecError:
        return SpecError((Problem(Place(self.source, line), message),))

    def _take(self, event: Any, line: int) -> None:
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self._fatal(line, "a second document (---) starts here; a sweep file holds one")
        if isinstance(event, yaml.AliasEvent):
            raise self._fatal(line, f"the alias *{event.anchor} is not read here; write the value out")
        if isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
        if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            return
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._fatal(line, f"the tag {show(tag)} is not read here; write a plain value")
        if self.open and isinstance(self.open[-1].value, dict) and self.open[-1].key is None:
            self._take_key(event, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._put(scalar(event.value) if event.implicit[0] else event.value, line)
        else:
            value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            path = self._put(value, line)
            if len(path) >= MAX_DEPTH:
                raise self._fatal(line, f"is nested deeper than {MAX_DEPTH} levels")
            self.open.append(_Open(value, path))

    def _take_key(self, event: Any, line: int) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._fatal(line, "a list or a mapping cannot be a key; write a word")
        top = self.open[-1]
        path: KeyPath = (*top.path, event.value)
        above = self.places[top.path].key if top.path else ""
        place = Place(self.source, line, joined(above, event.value))
        if path in self.places:
            message = f"given twice, first at line {self.places[path].line}; keep one"
            self.problems.append(Problem(place, message))
            path = (*path, -line)  # apart, so that what is inside is not compared with the first
        self.places[path] = place
        top.key, top.key_path = event.value, path

    def _put(self, value: Any, line: int) -> KeyPath:
        """Put a value where it belongs and return its path; of a key given twice, the first value stands."""
        if not self.open:
            self.value, self.root = value, Place(self.source, line)
            return ()
        top = self.open[-1]
        if isinstance(top.value, dict):
            key, top.key = top.key or "", None
            top.value.setdefault(key, value)
            return top.key_path
        path: KeyPath = (*top.path, len(top.value))
        above = self.places[top.path].key if top.path else ""
        self.places[path] = Place(self.source, line, joined(above, len(top.value)))
        top.value.append(value)
        return path


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "unknown"
    if r"'\t'" in problem:
        return "not readable as YAML: a tab stands where spaces must; indent with spaces"
    if problem == "mapping values are not allowed here":
        return "not readable as YAML: a second colon stands here; put text with ': ' in it in quotes"
    if error.context and error.context_mark and error.problem:
        problem += f" ({error.context} that starts at line {error.context_mark.line + 1})"
    return f"not readable as YAML: {problem}"
