"""Processes of this machine, from /proc."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> dict[int, str]:
    """Every process below a process, parents before children, with its command line."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found: dict[int, str] = {}
    front = [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        for child in front:
            found[child] = ""
            with suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_text(errors="replace")
    return found


def born_at(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty if it is gone or a zombie."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


def kill_family(pid: int) -> None:
    """Kill a process and all its descendants, whatever process group they have moved to."""
    for member in [pid, *descendants(pid)]:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
