"""What docs/paper shows follows from the tables that lie beside it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kising.report.build import build
from kising.report.published import publish
from kising.report.tables import refresh_tables

PAPER = Path(__file__).parents[2] / "docs" / "paper"
DATA = sorted(path for path in (PAPER / "data").glob("*") if path.is_dir())
LARGEST = 3_000_000


def test_every_page_has_its_data_and_is_listed() -> None:
    pages = {path.stem for path in PAPER.glob("*.md")} - {"index"}
    assert pages == {path.name for path in DATA}
    listed = (PAPER / "index.md").read_text()
    contents = (PAPER.parents[1] / "mkdocs.yml").read_text()
    for page in pages:
        assert f"]({page}.md)" in listed
        assert f"paper/{page}.md" in contents


@pytest.mark.parametrize("data", DATA, ids=lambda path: path.name)
def test_data_are_small(data: Path) -> None:
    assert sum(file.stat().st_size for file in data.glob("*.*")) < LARGEST


@pytest.mark.parametrize("data", DATA, ids=lambda path: path.name)
def test_a_page_is_what_its_tables_say(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "docs" / "paper" / "data" / data.name
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("report"))
    # Pages name the directory as it was given.
    monkeypatch.chdir(tmp_path)
    relative = copy.relative_to(tmp_path)
    frames = refresh_tables(relative)
    page = publish(relative, frames, build(relative, frames), Path("docs/paper"))
    assert _text(page) == _text(PAPER / page.name)


def _text(page: Path) -> str:
    """Without the names of figure files: which of SVG and PNG is smaller depends on the version of matplotlib."""
    return re.sub(r"\]\(figures/[^)]*\)", "]", page.read_text())
