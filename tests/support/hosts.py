"""Hosts made of namespaces, each with a network, processes, a name, shared memory and a Ray directory of its own.

They are connected by a bridge in a namespace of its own: the machine's network is not touched. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.nodes import RAY, STORE, environment
from support.processes import descendants

NETWORK = "10.77.0"
PORT = 6379
START = """
mount --make-rprivate /
mount --bind {scratch} {directory}
mount -t tmpfs -o size=512m tmpfs /dev/shm
hostname {name}
touch {directory}/up
exec "$@"
"""


def unavailable() -> str | None:
    """Why this machine cannot have such hosts, or None."""
    if os.geteuid() != 0:
        return "hosts in network namespaces need root"
    if not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return "hosts in network namespaces need ip (iproute2), unshare and nsenter"
    name = f"kx{os.getpid()}t"
    try:
        run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"this machine does not allow network namespaces: {error.stderr.strip()}"
    try:
        run("ip", "-n", name, "link", "add", "bridge0", "type", "bridge")
        run("ip", "netns", "exec", name, "unshare", "-m", "-p", "-u", "-i", "-f", "--mount-proc", "true")
    except subprocess.CalledProcessError as error:
        return f"this machine does not allow bridges or namespaces: {error.stderr.strip()}"
    finally:
        run("ip", "netns", "del", name)
    return None


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class Host:
    """One host, with a Ray node once `start` was called."""

    def __init__(self, lan: Lan, name: str, number: int) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._lan, self._space, self._plug = lan, f"{lan.prefix}{name}", f"plug{number}"
        self._scratch = lan.base / name
        self._scratch.mkdir()
        self._log = lan.base / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        run("ip", "netns", "add", self._space)
        run("ip", "-n", self._space, "link", "add", "eth0", "type", "veth",
            "peer", "name", self._plug, "netns", lan.switch)  # fmt: skip
        run("ip", "-n", self._space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", self._space, "link", "set", link, "up")
        run("ip", "-n", lan.switch, "link", "set", self._plug, "up")
        self.heal()

    def start(self, *arguments: str) -> None:
        """Start the host with a Ray node or, without arguments, with none."""
        script = START.format(scratch=self._scratch, directory=self._lan.directory, name=self.name)
        node = [*RAY, "start", "--block", *STORE, f"--node-ip-address={self.address}", *arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self._space, "unshare", "-m", "-p", "-u", "-i", "-f",
                 "--kill-child", "--mount-proc", "bash", "-e", "-c", script, "bash",
                 *(node if arguments else ["sleep", "infinity"])],
                env=self._lan.variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        end = time.monotonic() + 20
        while not (self._scratch / "up").exists():
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.01)

    def command(self, *command: str) -> list[str]:
        """The command that runs a command on this host."""
        assert self._process is not None
        (inside, *_) = descendants(self._process.pid)
        return [
            "nsenter",
            "-t",
            str(inside),
            "-m",
            "-n",
            "-p",
            "-u",
            "-i",
            f"--wd={self._lan.base}",
            *command,
        ]

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*command),
            env={**self._lan.variables, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )

    @contextmanager
    def background(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command in the background; it is killed at the end if it has not ended by itself."""
        with subprocess.Popen(
            self.command(*command),
            env=self._lan.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def cut(self) -> None:
        """Cut the link: it stays up, but nothing comes through, and no process is notified."""
        run("ip", "-n", self._lan.switch, "link", "set", self._plug, "nomaster")

    def heal(self) -> None:
        run("ip", "-n", self._lan.switch, "link", "set", self._plug, "master", "bridge0")

    def kill(self) -> None:
        if self._process is not None:
            # The child of unshare ends with it, and with that every process of the host.
            for pid in [*[*descendants(self._process.pid)][:1], self._process.pid]:
                with subprocess.Popen(["kill", "-9", str(pid)], stderr=subprocess.DEVNULL):
                    pass
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        run("ip", "netns", "del", self._space)


class Lan:
    """Hosts on a bridge. Those with a Ray node form one cluster; the first is its head."""

    def __init__(self, base: Path) -> None:
        self.base, self.directory = base, base / "ray"
        self.directory.mkdir()
        self.prefix = f"kx{os.getpid()}"
        self.switch = f"{self.prefix}switch"
        self.variables = environment(base)
        self.address = f"{NETWORK}.1:{PORT}"
        self.hosts: list[Host] = []
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "bridge0", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "bridge0", "up")

    def add(self, name: str) -> Host:
        host = Host(self, name, len(self.hosts) + 1)
        self.hosts.append(host)
        return host

    def cluster(self, *names: str) -> list[Host]:
        """Start a host with one cpu for each name, wait until they form a cluster, and return them."""
        head, *others = hosts = [self.add(name) for name in names]
        head.start(
            "--head", f"--port={PORT}", "--num-cpus=1", f"--temp-dir={self.directory}",
            "--include-dashboard=false",
        )  # fmt: skip
        self._wait_for_head(head)
        for host in others:
            host.start(f"--address={self.address}", "--num-cpus=1")
        self._wait_for_nodes(len(hosts), head)
        return hosts

    def _wait_for_head(self, head: Host) -> None:
        code = f"import socket; socket.create_connection(({head.address!r}, {PORT}), 1).close()"
        end = time.monotonic() + 60
        while head.run(sys.executable, "-c", code).returncode:
            assert time.monotonic() < end, "the head does not start"
            time.sleep(0.2)

    def _wait_for_nodes(self, count: int, head: Host) -> None:
        code = (
            "import sys, time, ray; ray.init(sys.argv[1], log_to_driver=False)\n"
            "while sum(node['Alive'] for node in ray.nodes()) < int(sys.argv[2]): time.sleep(0.2)"
        )
        head.run(sys.executable, "-c", code, self.address, str(count)).check_returncode()

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        run("ip", "netns", "del", self.switch)


@contextmanager
def lan() -> Iterator[Lan]:
    """A network without hosts; hosts added inside end with it."""
    with tempfile.TemporaryDirectory(prefix="kx-", dir="/tmp", ignore_cleanup_errors=True) as base:
        lan = Lan(Path(base))
        try:
            yield lan
        finally:
            lan.close()
