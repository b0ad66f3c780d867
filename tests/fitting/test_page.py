from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.browsers import BROWSER, look_at_figures

from kising import draw_couplings, fit, simulate
from kising.fitting.figures.activity import activity_figure
from kising.fitting.page import page, verdict
from kising.fitting.record import record
from kising.learning.selection import Choice, choose_hidden
from kising.recordings import as_segments


def choice_of(hidden: int) -> Choice:
    rows = [
        {"model.hidden": n, "realization": k, "held_out": -3 + n - k / 9, "forecast": -4 - k / 9}
        | {"held_out_memoryless": -5.0 + n, "forecast_memoryless": -6.0}
        | {"held_out_visible_only": -3 - k / 9, "forecast_visible_only": -3 - k / 9, "outcome": "converged"}
        for n in (1, hidden)
        for k in range(3)
    ]
    return choose_hidden(rows)


def made(visible: int, hidden: int, *, choice: bool = False, names=None, **options) -> str:
    import pandas as pd

    data = simulate(draw_couplings(visible, max(hidden, 1), seed=1, bias=0.2), 800, seed=2).visible
    frame = pd.DataFrame(data, columns=names or [f"unit {k}" for k in range(visible)])
    segments = as_segments(frame)
    found = fit(segments, hidden, seed=3, max_iterations=30, **options)
    chosen = choice_of(hidden) if choice else None
    about = record(found, segments, chosen, Path("a<b>.csv"), "kising fit 'a<b>.csv'")
    return page(found, segments, chosen, about)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {
        "small": made(8, 2, choice=True, errors=True),
        "no hidden spins": made(5, 0, errors=True),
        "no errors": made(5, 1),
        "sampled": made(5, 1, errors=True, estimator="gibbs"),
        "large": made(45, 1, bias=False),
        "strange names": made(
            3, 1, errors=True, names=["<script>alert(1)</script>", "a & b", r"$\frac{$ 日本"]
        ),
    }


NAMES = ["small", "no hidden spins", "no errors", "sampled", "large", "strange names"]


class Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href")]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_needs_no_scripts_and_no_other_files(name, pages) -> None:
    checker = Checker()
    checker.feed(pages[name])
    assert "script" not in checker.tags
    assert all(link.startswith(("data:", "#")) for link in checker.links)
    assert not re.search(r"url\((?!#)", pages[name])
    assert "a&lt;b&gt;.csv" in pages[name]
    assert "a<b>" not in pages[name]


def test_figures_take_the_colour_of_the_text(pages) -> None:
    assert "currentColor" in pages["small"]
    assert "#010203" not in pages["small"]
    assert "prefers-color-scheme: dark" in pages["small"]


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        (
            "small",
            ["Held-out scores", "Couplings", "Strongest couplings", "Network", "Recording", "Learning"],
        ),
        ("no hidden spins", ["Couplings", "Strongest couplings", "Network", "Recording", "Learning"]),
        ("large", ["Couplings", "Strongest couplings", "Recording", "Learning"]),
    ],
)
def test_a_page_has_its_parts(name, headings, pages) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", pages[name]) == [*headings, "Provenance"]


def test_held_out_scores_stand_beside_the_baselines(pages) -> None:
    table = pages["small"].partition("<th>hidden spins</th>")[2].partition("</table>")[0]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in table.split("<tr")[1:]]
    assert [row[0] for row in rows] == ["none (baseline)", "1", "2 (chosen)"]
    assert rows[0][1:3] == ["-3.11111 ± 0.06415"] * 2
    assert [row[3] for row in rows[1:]] == ["-4.00000 ± 0.00000", "-3.00000 ± 0.00000"]
    assert "Chosen: 2 hidden spins" in pages["small"]


def test_without_errors_the_page_says_so(pages) -> None:
    assert "There are no standard errors" in pages["no errors"]
    assert "There are no standard errors" not in pages["small"]
    assert "q &lt; 0.05" not in pages["no errors"]


def test_the_verdict_tells_what_to_do() -> None:
    data = simulate(draw_couplings(5, 1, seed=1), 800, seed=2).visible
    assert verdict(fit(data, 1, seed=3)) == (verdict(fit(data, 1, seed=3))[0], True)
    text, good = verdict(fit(data, 1, seed=3, max_iterations=2))
    assert not good
    assert "--max-iterations 4" in text
    text, good = verdict(fit(data, 1, seed=3, step="gradient", rate=1e9, max_iterations=50))
    assert not good
    assert "mean nothing" in text
    assert np.isfinite(fit(data, 1, seed=3).training_log_likelihood)


def test_a_fit_that_diverged_has_a_page_too() -> None:
    text = made(5, 1, step="gradient", rate=1e9)
    assert "Learning diverged" in text


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", NAMES)
def test_a_browser_shows_every_figure_within_the_window(name, width, pages, tmp_path) -> None:
    path = tmp_path / "index.html"
    path.write_text(pages[name])
    seen = look_at_figures(path, width, tmp_path)
    assert seen["figures"] >= 7 - 2 * (name == "no hidden spins")
    assert seen["overflow"] <= 0
    assert seen["small"] == 0
    assert seen["narrowest"] >= min(width, 400) - 60


@pytest.mark.parametrize(
    ("share", "coupled", "grey", "given"),
    [
        (0.0, False, "black is +1.", "the visible ones at the steps before, at and after"),
        (0.1, False, "black is +1, grey is missing.", "the whole stretch shown"),
        (0.0, True, "black is +1.", "the whole stretch shown"),
    ],
)
def test_the_raster_says_what_its_colours_are_and_what_hidden_states_are_given(
    share, coupled, grey, given
) -> None:
    data = simulate(draw_couplings(4, 1, seed=1, bias=0.2), 300, seed=2).visible
    data = np.where(np.random.default_rng(3).random(data.shape) < share, np.nan, data)
    found = fit(data, 1, seed=3, max_iterations=2, estimator="exact", hidden_couplings=coupled)
    caption = activity_figure(found, as_segments(data))[1]
    assert grey in caption
    assert f"each hidden spin given {given}: red" in caption
