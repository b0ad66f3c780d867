"""`kising report DIR --publish FOLDER`: what a sweep has shown, small enough to be kept beside the documentation.

    FOLDER/<name>.md               a page in Markdown: command, versions, claims with numbers, intervals and verdicts
    FOLDER/figures/<name>-*        its figures
    FOLDER/data/<name>/            sweep.yaml, manifest.json and the tables: a directory that `kising report` and
                                   `load_results` read, without the parts that the tables were made from

A file notes.md in that directory, written by hand, stands on the page above the claims, and publishing again keeps it.
Names of hosts and tracebacks are left out. Artifacts are rounded to single precision, which halves them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from kising.errors import StoreError
from kising.report.build import Report
from kising.report.markdown import Entry, markdown
from kising.report.tables import Frames
from kising.sweep.spec import read_spec
from kising.sweep.store.atomic import AtomicFile, atomic_write, make_directory
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import write_frame, write_runs_frame

MARKER: Final = (
    "Tables of a sweep, published by `kising report --publish`: read as they are; there are no parts.\n"
)
#: Flags of `kising run` that say where and how, and not what.
_LOCAL: Final = ("--out", "--address", "--cpus", "--mirror")
#: The same, of flags that take no value.
_LOCAL_SWITCHES: Final = ("--local-debug", "--page")


def publish(path: Path, frames: Frames, report: Report, folder: Path) -> Path:
    """Write the page, the figures and the tables of a sweep to a folder; return the page."""
    source = SweepDirectory.open(path)
    manifest = source.read_manifest()
    if manifest is None or frames.runs.empty:
        raise StoreError(f"{path}: nothing to publish: it has no finished runs, or its manifest.json is lost")
    name = path.resolve().name
    target = SweepDirectory(folder / "data" / name)
    for place in (target.path, folder / "figures"):
        make_directory(place)
    clean = manifest.model_copy(
        update={
            "host": "",
            "platform": manifest.platform.partition("-")[0],
            "command": shared_command(manifest.command),
        }
    )
    # The marker first: what has it is read without looking for parts.
    atomic_write(target.published_file, MARKER.encode())
    target.write_sweep(source.sweep_file.read_text())
    clean.write(target.manifest_file, durable=True)
    _write_tables(target.path, _without_places(frames))
    figures = [
        (figure, _copy_smallest(report.page.parent, figure["files"], folder / "figures", name))
        for figure in report.document["figures"]
    ]
    notes = target.path / "notes.md"
    entry = Entry(
        name=name,
        spec=read_spec(target.sweep_file),
        manifest=clean,
        runs=frames.runs,
        claims=report.document["claims"],
        figures=figures,
        notes=notes.read_text().strip() if notes.is_file() else "",
        tables=target.path if not target.path.is_absolute() else Path("data", name),
    )
    return atomic_write(folder / f"{name}.md", markdown(entry).encode())


def shared_command(command: str) -> str:
    """The command without flags that are about one machine."""
    words, kept = shlex.split(command), []
    while words:
        word = words.pop(0)
        if word in _LOCAL and words:
            words.pop(0)
        elif word not in _LOCAL_SWITCHES and not word.startswith(tuple(f"{flag}=" for flag in _LOCAL)):
            kept.append(word)
    return shlex.join(kept)


def _without_places(frames: Frames) -> Frames:
    runs = frames.runs.assign(host="", traceback=None)
    rounded = [
        frame.assign(**{name: frame[name].astype("float32").astype("float64") for name in _floats(frame)})
        for frame in (frames.couplings, frames.traces)
    ]
    return frames._replace(
        runs=runs.astype(frames.runs.dtypes.to_dict()), couplings=rounded[0], traces=rounded[1]
    )


def _floats(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name, dtype in frame.dtypes.items() if dtype == "float64"]


def _write_tables(folder: Path, frames: Frames) -> None:
    with AtomicFile(folder) as file:
        write_runs_frame(file.handle, frames.runs)
        file.publish("runs.parquet")
    for name in ("summary", "scaling", "couplings", "traces"):
        frame = getattr(frames, name)
        if name in ("summary", "scaling") or len(frame):
            with AtomicFile(folder) as file:
                write_frame(file.handle, name, frame)
                file.publish(f"{name}.parquet")
        else:
            (folder / f"{name}.parquet").unlink(missing_ok=True)


def _copy_smallest(source: Path, files: Sequence[str], folder: Path, name: str) -> str:
    """Copy the drawing of a figure, SVG or PNG, whichever is smaller; return its name."""
    drawings = [source / file for file in files if not file.endswith(".csv")]
    smallest = min(drawings, key=lambda file: file.stat().st_size)
    target = folder / f"{name}-{smallest.name}"
    atomic_write(target, smallest.read_bytes())
    for other in drawings:
        # From an earlier time, when this one was the smaller.
        if other != smallest:
            (folder / f"{name}-{other.name}").unlink(missing_ok=True)
    return target.name
