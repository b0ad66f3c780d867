"""Records every change that this process makes to files below a directory: the operations of a power-loss test.

The calls of `os` and `io` that kising makes are wrapped while a `Recorder` is entered. Nothing is synced in truth:
that it was asked for is what counts. Whoever replays the operations can compare the result with the directory, so that
a change which was not recorded is known.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

Tree = dict[str, bytes | None]
"""Files below a directory, by their relative paths; None: a directory."""

_WRITING = set("wxa+")


class Create(NamedTuple):
    """A new file or directory."""

    folder: int
    name: str
    node: int
    is_folder: bool


class Write(NamedTuple):
    """Bytes written at a place in a file."""

    node: int
    start: int
    data: bytes


class Truncate(NamedTuple):
    """A file cut to a size."""

    node: int
    size: int


class Sync(NamedTuple):
    """fsync of a file or directory."""

    node: int


class Rename(NamedTuple):
    """A file or directory gets another name."""

    folder: int
    name: str
    target: int
    new: str
    node: int


class Unlink(NamedTuple):
    """A name is removed."""

    folder: int
    name: str


class Mark(NamedTuple):
    """Something that the process was told at this moment, such as that its rows are safe."""

    kind: str
    values: tuple[str, ...]


Operation = Create | Write | Truncate | Sync | Rename | Unlink | Mark
ROOT = 0


class Recorder:
    """Records from `__enter__` to `__exit__`; `operations` and `initial` are what a power loss is made of."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._lock = threading.RLock()  # the order of operations is that in which they were done
        self._nodes: dict[str, int] = {"": ROOT}
        self._open: dict[int, int] = {}  # nodes by file descriptor
        self._undo: list[tuple[Any, str, Any]] = []
        self.initial = read_tree(root)
        self.operations: list[Operation] = []
        for number, path in enumerate(sorted(self.initial), start=1):
            self._nodes[path] = number
        self.first_nodes = dict(self._nodes)
        self._last = len(self.initial)  # of the nodes

    def __enter__(self) -> Recorder:
        for module, name, wrapped in (
            (os, "open", self._os_open),
            (os, "fdopen", self._fdopen),
            (os, "close", self._close),
            (os, "write", self._write),
            (os, "ftruncate", self._ftruncate),
            (os, "fsync", self._fsync),
            (os, "replace", self._rename),
            (os, "rename", self._rename),
            (os, "unlink", self._unlink),
            (os, "rmdir", self._unlink),
            (os, "mkdir", self._mkdir),
            (io, "open", self._io_open),
        ):
            real = getattr(module, name)
            self._undo.append((module, name, real))
            setattr(module, name, self._locked(wrapped, real))
        return self

    def __exit__(self, *_: object) -> None:
        for module, name, real in reversed(self._undo):
            setattr(module, name, real)

    def mark(self, kind: str, *values: str) -> None:
        with self._lock:
            self.operations.append(Mark(kind, values))

    def record(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)

    def _locked(self, wrapped: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                return wrapped(real, *arguments, **options)

        return call

    def _place(self, path: Any) -> str | None:
        """The path below the root, None if it is elsewhere."""
        if isinstance(path, int):
            return None
        text = os.path.abspath(os.fsdecode(os.fspath(path)))
        if text == self._root:
            return ""
        return text[len(self._root) + 1 :] if text.startswith(self._root + "/") else None

    def _parent(self, place: str) -> tuple[int, str]:
        folder, _, name = place.rpartition("/")
        return self._nodes[folder], name

    def _made(self, place: str, *, is_folder: bool = False) -> int:
        folder, name = self._parent(place)
        self._last += 1
        node = self._nodes[place] = self._last
        self.record(Create(folder, name, node, is_folder))
        return node

    def _os_open(self, real: Callable[..., int], path: Any, flags: int, *rest: Any, **options: Any) -> int:
        place = self._place(path) if options.get("dir_fd") is None else None
        descriptor = real(path, flags, *rest, **options)
        self._open.pop(descriptor, None)
        if place is not None:
            if place not in self._nodes:
                self._made(place)
            elif flags & os.O_TRUNC and flags & (os.O_WRONLY | os.O_RDWR):
                self.record(Truncate(self._nodes[place], 0))
            self._open[descriptor] = self._nodes[place]
        return descriptor

    def _handle(self, descriptor: int, mode: str) -> _Handle:
        return _Handle(io.FileIO(descriptor, mode.replace("b", "")), self, self._open[descriptor])

    def _fdopen(self, real: Callable[..., Any], descriptor: int, mode: str = "r", *rest: Any) -> Any:
        if descriptor not in self._open or not set(mode) & _WRITING:
            return real(descriptor, mode, *rest)
        assert "b" in mode, "only binary files are recorded"
        return self._handle(descriptor, mode)

    def _io_open(
        self, real: Callable[..., Any], file: Any, mode: str = "r", *rest: Any, **options: Any
    ) -> Any:
        if self._place(file) is None or not set(mode) & _WRITING:
            return real(file, mode, *rest, **options)
        assert mode == "wb", "only binary files are recorded"
        return self._handle(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), mode)

    def _close(self, real: Callable[..., Any], descriptor: int) -> None:
        self._open.pop(descriptor, None)
        real(descriptor)

    def closed(self, descriptor: int) -> None:
        with self._lock:
            self._open.pop(descriptor, None)

    def _write(self, real: Callable[..., int], descriptor: int, data: Any) -> int:
        if descriptor not in self._open:
            return real(descriptor, data)
        start = os.fstat(descriptor).st_size  # every descriptor here appends
        written = real(descriptor, data)
        self.record(Write(self._open[descriptor], start, bytes(data[:written])))
        return written

    def _ftruncate(self, real: Callable[..., None], descriptor: int, size: int) -> None:
        real(descriptor, size)
        if descriptor in self._open:
            self.record(Truncate(self._open[descriptor], size))

    def _fsync(self, real: Callable[..., None], descriptor: int) -> None:
        if descriptor in self._open:
            self.record(Sync(self._open[descriptor]))
        else:
            real(descriptor)

    def _rename(self, real: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        here, there = self._place(source), self._place(target)
        real(source, target, **options)
        assert (here is None) == (there is None), "a rename into or out of what is recorded"
        if here is None or there is None:
            return
        node = self._nodes.pop(here)
        self.record(Rename(*self._parent(here), *self._parent(there), node))
        self._nodes[there] = node
        inside = [place for place in self._nodes if place.startswith(here + "/")]
        for place in inside:
            self._nodes[there + place[len(here) :]] = self._nodes.pop(place)

    def _unlink(self, real: Callable[..., None], path: Any, **options: Any) -> None:
        place = self._place(path) if options.get("dir_fd") is None else None
        real(path, **options)
        if place is not None:
            del self._nodes[place]
            self.record(Unlink(*self._parent(place)))

    def _mkdir(self, real: Callable[..., None], path: Any, *rest: Any, **options: Any) -> None:
        place = self._place(path)
        real(path, *rest, **options)
        if place is not None:
            self._made(place, is_folder=True)


class _Handle(io.BufferedWriter):
    """A file whose writes reach the disk, and the record, at once."""

    def __init__(self, raw: io.FileIO, recorder: Recorder, node: int) -> None:
        super().__init__(raw)
        self._recorder, self._node = recorder, node

    def write(self, data: Any) -> int:
        content = bytes(memoryview(data).cast("B"))
        start = self.tell()
        written = super().write(content)
        self.flush()
        self._recorder.record(Write(self._node, start, content))
        return written

    def close(self) -> None:
        if not self.closed:
            self._recorder.closed(self.fileno())
        super().close()


def read_tree(root: Path) -> Tree:
    """Everything below a directory."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def write_tree(root: Path, tree: Tree) -> None:
    """Make a directory with this below it."""
    root.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


@contextmanager
def marking(
    recorder: Recorder, owner: Any, method: str, values: Callable[..., Iterator[str]]
) -> Iterator[None]:
    """Mark the end of every call of a method; `values` gets its arguments."""
    real = getattr(owner, method)

    def call(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        recorder.mark(method, *values(*arguments, **options))
        return result

    setattr(owner, method, call)
    try:
        yield
    finally:
        setattr(owner, method, real)
