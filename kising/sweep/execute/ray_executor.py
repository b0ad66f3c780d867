"""The executor on Ray: every batch is one Ray task, a generator whose items are the events of `run_batch`.

Ray retries nothing (max_retries=0): what has arrived is kept, and the conductor decides what to repeat.
"""

from __future__ import annotations

import pickle
import queue
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kising.errors import ExecutorError
from kising.sweep.execute import ray_internals, worker
from kising.sweep.execute.protocol import (
    Batch,
    Checkpoint,
    Event,
    Finished,
    Lost,
    LostKind,
    Need,
    Rows,
    Started,
    Work,
)
from kising.sweep.execute.ray_cluster import RESUME, RayCluster
from kising.sweep.execute.ray_errors import loss_reason, one_line
from kising.version import NUMERICS, __version__

_AUTOSCALED_SLOTS: Final = 10_000  # the most batches that an autoscaling cluster is asked to make room for
_MOST_EVENTS: Final = 2_000


class RayExecutor:
    """Runs every batch as a Ray task on as many cpus as it needs."""

    def __init__(self, work: Work, cluster: RayCluster, recording: object = None) -> None:
        """Run batches on a cluster, which `close` closes too; its workers must be able to import `work`.

        `recording` is given to every call of `work` by that name. Ray brings it to each host once.
        """
        self.name = cluster.name
        self._cluster, self._ray = cluster, cluster.ray
        self._work = work
        ray_internals.send_code_of(self._ray, worker)
        self._task = self._ray.remote(num_returns="streaming", max_retries=0)(worker.stream)
        # Passed by reference: the value travels to a host with the first batch that runs there.
        self._recording = None if recording is None else self._ray.put(recording)
        self._streams: dict[int, Any] = {}
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._broken: str | None = None

    def slots(self, need: Need) -> int:
        """Return how many batches fit on the nodes that are there."""
        return sum(
            int(min(node.cpus // need.cpus, node.memory // need.memory if need.memory else node.cpus))
            for node in self._cluster.state.nodes
        )

    def potential_slots(self, need: Need) -> int:
        """Return `slots`, or more than enough where an autoscaler adds nodes for waiting batches."""
        return _AUTOSCALED_SLOTS if self._cluster.state.grows else self.slots(need)

    def cores(self) -> Mapping[str, float]:
        """Return the cpus of each host."""
        cores: Counter[str] = Counter()
        for node in self._cluster.state.nodes:
            cores[node.host] += int(node.cpus)
        return cores

    def refuse(self, need: Need) -> str | None:
        """Refuse what no single node can give: Ray would let it block forever, without a message."""
        if self._cluster.state.grows:  # only its autoscaler knows how far it can grow
            return None
        nodes = self._cluster.state.nodes
        cpus = max((node.cpus for node in nodes), default=0.0)
        memory = max((node.memory for node in nodes), default=0.0)
        if need.cpus > cpus:
            return f"a run asks for {need.cpus} cpus, the largest node has {cpus:g}: lower resources.cpus"
        if need.memory is not None and need.memory > memory:
            asked, most = need.memory / 1e9, memory / 1e9
            return f"a run asks for {asked:.3g} GB, the most a node has is {most:.3g}: lower resources.memory"
        if self.slots(need) == 0:
            return f"a run asks for {need.cpus} cpus and {need.memory} bytes; no node has both: lower either"
        return None

    def submit(self, batch: Batch) -> None:
        """Hand a batch to Ray."""
        # Plain pickle: Ray's own goes through Python for every object, a tenth of a millisecond per run.
        load = pickle.dumps((batch, self._work), protocol=pickle.HIGHEST_PROTOCOL)
        task = self._task.options(num_cpus=batch.cpus, memory=batch.memory, name="kising")
        self._streams[batch.batch_id] = task.remote(load, __version__, NUMERICS, self._recording)
        self._listen(batch.batch_id)

    def events(self, timeout: float) -> list[Event]:
        """Return all that has arrived: what is not taken from a worker is lost with it."""
        self._cluster.check()
        if self._broken:
            raise ExecutorError(self._broken)
        events: list[Event] = []
        while len(events) < _MOST_EVENTS and self._broken is None:
            try:
                # The first call waits for anything to come; the others collect what has come meanwhile.
                batch_id = self._arrived.get(timeout=timeout) if not events else self._arrived.get_nowait()
            except queue.Empty:
                break
            if batch_id in self._streams and (event := self._next(batch_id)) is not None:
                events.append(event)
        if any(isinstance(event, Lost) for event in events):
            try:
                self._cluster.check()
            except ExecutorError:  # not the fault of any run; keep the rows, the next call raises
                return [event for event in events if not isinstance(event, Lost)]
        return events

    def cancel(self, batch_id: int) -> None:
        """Kill the process of a batch, or take the batch out of the queue."""
        if batch_id in self._streams:
            self._cancelled.add(batch_id)
            self._ray.cancel(self._streams[batch_id], force=True)

    def close(self) -> None:
        """Drop everything, and close the cluster."""
        self._streams.clear()
        self._recording = None
        self._cluster.close()

    def _listen(self, batch_id: int) -> None:
        """Have the batch put into `_arrived` when its next event is there.

        ray.wait would do, but its cost grows with the number of batches: 45 ms per call for 10,000 of them.
        """
        arrived = self._arrived
        reference, ready = ray_internals.peek(self._ray, self._streams[batch_id])
        if ready:
            arrived.put(batch_id)
        else:
            reference.future().add_done_callback(lambda _: arrived.put(batch_id))

    def _next(self, batch_id: int) -> Event | None:
        """The next event of a batch that has one; None if it shows that the workers are broken."""
        errors = self._ray.exceptions
        try:
            event: Started | Rows | Checkpoint = self._ray.get(next(self._streams[batch_id]))
        except StopIteration:
            del self._streams[batch_id]
            return Finished(batch_id)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            # Runs that raise are failed rows. This is an error around them, which every batch would meet.
            cause = one_line(getattr(error, "cause", None) or error)
            self._broken = f"the workers cannot run batches: {cause}; {RESUME}"
            return None
        except errors.RayError as error:
            del self._streams[batch_id]
            return Lost(batch_id, loss_reason(error), self._kind(batch_id, error))
        self._listen(batch_id)
        return event

    def _kind(self, batch_id: int, error: Exception) -> LostKind:
        errors = self._ray.exceptions
        if batch_id in self._cancelled or isinstance(error, errors.TaskCancelledError):
            return "cancelled"
        if isinstance(error, errors.OutOfMemoryError):
            return "memory"
        gone = (errors.NodeDiedError, errors.ObjectLostError, errors.LocalRayletDiedError)
        return "node" if isinstance(error, gone) else "crashed"
