"""The contract with Ray: one test for each interface that kising uses and Ray may change."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.contracts import contract, imported_names
from support.nodes import QUICK
from support.processes import descendants, listening

import kising
from kising.sweep.execute import ray_errors, ray_internals
from kising.sweep.execute.ray_cluster import RayCluster

PACKAGE = Path(kising.__file__).parent
HOME = PACKAGE / "sweep" / "execute" / "ray_internals.py"
ERRORS = HOME.with_name("ray_errors.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster.start(cpus=1)
    yield cluster
    cluster.close()


def python(code: str, **variables: str) -> str:
    """What a program prints, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**environment, **variables}
    )
    assert child.returncode == 0, child.stderr[-1000:]
    return child.stdout.strip()


def private_attributes(path: Path) -> set[str]:
    """Attributes with a leading underscore that a file takes from anything but self and cls."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }


def test_all_internals_are_in_one_file() -> None:
    room = HOME.parent
    for path in room.glob("*.py"):
        names = {name for name in imported_names(path) if name.split(".")[0] == "ray"}
        variables = set(re.findall(r'"(RAY_\w+)"', path.read_text()))
        if path == HOME:
            assert names == {
                "ray",
                "ray.autoscaler.v2.utils.is_autoscaler_v2",
                "ray.experimental.internal_kv._internal_kv_get",
            }
            assert private_attributes(path) == {
                "_private", "_raylet", "_worker_logs_enabled", "_global_node", "_generator_ref"
            }  # fmt: skip
        else:
            assert (names, variables, private_attributes(path)) == (set(), set(), set()), path.name


COMPILED = sorted(
    {"RAY_USE_TLS", *(name for name in {*ray_internals.SETTINGS, *QUICK} if re.match(r"RAY_[a-z]", name))}
)


@pytest.mark.parametrize("name", COMPILED)
def test_variables_of_the_compiled_settings(name: str) -> None:
    with contract("ray", f"the environment variable {name}", HOME):
        setting = json.dumps({name.removeprefix("RAY_"): name == "RAY_USE_TLS" or 7})
        python(f"import ray; ray._raylet.Config.initialize({setting!r})")


def test_an_unknown_setting_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        python("""import ray; ray._raylet.Config.initialize('{"no_such_setting": 7}')""")


@pytest.mark.parametrize(
    ("name", "value", "expression", "expected"),
    [
        ("RAY_NUM_REDIS_GET_RETRIES", "2", "ray._private.ray_constants.NUM_REDIS_GET_RETRIES", "2"),
        (
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV",
            "0",
            "ray._private.ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV",
            "False",
        ),
        (
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
            "0",
            "ray._private.accelerators.RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
        ),
        (
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
            "0",
            "ray._private.services.get_node_ip_address()",
            "127.0.0.1",
        ),
        (
            "RAY_USAGE_STATS_ENABLED",
            "0",
            "ray._common.usage.usage_lib._usage_stats_enabledness().name",
            "DISABLED_EXPLICITLY",
        ),
    ],
)
def test_variables_that_python_reads(name: str, value: str, expression: str, expected: str) -> None:
    with contract("ray", f"the environment variable {name}", HOME):
        code = f"import ray, ray._private.accelerators, ray._common.usage.usage_lib; print({expression})"
        assert python(code, **{name: value}) == expected


def test_every_variable_is_tested() -> None:
    tested = set(re.findall(r"RAY_\w+", Path(__file__).read_text())) | set(COMPILED)
    assert set(re.findall(r'"(RAY_\w+)"', HOME.read_text())) <= tested


def test_variables_of_the_token() -> None:
    """RAY_AUTH_MODE and RAY_AUTH_TOKEN, set after ray was imported, count once its caches are reset."""
    with contract(
        "ray", "RAY_AUTH_MODE, RAY_AUTH_TOKEN, Config.initialize and AuthenticationTokenLoader", HOME
    ):
        code = (
            "import os, ray\n"
            "from kising.sweep.execute.ray_internals import import_ray\n"
            "loader = ray._raylet.AuthenticationTokenLoader.instance()\n"
            "print(loader.get_raw_token(ignore_auth_mode=True))\n"
            "print(ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN)\n"
            "os.environ.update(RAY_AUTH_MODE='token', RAY_AUTH_TOKEN='2' * 64)\n"
            "import_ray()\n"
            "print(loader.get_raw_token(ignore_auth_mode=True))\n"
            "print(ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN)"
        )
        found = python(code, RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN="1" * 64)
        assert found.split() == ["1" * 64, "False", "2" * 64, "True"]


def test_init_takes_a_directory(cluster: RayCluster) -> None:
    with contract("ray", "the argument _temp_dir of ray.init", HOME):
        assert cluster._scratch is not None
        assert list(cluster._scratch.path.glob("session_*/sockets"))


def test_a_local_ray_listens_on_loopback_alone(cluster: RayCluster) -> None:
    with contract("ray", "binding to the address of the node", HOME):
        found = listening([os.getpid(), *descendants(os.getpid())])
        assert len(found) >= 3
        assert {str(address) for address in found} == {"127.0.0.1"}


def test_the_directory_of_a_local_ray_is_closed_to_others(cluster: RayCluster) -> None:
    """Sockets and logs included, also those that its processes make later."""
    assert cluster._scratch is not None
    cluster.ray.get(cluster.ray.remote(lambda: 1).remote())
    paths = [cluster._scratch.home, *cluster._scratch.home.rglob("*")]
    assert any(path.is_socket() for path in paths)
    assert any(path.name.endswith(".out") for path in paths)
    assert [path for path in paths if not path.is_symlink() and path.lstat().st_mode & 0o077] == []


def test_import_refuses_a_second_ray(cluster: RayCluster) -> None:
    with pytest.raises(RuntimeError, match=r"call ray\.shutdown"):
        ray_internals.import_ray()


def test_find_node_ids(cluster: RayCluster) -> None:
    with contract("ray", "ray._private.services.find_node_ids", HOME):
        assert cluster.ray.get_runtime_context().get_node_id() in ray_internals.nodes_of_this_host(
            cluster.ray
        )


def test_node_table(cluster: RayCluster) -> None:
    with contract("ray", "ray._private.state.state.node_table", HOME):
        (node,) = ray_internals.live_nodes(cluster.ray)
        assert node.host == os.uname().nodename
        assert node.cpus == 1.0
        assert node.memory > 1e6


def test_is_autoscaler_v2_and_internal_kv_get(cluster: RayCluster) -> None:
    with contract("ray", "is_autoscaler_v2 or _internal_kv_get", HOME):
        assert ray_internals.has_autoscaler() is False
        from ray.experimental.internal_kv import _internal_kv_get

        assert _internal_kv_get("no such key") is None


def test_the_status_of_an_autoscaler() -> None:
    """That a real autoscaler publishes it so is tested with `pytest -m hosts` (test_cluster.py)."""

    def status(types: dict[str, str] | None) -> bytes:
        return json.dumps({"autoscaler_report": {"node_type_mapping": types}}).encode()

    assert ray_internals.starts_nodes(status({"10.0.0.1": "worker"}))
    assert not ray_internals.starts_nodes(status({"10.0.0.1": "node_10.0.0.1"}))
    assert not any(map(ray_internals.starts_nodes, (None, b"", b"{}", status(None), status({}))))


def test_worker_logs_enabled(cluster: RayCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with contract("ray", "ray._private.worker._worker_logs_enabled", HOME):
        worker = cluster.ray._private.worker
        record = {"pid": "raylet", "ip": "h", "lines": ["a complaint"], "job": None, "is_err": False}
        worker.print_worker_logs(record, sys.stdout)
        assert capsys.readouterr().out == ""
        ray_internals.show_worker_logs(cluster.ray, True)
        worker.print_worker_logs(record, sys.stdout)
        ray_internals.show_worker_logs(cluster.ray, False)
        assert "a complaint" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_processes_of_the_global_node(cluster: RayCluster, name: str) -> None:
    with contract("ray", "ray._private.worker._global_node.dead_processes and all_processes", HOME):
        assert ray_internals.dead_processes(cluster.ray) == set()
        pid = ray_internals.process_id(cluster.ray, name)
        assert name in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]


def test_peek_object_ref_stream(cluster: RayCluster, tmp_path: Path) -> None:
    with contract("ray", "peek_object_ref_stream and ObjectRefGenerator._generator_ref", HOME):

        def wait_for_a_file(path: Path) -> Iterator[int]:
            yield 1
            while not path.exists():
                time.sleep(0.01)
            yield 2

        task = cluster.ray.remote(num_returns="streaming", max_retries=0)(wait_for_a_file)
        stream = task.remote(tmp_path / "go")
        reference, _ = ray_internals.peek(cluster.ray, stream)
        assert cluster.ray.get(reference, timeout=60) == 1
        assert ray_internals.peek(cluster.ray, stream)[1]
        assert next(stream) == reference
        waiting, ready = ray_internals.peek(cluster.ray, stream)
        assert not ready
        (tmp_path / "go").touch()
        assert waiting.future().result(timeout=60) == 2


def test_register_pickle_by_value(cluster: RayCluster) -> None:
    with contract("ray", "ray.cloudpickle.register_pickle_by_value", HOME):
        module = ModuleType("only_in_the_driver")
        exec("def answer(): return 42", module.__dict__)
        sys.modules[module.__name__] = module
        try:
            ray_internals.send_code_of(cluster.ray, module)
            pickled = cluster.ray.cloudpickle.dumps(module.answer)
        finally:
            cluster.ray.cloudpickle.unregister_pickle_by_value(module)
            del sys.modules[module.__name__]
        assert cluster.ray.cloudpickle.loads(pickled)() == 42


def test_the_error_of_other_versions() -> None:
    with contract("ray", "the text of check_version_info", ERRORS):
        code = (
            "from ray._private.utils import check_version_info\n"
            "try:\n    check_version_info({'ray_version': '2.9.3', 'python_version': '3.8.1'}, 'here')\n"
            "except RuntimeError as error:\n    print(error)"
        )
        text = python(code)
        versions = ray_errors.connection_failure(RuntimeError(text))
        assert versions.startswith("it runs Ray 2.9.3 on Python 3.8.1, this is Ray ")


def test_the_error_of_a_lack_of_memory() -> None:
    with contract("ray", "the text of the memory monitor", ERRORS):
        import ray

        raylet = Path(ray.__file__).parent / "core" / "src" / "ray" / "raylet" / "raylet"
        assert b"actual memory used=" in raylet.read_bytes()
    error = RuntimeError("Task was killed due to low memory. It is bad; actual memory used=3.2GB; so it goes")
    assert ray_errors.loss_reason(error) == "Task was killed due to low memory (it used 3.2GB)"


@pytest.mark.parametrize(
    "name",
    [
        "RayTaskError",
        "RuntimeEnvSetupError",
        "RayError",
        "TaskCancelledError",
        "OutOfMemoryError",
        "NodeDiedError",
        "ObjectLostError",
        "LocalRayletDiedError",
    ],
)
def test_errors(name: str) -> None:
    with contract("ray", f"ray.exceptions.{name}", HOME.with_name("ray_executor.py")):
        import ray.exceptions

        assert issubclass(getattr(ray.exceptions, name), ray.exceptions.RayError)
