"""What `kising fit` does: read, choose the number of hidden spins if several are given, learn, write."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import numpy as np

from kising.arguments import FIT
from kising.atomic import atomic_write
from kising.blocks import n_couplings
from kising.conflicts import INPUTS, LARGEST_ERROR_MATRIX
from kising.errors import InputError, RecordingError, RecordingWarning
from kising.fitting.destination import (
    check_file,
    check_folder,
    default_folder,
    hold_folder,
    is_file_name,
    make_folder,
    write_results,
)
from kising.learning.folds import learnable, too_short
from kising.recordings import Segments, fittable, read_recording
from kising.sweep.drive.signals import StopRequest

if TYPE_CHECKING:
    from kising.fitting.progress import Display
    from kising.fitting.saved_state import SavedState
    from kising.learning.fit import Fit
    from kising.learning.selection import Choice
    from kising.learning.state import EMState
    from kising.options import Learner

CHECKPOINT: Final = "checkpoint"
CLOSING: Final = "fit.json"
LARGEST_NETWORK: Final = 100_000_000
"""couplings; more would not fit into memory together with what learning needs of each"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for."""

    file: Path
    hidden: tuple[int, ...]
    """one number, or several to choose from"""
    seed: int
    out: Path | None = None
    """a folder, or a file that ends in .npz; None: a folder beside the recording"""
    errors: bool | None = None
    """standard errors; None: where the network is small enough for them"""
    threads: int | None = None
    """None: all cores"""
    folds: int = 5
    """parts of the recording that are held out in turn, to choose the number"""
    address: str | None = None
    """of a Ray cluster, for the choice; None: this machine's cores"""
    in_process: bool = False
    """make the choice in this process, without Ray"""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments of `read_recording`"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments of `fit`"""
    command: str = "kising fit"
    """the command line, which resumes where it was stopped"""


class StoppedError(Exception):
    """A signal has stopped the fit; `str` is for the user."""


def run(
    request: Request,
    *,
    say: Callable[[str], None],
    report: Callable[[str], None],
    stream: TextIO,
    stop: StopRequest,
) -> bool:
    """Do it, and return whether learning converged. `say` takes results, `report` takes remarks, and progress goes to
    `stream`.
    """
    out = default_folder(request.file) if request.out is None else request.out
    single = is_file_name(out)
    target = check_file(out, request.file) if single else check_folder(out)
    segments = fittable(read_recording(request.file, **request.reading))
    for note in segments.notes:
        say(f"note: {note}")
    with _one_line(request.file):
        _check(request, segments)
    if single:
        if len(request.hidden) > 1:
            raise InputError("--out: choosing the number of hidden spins writes a folder; leave .npz out")
        return _Work(request, segments, None, say, report, stream, stop).to_file(target)
    make_folder(target)
    with hold_folder(target):
        return _Work(request, segments, target, say, report, stream, stop).to_folder(out)


def _check(request: Request, segments: Segments) -> None:
    """Refuse what cannot be fitted, before anything is written."""
    for hidden in request.hidden:
        if hidden > segments.n_slices:
            raise InputError(
                f"--hidden {hidden}: more hidden spins than the recording has slices ({segments.n_slices}); assume "
                "fewer hidden spins"
            )
        size = n_couplings(
            segments.n_visible, hidden, bias=True, inputs=segments.n_covariates, hidden_couplings=True
        )
        if size > LARGEST_NETWORK:
            raise InputError(
                f"--hidden {hidden}: the network would have {size} couplings; assume fewer hidden spins"
            )
        _learner(request, segments, hidden)
    if len(request.hidden) > 1:
        if too_short(segments, request.folds):
            raise InputError(
                f"the recording is too short to hold out {request.folds} parts of it; give one number of hidden spins, "
                "or fewer --folds"
            )
        learnable(segments, request.folds)


def _learner(request: Request, segments: Segments, hidden: int) -> Learner:
    sizes = {
        "model.visible": segments.n_visible,
        "model.hidden": hidden,
        "data.absent": segments.missing_share,
        INPUTS: segments.n_covariates,
        "score.errors": request.errors is True,
    }
    return FIT.learner(request.options, sizes, function="fit")


def wants_errors(request: Request, segments: Segments, learner: Learner, hidden: int) -> bool:
    """Whether standard errors are computed."""
    if request.errors is not None:
        return request.errors
    size = n_couplings(
        segments.n_visible,
        hidden,
        bias=learner.bias,
        inputs=segments.n_covariates,
        hidden_couplings=learner.hidden_couplings,
    )
    return size <= LARGEST_ERROR_MATRIX and learner.l1 == 0 and learner.decimate == "none"


@contextmanager
def _one_line(file: Path) -> Iterator[None]:
    """Name the recording in errors that come from fitting it."""
    try:
        yield
    except RecordingError:
        raise
    except InputError as error:
        raise RecordingError(f"{file}: {error}") from error
    except MemoryError as error:
        raise RecordingError(
            f"{file}: there is not enough memory for this fit; assume fewer hidden spins, or leave spins out"
        ) from error


@dataclass
class _Work:
    """One fit, or the fits of a choice and the one that follows."""

    request: Request
    segments: Segments
    folder: Path | None
    """None: the results are one file, and there are no checkpoints"""
    say: Callable[[str], None]
    report: Callable[[str], None]
    stream: TextIO
    stop: StopRequest
    saved: SavedState | None = field(default=None, init=False)
    """the checkpoint of the fit that was made last"""

    def to_file(self, target: Path) -> bool:
        """Fit, and write one file."""
        with self._displayed() as display:
            found = self._fit(display, self.request.hidden[0], "fit")
        atomic_write(target, archive(found))
        self._conclude(found, f"couplings and the trace: {self.request.out}")
        return found.outcome == "converged"

    def to_folder(self, shown: Path) -> bool:
        """Choose, fit, and write a folder."""
        assert self.folder is not None
        choice = self._choice() if len(self.request.hidden) > 1 else None
        hidden = self.request.hidden[0] if choice is None else choice.hidden
        with self._displayed() as display:
            found = self._fit(display, hidden, "fit")
            display.show("drawing the page", "", None)
            files = self._files(found, choice)
        write_results(self.folder, files, CLOSING)
        if self.saved is not None:
            self.saved.remove()
        self._conclude(found, f"results: {shown}/index.html, edges.csv, couplings.npz, fit.json")
        return found.outcome == "converged"

    def _files(self, found: Fit, choice: Choice | None) -> dict[str, bytes]:
        from kising.fitting.page import page
        from kising.fitting.record import record

        about = record(found, self.segments, choice, self.request.file, self.request.command)
        return {
            "couplings.npz": archive(found),
            "edges.csv": found.edges().to_csv(index=False).encode(),
            "index.html": page(found, self.segments, choice, about).encode(),
            CLOSING: (about.as_json() + "\n").encode(),
        }

    @contextmanager
    def _displayed(self) -> Iterator[Display]:
        from kising.fitting.progress import open_display

        def warning() -> str:
            return "stopping after this iteration; Ctrl-C again stops at once" if self.stop.level else ""

        with open_display(self.stream, warning) as display:
            yield display

    def _choice(self) -> Choice:
        from kising.fitting.choice import choose
        from kising.report.choice import choice_lines

        assert self.folder is not None
        with _one_line(self.request.file):
            found = choose(
                self.request,
                self.segments,
                self.folder,
                report=self.report,
                stream=self.stream,
                stop=self.stop,
            )
        if found is None:
            raise StoppedError(self._stopped_message(None))
        for line in choice_lines(found):
            self.say(line)
        return found

    def _fit(self, display: Display, hidden: int, title: str) -> Fit:
        """Fit one model, from its checkpoint if there is one."""
        from kising.fitting.progress import Pace, describe, standing
        from kising.fitting.saved_state import SavedState, data_hash, identity
        from kising.learning.fit import fit

        request, segments = self.request, self.segments
        learner = _learner(request, segments, hidden)
        saved, state = None, None
        if self.folder is not None:
            known = identity(data_hash(segments), hidden, request.seed, FIT.of_learner(learner))
            saved = self.saved = SavedState(self.folder / CHECKPOINT, known, self.report)
            state = saved.load()
            if state is not None:
                self.report(f"resuming from the checkpoint: {title}, iteration {state.iteration}")
        pace = Pace()

        def observe(state: EMState) -> None:
            first = len(state.trace) == 1
            now = standing(state, learner)
            seconds = pace.tick()
            left = None if seconds is None else seconds * now.iterations_left
            display.show(title, describe(now, left), now.share)
            if state.outcome != "running":
                display.show("standard errors and scores", "", None)
            if saved is not None:
                saved.observe(state)
                # The first state is that after the pilots, which are not made twice.
                if self.stop.level or (first and learner.starts > 1):
                    saved.save(state)
            if self.stop.level:
                raise StoppedError(self._stopped_message(state.iteration))

        display.show(title, "starting", None)
        try:
            with _one_line(request.file), warnings.catch_warnings(), self.stop.interruptible():
                warnings.simplefilter("ignore", RecordingWarning)  # notes were printed
                return fit(
                    segments,
                    hidden,
                    seed=request.seed,
                    errors=wants_errors(request, segments, learner, hidden),
                    threads=request.threads,
                    state=state,
                    observe=observe,
                    **request.options,
                )
        except KeyboardInterrupt:
            raise StoppedError(self._stopped_message(None)) from None

    def _stopped_message(self, iteration: int | None) -> str:
        reason = self.stop.reason or "a signal"
        if self.folder is None:
            return (
                f"stopped by {reason}; nothing was written (a folder of results would have kept checkpoints)"
            )
        where = "" if iteration is None else f" after iteration {iteration}"
        return f"stopped by {reason}{where}; to resume: {self.request.command}"

    def _conclude(self, found: Fit, last: str) -> None:
        from kising.learning.fitted.advice import FLAGS
        from kising.learning.fitted.summary import summary

        for line in summary(found, FLAGS).splitlines():
            self.say(line)
        self.say(last)


def archive(found: Fit) -> bytes:
    """The fit as `Fit.save` writes it, for numpy and `kising.load_fit`, with the trace as arrays of its own."""
    from kising.learning.fitted.saving import to_bytes

    with np.load(io.BytesIO(to_bytes(found)), allow_pickle=False) as saved:
        arrays: dict[str, Any] = {name: saved[name] for name in saved.files}
    arrays |= {f"trace_{name}": found.trace[name].to_numpy() for name in found.trace.columns}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
