"""The executor on Ray: this machine's cores, or a running cluster by its address. The only importer of ray.

A batch is one Ray task, a generator whose items are the events of `run_batch`. Ray retries nothing
(max_retries=0): what has arrived is kept, and what to repeat is the conductor's decision.
"""

from __future__ import annotations

import logging
import math
import pickle
import re
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kising.sweep.executor import (
    Batch,
    Event,
    ExecutorError,
    Finished,
    Lost,
    LostKind,
    Need,
    Rows,
    Started,
    Work,
    run_batch,
)
from kising.sweep.raysetup import Scratch, Variables, check_answers, environment, shielded, silenced

_OBJECT_STORE: Final = 80_000_000  # bytes; Ray wants 78,643,200 at least, and rows travel past it
_NODES_SECONDS: Final = 1.0
_MOST_EVENTS: Final = 2_000
_OURS: Final = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_NUM_REDIS_GET_RETRIES")
_RESUME: Final = "what is committed is safe, and the same command resumes"


class _Node(NamedTuple):
    cpus: float
    memory: float


class RayCluster:
    """The Ray that this process is connected to: one that it started, or one that it joined."""

    def __init__(self, ray: Any, name: str, variables: Variables, scratch: Scratch | None) -> None:
        """Use `start` or `join`."""
        self.ray, self.name = ray, name
        self._variables, self._scratch = variables, scratch
        self._nodes: tuple[float, list[_Node]] | None = None
        self._internals = ray._private.worker
        # Ray prints its raylet's complaints about dead workers whatever log_to_driver says; ours to tell.
        self._internals._worker_logs_enabled = False

    @classmethod
    def start(cls, cpus: int | None = None) -> RayCluster:
        """Start a Ray on this machine, quietly; it ends with `close` or with this process."""
        variables = Variables(environment(own=True), force=_OURS)
        scratch = Scratch()
        try:
            with shielded(), silenced():
                ray = _fresh_ray()
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    _temp_dir=str(scratch.path),
                )
        except BaseException as error:
            scratch.remove()
            variables.restore()
            if isinstance(error, Exception):
                raise ExecutorError(f"Ray does not start on this machine: {_line(error)}") from error
            raise
        return cls(ray, "Ray on this machine", variables, scratch)

    @classmethod
    def join(cls, address: str) -> RayCluster:
        """Connect to the running cluster at HOST:PORT, or at "auto": the one that this machine is part of."""
        if address != "auto":
            check_answers(address)
        variables = Variables(environment(own=False), force=("RAY_NUM_REDIS_GET_RETRIES",))
        try:
            with shielded(), silenced():
                ray = _fresh_ray()
                ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except BaseException as error:
            variables.restore()
            if isinstance(error, Exception):
                raise ExecutorError(f"cannot join the Ray cluster at {address}: {_why(error)}") from error
            raise
        return cls(ray, f"Ray at {address}", variables, None)

    def nodes(self) -> list[_Node]:
        """Return the nodes alive, as of a moment ago."""
        now = time.monotonic()
        # A Ray of our own stays as it is, and asked after its death it would not answer.
        lasting = _NODES_SECONDS if self._scratch is None else math.inf
        if self._nodes is None or now - self._nodes[0] > lasting:
            resources = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            self._nodes = now, [_Node(r.get("CPU", 0.0), r.get("memory", 0.0)) for r in resources]
        return self._nodes[1]

    def check(self) -> None:
        """Raise ExecutorError if nothing can run here any more; of a cluster we joined it is not known."""
        if self._scratch is None:
            return
        dead = {name for name, _ in self._internals._global_node.dead_processes()} & {"gcs_server", "raylet"}
        if dead:
            raise ExecutorError(f"Ray broke down: its process {min(dead)} has ended; {_RESUME}")

    def close(self) -> None:
        """Disconnect; a Ray that we started ends."""
        with silenced():
            self.ray.shutdown()
        self._internals._worker_logs_enabled = True
        if self._scratch is not None:
            self._scratch.remove()
        self._variables.restore()


class RayExecutor:
    """Runs every batch as a Ray task on as many cpus as it asks for."""

    def __init__(self, work: Work, cluster: RayCluster) -> None:
        """Run batches on a cluster, which `close` closes too; its workers must be able to import `work`."""
        self.name = cluster.name
        self._cluster, self._ray = cluster, cluster.ray
        self._work = work
        self._task = self._ray.remote(num_returns="streaming", max_retries=0)(_stream)
        self._streams: dict[int, Any] = {}
        self._cancelled: set[int] = set()
        self._broken: str | None = None

    def slots(self, need: Need) -> int:
        """Return how many batches fit the nodes that are there."""
        return sum(
            int(min(node.cpus // need.cpus, node.memory // need.memory if need.memory else node.cpus))
            for node in self._cluster.nodes()
        )

    def refuse(self, need: Need) -> str | None:
        """Refuse what no single node can give: Ray would let it wait for ever, and say nothing."""
        nodes = self._cluster.nodes()
        cpus, memory = max(node.cpus for node in nodes), max(node.memory for node in nodes)
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
        # Plain pickle: Ray's own goes through Python for every object, a tenth of a millisecond a run.
        load = pickle.dumps((batch, self._work), protocol=pickle.HIGHEST_PROTOCOL)
        task = self._task.options(num_cpus=batch.cpus, memory=batch.memory, name="kising")
        self._streams[batch.batch_id] = task.remote(load)

    def events(self, timeout: float) -> list[Event]:
        """Return all that has arrived: what is not taken from a worker dies with it."""
        self._cluster.check()
        if self._broken:
            raise ExecutorError(self._broken)
        events: list[Event] = []
        while self._streams and len(events) < _MOST_EVENTS and self._broken is None:
            ids = {stream: batch_id for batch_id, stream in self._streams.items()}
            # The first wait is for anything to come, the others sweep up all that has come meanwhile.
            ready, _ = self._ray.wait(
                list(ids), num_returns=len(ids) if events else 1, timeout=0 if events else timeout
            )
            if not ready:
                break
            events.extend(event for stream in ready if (event := self._next(ids[stream])) is not None)
        if any(isinstance(event, Lost) for event in events):
            try:
                self._cluster.check()
            except ExecutorError:  # no run's fault; keep the rows, the next call says it
                return [event for event in events if not isinstance(event, Lost)]
        return events

    def cancel(self, batch_id: int) -> None:
        """Kill the process of a batch, or take the batch out of the queue."""
        if batch_id in self._streams:
            self._cancelled.add(batch_id)
            self._ray.cancel(self._streams[batch_id], force=True)

    def close(self) -> None:
        """Drop everything, and the cluster."""
        self._streams.clear()
        self._cluster.close()

    def _next(self, batch_id: int) -> Event | None:
        """The next event of a batch that has one; None if it says that the workers are broken."""
        errors = self._ray.exceptions
        try:
            event: Started | Rows = self._ray.get(next(self._streams[batch_id]))
        except StopIteration:
            del self._streams[batch_id]
            return Finished(batch_id)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            # Runs that raise are failed rows: this is what surrounds them, and would befall every batch.
            self._broken = f"the workers cannot run batches: {_line(error)}; {_RESUME}"
            return None
        except errors.RayError as error:
            del self._streams[batch_id]
            return Lost(batch_id, _reason(error), self._kind(batch_id, error))
        return event

    def _kind(self, batch_id: int, error: Exception) -> LostKind:
        errors = self._ray.exceptions
        if batch_id in self._cancelled or isinstance(error, errors.TaskCancelledError):
            return "cancelled"
        if isinstance(error, errors.OutOfMemoryError):
            return "memory"
        gone = (errors.NodeDiedError, errors.ObjectLostError, errors.LocalRayletDiedError)
        return "node" if isinstance(error, gone) else "crashed"


def _stream(load: bytes) -> Iterator[Started | Rows]:
    """The task: runs in a worker."""
    batch, work = pickle.loads(load)
    yield from run_batch(batch, work)


def _fresh_ray() -> Any:
    import ray

    if ray.is_initialized():
        raise RuntimeError("this process is connected to a Ray already; call ray.shutdown() first")
    return ray


def _why(error: BaseException) -> str:
    """Why a cluster did not take us, in a line."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    text = " ".join(f"{type(cause).__name__} {cause}" for cause in causes)
    if "AuthenticationError" in text or "InvalidAuthToken" in text:
        return "it refused our token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    return _line(error)


def _line(error: BaseException) -> str:
    """An error in one line that is not too long, without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    return " ".join(text.split())[-300:]


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    used = re.search(r"actual memory used=([\d.]+ ?[A-Za-z]+)", text)
    return f"{text.split('. ')[0]}{f' (it used {used[1]})' if used else ''}"
