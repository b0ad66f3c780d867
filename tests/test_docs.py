"""The documentation names sections, files and links that exist, and its examples run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kising.cli import main
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec

ROOT = Path(__file__).parents[1]
MATHS = ROOT / "docs" / "maths.md"
TUTORIAL = ROOT / "docs" / "tutorials" / "stocks.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "paper").glob("*.md")),
    TUTORIAL,
]
# (maths.md, "One section" and "Another") or (docs/maths.md, "A section", for what ...)
CITATION = re.compile(r'maths\.md((?:,?\s+(?:and\s+)?"[^"]+")+)')


def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)


def run_examples(page: Path) -> dict[str, Any]:
    """The names that the Python blocks of a page define, run one after the other."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), str(page), "exec"), names)
    return names


def summary_shown(page: Path) -> list[str]:
    """The lines of a fit's summary that a page shows, as an indented block."""
    (shown,) = re.findall(r"^    kising fit of .*?\n(?=\S)", page.read_text(), re.DOTALL | re.MULTILINE)
    return [line.strip() for line in shown.splitlines() if line.strip() not in ("", "...")]


def citations() -> list[tuple[str, str]]:
    found = []
    for path in sorted((ROOT / "kising").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                titles = re.findall(r'"([^"]+)"', "".join(CITATION.findall(node.value)))
                found += [(str(path.relative_to(ROOT)), " ".join(title.split())) for title in titles]
    return found


def test_docstrings_cite_sections_that_exist() -> None:
    cited = citations()
    assert len({path for path, _ in cited}) >= 10
    missing = [(path, title) for path, title in cited if title not in headings(MATHS)]
    assert not missing, f"docs/maths.md has no such section: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings(linked)}
            assert anchor in slugs, target
    for named in re.findall(
        r"(?<![/\w])(?:kising|tests|sweeps|docs)/[\w/]+\.(?:py|md|yaml|json|png)\b", text
    ):
        assert (ROOT / named).exists(), named


def test_the_readme_is_short_and_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "README.md"
    assert len(page.read_text().splitlines()) <= 150
    monkeypatch.chdir(tmp_path)
    names = run_examples(page)
    assert set(names["fit"].summary().splitlines()) >= set(summary_shown(page))
    assert 60 < len(names["real"]) < 100  # of 83 bonds


def test_the_examples_of_the_page_on_fits_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "fits.md"
    monkeypatch.chdir(tmp_path)
    names = run_examples(page)
    assert len(names["real"]) > 10
    assert set(names["fit"].summary().splitlines()) >= set(summary_shown(page))


def test_the_example_of_the_page_on_learning_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_examples(ROOT / "docs" / "learning.md")
    assert np.abs(names["with_light"].couplings.F - 0.5).max() < 0.1
    _, *counts, gained, _ = capsys.readouterr().out.split("\n", maxsplit=4)
    assert counts == ["0", "23"]
    assert float(gained) == pytest.approx(0.045, abs=0.0005)


def test_the_examples_of_the_page_on_sweeps_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = ROOT / "docs" / "sweeps.md"
    names = run_examples(page)
    assert len(names["results"].summary) == 2
    assert "4 runs (4 done)" in capsys.readouterr().out
    (lines,) = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for shell, line in zip(("bash", "zsh", "fish"), lines.splitlines(), strict=True):
        command = re.search(r"_KISING_COMPLETE=(\w+) kising", line)
        assert command is not None
        script = CliRunner(env={"_KISING_COMPLETE": command[1]}).invoke(main, prog_name="kising").output
        assert f"_KISING_COMPLETE={shell}_complete" in script


NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


@pytest.mark.slow
def test_the_tutorial_shows_what_its_script_prints(tmp_path: Path) -> None:
    pytest.importorskip("skfolio")
    script = TUTORIAL.with_suffix(".py")
    run = subprocess.run([sys.executable, script, tmp_path], check=True, capture_output=True, text=True)
    assert not run.stderr
    printed = [" ".join(line.split()) for line in run.stdout.splitlines()]
    shapes = [NUMBER.sub("#", line) for line in printed]
    shown = re.findall(r"^```text\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    assert len(shown) >= 6
    for block in shown:
        lines = [" ".join(line.split()) for line in block.splitlines()]
        first = shapes.index(NUMBER.sub("#", lines[0]))
        for line, new in zip(lines, printed[first:], strict=False):
            assert NUMBER.sub("#", line) == NUMBER.sub("#", new)
            for old, value in zip(NUMBER.findall(line), NUMBER.findall(new), strict=True):
                # Other machines round in another way.
                assert float(value) == pytest.approx(float(old), rel=0.02, abs=0.011), (line, new)
    for figure in re.findall(r"!\[.*\]\((.*)\)", TUTORIAL.read_text()):
        assert (tmp_path / figure).stat().st_size > 10_000


@pytest.mark.slow
def test_the_examples_of_the_tutorial_run() -> None:
    pytest.importorskip("skfolio")
    names = run_examples(TUTORIAL)
    assert names["spins"].shape == (8312, 20)
    assert names["edges"].query("block == 'K'")["q"].lt(0.1).mean() > 0.9


def test_the_sweep_file_of_the_documentation_plans(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "sweeps.md").read_text(), re.DOTALL)
    file = tmp_path / "documented.yaml"
    file.write_text(text)
    assert Plan.of(read_spec(file)).n_runs == 7 * 2 * 20
    assert Plan.of(read_spec(file, preset="quick")).n_runs == 2 * 3


def test_the_choice_of_the_documentation_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "choosing-hidden.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.startswith("2\nChosen: 2 hidden spins, ")
    (sweep,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "how-many.yaml").write_text(sweep)
    assert Plan.of(read_spec(tmp_path / "how-many.yaml")).n_runs == 5 * 5
