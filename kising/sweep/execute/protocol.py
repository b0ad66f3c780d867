"""What the conductor asks of an executor: batches in, events out.

An executor knows nothing of plans, retries, timeouts or disks. Those belong to the conductor, so all executors
behave alike. The events of one batch come in this order: at most one `Started`, any number of `Rows` and
`Checkpoint`s, then exactly one `Finished` or `Lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from kising.sweep.plan import Run

CHUNK_SECONDS: Final = 1.0
"""Finished rows are sent after this and one more run at most: rows not sent are lost with their worker."""

LARGEST_STATE: Final = 64_000_000
"""The largest checkpoint that is sent, in bytes: what the smallest object store of Ray can hold."""

LostKind = Literal["crashed", "memory", "node", "cancelled"]


class RunTimeout(Exception):  # noqa: N818  # a state of a run, as the design names it
    """Raised by a work whose run has exceeded its timeout."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one run needs: cpus, bytes of memory (None: not specified), seconds it may take (None: any)."""

    cpus: int = 1
    memory: int | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class Saved:
    """An unfinished run: the state that its work can resume from, and the time spent on it so far."""

    state: bytes
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Batch:
    """Runs that travel together and run one after another on the same cpus; `timeout` is per run, in seconds."""

    batch_id: int
    runs: tuple[Run, ...]
    cpus: int
    memory: int | None
    timeout: float | None
    chunk_seconds: float = CHUNK_SECONDS  # that finished rows wait for others before they are sent
    checkpoint: float | None = None  # seconds between two checkpoints of a run; None: there are none
    saved: Mapping[str, Saved] = field(default_factory=dict)  # by run id: states to resume from


@dataclass(frozen=True)
class Started:
    """A process has begun the batch."""

    batch_id: int
    host: str
    pid: int


@dataclass(frozen=True)
class Rows:
    """Runs of the batch that have finished, done or failed, in the order of the batch."""

    batch_id: int
    rows: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Checkpoint:
    """An unfinished run of the batch can resume from here; saved is None if the state is too large to send."""

    batch_id: int
    run_id: str
    saved: Saved | None


@dataclass(frozen=True)
class Finished:
    """All rows of the batch have been sent."""

    batch_id: int


@dataclass(frozen=True)
class Lost:
    """The batch ended before its last row.

    kind: its process died (crashed), ran out of memory (memory), was lost with its host (node), or was killed on
    request (cancelled).
    """

    batch_id: int
    reason: str
    kind: LostKind


Event = Started | Rows | Checkpoint | Finished | Lost
Work = Callable[
    ["Run", int, float | None, bytes | None], Generator[Callable[[], bytes], None, "Mapping[str, object]"]
]
"""One run: (run, threads it may use, seconds it may take, a state to resume from) -> a generator of its row.

Wherever the run can be interrupted the generator yields a function that returns its state; calling it or not
makes no difference to the run. If the work raises, the run has failed; if it raises `RunTimeout`, the run has
timed out. `run_batch` fills in status, seconds and host."""


class Executor(Protocol):
    """Something that runs batches."""

    @property
    def name(self) -> str:
        """The name in messages."""

    def slots(self, need: Need) -> int:
        """Return how many batches of this need can run at once now; changes as hosts come and go."""

    def potential_slots(self, need: Need) -> int:
        """Return how many could run at once if the cluster grew as far as it can; `slots` where none does."""

    def cores(self) -> Mapping[str, float]:
        """Return the cpus of each host that is there now."""

    def refuse(self, need: Need) -> str | None:
        """Return why no host will ever run this, as one line for the user, or None."""

    def submit(self, batch: Batch) -> None:
        """Take a batch; never blocks."""

    def events(self, timeout: float) -> list[Event]:
        """Return what has happened, waiting up to `timeout` seconds for something to happen."""

    def cancel(self, batch_id: int) -> None:
        """Kill a batch, whatever it is doing; its `Lost` follows, unless it ends by itself first."""

    def close(self) -> None:
        """Release everything; batches still running are killed."""
