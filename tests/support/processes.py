"""Processes of this machine, from /proc."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
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


def listening(pids: Iterable[int]) -> list[IPv4Address | IPv6Address]:
    """The addresses at which processes accept connections; an IPv4 address inside an IPv6 one as itself."""
    sockets: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    sockets.add(os.readlink(entry.path))
    found: list[IPv4Address | IPv6Address] = []
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or f"socket:[{fields[9]}]" not in sockets:  # 0A: it listens
                continue
            words = bytes.fromhex(
                fields[1].partition(":")[0]
            )  # 32 bits at a time, in the order of this machine
            raw = b"".join(
                words[i : i + 4][::-1] if sys.byteorder == "little" else words[i : i + 4]
                for i in range(0, len(words), 4)
            )
            address = ip_address(raw)
            found.append(getattr(address, "ipv4_mapped", None) or address)
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
