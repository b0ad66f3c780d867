"""The documentation names sections, files and links that exist, and its examples run."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec

ROOT = Path(__file__).parents[1]
MATHS = ROOT / "docs" / "maths.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# (maths.md, "One section" and "Another") or (docs/maths.md, "A section", for what ...)
CITATION = re.compile(r'maths\.md((?:,?\s+(?:and\s+)?"[^"]+")+)')


def headings(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)


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
    for named in re.findall(r"\b(?:kising|tests|sweeps|docs)/[\w/]+\.(?:py|md|yaml|json|png)\b", text):
        assert (ROOT / named).exists(), named


def test_the_readme_is_short_and_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["z"].shape == (20, 20)


def test_the_examples_of_the_page_on_fits_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "fits.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec("\n".join(examples), names)
    assert len(names["real"]) > 10
    assert names["fit"].summary().splitlines()[0] in (ROOT / "docs" / "fits.md").read_text()


def test_the_sweep_file_of_the_documentation_plans(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "sweeps.md").read_text(), re.DOTALL)
    file = tmp_path / "documented.yaml"
    file.write_text(text)
    assert Plan.of(read_spec(file)).n_runs == 7 * 2 * 20
    assert Plan.of(read_spec(file, preset="quick")).n_runs == 2 * 3
