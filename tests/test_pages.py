"""Every block of the documentation runs, and prints what the page shows (`support.pages` has the rules).

pytest -m docs -s tests/test_pages.py prints the commands that ran.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.pages import blocks, commands, first_missing, run_page, shell

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What cannot run here: clusters, installations, start-up files of shells.
NOT_RUN = {"docs/clusters.md", "docs/sweeps.md", "docs/tutorials/cluster.md"}
# Needs a package with data, and minutes: tests/test_docs.py runs it with -m slow.
ELSEWHERE = {"docs/tutorials/stocks.md"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runs(page: Path) -> bool:
    return name(page) not in ELSEWHERE and any(x.language in ("python", "console") for x in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    for block in blocks(page):
        place = f"line {block.line}: {block.language or 'no language'}"
        assert block.language in ("python", "yaml", "console", "sh", "text"), place
        if block.language == "sh":
            assert name(page) in NOT_RUN, place
            checked = subprocess.run(
                ["bash", "-n"], input=block.text, text=True, capture_output=True, check=False
            )
            assert checked.returncode == 0, f"{place}: {checked.stderr}"


@pytest.mark.docs
@pytest.mark.parametrize("page", [x for x in PAGES if runs(x)], ids=name)
def test_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran, _ = run_page(page, tmp_path)
    assert len(ran) == sum(len(commands(x)) for x in blocks(page) if x.language == "console")
    with capsys.disabled():
        print("".join(f"\n{name(page)}: $ {command.splitlines()[0]}" for command in ran))


@pytest.mark.docs
def test_the_first_sweep_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^    python3 -m pip install \. && (kising run .*)$", text, re.MULTILINE)
    (shown,) = re.findall(r"^    Fraction of runs .*?^    Results: .*?$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    printed = shell(command, tmp_path)
    # Rules of tables may be longer or shorter.
    lines = [line for line in shown.splitlines() if "──" not in line]
    assert first_missing(lines, printed) is None, printed


def test_what_a_page_shows_is_compared() -> None:
    """The rules by which pages are judged, on lines that are right and wrong."""
    printed = "a run of 12 points\n  J   0.512 ± 0.02\ndone in 3 s\n"
    assert first_missing(["a run of 12 points", "...", "J 0.513 ± 0.02", "done in ..."], printed) is None
    assert first_missing(["a run of 13 points"], printed) == "a run of 13 points"
    assert first_missing(["J 0.612 ± 0.02"], printed) == "J 0.612 ± 0.02"
    assert first_missing(["done in ...", "a run of 12 points"], printed) == "a run of 12 points"
