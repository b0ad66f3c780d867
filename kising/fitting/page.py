"""The page of a fit: one self-contained HTML file, without scripts and without other files, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from kising.fitting.figures.activity import activity_figure
from kising.fitting.figures.intervals import interval_figures, label, strongest
from kising.fitting.figures.learning import learning_figures, score_figures
from kising.fitting.figures.matrices import coupling_figures
from kising.fitting.figures.network import SIGNIFICANT, network_figure
from kising.learning.fitted.advice import FLAGS, cure
from kising.learning.selection import MEMORYLESS, OWN, VISIBLE_ONLY, Folds
from kising.report.choice import plus_minus
from kising.report.page import document

if TYPE_CHECKING:
    import pandas as pd

    from kising.fitting.record import Record
    from kising.learning.fit import Fit
    from kising.learning.selection import Choice
    from kising.recordings import Segments

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #555; --line: #ccc; --good: #00624a;
  --bad: #a33f00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181c; --soft: #a8adb5; --line: #3c4048;
  --good: #4fd1a5; --bad: #ff9d5c; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1200px; padding: 1rem; }
h1 { font-size: 1.6rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; border-bottom: 1px solid var(--line); }
p { margin: 0.4rem 0; max-width: 52rem; }
.verdict { font-size: 1.1rem; font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr)); gap: 1rem; }
.two { grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); }
svg { width: 100%; height: auto; display: block; }
.network svg { max-width: 640px; margin: 0 auto; }
.wide { overflow-x: auto; }
.wide svg { min-width: 640px; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.chosen td { font-weight: 600; }
summary { cursor: pointer; margin: 0.5rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: 0.875rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 640px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; } }
"""


def page(found: Fit, segments: Segments, choice: Choice | None, about: Record) -> str:
    """The whole page."""
    edges = found.edges()
    name = f"Fit of {about.recording}"
    body = [
        f"<h1>{escape(name)}</h1>",
        *_header(found, segments, choice, edges),
        *_scores(choice),
        *_couplings(found),
        *_edges(found, edges),
        *_network(found, edges),
        *_activity(found, segments),
        "<h2>Learning</h2>",
        *_panels(learning_figures(found), "two"),
        *_provenance(about),
    ]
    return document(name, body, style=_STYLE)


def verdict(found: Fit) -> tuple[str, bool]:
    """How learning ended, in words, and whether that is good."""
    after = f"after {found.iterations} iterations"
    if found.outcome == "converged":
        return f"Learning converged {after}.", True
    again = f"Fit again with {cure(found, FLAGS)}."
    if found.outcome == "diverged":
        return f"Learning diverged {after}: these couplings mean nothing. {again}", False
    return f"Learning did not converge {after} ({found.missing}). {again}", False


def _header(found: Fit, segments: Segments, choice: Choice | None, edges: pd.DataFrame) -> Iterator[str]:
    text, good = verdict(found)
    yield f'<p class="verdict {"good" if good else "bad"}">{escape(text)}</p>'
    nv, nh = found.couplings.K.shape
    several = f" in {len(segments.spins)} segments" if len(segments.spins) > 1 else ""
    inputs = f" and {segments.n_covariates} known inputs" if segments.n_covariates else ""
    yield (
        f"<p>{nv} visible and {nh} hidden spins{inputs}, {segments.n_steps} time steps{several}. "
        f"Log-likelihood {found.training_log_likelihood:.5f} nats per slice of the training data.</p>"
    )
    if found.standard_error is not None:
        pairs = edges[(edges["block"] == "J")]
        real = int((pairs["q"] < SIGNIFICANT).sum())
        yield (
            f"<p>{real} of {len(pairs)} couplings between visible spins differ from zero (q &lt; {SIGNIFICANT}: "
            f"about {SIGNIFICANT:.0%} of these are expected to be false).</p>"
        )
    if choice is not None:
        yield f"<p>{escape(choice.reason)}</p>"
    yield from (f"<p>Note: {escape(note)}</p>" for note in segments.notes)


def _scores(choice: Choice | None) -> Iterator[str]:
    if choice is None:
        return
    yield "<h2>Held-out scores</h2>"
    yield (
        f"<p>Nats per slice of held-out data, mean and standard error of {choice.folds} folds. The "
        "joint score also rewards correlations between spins at the same time; the forecast score does not. Two "
        "baselines: a network without hidden spins, and as many hidden spins without memory (no couplings from visible "
        "spins).</p>"
    )
    yield from _panels(score_figures(choice), "two")
    yield '<div class="wide"><table><thead><tr><th>hidden spins</th><th>joint</th><th>forecast</th>'
    yield "<th>joint, memoryless</th><th>forecast, memoryless</th><th>folds converged</th></tr></thead><tbody>"
    if all(one.hidden for one in choice.candidates):
        cells = _score_cells(choice.baseline, VISIBLE_ONLY)
        yield f"<tr><td>none (baseline)</td>{cells}<td>-</td><td>-</td><td>-</td></tr>"
    for one in choice.candidates:
        chosen = one.hidden == choice.hidden
        title = f"{one.hidden}{' (chosen)' * chosen}{' (baseline)' * (one.hidden == 0)}"
        cells = _score_cells(one.scores, (*OWN, *MEMORYLESS))
        mark = ' class="chosen"' * chosen
        yield f"<tr{mark}><td>{title}</td>{cells}<td>{one.converged}/{choice.folds}</td></tr>"
    yield "</tbody></table></div>"


def _score_cells(scores: Mapping[str, Folds], columns: Sequence[str]) -> str:
    return "".join(f"<td>{plus_minus(scores[column])}</td>" for column in columns)


def _couplings(found: Fit) -> Iterator[str]:
    yield "<h2>Couplings</h2>"
    yield (
        "<p>Rows are targets, columns are sources. Red raises the chance of +1, blue lowers it. Colours end at the "
        "99th percentile.</p>"
    )
    yield from _panels(coupling_figures(found))


def _edges(found: Fit, edges: pd.DataFrame) -> Iterator[str]:
    rows = strongest(edges)
    yield "<h2>Strongest couplings</h2>"
    order = "standard errors from zero" if found.standard_error is not None else "size"
    yield f"<p>The {len(rows)} strongest of {len(edges)}, by {order}; edges.csv has all.</p>"
    if found.standard_error is None:
        yield "<p>There are no standard errors: fit with --errors, if the network is small enough.</p>"
    yield from _panels(interval_figures(rows), "two")
    yield '<details><summary>The numbers</summary><div class="wide"><table><thead><tr><th>coupling</th>'
    yield "<th>block</th><th>value</th><th>error</th><th>z</th><th>q</th></tr></thead><tbody>"
    for row in rows.itertuples():
        numbers = (f"{row.value:.4f}", f"{row.error:.2g}", f"{row.z:.1f}", f"{row.q:.2g}")
        cells = "".join(f"<td>{'-' if text == 'nan' else text}</td>" for text in numbers)
        yield f"<tr><td>{escape(label(row))}</td><td>{row.block}</td>{cells}</tr>"
    yield "</tbody></table></div></details>"


def _network(found: Fit, edges: pd.DataFrame) -> Iterator[str]:
    drawn = network_figure(found, edges)
    if drawn is None:
        return
    figure, caption = drawn
    yield f'<h2>Network</h2><p>{escape(caption)}</p><div class="network">{figure}</div>'


def _activity(found: Fit, segments: Segments) -> Iterator[str]:
    figure, caption = activity_figure(found, segments)
    yield f'<h2>Recording</h2><p>{escape(caption)}</p><div class="wide">{figure}</div>'


def _panels(figures: list[str], kind: str = "") -> Iterator[str]:
    yield f'<div class="panels {kind}">'
    yield from (f"<div>{figure}</div>" for figure in figures)
    yield "</div>"


def _provenance(about: Record) -> Iterator[str]:
    rows = {
        "command": about.command,
        "recording": about.recording,
        "data": f"SHA-256 {about.data_sha256}",
        "seed": str(about.seed),
        "estimator": f"{about.estimator} (likelihood: {about.likelihood})",
        "options": ", ".join(f"{name} {value}" for name, value in about.options.items()),
        "versions": ", ".join(f"{name} {value}" for name, value in about.versions.items()),
        "written": about.written,
    }
    yield "<h2>Provenance</h2><dl>"
    yield from (f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in rows.items())
    yield "</dl>"
