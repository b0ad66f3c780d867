"""The Ray that this process is connected to: one on this machine's cores, or a running cluster by its address."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final, NamedTuple

from kising.errors import ExecutorError
from kising.sweep.execute import ray_internals
from kising.sweep.execute.exit_notice import ExitNotice
from kising.sweep.execute.head_monitor import HeadMonitor
from kising.sweep.execute.ray_errors import NOT_A_MEMBER, connection_failure, one_line
from kising.sweep.execute.ray_internals import Node
from kising.sweep.execute.ray_setup import Variables, check_answers, checkout, shielded, silenced
from kising.sweep.execute.scratch import ScratchDirectory, private_files

_OBJECT_STORE: Final = 80_000_000  # bytes; Ray requires 78,643,200, and rows do not pass through it
_HEAD_SECONDS: Final = 20.0  # without an answer, after which a head counts as dead; Ray ends us after 60
RESUME: Final = "what is committed is safe, and the same command resumes"


class ClusterState(NamedTuple):
    """A cluster at one moment."""

    nodes: tuple[Node, ...]  # those alive
    grows: bool  # an autoscaler starts nodes when more are needed


class RayCluster:
    """A connection to Ray, made with `start` or `join`."""

    def __init__(
        self, ray: Any, name: str, variables: Variables, scratch: ScratchDirectory | None, notice: ExitNotice
    ) -> None:
        """Use `start` or `join`."""
        self.ray, self.name = ray, name
        self._variables, self._scratch, self._notice = variables, scratch, notice
        # The conductor reports dead workers itself.
        ray_internals.show_worker_logs(ray, False)
        # A Ray of our own does not change: it is queried once.
        self._local = ClusterState(ray_internals.live_nodes(ray), grows=False) if scratch else None
        address = ray.get_runtime_context().gcs_address
        self._head = None if scratch else HeadMonitor(partial(_query, ray, address))

    @classmethod
    def start(cls, cpus: int | None = None, *, shared: int = 0) -> RayCluster:
        """Start a Ray on this machine, without output; it ends with `close` or with this process.

        `shared`: bytes that the executor will put into its object store.
        """
        variables = Variables(ray_internals.environment(local=True), force=ray_internals.FORCED_LOCAL)
        scratch = ScratchDirectory()
        notice = ExitNotice()
        try:
            with shielded(), silenced(), private_files():
                ray = ray_internals.import_ray()
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE + 2 * shared,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    **ray_internals.directory_option(scratch.path),
                )
            scratch.close_to_others()
        except BaseException as error:
            notice.close()
            scratch.remove()
            variables.restore()
            if isinstance(error, Exception):
                raise ExecutorError(f"Ray does not start on this machine: {one_line(error)}") from error
            raise
        return cls(ray, "Ray on this machine", variables, scratch, notice)

    @classmethod
    def join(cls, address: str) -> RayCluster:
        """Connect to the running cluster at HOST:PORT, or at "auto": the one that this machine is part of.

        Its hosts have kising installed; a checkout under development is sent to them, once.
        """
        if address != "auto":
            check_answers(address)
        variables = Variables(ray_internals.environment(local=False), force=ray_internals.FORCED)
        notice = ExitNotice()
        try:
            with shielded(), silenced():
                ray = ray_internals.import_ray()
                if not ray_internals.nodes_of_this_host(ray):  # ray.init would search for one for a minute
                    raise ExecutorError(f"cannot join the Ray cluster at {address}: {NOT_A_MEMBER}")
                ray.init(
                    address=address,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    runtime_env=_runtime_env(),
                )
        except BaseException as error:
            notice.close()
            variables.restore()
            if isinstance(error, Exception) and not isinstance(error, ExecutorError):
                reason = connection_failure(error)
                raise ExecutorError(f"cannot join the Ray cluster at {address}: {reason}") from error
            raise
        return cls(ray, f"Ray at {address}", variables, None, notice)

    @property
    def state(self) -> ClusterState:
        """The cluster as it was a moment ago."""
        state = self._head.latest if self._head is not None else self._local
        assert state is not None
        return state

    def check(self) -> None:
        """Raise ExecutorError if nothing can run here any more."""
        if self._head is not None:
            if self._head.silence > _HEAD_SECONDS:
                silence = f"has not answered for {_HEAD_SECONDS:g} s"
                raise ExecutorError(f"{self.name} broke down: its head {silence}; {RESUME}")
            return
        dead = ray_internals.dead_processes(self.ray) & {"gcs_server", "raylet"}
        if dead:
            raise ExecutorError(f"Ray broke down: its process {min(dead)} has ended; {RESUME}")

    def close(self) -> None:
        """Disconnect; a Ray that we started ends."""
        if self._head is not None:
            self._head.close()
        with silenced():
            self.ray.shutdown()
        ray_internals.show_worker_logs(self.ray, True)
        self._notice.close()
        if self._scratch is not None:
            self._scratch.remove()
        self._variables.restore()
        ray_internals.heed_loopback(self.ray)  # the next Ray of this process may be the user's own


def _runtime_env() -> dict[str, object] | None:
    """The runtime environment: what workers need and their hosts lack. All tasks share one: others need new workers."""
    package = checkout()
    return None if package is None else {"py_modules": [str(package)], "excludes": ["**/__pycache__/"]}


def _query(ray: Any, address: str) -> ClusterState:
    check_answers(address)
    return ClusterState(ray_internals.live_nodes(ray), grows=ray_internals.has_autoscaler())
