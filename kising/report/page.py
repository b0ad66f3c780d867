"""The report of a sweep as one self-contained HTML page: no scripts, no other files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

import numpy as np
import pandas as pd

from kising.report.claims.verdicts import Finding
from kising.report.figures.drawing import MOST_PANELS, FigureSpec, data_url

_STYLE: Final = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; max-width: 1200px;
  padding: 1rem; }
h1 { font-size: 1.6rem; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; border-bottom: 1px solid #ccc; }
p { margin: 0.4rem 0; max-width: 48rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); gap: 0.75rem; }
.panels img { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid #ddd; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { font-weight: 600; white-space: nowrap; }
.holds::before { content: "\\2713  "; } .fails::before { content: "\\2717  "; } .unknown::before { content: "?  "; }
.holds { color: #00624a; } .fails { color: #a33f00; } .unknown { color: #555; }
small { color: #555; font-weight: 400; white-space: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: 0.875rem; }
dt { color: #555; } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  .claims thead { display: none; }
  .claims, .claims tbody, .claims tr, .claims td { display: block; width: 100%; }
  .claims tr { border: 1px solid #ccc; border-radius: 4px; margin: 0.6rem 0; padding: 0.3rem 0; }
  .claims td { border: 0; padding: 0.15rem 0.6rem; white-space: normal; }
  .claims td::before { content: attr(data-name) ": "; color: #555; font-weight: 400; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; }
}
"""
_CLASSES: Final = {"holds": "holds", "does not hold": "fails", "not enough data": "unknown"}


def page(
    name: str,
    lead: Sequence[str],
    findings: Sequence[Finding],
    figures: Iterable[FigureSpec],
    tables: Sequence[tuple[str, pd.DataFrame]],
    provenance: Mapping[str, str],
) -> str:
    """Return the page."""
    body = [
        f"<h1>{escape(name)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in lead),
        *_claims(findings),
        *(line for figure in figures for line in _figure(figure)),
        *(line for title, frame in tables for line in _table(title, frame)),
        "<h2>Provenance</h2>",
        "<dl>",
        *(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in provenance.items()),
        "</dl>",
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(name)}</title><style>{_STYLE}</style></head>",
            "<body>",
            *body,
            "</body></html>\n",
        ]
    )


def _claims(findings: Sequence[Finding]) -> Iterator[str]:
    yield "<h2>What the paper claims, and what was measured here</h2>"
    if not findings:
        yield "<p>This sweep varies nothing that a claim of the paper is about.</p>"
        return
    yield (
        "<p>Battistin, Hertz, Tyrcha and Roudi (2015), paraphrased. Intervals are at 95%; of many claims, one in "
        "twenty may fail by chance.</p>"
    )
    yield '<table class="claims"><thead><tr>'
    names = ("Figure", "Claim", "Where", "Measured", "Verdict")
    yield "".join(f"<th>{name}</th>" for name in names) + "</tr></thead><tbody>"
    for found in findings:
        cells = (
            ("", escape(found.figure)),
            ("", escape(found.claim)),
            ("", escape(found.where or "all runs")),
            ("", f"<b>{_measured(found)}</b><br><small>{escape(found.quantity)}</small>"),
            (
                f"verdict {_CLASSES[found.verdict]}",
                f"{found.verdict}<br><small>{escape(found.rule)}</small>",
            ),
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


def _figure(figure: FigureSpec) -> Iterator[str]:
    if not figure.panels:
        return
    yield f"<h2>{escape(figure.title)}</h2>"
    yield f"<p>{escape(figure.caption)}</p>"
    yield '<div class="panels">'
    for panel in figure.panels[:MOST_PANELS]:
        text = ": ".join(filter(None, (figure.title, panel.title)))
        yield f'<img alt="{escape(text, quote=True)}" src="{data_url(panel)}">'
    yield "</div>"
    if len(figure.panels) > MOST_PANELS:
        yield f"<p>{len(figure.panels) - MOST_PANELS} more panels are not drawn: summary.parquet has their numbers.</p>"
    yield f"<p><small>Files: {figure.name}.svg, {figure.name}.png</small></p>"


def _table(title: str, frame: pd.DataFrame) -> Iterator[str]:
    if frame.empty:
        return
    yield f'<h2>{escape(title)}</h2><div class="wide"><table><thead><tr>'
    yield "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns) + "</tr></thead><tbody>"
    for row in frame.itertuples(index=False):
        yield "<tr>" + "".join(f'<td class="number">{escape(_cell(value))}</td>' for value in row) + "</tr>"
    yield "</tbody></table></div>"


def _cell(value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
