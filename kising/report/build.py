"""`kising report`: a page, its figures, and the same content as JSON, from the tables of a sweep."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from kising.report.claims.paper import claims
from kising.report.claims.verdicts import Finding
from kising.report.figures.curves import curves
from kising.report.figures.drawing import FigureSpec, write_figure
from kising.report.figures.examples import scatters, traces
from kising.report.figures.views import varied
from kising.report.page import page
from kising.report.summary import AXES
from kising.report.tables import Frames
from kising.sweep.spec import SweepSpec, read_spec
from kising.sweep.store.atomic import atomic_write, make_directory
from kising.sweep.store.columns import COLUMNS, COUNTS, SLOPES
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS, __version__

#: Most rows of a table on the page; the files have all.
MOST_ROWS: Final = 200


class Report(NamedTuple):
    """The files that were written, and their content."""

    page: Path
    figures: list[Path]
    document: dict[str, Any]
    """the content of the page: what `kising report --format json` prints"""


def build(path: Path, frames: Frames) -> Report:
    """Write report/index.html, report/report.json and the figures of a sweep."""
    directory = SweepDirectory(path)
    spec = read_spec(directory.sweep_file)
    make_directory(directory.report)
    figures = [figure for figure in _figures(frames) if figure.panels]
    findings = claims(frames.runs, frames.couplings) if len(frames.runs) else []
    files = {figure.name: write_figure(figure, directory.report) for figure in figures}
    provenance = _provenance(directory, frames.runs)
    text = page(
        spec.name,
        _lead(spec, frames.runs),
        findings,
        figures,
        [("Points", _points(frames.summary)), ("Slopes of log RMSE on log T", _slopes(frames.scaling))],
        provenance,
    )
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
                "files": [file.name for file in files[figure.name]],
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
    return Report(target, [file for some in files.values() for file in some], document)


def _figures(frames: Frames) -> list[FigureSpec]:
    runs = frames.runs
    if runs.empty:
        return []
    return [*curves(runs), *scatters(runs, frames.couplings), *traces(runs, frames.traces)]


def _lead(spec: SweepSpec, runs: pd.DataFrame) -> list[str]:
    status: Any = runs["status"].value_counts() if len(runs) else {}
    model = spec.model
    lines = [spec.description] if spec.description else []
    keys = varied(runs) if len(runs) else []
    lines.append(
        f"Task {spec.task}: {status.get('done', 0)} runs done, {status.get('failed', 0)} failed. "
        + (f"Varied: {', '.join(keys)}." if keys else "Nothing is varied.")
    )
    fixed = {
        "visible spins": (model.visible, "model.visible"),
        "hidden spins": (model.hidden, "model.hidden"),
        "bonds": (model.bonds, "model.bonds"),
        "strength g": (model.strength, "model.strength"),
        "connectivity c": (model.connectivity, "model.connectivity"),
        "length T": (spec.data.length, "data.length"),
    }
    constants = [f"{name} {value}" for name, (value, key) in fixed.items() if key not in keys]
    lines.append("Held fixed: " + ", ".join(constants) + "." if constants else "")
    return [line for line in lines if line]


def _points(summary: pd.DataFrame) -> pd.DataFrame:
    """The columns of the summary that declare a heading, without intervals and standard errors."""
    keys = [key for key in AXES if summary[key].nunique(dropna=False) > 1]
    measures = [column.name for column in COUNTS]
    for column in COLUMNS:
        if column.heading:
            names = [found.name for found in column.summary_columns()]
            measures += [name for name in names if not name.endswith(("_low", "_high", "_sem"))]
    shown = [name for name in measures if summary[name].notna().any()]
    return summary[[*keys, *shown]].head(MOST_ROWS)


def _slopes(scaling: pd.DataFrame) -> pd.DataFrame:
    keys = [key for key in AXES if key in scaling and scaling[key].nunique(dropna=False) > 1]
    numbers = [column.name for column in SLOPES if column.name not in ("shortest", "longest")]
    return scaling[[*keys, *numbers]].head(MOST_ROWS)


def _provenance(directory: SweepDirectory, runs: pd.DataFrame) -> dict[str, str]:
    made = {"made by": f"kising {__version__}, numerics {NUMERICS}"}
    if len(runs):
        versions = sorted(
            {f"kising {v}, numerics {n}" for v, n in zip(runs["version"], runs["numerics"], strict=True)}
        )
        made["runs made by"] = "; ".join(versions)
        made["core-hours"] = f"{runs['seconds'].astype(float).sum() / 3600:.3g}"
    scan = Store.open(directory, writable=False).scan()
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
    for name, moment in (
        ("first runs finished", scan.first_commit),
        ("last runs finished", scan.last_commit),
    ):
        if moment is not None:
            made[name] = f"{datetime.fromtimestamp(moment / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return made


def _finding(found: Finding) -> dict[str, Any]:
    value, low, high = (_plain(number) for number in found.measured)
    measured = {"value": value, "low": low, "high": high}
    return found._asdict() | {"measured": measured}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): _plain(value) for key, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN, infinities and missing values become null."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
