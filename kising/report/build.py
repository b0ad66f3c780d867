"""`kising report`: a page, its figures, and the same content as JSON, from the tables of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from kising.messages import plural
from kising.report.choice import chosen_among
from kising.report.claims.paper import claims
from kising.report.claims.verdicts import Finding
from kising.report.figures.curves import curves
from kising.report.figures.drawing import FigureSpec, Limits, csv_of, limits_of, write_figure
from kising.report.figures.examples import scatters, traces
from kising.report.page import Content, body, page
from kising.report.point_tables import text_tables
from kising.report.results import Results
from kising.report.summary import core_hours, varied
from kising.report.symbols import symbols
from kising.report.tables import Frames
from kising.sweep.failures import failure_of
from kising.sweep.labels import varied_keys
from kising.sweep.plan import Plan
from kising.sweep.spec import SweepSpec, read_spec
from kising.sweep.store.atomic import atomic_write, make_directory
from kising.sweep.store.directory import SweepDirectory
from kising.version import NUMERICS, __version__

#: Most rows of a table on the page; the files have all.
MOST_ROWS: Final = 200


class Report(NamedTuple):
    """The files that were written, and their content."""

    whole: bool
    """whether every run of the sweep has ended"""
    page: Path
    figures: list[Path]
    document: dict[str, Any]
    """the content of the page: what `kising report --format json` prints"""


def build(path: Path, frames: Frames) -> Report:
    """Write report/index.html, report/report.json and the figures of a sweep."""
    directory = SweepDirectory(path)
    spec = read_spec(directory.sweep_file)
    make_directory(directory.report)
    gathered = _gather(directory, spec, frames)
    figures, findings, provenance = gathered
    files = {figure.name: write_figure(figure, directory.report) for figure in figures}
    limits = {name: limits for name, (_, limits) in files.items()}
    text = page(_content(spec, frames, gathered, limits))
    document = {
        "name": spec.name,
        "description": spec.description,
        "task": spec.task,
        "claims": [_finding(found) for found in findings],
        "figures": [
            {
                "name": figure.name,
                "title": figure.title,
                "caption": figure.caption,
                "panels": [panel.title for panel in figure.panels],
                "files": [file.name for file in files[figure.name][0]],
            }
            for figure in figures
        ],
        "summary": _records(frames.summary),
        "scaling": _records(frames.scaling),
        "provenance": provenance,
    }
    written = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    atomic_write(directory.report / "report.json", written.encode())
    target = atomic_write(directory.report / "index.html", text.encode())
    return Report(
        _is_whole(spec, frames.runs), target, [file for some, _ in files.values() for file in some], document
    )


def render(path: Path, frames: Frames | Results) -> tuple[str, dict[str, str]]:
    """The body of the page as HTML, and the numbers of its figures as CSV by file name; writes nothing."""
    directory = SweepDirectory(path)
    spec = read_spec(directory.sweep_file)
    gathered = _gather(directory, spec, frames)
    limits = {figure.name: limits_of(figure) for figure in gathered.figures}
    content = _content(spec, frames, gathered, limits)._replace(kinds=("csv",))
    # The page around it has the name, and failed runs as they come.
    html = "\n".join(body(content._replace(failures=[]))[1:])
    return html, {f"{figure.name}.csv": csv_of(figure) for figure in gathered.figures}


class _Gathered(NamedTuple):
    figures: list[FigureSpec]
    findings: list[Finding]
    provenance: dict[str, str]


def _gather(directory: SweepDirectory, spec: SweepSpec, frames: Frames | Results) -> _Gathered:
    return _Gathered(
        [figure for figure in _figures(frames) if figure.panels],
        claims(frames.runs, frames.couplings) if len(frames.runs) else [],
        _provenance(directory, frames.runs),
    )


def _content(
    spec: SweepSpec, frames: Frames | Results, gathered: _Gathered, limits: Mapping[str, Limits | None]
) -> Content:
    tables = text_tables(frames.summary, frames.scaling, MOST_ROWS, more=True) if len(frames.runs) else ()
    return Content(
        name=spec.name,
        lead=_lead(spec, frames.runs),
        symbols=list(symbols(frames.runs)),
        figures=[(figure, limits[figure.name]) for figure in gathered.figures],
        tables=list(tables),
        more_points=max(len(frames.summary) - MOST_ROWS, 0),
        failures=_failures(spec, frames.runs),
        findings=gathered.findings,
        provenance=gathered.provenance,
    )


def _is_whole(spec: SweepSpec, runs: pd.DataFrame) -> bool:
    """Whether every run has ended: before that, a number of hidden spins would be chosen from some of the folds."""
    return len(runs) == Plan.of(spec).n_runs


def _figures(frames: Frames | Results) -> list[FigureSpec]:
    runs = frames.runs
    if runs.empty:
        return []
    return [*curves(runs), *scatters(runs, frames.couplings), *traces(runs, frames.traces)]


def _lead(spec: SweepSpec, runs: pd.DataFrame) -> list[str]:
    status: Any = runs["status"].value_counts() if len(runs) else {}
    model = spec.model
    lines = [spec.description] if spec.description else []
    keys = varied(runs) if len(runs) else []
    done, failed = status.get("done", 0), status.get("failed", 0)
    lines.append(
        f"Task {spec.task}: {plural(int(done), 'run')} done, {failed} failed. "
        + (f"Varied: {', '.join(keys)}." if keys else "Nothing is varied.")
    )
    fixed: dict[str, tuple[Any, str]] = {
        "visible spins": (model.visible, "model.visible"),
        "hidden spins": (model.hidden, "model.hidden"),
        "bonds": (model.bonds, "model.bonds"),
        "strength g": (model.strength, "model.strength"),
        "connectivity c": (model.connectivity, "model.connectivity"),
        "length T": (spec.data.length, "data.length"),
    }
    if spec.data.file is not None:
        for key in ("bonds", "strength g", "connectivity c"):
            del fixed[key]
        fixed["recording"] = (Path(spec.data.file).name, "data.file")
        fixed["folds"] = (spec.data.folds, "data.folds")
    constants = [f"{name} {value}" for name, (value, key) in fixed.items() if key not in keys]
    lines.append("Held fixed: " + ", ".join(constants) + "." if constants else "")
    lines.append((chosen_among(runs) or "") if _is_whole(spec, runs) else "")
    return [line for line in lines if line]


def _failures(spec: SweepSpec, runs: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Id, parameters and reason of every failed run."""
    failed = runs[runs["status"] == "failed"] if len(runs) else runs
    found = [failure_of(row) for row in failed.to_dict("records")]
    keys = varied_keys(spec)
    return [(one.run_id, one.label(keys), one.error) for one in found]


def _provenance(directory: SweepDirectory, runs: pd.DataFrame) -> dict[str, str]:
    made = {"made by": f"kising {__version__}, numerics {NUMERICS}"}
    if len(runs):
        versions = sorted(
            {f"kising {v}, numerics {n}" for v, n in zip(runs["version"], runs["numerics"], strict=True)}
        )
        made["runs made by"] = "; ".join(versions)
        made["core-hours"] = f"{core_hours(runs):.3g}"
    manifest = directory.read_manifest()
    if manifest is not None:
        made |= {
            "commit": manifest.commit or "unknown",
            "first session began": manifest.created,
            "host": f"{manifest.host}, {manifest.cpus} cpus, {manifest.platform}",
            "python": manifest.python,
            "packages": ", ".join(f"{name} {version}" for name, version in manifest.packages.items()),
            "command": manifest.command,
        }
    # By the clock of the driver's host; only this line depends on it.
    progress = directory.read_progress()
    if progress is not None:
        made["last update"] = f"{datetime.fromtimestamp(progress.updated, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return made


def _finding(found: Finding) -> dict[str, Any]:
    value, low, high = (_plain(number) for number in found.measured)
    measured = {"value": value, "low": low, "high": high}
    return found._asdict() | {"measured": measured, "more": _plain(found.more), "decision": found.decision}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): _plain(value) for key, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN, infinities and missing values become null."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
