"""docs/fitting.md shows what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kising.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "fitting.md").read_text()
SHOWN = re.findall(r"^```console\n\$ kising (.*?)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def without_numbers(text: str) -> list[str]:
    """Lines with a mark for every number and without the order of edges: last digits differ between machines."""
    lines = [re.sub(r"[ -]*\d[\d.e-]*", " 0", line) for line in text.splitlines()]
    return [re.sub(r"^J  \w <- \w ", "J  x <- y ", line) for line in lines]


@pytest.mark.docs
@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_command_prints_what_the_page_shows(command, printed, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(example, "docs/fitting.md", "exec"), {})
    # A choice runs on Ray; without it the numbers are the same, and come sooner.
    result = CliRunner().invoke(main, [*shlex.split(command), "--local-debug"])
    assert result.exit_code == 0, result.output
    lines = without_numbers(printed)
    assert without_numbers(result.stdout)[: len(lines)] == lines
    assert float(re.findall(r"-3\.\d+", result.stdout)[0]) == pytest.approx(
        float(re.findall(r"-3\.\d+", printed)[0]), abs=1e-3
    )


def test_the_page_shows_both_uses() -> None:
    assert [command.split()[0] for command, _ in SHOWN] == ["fit", "fit"]
