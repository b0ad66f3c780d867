"""Ray nodes for tests, each started with `ray start`: on this machine, or on hosts made of network namespaces."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kising
from support.processes import kill_family

TESTS = str(Path(__file__).parents[1])
# The kising of these tests, and the modules that workers import.
PATHS = os.pathsep.join([str(Path(kising.__file__).parents[1]), TESTS])
TOKEN = "0123456789abcdef" * 4
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
KISING = [sys.executable, "-m", "kising.cli"]
QUICK = {
    # As in cluster.yaml.
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "15000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
}
STORE = ["--object-store-memory=80000000"]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of every member of a cluster."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    return {
        **ours,
        **token,
        **QUICK,
        "RAY_USAGE_STATS_ENABLED": "0",
        "HOME": str(home),
        "PYTHONPATH": PATHS,
        **more,
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class Nodes:
    """Nodes of one cluster on this machine; the first is its head."""

    def __init__(self, base: Path, **variables: str) -> None:
        self.base = base
        self.variables = environment(base, **variables)
        self.address = f"127.0.0.1:{free_port()}"
        self.log = base / "nodes.log"
        self._nodes: list[subprocess.Popen[bytes]] = []

    def head(self, *arguments: str, cpus: int = 1) -> int:
        port = self.address.rpartition(":")[2]
        return self._start(
            "--head", f"--port={port}", f"--temp-dir={self.base}/r", "--include-dashboard=false",
            f"--num-cpus={cpus}", *arguments,
        )  # fmt: skip

    def join(self, *arguments: str, cpus: int = 1) -> int:
        return self._start(f"--address={self.address}", f"--num-cpus={cpus}", *arguments)

    def _start(self, *arguments: str) -> int:
        ports = ["--min-worker-port=0", "--max-worker-port=0", "--node-ip-address=127.0.0.1"]
        with self.log.open("ab") as log:
            node = subprocess.Popen(
                [*RAY, "start", "--block", *STORE, *ports, *arguments],
                env=self.variables,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._nodes.append(node)
        return len(self._nodes) - 1

    def kill(self, number: int) -> None:
        """Kill a node and all its processes, as a power cut would."""
        kill_family(self._nodes[number].pid)
        self._nodes[number].wait()

    def drain(self, resource: str) -> None:
        """Announce the end of the node that has a resource, as a cloud does before it reclaims an instance."""
        code = (
            "import sys, time, ray; from ray._raylet import GcsClient;"
            "from ray.core.generated.autoscaler_pb2 import DrainNodeReason;"
            "ray.init(sys.argv[1], log_to_driver=False);"
            "(node,) = [node['NodeID'] for node in ray.nodes() if sys.argv[2] in node['Resources']];"
            "reason, end = DrainNodeReason.Value('DRAIN_NODE_REASON_PREEMPTION'), int((time.time() + 2) * 1000);"
            "assert GcsClient(address=sys.argv[1]).drain_node(node, reason, 'reclaimed', end)[0]"
        )
        self.run(sys.executable, "-c", code, self.address, resource).check_returncode()

    def wait(self, nodes: int, seconds: float = 60.0) -> None:
        """Wait until this number of nodes is alive."""
        code = (
            "import sys, ray; from ray._private.state import GlobalState; from ray._raylet import GcsClientOptions;"
            "state = GlobalState(); state._initialize_global_state(GcsClientOptions.create("
            "sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False));"
            "import time\n"
            "while sum(node['Alive'] for node in state.node_table()) != int(sys.argv[2]): time.sleep(0.2)"
        )
        wait_until_listening(self.address, seconds)
        subprocess.run(
            [sys.executable, "-c", code, self.address, str(nodes)],
            env=self.variables,
            timeout=seconds,
            check=True,
            capture_output=True,
        )

    def run(
        self, *command: str, seconds: float = 120.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a member of the cluster, outside of any checkout: workers import from their directory."""
        return subprocess.run(
            command,
            env={**self.variables, **variables},
            timeout=seconds,
            capture_output=True,
            text=True,
            cwd=self.base,
        )

    @contextmanager
    def background(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command in the background; it is killed at the end if it has not ended by itself."""
        with subprocess.Popen(
            command,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.base,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def close(self) -> None:
        for number in range(len(self._nodes)):
            self.kill(number)


@contextmanager
def nodes(**variables: str) -> Iterator[Nodes]:
    """A cluster without nodes yet; all nodes started inside end with it."""
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="kn-", dir="/tmp", ignore_cleanup_errors=True) as base:
        cluster = Nodes(Path(base), **variables)
        try:
            yield cluster
        finally:
            cluster.close()


def wait_until_listening(address: str, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            assert time.monotonic() < end, f"nothing listens at {address}"
            time.sleep(0.1)
        else:
            return
