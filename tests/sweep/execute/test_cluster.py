"""Clusters of several nodes on this machine: nodes that join late, die or are drained; a head that dies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.bits import assert_same_bits
from support.nodes import Nodes, nodes
from support.waiting_work import allow

import kising
from kising import run_sweep
from kising.sweep.status import describe_status
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import Progress
from kising.version import NUMERICS, __version__

CHILD = """
    import json, sys, time
    from support import sample_work
    from kising.sweep.execute import ray_cluster, ray_executor
    from kising.sweep.drive.conductor import Policy, conduct
    from kising.sweep.execute.ray_cluster import RayCluster
    from kising.sweep.execute.ray_executor import RayExecutor
    from kising.errors import ExecutorError
    from kising.sweep.execute.protocol import Need
    from kising.sweep.drive.signals import StopRequest

    stop = StopRequest()

    def go(count, need=Need(), observe=lambda snapshot: None, cost=0.2):
        return conduct(sample_work.runs(count, "pause"), executor, rows.extend, cost=lambda run: cost,
                       need=lambda run: need, total=count, stop=stop, observers=[observe],
                       policy=Policy(report_seconds=0.05))

    def join():
        return RayExecutor(sample_work.work, RayCluster.join(sys.argv[1]))

    rows = []
"""


def drive(cluster: Nodes, body: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a driver of fake runs in a process of its own: Ray reads its token once per process."""
    script = textwrap.dedent(CHILD) + textwrap.dedent(body)
    return cluster.run(sys.executable, "-c", script, cluster.address, *arguments, **variables)


def background(cluster: Nodes, body: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """The same, without waiting for its end."""
    script = textwrap.dedent(CHILD) + textwrap.dedent(body)
    return cluster.background(sys.executable, "-c", script, cluster.address, *arguments)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    """The head, a small node, and a larger node."""
    with nodes() as cluster:
        cluster.head("--memory=400000000")
        cluster.join("--memory=1200000000", cpus=2)
        cluster.wait(2)
        yield cluster


@pytest.mark.slow
def test_unequal_nodes_are_filled_by_cpus_and_memory(cluster: Nodes) -> None:
    child = drive(
        cluster,
        """
        executor = join()
        most = {}
        needs = {"cpu": Need(), "pair": Need(cpus=2), "memory": Need(memory=600_000_000)}
        for name, need in needs.items():
            stop, seen, slots = StopRequest(), [], executor.slots(need)

            def observe(snapshot):
                seen.append(snapshot.workers)
                if snapshot.workers >= slots:
                    stop.ask("full")

            go(10_000, cost=10.0, need=need, observe=observe)
            most[name] = slots, max(seen)
        print(json.dumps([most, executor.refuse(Need(cpus=3)), executor.cores()]))
        executor.close()
        """,
    )
    assert (child.returncode, child.stderr) == (0, "")
    most, refusal, cores = json.loads(child.stdout)
    assert most == {"cpu": [3, 3], "pair": [1, 1], "memory": [2, 2]}
    assert refusal == "a run asks for 3 cpus, the largest node has 2: lower resources.cpus"
    assert list(cores.values()) == [3]


def test_another_kising_on_the_workers_is_refused(cluster: Nodes) -> None:
    child = drive(
        cluster,
        """
        ray_executor.__version__ = "9.9.9"
        executor = join()
        try:
            go(10)
        except ExecutorError as error:
            print(error)
        executor.close()
        """,
    )
    assert f"has kising {__version__} (numerics {NUMERICS}), the driver has kising 9.9.9" in child.stdout
    assert child.stderr == ""


def test_a_checkout_is_shipped(cluster: Nodes, tmp_path: Path) -> None:
    package = tmp_path / "kising"
    shutil.copytree(Path(kising.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    version = package / "version.py"
    version.write_text(version.read_text().replace(__version__, "7.7.7"))
    body = """
        from pathlib import Path
        ray_executor.__version__ = "7.7.7"
        ray_cluster.checkout = lambda: Path(sys.argv[2])
        executor = join()
        print(go(10).done)
        executor.close()
    """
    child = drive(cluster, body, str(package))
    assert (child.returncode, child.stdout, child.stderr) == (0, "10\n", "")


@pytest.mark.parametrize(
    ("variables", "before", "words"),
    [
        ({"RAY_AUTH_TOKEN": "f" * 64}, "", "it refused our token; set RAY_AUTH_MODE=token"),
        ({}, "import ray; ray.__version__ = '2.9.3'", "this is Ray 2.9.3 on Python"),
    ],
)
def test_a_driver_that_may_not_join_is_told_why(
    cluster: Nodes, variables: dict[str, str], before: str, words: str
) -> None:
    child = drive(
        cluster,
        f"""
        {before}
        try:
            join()
        except ExecutorError as error:
            print(error)
        """,
        **variables,
    )
    assert child.stdout.startswith(f"cannot join the Ray cluster at {cluster.address}: ")
    assert words in child.stdout
    assert len(child.stdout.splitlines()) == 1


@pytest.mark.slow
def test_nodes_come_late_and_go(cluster: Nodes, tmp_path: Path) -> None:
    body = """
        from pathlib import Path
        from kising.sweep.store.directory import SweepDirectory
        from kising.sweep.drive.progress_file import ProgressFile

        executor = join()
        directory = SweepDirectory(Path(sys.argv[2]))
        lock = directory.lock("kising run")
        lock.__enter__()  # by which `status` knows that a driver is at work
        progress_file = ProgressFile(directory)

        def observe(snapshot):
            progress_file(snapshot)
            if (Path(sys.argv[2]) / "enough").exists():
                stop.ask("enough")

        outcome = go(100_000, cost=0.5, observe=observe)
        executor.close()
        ids = [row["run_id"] for row in rows]
        right = all(row["rmse_J"] == row["realization"] ** 2 and row["status"] == "done" for row in rows)
        print(right, len(ids) == len(set(ids)) == outcome.done, outcome.lost > 0)
    """
    SweepDirectory.create(tmp_path).write_sweep("")
    with background(cluster, body, str(tmp_path)) as driver:
        until(lambda: working(tmp_path) == 3)
        cluster.join('--resources={"late": 1}')
        until(lambda: working(tmp_path) == 4)
        (host,) = progress(tmp_path).nodes
        # A new worker may be known a moment before the cores of its node are.
        until(lambda: f"\n  {host}  4 of 4 cores in use, " in "\n".join(describe_status(tmp_path)))
        lines = list(describe_status(tmp_path))
        assert any(line.startswith("  in flight for ") for line in lines)
        cluster.drain("late")
        until(lambda: working(tmp_path) == 3)
        cluster.kill(1)
        until(lambda: working(tmp_path) == 1)
        before = progress(tmp_path).done
        until(lambda: progress(tmp_path).done > before)
        (tmp_path / "enough").touch()
        assert driver.communicate(timeout=60) == ("True True True\n", "")


SWEEP = {
    "name": "tiny",
    "seed": 5,
    "realizations": 20,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"max_iterations": 25, "tolerance": 1e-12, "estimator": "exact"},
    "axes": {"data.length": [3000, 4000]},
}
IMPATIENT = """
import sys
from pathlib import Path
from support import waiting_work
from kising.sweep.execute import ray_cluster
ray_cluster._HEAD_SECONDS = 4.0
waiting_work.main(Path(sys.argv[1]), sys.argv[2:])
"""


@pytest.mark.hosts
def test_a_head_that_dies_leaves_a_directory_that_resumes(cluster: Nodes, tmp_path: Path) -> None:
    """The last test that uses the shared cluster: it kills it."""
    out, file = tmp_path / "out", tmp_path / "sweep.yaml"
    file.write_text(json.dumps(SWEEP))
    arguments = ["run", str(file), "--out", str(out), "--address", cluster.address]
    allow(tmp_path / "limit", 10)
    with cluster.background(sys.executable, "-c", IMPATIENT, str(tmp_path / "limit"), *arguments) as driver:
        until(lambda: (now := progress(out)) and now.done)
        cluster.kill(0)
        _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert f"kising: Ray at {cluster.address} broke down: its head has not answered for 4 s" in errors
    assert "the same command resumes" in errors
    assert "Traceback" not in errors
    results = run_sweep(SWEEP, out=out, in_process=True)
    assert 0 < results.outcome.done < len(results.runs)
    assert_same_bits(results.runs, run_sweep(SWEEP, out=tmp_path / "local", in_process=True).runs)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.05)


def progress(directory: Path) -> Progress | None:
    return SweepDirectory(directory).read_progress()


def working(directory: Path) -> int:
    now = progress(directory)
    return 0 if now is None else now.workers


@pytest.mark.hosts
def test_a_growing_cluster_is_asked_for_what_the_sweep_needs() -> None:
    with nodes(RAY_FAKE_CLUSTER="1", AUTOSCALER_UPDATE_INTERVAL_S="1") as cluster:
        config = cluster.base / "autoscaling.json"
        config.write_text(json.dumps(autoscaling(cluster.address)))
        cluster.head(f"--autoscaling-config={config}", cpus=0)
        cluster.wait(1)
        child = drive(
            cluster,
            """
            executor = join()
            while not executor.potential_slots(Need()):
                time.sleep(0.1)
            print(executor.slots(Need()), executor.refuse(Need(cpus=64)))

            def observe(snapshot):
                if snapshot.workers == 2:
                    stop.ask("two nodes")

            outcome = go(300, cost=300.0, observe=observe)
            print(outcome.done == len(rows), outcome.interrupted)
            executor.close()
            """,
        )
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout.splitlines() == ["0 None", "True True"]


def autoscaling(address: str) -> dict[str, object]:
    """An autoscaler of Ray that starts nodes on this machine: none at first, at most two."""
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "growing",
        "max_workers": 2,
        "provider": {"type": "fake_multinode", "gcs_address": address, "launch_multiple": True},
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 1, "object_store_memory": 80_000_000},
                "node_config": {},
                "max_workers": 2,
            },
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in lists},
    }
