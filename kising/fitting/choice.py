"""How many hidden spins: the sweep that `kising fit --hidden 0,1,2` runs in its folder, and the choice from its rows.

    recording.npz     the recording as it is fitted: the folder holds all that the sweep needs
    choice/           an ordinary sweep with one run per number and fold: `kising status`, `kising report` and
                      `kising run` work on it too

Finished runs are never run again, so the same command continues where it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from kising.arguments import FIT
from kising.atomic import atomic_write
from kising.cores import cores
from kising.errors import StaleError
from kising.learning.selection import Choice, choose_hidden, selection_spec
from kising.recordings import Segments
from kising.recordings.files.writing import to_npz
from kising.report.results import Results
from kising.run import Session, run
from kising.sweep.drive.progress import open_display
from kising.sweep.drive.signals import StopRequest, announced
from kising.sweep.spec import SweepSpec, parse_spec

if TYPE_CHECKING:
    from kising.fitting.command import Request

RECORDING: Final = "recording.npz"
SWEEP: Final = "choice"
NAMED: Final = 3
"""runs that failed, of which the errors are reported"""


def choose(
    request: Request,
    segments: Segments,
    folder: Path,
    *,
    report: Callable[[str], None],
    stream: TextIO,
    stop: StopRequest,
) -> Choice | None:
    """Run what is left of the sweep, and choose; None where it was stopped."""
    spec = _spec(request, _written(segments, folder / RECORDING))
    results = _results(spec, folder / SWEEP, request, report, stream, stop)
    assert results.outcome is not None
    if results.outcome.unfinished:
        return None
    failed = results.runs[results.runs["status"] == "failed"]
    for _, row in failed.head(NAMED).iterrows():
        report(f"{row['model.hidden']} hidden spins, fold {row['realization']}: {row['error']}")
    return choose_hidden(results.runs)


def _written(segments: Segments, path: Path) -> Path:
    content = to_npz(segments)
    if not path.is_file() or path.read_bytes() != content:
        atomic_write(path, content)
    return path


def _spec(request: Request, recording: Path) -> SweepSpec:
    learner: dict[str, Any] = {}
    for name, value in request.options.items():
        *sections, key = FIT.leaves[name].key.removeprefix("learner.").split(".")
        place = learner
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    spec = selection_spec(
        recording.absolute(), request.hidden, seed=request.seed, folds=request.folds, learner=learner
    )
    return parse_spec({**spec, "resources": _resources(request)})


def _resources(request: Request) -> Mapping[str, Any]:
    """If there are more cores than runs at a time, a run uses several. This changes no result."""
    if request.address is not None:
        return {"cpus": 1}
    at_once = 1 if request.in_process else len(request.hidden) * request.folds
    return {"cpus": max(1, (request.threads or cores()) // at_once)}


def _results(
    spec: SweepSpec,
    directory: Path,
    request: Request,
    report: Callable[[str], None],
    stream: TextIO,
    stop: StopRequest,
) -> Results:
    with open_display("choosing", stream) as display:
        session = Session(
            address=request.address,
            cpus=request.threads,
            in_process=request.in_process,
            retry_failed=True,
            shrink=True,  # the folder is this command's own: another list of numbers, or other data, may follow
            command=request.command,
            stop=stop,
            observers=(display, announced(stop, report)),
            say=report,
        )
        try:
            return run(spec, directory, session)
        except StaleError as stale:
            report(f"{str(stale).partition(':')[0]}: they are run again")
            return run(spec, directory, replace(session, stale="redo"))
