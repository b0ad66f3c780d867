"""The page of a sweep, from a sweep that was run; looked at by a browser where there is one."""

from __future__ import annotations

import html
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.browsers import BROWSER, look

from kising import draw_couplings, run_sweep, simulate
from kising.learning.selection import selection_spec
from kising.report.build import build
from kising.report.choice import chosen_among
from kising.report.tables import refresh_tables

SWEEP = {
    "name": "small",
    "description": "A page's <own> description & more",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"max_iterations": 15, "estimator": "exact"},
    "axes": {"data.length": [200, 800]},
    "keep": {"couplings": True, "trace": True},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        run_sweep(SWEEP, out=place / "r", in_process=True)
    return build(place / "r", refresh_tables(place / "r"))


def test_everything_that_there_is_data_for_is_drawn(built) -> None:
    names = [figure["name"] for figure in built.document["figures"]]
    assert names == ["error-against-length", "convergence-against-length", "couplings", "traces"]
    for name in names:
        assert (built.page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (built.page.parent / f"{name}.svg").read_text()
    panels = {figure["name"]: figure["panels"] for figure in built.document["figures"]}
    assert panels["error-against-length"] == [""]
    assert panels["couplings"] == ["J, T = 800", "K, T = 800", "L, T = 800"]
    assert [title.partition(":")[0] for title in panels["traces"]] == ["T = 200", "T = 800"]


def test_the_page_needs_nothing_beside_itself(built) -> None:
    text = built.page.read_text()
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) == 7
    assert all(source.startswith("data:") for source in sources)
    # What it links to lies beside it.
    linked = re.findall(r'<a href="([^"]*)"', text)
    assert sorted(linked) == sorted(file for figure in built.document["figures"] for file in figure["files"])
    assert all((built.page.parent / name).is_file() for name in linked)
    assert "<script" not in text
    assert "A page&#x27;s &lt;own&gt; description &amp; more" in text
    assert (
        text.count("<img ")
        == text.count('<img alt="')
        == sum(len(figure["panels"]) for figure in built.document["figures"])
    )


def test_figures_and_tables_show_the_same_numbers(built) -> None:
    numbers = pd.read_csv(built.page.parent / "error-against-length.csv")
    assert list(numbers.columns) == [
        *("panel", "line", "quantity", "data.length", "value", "low", "high", "runs")
    ]
    summary = pd.DataFrame(built.document["summary"]).set_index("data.length")
    text = built.page.read_text()
    for row in numbers.itertuples(index=False):
        point = summary.loc[row[3]]
        mean, error = point[f"{row.quantity}_mean"], point[f"{row.quantity}_sem"]
        assert (row.value, row.low, row.high) == pytest.approx((mean, mean - error, mean + error))
        block = row.quantity.removeprefix("rmse_")
        assert f'<td data-name="{block}">{mean:.3f} ± {error:.3f}</td>' in text
    shares = pd.read_csv(built.page.parent / "convergence-against-length.csv")
    for row in shares.itertuples(index=False):
        point = summary.loc[row[3]]
        assert (row.value, row.low, row.high) == pytest.approx(
            tuple(point[f"{row.quantity}{end}"] for end in ("", "_low", "_high"))
        )


def test_figures_come_first_and_claims_last_and_collapsed(built) -> None:
    text = built.page.read_text()
    places = [text.index(words) for words in ("<h1>", "<img ", "<h2>Tables", "<h2>Claims", "<h2>Provenance")]
    assert places == sorted(places)
    claims = {(claim["figure"], claim["claim"]) for claim in built.document["claims"]}
    section = text[places[3] : places[4]]
    assert section.count("<details>") == len(claims)
    assert "<details open" not in section
    # Columns that are the same everywhere are named once, and symbols are explained.
    assert "The same in all rows: runs 2, failed 0" in text
    assert "<th>failed</th>" not in text
    assert "<dt>J</dt><dd>acts on visible spins, from visible spins</dd>" in text


def test_the_page_says_claims_and_provenance(built) -> None:
    text = built.page.read_text()
    claims = built.document["claims"]
    assert {claim["figure"] for claim in claims} == {"3A", "3B, 6, 8", "4"}
    for claim in claims:
        assert html.escape(claim["claim"]) in text
        assert claim["verdict"] in ("holds", "does not hold", "not enough data")
    assert "numerics" in text
    assert "core-hours" in text


@pytest.mark.usefixtures("plain_figures")
def test_provenance_says_when_the_first_session_began_and_the_last_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    began = datetime.now(UTC).replace(microsecond=0)
    # One point and nothing kept: no figures.
    sweep = {**SWEEP, "keep": {}, "axes": {"data.length": [200]}}
    run_sweep({**sweep, "realizations": 1}, out=tmp_path / "r", in_process=True)
    time.sleep(1.1)
    run_sweep(sweep, out=tmp_path / "r", in_process=True)
    ended = datetime.now(UTC)
    made = build(tmp_path / "r", refresh_tables(tmp_path / "r")).document["provenance"]
    names = ("first session began", "last update")
    times = [datetime.strptime(made[name], "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC) for name in names]
    assert began <= times[0] < times[1] <= ended


def test_the_document_is_json_without_nan_and_the_same_every_time(built) -> None:
    written = built.page.parent / "report.json"
    assert json.loads(written.read_text(), parse_constant=pytest.fail) == built.document
    before = {path.name: path.read_bytes() for path in built.page.parent.iterdir()}
    again = build(built.page.parents[1], refresh_tables(built.page.parents[1]))
    assert {path.name: path.read_bytes() for path in again.page.parent.iterdir()} == before


@pytest.mark.usefixtures("plain_figures")
def test_the_page_about_a_recording_begins_with_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save(tmp_path / "spins.npy", simulate(draw_couplings(4, 1, seed=1), 300, seed=2).visible)
    spec = selection_spec(tmp_path / "spins.npy", [0, 1], seed=3, folds=3, learner={"max_iterations": 20})
    runs = run_sweep(spec, out=tmp_path / "r", in_process=True).runs
    tables = refresh_tables(tmp_path / "r")
    text = build(tmp_path / "r", tables).page.read_text()
    chosen = chosen_among(runs)
    assert chosen is not None
    assert 0 < text.index(f"<p>{html.escape(chosen)}</p>") < text.index("<img ")
    assert "means over folds, bars are one standard error" in text
    # Nothing is chosen while a fold is still to come.
    unfinished = build(tmp_path / "r", tables._replace(runs=runs.iloc[1:]))
    assert "Chosen: " not in unfinished.page.read_text()
    assert not unfinished.whole


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: the page is not looked at")
@pytest.mark.parametrize(("width", "cards"), [(360, "block"), (1280, "table-row")])
def test_a_browser_shows_all_of_it(built, tmp_path: Path, width: int, cards: str) -> None:
    seen = look(built.page, width, tmp_path)
    assert seen["images"] == seen["drawn"] == 7
    assert seen["widest"] <= width
    assert seen["narrowest"] >= 280
    assert seen["overflow"] == 0
    assert seen["small"] == 0
    assert seen["cut"] == 0
    assert seen["cards"] == cards
