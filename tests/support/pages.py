"""Pages of the documentation as programs: their blocks run from top to bottom, in an empty directory.

    ```python                  runs; all Python blocks of a page share their names
    ```python title="a.py"     is written to that file, as is yaml with a title; without one, yaml is only shown
    ```console                 lines that begin with $ run in a shell, and what follows each must be printed
    ```sh                      is not run, because it needs a cluster or installs something; its syntax is checked
    ```text                    is not run

Of what a command prints, the lines shown must appear, in their order. `...` stands for anything: a part of a line, or
lines. Numbers may differ in their last digits, which depend on the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(?P<head>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
DIGITS = 0.03


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    line: int
    """where it begins"""


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines that the page shows after it."""

    text: str
    shown: list[str]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text, found = page.read_text(), []
    for match in BLOCK.finditer(text):
        language, _, info = match["head"].partition(" ")
        title = re.search(r'title="([^"]+)"', info)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language, title and title[1], match["text"], line))
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block. A command continues after a backslash."""
    found: list[Command] = []
    going_on = False
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif going_on:
            found[-1] = Command(found[-1].text + "\n" + line, [])
        else:
            found[-1].shown.append(line)
        going_on = line.endswith("\\")
    return found


def run_page(page: Path, directory: Path) -> tuple[list[str], dict[str, Any]]:
    """Run a page in a directory, which is the current one; the commands that ran, and the names that Python blocks
    defined.
    """
    ran, names = [], {"__name__": "__page__"}
    for block in blocks(page):
        if block.title and block.language in ("python", "yaml"):
            (directory / block.title).write_text(block.text)
        elif block.language == "python":
            code = "\n" * block.line + block.text
            exec(compile(code, str(page), "exec"), names)
        elif block.language == "console":
            for command in commands(block):
                printed = shell(command.text, directory)
                missing = first_missing(command.shown, printed)
                assert missing is None, (
                    f"{page.name}: $ {command.text}\ndid not print\n{missing}\nbut\n{printed}"
                )
                ran.append(command.text)
    return ran, names


def shell(command: str, directory: Path) -> str:
    """What a command prints, on both streams, without colours."""
    place = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{place}:{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=directory, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.stdout


def first_missing(shown: list[str], printed: str) -> str | None:
    """The first line shown that was not printed where it should have been; None: all were."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for line in shown:
        wanted = " ".join(line.split())
        if wanted in ("", "..."):
            continue
        if not any(_same(wanted, line) for line in lines):
            return wanted
    return None


def _same(wanted: str, line: str) -> bool:
    pattern = (
        re.escape(NUMBER.sub("\0", wanted))
        .replace(re.escape("..."), ".*")
        .replace("\0", f"({NUMBER.pattern})")
    )
    match = re.fullmatch(pattern, line)
    if match is None:
        return False
    return all(_near(*pair) for pair in zip(NUMBER.findall(wanted), match.groups(), strict=True))


def _near(wanted: str, found: str) -> bool:
    if "." not in wanted:
        return wanted == found
    x, y = float(wanted), float(found)
    last = 10.0 ** -len(wanted.partition(".")[2].partition("e")[0])
    return abs(x - y) <= max(DIGITS * abs(x), 2 * last) or (abs(x) < 1e-20 and abs(y) < 1e-10)
