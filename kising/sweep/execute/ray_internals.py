"""Everything of Ray that kising uses beyond its public interface, in one place; the only file that imports ray.

A new Ray may change any of this without notice, so pyproject.toml bounds its version from above, and
tests/sweep/execute/test_ray_internals.py tests each interface. Raise the bound when those tests pass. ray is
imported inside functions: it takes most of a second, and reads its variables from the environment at that moment.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

SETTINGS: Final = {
    # Give up on a cluster that refuses us after 2 attempts; the default is 20, one second each.
    "RAY_NUM_REDIS_GET_RETRIES": "2",
    "RAY_py_gcs_connect_timeout_s": "5",
    # Notice a cut link in seconds; the defaults take seven minutes.
    "RAY_grpc_client_keepalive_time_ms": "15000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    # Ray warns at every start that one day it will no longer hide GPUs from tasks that ask for none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Under `uv run` Ray would upload the working directory.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Environment variables for every Ray. What the user has set stays, except for those in `FORCED`."""

FORCED: Final = ("RAY_NUM_REDIS_GET_RETRIES",)
_LOOPBACK: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
FORCED_LOCAL: Final = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", _LOOPBACK, *FORCED)

_AUTOSCALING_STATUS: Final = "__autoscaling_status"


class Node(NamedTuple):
    """A node of the cluster: its host, its cpus and its bytes of memory."""

    host: str
    cpus: float
    memory: float


def environment(*, local: bool) -> dict[str, str]:
    """Return the variables that must be set before ray is imported; local: for a Ray that we start.

    Ray runs what it is sent, so a Ray of our own listens on the loopback interface alone, and has its own token.
    """
    if not local:
        return dict(SETTINGS)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}
    # As on systems where Ray has no clusters: it takes 127.0.0.1 for the address of this host, and binds to that.
    return {**SETTINGS, **token, _LOOPBACK: "0", "RAY_USAGE_STATS_ENABLED": "0"}


@cache
def _token() -> str:
    """One token for the life of this process: Ray reads it once, and would refuse a second one."""
    return secrets.token_hex(32)


def uses_tls() -> bool:
    """Whether the user has told Ray to encrypt its connections."""
    return os.environ.get("RAY_USE_TLS", "0") != "0"


def import_ray() -> Any:
    """Import ray so that it sees the variables of now, even if it was imported before they were set."""
    import ray

    if ray.is_initialized():
        raise RuntimeError("this process is connected to a Ray already; call ray.shutdown() first")
    heed_loopback(ray)
    compiled: Any = ray._raylet
    compiled.Config.initialize("")
    compiled.AuthenticationTokenLoader.instance().reset_cache()
    return ray


def heed_loopback(ray: Any) -> None:
    """Have Ray heed the variable that keeps it on the loopback interface, which it reads once, as it is now."""
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(_LOOPBACK) != "0"


def directory_option(path: Path) -> dict[str, str]:
    """The argument of ray.init that says where Ray keeps its sockets and logs."""
    return {"_temp_dir": str(path)}


def nodes_of_this_host(ray: Any) -> set[str]:
    """The ids of the Ray nodes that run on this host."""
    return set(ray._private.services.find_node_ids())


def live_nodes(ray: Any) -> tuple[Node, ...]:
    """The nodes that are alive. ray.nodes() would start a Ray where none is left."""
    table = ray._private.state.state.node_table()
    return tuple(_node(row["NodeManagerHostname"], row["Resources"]) for row in table if row["Alive"])


def _node(host: str, resources: Mapping[str, float]) -> Node:
    return Node(host, resources.get("CPU", 0.0), resources.get("memory", 0.0))


def has_autoscaler() -> bool:
    """Whether the cluster has an autoscaler that starts nodes; every head has one that only watches."""
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    if is_autoscaler_v2():
        return True
    return starts_nodes(_internal_kv_get(_AUTOSCALING_STATUS))


def starts_nodes(status: bytes | None) -> bool:
    """Whether the status that an autoscaler has published is that of one that starts nodes."""
    report = json.loads(status or b"{}").get("autoscaler_report") or {}
    # One that only watches gives every node a type of its own, named after the node.
    types = report.get("node_type_mapping") or {}
    return any(name != f"node_{node}" for node, name in types.items())


def show_worker_logs(ray: Any, shown: bool) -> None:
    """Whether Ray prints what its processes log; log_to_driver=False leaves the raylet's complaints."""
    ray._private.worker._worker_logs_enabled = shown


def dead_processes(ray: Any) -> set[str]:
    """The processes of the Ray we started that have ended: names such as raylet, gcs_server."""
    return {name for name, _ in ray._private.worker._global_node.dead_processes()}


def process_id(ray: Any, name: str) -> int:
    """The pid of a process of the Ray we started."""
    pid: int = ray._private.worker._global_node.all_processes[name][0].process.pid
    return pid


def peek(ray: Any, stream: Any) -> tuple[Any, bool]:
    """Return the reference to the next item of a stream, and whether getting it would not wait."""
    worker = ray._private.worker.global_worker.core_worker
    ahead: tuple[Any, bool] = worker.peek_object_ref_stream(stream._generator_ref)
    return ahead


def send_code_of(ray: Any, module: ModuleType) -> None:
    """Have Ray send the functions of a module as code, not by name."""
    ray.cloudpickle.register_pickle_by_value(module)
