"""What a disk may hold after a power loss, made from recorded operations.

What was synced is there. Of what was not, a file system may have kept anything: names and data apart, in any order.

    file        the bytes at its last fsync, and of what was written since then nothing, all, a beginning, or some
                pages, with zeros in the place of the others
    directory   its names at its last fsync, and of the changes since then any; a rename is one change

fsync of a file says nothing of its name, and fsync of a directory nothing of what is in its files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from support.disk_recorder import (
    ROOT,
    Create,
    Mark,
    Operation,
    Recorder,
    Rename,
    Sync,
    Tree,
    Truncate,
    Unlink,
    Write,
)

PAGE = 512
Memory = Literal["nothing", "all", "beginning", "any"]
"""What a disk kept of the names that were not synced."""


class _Change(NamedTuple):
    """A change of a directory's names."""

    time: int
    """of its operation; changes of one operation are kept together"""
    name: str
    node: int | None  # None: removed


@dataclass
class _File:
    synced: bytes = b""
    later: list[Write | Truncate] = field(default_factory=list)

    def content(self, changes: Sequence[Write | Truncate]) -> bytes:
        data = bytearray(self.synced)
        for change in changes:
            if isinstance(change, Truncate):
                del data[change.size :]
            else:
                data.extend(bytes(max(0, change.start - len(data))))
                data[change.start : change.start + len(change.data)] = change.data
        return bytes(data)

    def after_loss(self, generator: random.Random) -> bytes:
        whole = self.content(self.later)
        match generator.choice(("nothing", "all", "beginning", "pages", "zeros")):
            case "nothing":
                return self.synced
            case "beginning":
                part = self.content(self.later[: generator.randint(0, len(self.later))])
                return part[: generator.randint(min(len(self.synced), len(part)), len(part))]
            case "pages" | "zeros" as kind:
                data = bytearray(whole)
                first = len(self.synced) if whole.startswith(self.synced) else 0
                for start in range(first, len(data), PAGE):
                    if kind == "zeros" or generator.random() < 0.5:
                        stop = min(start + PAGE, len(data))
                        data[start:stop] = bytes(stop - start)
                return bytes(data)
        return whole


@dataclass
class _Folder:
    synced: dict[str, int] = field(default_factory=dict)
    later: list[_Change] = field(default_factory=list)

    def names(self, kept: set[int] | None) -> dict[str, int]:
        """Its names, if the disk kept the changes of these times; None: all."""
        found = dict(self.synced)
        for change in self.later:
            if kept is None or change.time in kept:
                if change.node is None:
                    found.pop(change.name, None)
                else:
                    found[change.name] = change.node
        return found


def states_after_loss(recorder: Recorder, *, tries: int = 60) -> Iterator[Tree]:
    """States that a disk may have if power is lost at any moment of a record: some of every moment, without repeats."""
    for moment in range(len(recorder.operations) + 1):
        seen: list[Tree] = []
        for number in range(tries):
            disk = Disk(recorder.initial, recorder.first_nodes)
            disk.replay(recorder.operations[:moment])
            generator = random.Random(f"{moment} {number}")
            state = disk.after_loss(generator, generator.choice(("nothing", "all", "beginning", "any")))
            if state not in seen:
                seen.append(state)
                yield state


class Disk:
    """A directory as the process sees it, and as the disk has it."""

    def __init__(self, initial: Tree, nodes: dict[str, int]) -> None:
        """A directory all of which was synced; `nodes` are the numbers of its files."""
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {ROOT: _Folder()}
        self._time = 0
        for path, content in sorted(initial.items()):
            if content is None:
                self._folders[nodes[path]] = _Folder()
            else:
                self._files[nodes[path]] = _File(content)
            folder, _, name = path.rpartition("/")
            self._folders[nodes[folder]].synced[name] = nodes[path]

    def replay(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._time += 1
            self._do(operation)

    def _do(self, operation: Operation) -> None:
        match operation:
            case Create(folder, name, node, is_folder):
                if is_folder:
                    self._folders[node] = _Folder()
                else:
                    self._files[node] = _File()
                self._folders[folder].later.append(_Change(self._time, name, node))
            case Write() | Truncate():
                self._files[operation.node].later.append(operation)
            case Rename(folder, name, target, new, node):
                self._folders[folder].later.append(_Change(self._time, name, None))
                self._folders[target].later.append(_Change(self._time, new, node))
            case Unlink(folder, name):
                self._folders[folder].later.append(_Change(self._time, name, None))
            case Sync(node) if node in self._files:
                file = self._files[node]
                file.synced, file.later = file.content(file.later), []
            case Sync(node):
                self._sync_folder(node)
            case Mark():
                pass

    def _sync_folder(self, node: int) -> None:
        folder = self._folders[node]
        removed = {change.time for change in folder.later if change.node is None}
        folder.synced, folder.later = folder.names(None), []
        # A file that was moved away, and whose old name is gone for good, has its new name for good.
        for other in self._folders.values():
            settled = [change for change in other.later if change.time in removed]
            if settled:
                other.synced.update({change.name: change.node for change in settled if change.node})
                other.later = [change for change in other.later if change.time not in removed]

    def now(self) -> Tree:
        """As the process sees it."""
        return self._tree(None, None)

    def after_loss(self, generator: random.Random, memory: Memory) -> Tree:
        """As one disk may have it."""
        times = sorted({change.time for folder in self._folders.values() for change in folder.later})
        match memory:
            case "nothing":
                kept = set()
            case "all":
                kept = set(times)
            case "beginning":
                kept = set(times[: generator.randint(0, len(times))])
            case "any":
                kept = {time for time in times if generator.random() < 0.5}
        return self._tree(kept, generator)

    def _tree(self, kept: set[int] | None, generator: random.Random | None) -> Tree:
        tree: Tree = {}
        contents: dict[int, bytes] = {}  # a file may have two names

        def visit(node: int, prefix: str) -> None:
            for name, inside in self._folders[node].names(kept).items():
                if inside in self._folders:
                    tree[prefix + name] = None
                    visit(inside, f"{prefix}{name}/")
                else:
                    if inside not in contents:
                        file = self._files[inside]
                        contents[inside] = (
                            file.content(file.later) if generator is None else file.after_loss(generator)
                        )
                    tree[prefix + name] = contents[inside]

        visit(ROOT, "")
        return tree
