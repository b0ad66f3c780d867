"""cluster.yaml and the scripts of docs/clusters.md: Ray takes them, and they are safe."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start
from support.nodes import QUICK

TEXT = (Path(__file__).parents[1] / "cluster.yaml").read_text()
FROM, TO, OWN = "# ---- AWS: from here\n", "# ---- AWS: to here\n", "# ---- On machines of your own"


def on_premises() -> str:
    """The file as its last section says to edit it."""
    before, _, rest = TEXT.partition(FROM)
    after, _, own = rest.partition(TO)[2].partition(OWN)
    section = own.partition("#\n")[2]
    return before + re.sub("^# ?", "", section, flags=re.MULTILINE) + after


def load(text: str) -> dict[str, Any]:
    config = yaml.safe_load(text)
    if config["provider"]["type"] == "local":
        config["max_workers"] = len(config["provider"]["worker_ips"])
    return config


@pytest.fixture(params=["aws", "local"])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    config = load(TEXT if request.param == "aws" else on_premises())
    assert config["provider"]["type"] == request.param
    return config


def commands(config: dict[str, Any], name: str) -> list[str]:
    return [command for command in config[name] if "ray start" in command]


def test_ray_takes_it(config: dict[str, Any]) -> None:
    prepared = prepare_config(config)
    validate_config(prepared)
    # Nothing of Ray's defaults has crept in where the file says its own.
    for name in ("head_start_ray_commands", "worker_start_ray_commands", "file_mounts", "provider"):
        assert prepared[name] == config[name]
    workers = [node for name, node in prepared["available_node_types"].items() if name != "head"]
    assert all(node["max_workers"] == prepared["max_workers"] for node in workers)


def test_a_misspelt_key_is_not_taken(config: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="idle_timeout_minuts"):
        validate_config(prepare_config({**config, "idle_timeout_minuts": 5}))


def test_nothing_listens_to_the_world(config: dict[str, Any]) -> None:
    prepared = prepare_config(config)
    assert "0.0.0.0" not in yaml.safe_dump(prepared)
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        for command in commands(prepared, name):
            arguments = shlex.split(command.rpartition("ray start ")[2])
            # Ray's own parser: an option it does not know is an error.
            options = start.make_context("start", list(arguments)).params
            assert options["dashboard_host"] == "127.0.0.1"
            assert options["head"] == (name == "head_start_ray_commands")
    if prepared["provider"]["type"] == "aws":
        assert prepared["provider"]["use_internal_ips"]
        assert prepared["provider"]["security_group"] == {"GroupName": "kising"}


def test_every_host_asks_for_the_token(config: dict[str, Any], tmp_path: Path) -> None:
    prepared = prepare_config(config)
    token = "~/.ray/auth_token"
    assert prepared["file_mounts"][token] == token
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert commands(prepared, name)
        assert all(command.startswith(". ~/.ray/environment; ") for command in prepared[name])
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch(mode=0o644)
    (tmp_path / ".bashrc").touch()
    local = [command for command in prepared["setup_commands"] if "uv" not in command]
    script = "\n".join([*local, *local, ". ~/.bashrc", "env"])  # twice, as every `ray up` does
    shell = subprocess.run(
        ["bash", "-e", "-c", script],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    variables = dict(line.partition("=")[::2] for line in shell.stdout.splitlines())
    assert variables["RAY_AUTH_MODE"] == "token"
    assert QUICK.items() <= variables.items()
    assert variables["PATH"].startswith(f"{tmp_path}/env/bin:")
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / ".bashrc").read_text().count("environment") == 1


def test_workers_come_from_none_and_are_spot() -> None:
    nodes = load(TEXT)["available_node_types"]
    assert nodes["worker"]["min_workers"] == 0
    assert nodes["worker"]["max_workers"] == load(TEXT)["max_workers"]
    assert nodes["worker"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert nodes["head"]["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in nodes["head"]["node_config"]


def test_the_ray_of_the_hosts_is_one_that_kising_takes() -> None:
    (pin,) = re.findall(r"ray\[default\]==([\d.]+)", TEXT)
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    ((least, below),) = re.findall(r'"ray>=([\d.]+),<([\d.]+)"', project)
    assert re.findall(r'"ray\[default\]>=([\d.]+),<([\d.]+)"', project) == [(least, below)]
    least, pin, below = (tuple(map(int, version.split("."))) for version in (least, pin, below))
    assert least <= pin < below


PAGE = (Path(__file__).parents[1] / "docs" / "clusters.md").read_text()


def test_the_documented_batch_script_is_one_that_bash_and_ray_take() -> None:
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", PAGE, re.DOTALL)
    subprocess.run(["bash", "-n", "-c", script], check=True)
    for name, value in QUICK.items():
        assert f"{name}={value}" in script
    (line,) = re.findall(r"ray symmetric-run (.*?) -- kising run ", script.replace("\\\n", ""))
    words = shlex.split(re.sub(r"\$[A-Za-z_]+", "1", line))
    assert words[:4] == ["--address", "1", "--min-nodes", "1"]
    start.make_context("start", words[4:])  # what is not for itself it hands on to `ray start`


def test_the_documented_manifest_says_what_cluster_yaml_says() -> None:
    (text,) = re.findall(r"```yaml\n(apiVersion: ray.io.*?)```", PAGE, re.DOTALL)
    cluster = yaml.safe_load(text)["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert f"ray[default]=={cluster['rayVersion']}" in TEXT
    workers = cluster["workerGroupSpecs"][0]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (0, load(TEXT)["max_workers"])
    for group in (cluster["headGroupSpec"], workers):
        (container,) = group["template"]["spec"]["containers"]
        assert {item["name"]: item["value"] for item in container["env"]} == QUICK
