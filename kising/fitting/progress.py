"""The progress of a fit: how far it is, an estimate of the time left, and the display of both.

Deterministic estimators: the largest step of a block shrinks geometrically until it is below `tolerance` for `hold`
iterations. Estimators that sample: the Monte-Carlo error falls as 1/√n once averaging has begun, until it is below
`noise` statistical errors. In both cases `max_iterations` is the end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO

import numpy as np

from kising.blocks import BLOCKS
from kising.learning.effort import iteration_limit
from kising.learning.state import EMState
from kising.learning.trace_columns import NOISE, TRACE_COLUMNS
from kising.options import Learner
from kising.sweep.drive.progress import duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Iterations that the trend is taken from.
RECENT: Final = 12
#: Elsewhere than on a terminal: seconds before the first line, and between two.
FIRST, EVERY = 5.0, 10.0
_STEPS: Final = [TRACE_COLUMNS.index(f"step_{name}") for name in BLOCKS]
_SCORE: Final = TRACE_COLUMNS.index("log_likelihood")


@dataclass(frozen=True)
class Standing:
    """A fit after an iteration."""

    iteration: int
    excess: float
    """what has to fall below 1: the largest step over `tolerance`, or the largest Monte-Carlo error over `noise`;
    NaN before averaging has begun"""
    sampled: bool
    """which of the two"""
    log_likelihood: float
    """nats per slice; NaN for estimators that sample"""
    iterations_left: float
    """by the trend, at most those that are allowed"""
    trend: bool
    """whether there is a trend; otherwise `iterations_left` is the limit"""
    share: float
    """of the work that is done, 0 to 1"""


def standing(state: EMState, learner: Learner) -> Standing:
    """How far a fit has come."""
    trace = state.trace
    sampler = state.sampler
    # Only with samples does a recording with gaps have another limit than one without.
    limit = iteration_limit(learner, state.couplings.K.shape[1], gaps=sampler is not None)
    done, allowed = len(trace), max(limit - len(trace), 0)
    left: float | None = None
    if sampler is not None:
        noises = trace[-1, NOISE]
        # Without an average the last row may be that of one which was given up.
        known = sampler.averages and not np.isnan(noises).all()
        excess = float(np.nanmax(noises)) / learner.noise if known else float("nan")
        if np.isfinite(excess):
            left = sampler.iterations * (max(excess, 1.0) ** 2 - 1) + learner.hold
    else:
        ratios = trace[:, _STEPS].max(axis=1) / learner.tolerance
        excess = float(ratios[-1])
        left = _until_one(ratios[-RECENT:])
        left = None if left is None else left + learner.hold
    capped = allowed if left is None else min(left, allowed)
    return Standing(
        iteration=done,
        excess=excess,
        sampled=sampler is not None,
        log_likelihood=float(trace[-1, _SCORE]),
        iterations_left=float(capped),
        trend=left is not None,
        share=done / (done + capped) if done + capped else 1.0,
    )


def _until_one(ratios: Any) -> float | None:
    """The iterations until a quantity that shrinks by a constant factor is below 1; None if it does not shrink."""
    if len(ratios) < 4 or not np.isfinite(ratios).all() or not (ratios > 0).all():
        return None
    logs = np.log(ratios)
    slope = float(np.polyfit(np.arange(len(logs)), logs, 1)[0])
    return max(float(logs[-1]), 0.0) / -slope if slope < -1e-3 else None


def describe(now: Standing, seconds: float | None) -> str:
    """One line; `seconds` is the time left."""
    measure = "Monte-Carlo error" if now.sampled else "step"
    limit = "noise" if now.sampled else "tolerance"
    parts = [f"iteration {now.iteration}"]
    if np.isfinite(now.excess):
        parts.append(f"{measure} {now.excess:.3g} x {limit}")
    if np.isfinite(now.log_likelihood):
        parts.append(f"log-likelihood {now.log_likelihood:.5f}")
    if seconds is not None:
        parts.append(f"{'about' if now.trend else 'at most'} {duration(seconds)} left")
    return ", ".join(parts)


class Pace:
    """Seconds per iteration, recently. The first one does not count: it may have to compile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=RECENT)

    def tick(self) -> float | None:
        """Count an iteration; None as long as there are too few."""
        self._times.append(self._clock())
        few = len(self._times) < 3
        return None if few else (self._times[-1] - self._times[0]) / (len(self._times) - 1)


class Display(Protocol):
    """Shows lines about a fit while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, title: str, text: str, share: float | None) -> None:
        """Show the current activity, a line about it, and the fraction of it that is done."""


def open_display(stream: TextIO, warning: Callable[[], str]) -> Display:
    """A bar if `stream` is a terminal, otherwise lines; `warning` is shown instead of the text unless it is empty."""
    return Bar(stream, warning) if stream.isatty() else Lines(stream)


class Lines:
    """A line every ten seconds; none in the first five."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._due = clock() + FIRST

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, title: str, text: str, share: float | None) -> None:
        """Write a line if one is due."""
        if self._clock() >= self._due:
            self._due = self._clock() + EVERY
            print(f"{title}: {text}" if text else title, file=self._stream, flush=True)


class Bar:
    """A bar, redrawn in place."""

    def __init__(self, stream: TextIO, warning: Callable[[], str]) -> None:
        self._stream, self._warning = stream, warning
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task
        from rich.text import Text

        warning = self._warning

        class Line(ProgressColumn):
            """The text; redrawn ten times a second, so that a warning appears in the middle of an iteration."""

            max_refresh = None

            def render(self, task: Task) -> Text:
                return Text(warning() or str(task.fields["text"]))

        class Title(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(task.description)

        progress = Progress(
            Title(), BarColumn(20), Line(), console=Console(file=self._stream), transient=True
        )
        self._bar = progress, progress.add_task("reading", total=None, text="")
        progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def show(self, title: str, text: str, share: float | None) -> None:
        """Redraw."""
        if self._bar is not None:
            progress, task = self._bar
            if share is None:
                progress.update(task, description=title, text=text, total=None)
            else:
                progress.update(task, description=title, text=text, completed=share, total=1.0)
