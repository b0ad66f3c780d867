"""The report of a sweep as one HTML page, in light and dark, without scripts. Figures are inside it; their files and
their numbers as CSV lie beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

import numpy as np

from kising.messages import plural
from kising.report.claims.verdicts import Finding, Verdict
from kising.report.figures.drawing import MOST_PANELS, FigureSpec, Limits, data_url
from kising.report.point_tables import TextTable

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #555; --line: #ccc; --panel: #f6f7f9;
  --good: #00624a; --bad: #a33f00; --link: #0a58a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #171717; --soft: #a8adb5; --line: #3c4048;
  --panel: #202226; --good: #4fd1a5; --bad: #ff9d5c; --link: #7db7ff; }
  .panels img { filter: invert(0.935) hue-rotate(180deg) brightness(1.4); } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1240px; padding: 1rem; }
h1 { font-size: 1.6rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; font-weight: 600; }
a { color: var(--link); }
p { margin: 0.4rem 0; max-width: 52rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 0.75rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 0 1.5rem; }
.figures > .many { grid-column: 1 / -1; }
.figures > .one .panels { grid-template-columns: 1fr; max-width: 600px; }
.few .panels { grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
.panels img { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
.tables { display: flex; flex-wrap: wrap; gap: 0 3rem; } .tables > section { max-width: 100%; }
.tables h3 { max-width: 34rem; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; vertical-align: top; padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
.claims td, .claims th { text-align: left; white-space: normal; }
.verdict { font-weight: 600; }
.holds::before { content: "\\2713  "; } .fails::before { content: "\\2717  "; } .unknown::before { content: "?  "; }
.holds { color: var(--good); } .fails { color: var(--bad); } .unknown { color: var(--soft); }
small, .soft { color: var(--soft); font-weight: 400; font-size: 0.875rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; padding: 0 0.8rem; }
details[open] { padding-bottom: 0.6rem; }
summary { cursor: pointer; padding: 0.45rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: 0.875rem; margin: 0.3rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  body { padding: 0.75rem; }
  .claims thead { display: none; }
  .claims, .claims tbody, .claims tr, .claims td { display: block; width: 100%; }
  .claims tr { border-bottom: 1px solid var(--line); margin: 0.4rem 0; padding: 0.3rem 0; }
  .claims td { border: 0; padding: 0.1rem 0; }
  .claims td::before { content: attr(data-name) ": "; color: var(--soft); font-weight: 400; }
  .points thead { display: none; }
  .points, .points tbody { display: block; }
  .points tr { display: flex; flex-wrap: wrap; gap: 0 0.9rem; border-bottom: 1px solid var(--line); padding: 0.3rem 0; }
  .points td { order: 2; border: 0; padding: 0; } .points .key { order: 0; color: var(--soft); }
  .points tr::after { content: ""; order: 1; flex-basis: 100%; }
  .points td::before { content: attr(data-name) " "; color: var(--soft); }
  .long { grid-template-columns: 1fr; } .long dd { margin-bottom: 0.4rem; }
  th, td { padding: 0.25rem 0.45rem; }
}
"""
_CLASSES: Final[dict[Verdict, str]] = {
    "holds": "holds",
    "does not hold": "fails",
    "not enough data": "unknown",
}


MOST_OPEN: Final = 5
MOST_FAILURES: Final = 100


class Content(NamedTuple):
    """What stands on the page."""

    name: str
    lead: Sequence[str]
    symbols: Sequence[tuple[str, str]]
    figures: Sequence[tuple[FigureSpec, Limits | None]]
    """each with the axes that its panels share"""
    tables: Sequence[TextTable]
    more_points: int
    """that the tables leave out"""
    failures: Sequence[tuple[str, str, str]]
    """id, parameters and reason of every failed run"""
    findings: Sequence[Finding]
    provenance: Mapping[str, str]
    kinds: Sequence[str] = ("csv", "svg", "png")
    """of the files of figures that lie beside the page"""


def page(content: Content) -> str:
    """Return the page."""
    return document(content.name, body(content))


def body(content: Content) -> list[str]:
    """What stands between the tags of the page's body."""
    return [
        f"<h1>{escape(content.name)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in content.lead),
        *_pairs("What the symbols mean", content.symbols, ""),
        '<div class="figures">',
        *(line for figure, limits in content.figures for line in _figure(figure, limits, content.kinds)),
        "</div>",
        *_tables(content.tables, content.more_points),
        *_failures(content.failures),
        *_claims(content.findings),
        "<h2>Provenance</h2>",
        *_pairs("Versions, times, machine, command", content.provenance.items(), "long"),
    ]


def document(name: str, inside: Iterable[str], *, style: str = STYLE, head: str = "") -> str:
    """A whole HTML document, in the style of reports unless it has its own."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(name)}</title><style>{style}</style>{head}</head>",
            "<body>",
            *inside,
            "</body></html>\n",
        ]
    )


def _pairs(title: str, pairs: Iterable[tuple[str, str]], kind: str) -> Iterator[str]:
    yield f'<details><summary>{escape(title)}</summary><dl class="{kind}">'
    for name, meaning in pairs:
        yield f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>"
    yield "</dl></details>"


def _figure(figure: FigureSpec, limits: Limits | None, kinds: Sequence[str]) -> Iterator[str]:
    shown = figure.panels[:MOST_PANELS]
    if not shown:
        return
    # A figure of one panel shares a row with the next one.
    # Two or four panels fill rows of two.
    kind = {1: "one", 2: "many few", 4: "many few"}.get(len(shown), "many")
    yield f'<section class="{kind}"><h2>{escape(figure.title)}</h2>'
    yield f"<p>{escape(figure.caption)}</p>"
    yield '<div class="panels">'
    for panel in shown:
        text = ": ".join(filter(None, (figure.title, panel.title)))
        yield f'<img alt="{escape(text, quote=True)}" src="{data_url(panel, limits)}">'
    yield "</div>"
    if len(figure.panels) > MOST_PANELS:
        more = plural(len(figure.panels) - MOST_PANELS, "panel")
        yield f"<p>{more} more not drawn: the CSV file has the numbers.</p>"
    name = escape(figure.name, quote=True)
    links = (f'<a href="{name}.{kind}">{text}</a>' for kind, text in _KINDS.items() if kind in kinds)
    yield f'<p class="soft">{" · ".join(links)}</p></section>'


_KINDS: Final = {"csv": "the numbers as CSV", "svg": "SVG", "png": "PNG"}


def _tables(tables: Sequence[TextTable], more_points: int) -> Iterator[str]:
    if not tables:
        return
    yield '<h2>Tables</h2><div class="tables">'
    for table in tables:
        shown, same = table.without_constants()
        yield f"<section><h3>{escape(shown.title)}</h3>"
        if shown.headings:
            yield '<div class="wide"><table class="points"><thead><tr>'
            yield "".join(f"<th>{escape(name)}</th>" for name in shown.headings) + "</tr></thead><tbody>"
            # On a phone a row becomes a paragraph: its parameters, and below them what was measured.
            kinds = [f'<td{" class=key" * (i < shown.keys)} data-name="{escape(name, quote=True)}">'
                     for i, name in enumerate(shown.headings)]  # fmt: skip
            for row in shown.rows:
                cells = (f"{kind}{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
                yield f"<tr>{''.join(cells)}</tr>"
            yield "</tbody></table></div>"
        if same:
            constants = ", ".join(f"{name} {value}" for name, value in same.items())
            yield f'<p class="soft">The same in all rows: {escape(constants)}.</p>'
        yield "</section>"
    yield "</div>"
    rest = f" {plural(more_points, 'more point')} only there." if more_points else ""
    yield f'<p class="soft">All columns: summary.parquet and scaling.parquet, one directory up.{rest}</p>'


def _failures(failures: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if not failures:
        return
    yield "<h2>Failed runs</h2>"
    yield f"<details{' open' if len(failures) <= MOST_OPEN else ''}>"
    yield f'<summary>{plural(len(failures), "run")} failed</summary><dl class="long">'
    for run_id, label, error in failures[:MOST_FAILURES]:
        yield f"<dt>{escape(run_id)}, {escape(label)}</dt><dd>{escape(error)}</dd>"
    yield "</dl>"
    if len(failures) > MOST_FAILURES:
        yield f"<p>{len(failures) - MOST_FAILURES} more: runs.parquet has them all.</p>"
    yield '<p class="soft">`kising show DIR RUN` shows everything about a run.</p></details>'


def _claims(findings: Sequence[Finding]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Finding]] = {}
    for found in findings:
        groups.setdefault((found.figure, found.claim), []).append(found)
    # A claim of which nothing could be measured is none that this sweep bears on.
    bearing = {
        key: some for key, some in groups.items() if any(not np.isnan(one.measured.value) for one in some)
    }
    if not bearing:
        return
    yield "<h2>Claims that this sweep bears on</h2>"
    yield (
        '<p class="soft">Those with a figure are from Battistin, Hertz, Tyrcha and Roudi (2015), paraphrased. '
        "Intervals are at 95%; of many claims, one in twenty may fail by chance.</p>"
    )
    for (figure, claim), some in bearing.items():
        counts = Counter(one.verdict for one in some)
        verdicts = ", ".join(
            f'<span class="verdict {_CLASSES[verdict]}">{verdict} {counts[verdict]}</span>'
            for verdict in _CLASSES
            if counts[verdict]
        )
        label = f"Figure {figure}" if figure[:1].isdigit() else figure
        yield f"<details><summary>{escape(claim)} <small>{escape(label)}</small> {verdicts}</summary>"
        yield f'<p class="soft">{escape(some[0].rule)}</p>'
        yield from _findings(some)
        yield "</details>"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    names = ("Where", "Measured", "Verdict")
    yield '<table class="claims"><thead><tr>' + "".join(f"<th>{name}</th>" for name in names)
    yield "</tr></thead><tbody>"
    for found in findings:
        cells = (
            ("", escape(found.where or "all runs")),
            ("", f"<b>{_measured(found)}</b> <small>{escape(found.quantity)}</small>"),
            (f"verdict {_CLASSES[found.verdict]}", found.decision),
        )
        yield (
            "<tr>"
            + "".join(
                f'<td class="{kind}" data-name="{name}">{text}</td>'
                for name, (kind, text) in zip(names, cells, strict=True)
            )
            + "</tr>"
        )
    yield "</tbody></table>"


def _measured(found: Finding) -> str:
    """The measured number with its interval, to three digits."""
    value, low, high = found.measured
    if not np.isfinite(value):
        return "no number" if np.isnan(value) else f"{value:+.3g}"
    span = f" ({low:.3g} .. {high:.3g})" if np.isfinite(low) or np.isfinite(high) else ""
    return f"{value:.3g}{span}"
