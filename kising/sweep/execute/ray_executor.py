"""The executor on Ray: this machine's cores, or a running cluster by its address. The only importer of ray.

A batch is one Ray task, a generator whose items are the events of `run_batch`. Ray retries nothing
(max_retries=0): what has arrived is kept, and what to repeat is the conductor's decision.
"""

from __future__ import annotations

import json
import logging
import pickle
import queue
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kising.errors import ExecutorError
from kising.sweep.execute import worker
from kising.sweep.execute.head_monitor import Watch
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
from kising.sweep.execute.ray_errors import OUTSIDE, line, reason, why
from kising.sweep.execute.ray_setup import (
    Scratch,
    Variables,
    check_answers,
    checkout,
    environment,
    shielded,
    silenced,
)
from kising.version import NUMERICS, __version__

_OBJECT_STORE: Final = 80_000_000  # bytes; Ray wants 78,643,200 at least, and rows travel past it
_HEAD_SECONDS: Final = 20.0  # of silence after which a head is taken for dead; Ray ends us after 60
_GROWN: Final = 10_000  # batches that an autoscaling cluster is asked to make room for, at most
_MOST_EVENTS: Final = 2_000
_OURS: Final = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_NUM_REDIS_GET_RETRIES")
_RESUME: Final = "what is committed is safe, and the same command resumes"


class Node(NamedTuple):
    """A node of the cluster: its host, its cpus and its bytes of memory."""

    host: str
    cpus: float
    memory: float


class Seen(NamedTuple):
    """A cluster at one moment."""

    nodes: tuple[Node, ...]  # those alive
    grows: bool  # nodes are started when more are needed: an autoscaler is at work


class RayCluster:
    """The Ray that this process is connected to: one that it started, or one that it joined."""

    def __init__(self, ray: Any, name: str, variables: Variables, scratch: Scratch | None) -> None:
        """Use `start` or `join`."""
        self.ray, self.name = ray, name
        self._variables, self._scratch = variables, scratch
        self._internals = ray._private.worker
        # Ray prints its raylet's complaints about dead workers whatever log_to_driver says; ours to tell.
        self._internals._worker_logs_enabled = False
        # A Ray of our own stays as it is: one look is enough.
        self._own = _look(ray) if scratch is not None else None
        address = ray.get_runtime_context().gcs_address
        self._head = None if scratch is not None else Watch(partial(_look_again, ray, address))

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
                raise ExecutorError(f"Ray does not start on this machine: {line(error)}") from error
            raise
        return cls(ray, "Ray on this machine", variables, scratch)

    @classmethod
    def join(cls, address: str) -> RayCluster:
        """Connect to the running cluster at HOST:PORT, or at "auto": the one that this machine is part of.

        Its hosts have kising installed; a checkout under development is sent to them, once.
        """
        if address != "auto":
            check_answers(address)
        variables = Variables(environment(own=False), force=("RAY_NUM_REDIS_GET_RETRIES",))
        try:
            with shielded(), silenced():
                ray = _fresh_ray()
                if not ray._private.services.find_node_ids():  # ray.init would look for one for a minute
                    raise ExecutorError(f"cannot join the Ray cluster at {address}: {OUTSIDE}")
                ray.init(
                    address=address,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    runtime_env=_luggage(),
                )
        except BaseException as error:
            variables.restore()
            if isinstance(error, Exception) and not isinstance(error, ExecutorError):
                raise ExecutorError(f"cannot join the Ray cluster at {address}: {why(error)}") from error
            raise
        return cls(ray, f"Ray at {address}", variables, None)

    @property
    def seen(self) -> Seen:
        """The cluster as it was a moment ago."""
        seen = self._head.latest if self._head is not None else self._own
        assert seen is not None
        return seen

    def check(self) -> None:
        """Raise ExecutorError if nothing can run here any more."""
        if self._head is not None:
            if self._head.silence > _HEAD_SECONDS:
                silence = f"has not answered for {_HEAD_SECONDS:g} s"
                raise ExecutorError(f"{self.name} broke down: its head {silence}; {_RESUME}")
            return
        dead = {name for name, _ in self._internals._global_node.dead_processes()} & {"gcs_server", "raylet"}
        if dead:
            raise ExecutorError(f"Ray broke down: its process {min(dead)} has ended; {_RESUME}")

    def peek(self, stream: Any) -> tuple[Any, bool]:
        """Return the next item of a stream, there or not yet, and whether asking for it would not wait."""
        ahead: tuple[Any, bool] = self._internals.global_worker.core_worker.peek_object_ref_stream(
            stream._generator_ref
        )
        return ahead

    def close(self) -> None:
        """Disconnect; a Ray that we started ends."""
        if self._head is not None:
            self._head.close()
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
        self._ray.cloudpickle.register_pickle_by_value(worker)
        self._task = self._ray.remote(num_returns="streaming", max_retries=0)(worker.stream)
        self._streams: dict[int, Any] = {}
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._broken: str | None = None

    def slots(self, need: Need) -> int:
        """Return how many batches fit the nodes that are there."""
        return sum(
            int(min(node.cpus // need.cpus, node.memory // need.memory if need.memory else node.cpus))
            for node in self._cluster.seen.nodes
        )

    def reach(self, need: Need) -> int:
        """Return `slots`, and more than enough where an autoscaler answers to what waits in the queue."""
        return _GROWN if self._cluster.seen.grows else self.slots(need)

    def cores(self) -> Mapping[str, float]:
        """Return the cpus of each host."""
        cores: Counter[str] = Counter()
        for node in self._cluster.seen.nodes:
            cores[node.host] += int(node.cpus)
        return cores

    def refuse(self, need: Need) -> str | None:
        """Refuse what no single node can give: Ray would let it wait for ever, and say nothing."""
        if self._cluster.seen.grows:  # what it may grow to is known to its autoscaler alone
            return None
        nodes = self._cluster.seen.nodes
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
        # Plain pickle: Ray's own goes through Python for every object, a tenth of a millisecond a run.
        load = pickle.dumps((batch, self._work), protocol=pickle.HIGHEST_PROTOCOL)
        task = self._task.options(num_cpus=batch.cpus, memory=batch.memory, name="kising")
        self._streams[batch.batch_id] = task.remote(load, __version__, NUMERICS)
        self._listen(batch.batch_id)

    def events(self, timeout: float) -> list[Event]:
        """Return all that has arrived: what is not taken from a worker dies with it."""
        self._cluster.check()
        if self._broken:
            raise ExecutorError(self._broken)
        events: list[Event] = []
        while len(events) < _MOST_EVENTS and self._broken is None:
            try:
                # The first wait is for anything to come, the others sweep up all that has come meanwhile.
                batch_id = self._arrived.get(timeout=timeout) if not events else self._arrived.get_nowait()
            except queue.Empty:
                break
            if batch_id in self._streams and (event := self._next(batch_id)) is not None:
                events.append(event)
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

    def _listen(self, batch_id: int) -> None:
        """Have the batch put into `_arrived` when it has something to say.

        ray.wait would do, but its cost grows with the number of batches: 45 ms a call for 10,000 of them.
        """
        arrived = self._arrived
        reference, ready = self._cluster.peek(self._streams[batch_id])
        if ready:
            arrived.put(batch_id)
        else:
            reference.future().add_done_callback(lambda _: arrived.put(batch_id))

    def _next(self, batch_id: int) -> Event | None:
        """The next event of a batch that has one; None if it says that the workers are broken."""
        errors = self._ray.exceptions
        try:
            event: Started | Rows | Checkpoint = self._ray.get(next(self._streams[batch_id]))
        except StopIteration:
            del self._streams[batch_id]
            return Finished(batch_id)
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            # Runs that raise are failed rows: this is what surrounds them, and would befall every batch.
            said = line(getattr(error, "cause", None) or error)
            self._broken = f"the workers cannot run batches: {said}; {_RESUME}"
            return None
        except errors.RayError as error:
            del self._streams[batch_id]
            return Lost(batch_id, reason(error), self._kind(batch_id, error))
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


def _fresh_ray() -> Any:
    import ray

    if ray.is_initialized():
        raise RuntimeError("this process is connected to a Ray already; call ray.shutdown() first")
    # Where ray was imported before, it has read the variables of then, and would not see those that are set now.
    compiled: Any = ray._raylet
    compiled.Config.initialize("")
    compiled.AuthenticationTokenLoader.instance().reset_cache()
    return ray


def _luggage() -> dict[str, object] | None:
    """What workers need that is not installed on their hosts: set once, for each other one costs new workers."""
    package = checkout()
    return None if package is None else {"py_modules": [str(package)], "excludes": ["**/__pycache__/"]}


def _look_again(ray: Any, address: str) -> Seen:
    check_answers(address)
    return _look(ray)._replace(grows=_autoscales())


def _look(ray: Any) -> Seen:
    # Not ray.nodes(), which would start a Ray where none is left.
    alive = [node for node in ray._private.state.state.node_table() if node["Alive"]]
    return Seen(tuple(_node(node["NodeManagerHostname"], node["Resources"]) for node in alive), grows=False)


def _node(host: str, resources: Mapping[str, float]) -> Node:
    return Node(host, resources.get("CPU", 0.0), resources.get("memory", 0.0))


def _autoscales() -> bool:
    """Whether the cluster has an autoscaler that starts nodes; every head has one that only watches."""
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    if is_autoscaler_v2():
        return True
    report = json.loads(_internal_kv_get("__autoscaling_status") or b"{}").get("autoscaler_report") or {}
    # One that only watches gives every node a type of its own, named after it.
    types = report.get("node_type_mapping") or {}
    return any(name != f"node_{node}" for node, name in types.items())
