"""Files and arguments made to break kising: no traceback, no wait, and exit code 2 where they are a mistake."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.judging import count_wrong
from support.spin_data import random_spins

from kising import run_sweep
from kising.cli import main
from kising.errors import StoreError
from kising.fitting.saved_state import SavedState
from kising.sweep.drive.cost import CostModel, cache_file
from kising.sweep.spec import dump_spec, parse_spec
from kising.sweep.store.checkpoints import FORMAT
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import read_runs
from kising.version import NUMERICS

SWEEP = {
    "name": "tiny",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 5, "hidden": 2},
    "learner": {"estimator": "exact", "max_iterations": 4},
    "axes": {"data.length": [100, 200]},
}
NESTED = "[" * 100_000
LONG = "x" * 300
hostile = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

PROGRESS = {
    "state": "running", "total": 4, "done": 1, "failed": 0, "running": 1, "rate": None, "eta": None, "workers": 1,
    "nodes": {}, "oldest": [], "pid": 1, "host": os.uname().nodename, "updated": 0.0,
}  # fmt: skip

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(10**30)
    | st.just(1e308),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def kising(*arguments: object) -> Result:
    """The end of a command; an exception that is not an exit is a traceback."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished sweep."""
    out = tmp_path_factory.mktemp("finished") / "tiny"
    run_sweep(SWEEP, out=out, in_process=True)
    return out


class TestCostCache:
    @hostile
    @given(prices=JSON, iterations=JSON)
    @example(prices={"learn exact random scaled": float("nan")}, iterations={})
    @example(
        prices={"learn exact random scaled": 1e308}, iterations={"learn exact random scaled": float("inf")}
    )
    @example(prices={"learn exact random scaled": 10**400}, iterations={})
    def test_no_number_in_it_stops_a_sweep(self, tmp_path: Path, prices: object, iterations: object) -> None:
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        cache_file().write_text(json.dumps({"prices": prices, "iterations": iterations}))
        (tmp_path / "sweep.yaml").write_text(dump_spec(parse_spec(SWEEP)))
        assert kising("plan", tmp_path / "sweep.yaml").exit_code == 0
        model = CostModel.load()
        assert all(0 < price <= 1 for price in model.prices.values())

    @pytest.mark.parametrize(
        "content", [b"", b"\xff\xfe", NESTED.encode(), b"{}", b"null", b'{"prices": []}', None]
    )
    def test_one_that_is_not_one_is_ignored(self, content: bytes | None) -> None:
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            os.mkfifo(cache_file())
        else:
            cache_file().write_bytes(content)
        assert CostModel.load() == CostModel()

    def test_a_run_with_absurd_prices_ends(self, tmp_path: Path, finished: Path) -> None:
        kinds = CostModel.load().prices or {"learn exact random scaled": 1.0}
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        absurd = {"prices": dict.fromkeys(kinds, float("nan")), "iterations": dict.fromkeys(kinds, 1e308)}
        cache_file().write_text(json.dumps(absurd))
        (tmp_path / "sweep.yaml").write_text(dump_spec(parse_spec(SWEEP)))
        assert (
            kising("run", tmp_path / "sweep.yaml", "--local-debug", "--out", tmp_path / "out").exit_code == 0
        )


class TestRecords:
    @hostile
    @given(name=st.sampled_from(sorted(PROGRESS)), value=JSON)
    @example(name="pid", value=10**30)
    @example(name="pid", value=-1)
    @example(name="pid", value=0)
    @example(name="updated", value=1e308)
    @example(name="eta", value=1e308)
    @example(name="rate", value=5e-324)
    def test_no_value_in_progress_json_breaks_status(self, finished: Path, name: str, value: object) -> None:
        before = (finished / "progress.json").read_bytes()
        try:
            (finished / "progress.json").write_text(json.dumps({**PROGRESS, name: value}))
            assert kising("status", finished).exit_code == 0
        finally:
            (finished / "progress.json").write_bytes(before)

    @pytest.mark.parametrize("name", ["progress.json", "manifest.json", "driver.json"])
    @pytest.mark.parametrize("content", [b"", NESTED.encode(), b"\x00" * 100, None])
    def test_no_content_of_a_record_breaks_a_command(
        self, finished: Path, name: str, content: bytes | None
    ) -> None:
        path = finished / name
        before = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        try:
            if content is None:
                os.mkfifo(path)
            else:
                path.write_bytes(content)
            assert kising("status", finished).exit_code == 0
            # The others are of a session, and tell nothing about the results.
            assert kising("verify", finished).exit_code == (1 if name == "manifest.json" else 0)
        finally:
            path.unlink()
            if before is not None:
                path.write_bytes(before)

    @pytest.mark.parametrize("name", ["parts.log", "runs.parquet", "summary.parquet", "scaling.parquet"])
    def test_a_pipe_in_the_place_of_a_file_is_noticed(self, finished: Path, name: str) -> None:
        path = finished / name
        before = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        try:
            assert kising("status", finished).exit_code == 0
            assert kising("verify", finished).exit_code == 1
        finally:
            path.unlink()
            path.write_bytes(before)

    def test_a_pipe_in_the_place_of_the_lock_is_no_driver(self, finished: Path) -> None:
        path = finished / ".lock"
        path.unlink()
        os.mkfifo(path)
        try:
            assert "finished" in kising("status", finished).output
        finally:
            path.unlink()
            path.touch()

    def test_a_pipe_in_the_place_of_a_table_is_not_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "runs.parquet")
        with pytest.raises(StoreError, match="not a regular file"):
            read_runs(tmp_path / "runs.parquet")


class TestCheckpoints:
    @pytest.mark.parametrize("content", [NESTED.encode(), b"", b"\x00" * 1000, None])
    def test_that_of_a_fit_is_not_trusted(self, tmp_path: Path, content: bytes | None) -> None:
        said: list[str] = []
        if content is None:
            os.mkfifo(tmp_path / "checkpoint")
        else:
            (tmp_path / "checkpoint").write_bytes(content)
        assert SavedState(tmp_path / "checkpoint", "identity", said.append).load() is None
        (line,) = said
        assert "learning starts again" in line

    @settings(hostile, max_examples=8)
    @given(header=JSON.map(json.dumps), state=st.binary(max_size=50))
    @example(header=NESTED, state=b"")
    @example(header="{}", state=b"")
    @example(header="valid", state=b"PK\x03\x04 not an archive")
    @example(header="valid", state=b"")
    def test_a_forged_one_costs_nothing(
        self, tmp_path_factory: pytest.TempPathFactory, finished: Path, header: str, state: bytes
    ) -> None:
        """With the right checksum, but with a header or a state that kising never wrote."""
        reference = pd.read_parquet(finished / "runs.parquet")
        run_id = reference["run_id"][0]
        if header == "valid":
            header = json.dumps(
                {"format": FORMAT, "run_id": run_id, "numerics": NUMERICS, "seconds": 1.0, "cpu_seconds": 1.0}
            )
        rest = header.encode() + b"\n" + state
        out = tmp_path_factory.mktemp("forged") / "tiny"
        directory = SweepDirectory.create(out)
        directory.checkpoints.mkdir()
        name = directory.checkpoints / f"{run_id}.state"
        name.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        runs = run_sweep(SWEEP, out=out, in_process=True).runs
        assert count_wrong(runs, reference) == 0

    def test_the_header_of_an_array_inside_is_not_trusted(self) -> None:
        import io
        import zipfile

        from kising.errors import CheckpointError
        from kising.learning.checkpoint import load

        for shape in ("(10000000000000,)", "(-1,)", "(" * 150 + ")" * 150, "(1e400,)"):
            text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                archive.writestr("held.npy", npy(text))
            with pytest.raises(CheckpointError):
                load(buffer.getvalue())


def npy(header: bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    length = struct.pack("<H" if version == (1, 0) else "<I", len(header) % 65536)
    return b"\x93NUMPY" + bytes(version) + length + header + data


class TestArguments:
    COMMANDS = (
        ("plan",),
        ("run", "--local-debug"),
        ("status",),
        ("verify",),
        ("report",),
        ("fit", "--hidden", "1", "--seed", "1"),
    )

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
    @pytest.mark.parametrize(
        "name",
        [LONG, f"{LONG}.yaml", "/".join([LONG] * 20), "a\nb", " ", "/dev/null", "/dev/zero/x"],
    )
    def test_names_that_no_file_has(self, command: tuple[str, ...], name: str) -> None:
        first, *options = command
        result = kising(first, name, *options)
        assert result.exit_code == (2 if first in ("plan", "run", "fit") else 1)
        assert len(result.output.splitlines()) <= 2 or "Usage" in result.output

    def test_names_that_are_not_text(self, tmp_path: Path) -> None:
        """Files of such names exist, but they could not be named in records and pages."""
        name = "\udcff"
        np.save(tmp_path / f"{name}.npy", random_spins(60, 4))
        np.save(tmp_path / "spins.npy", random_spins(60, 4))
        for file in (tmp_path / f"{name}.yaml", tmp_path / "sweep.yaml"):
            file.write_text(dump_spec(parse_spec(SWEEP)))
        fit, run = ("--hidden", "1", "--seed", "1", "--max-iterations", "2"), ("--local-debug",)
        for arguments in (
            ("fit", f"{name}.npy", *fit),
            ("fit", "spins.npy", *fit, "--out", name),
            ("run", f"{name}.yaml", *run),
            ("run", "sweep.yaml", *run, "--out", name),
            ("run", "sweep.yaml", *run, "--mirror", name),
            ("plan", f"{name}.yaml"),
            ("status", name),
        ):
            result = kising(*arguments)
            assert result.exit_code == 2, arguments
            assert "is not UTF-8" in result.output
            assert len(result.output.splitlines()) == 1
        assert not (tmp_path / name).exists()

    def test_places_of_a_mirror(self, tmp_path: Path) -> None:
        (tmp_path / "sweep.yaml").write_text(dump_spec(parse_spec(SWEEP)))
        for url in ("", " ", "s3:bucket/prefix", "GS:bucket", "file:x", "s3://bucket\n/x", "S3://"):
            result = kising("run", "sweep.yaml", "--local-debug", "--mirror", url)
            assert result.exit_code == 2, (url, result.output)
            assert len(result.output.splitlines()) == 1
        assert {path.name for path in tmp_path.iterdir()} <= {"sweep.yaml", "results", "cache"}

    @pytest.mark.parametrize("key", ["out"])
    def test_a_place_for_results_that_cannot_be(self, tmp_path: Path, key: str) -> None:
        (tmp_path / "sweep.yaml").write_text(dump_spec(parse_spec(SWEEP)))
        result = kising("run", tmp_path / "sweep.yaml", "--local-debug", f"--{key}", tmp_path / LONG)
        assert result.exit_code in (1, 2)

    @pytest.mark.parametrize(
        "command", [("plan",), ("run", "--local-debug"), ("fit", "--hidden", "1", "--seed", "1")]
    )
    def test_a_pipe_is_refused_at_once(self, tmp_path: Path, command: tuple[str, ...]) -> None:
        os.mkfifo(tmp_path / "pipe.npy")
        first, *options = command
        assert kising(first, tmp_path / "pipe.npy", *options).exit_code == 2

    @pytest.mark.parametrize("hidden", [1024, 100_000, 10**9, 10**18, 10**30])
    def test_numbers_of_hidden_spins(self, tmp_path: Path, hidden: int) -> None:
        np.save(tmp_path / "spins.npy", random_spins(60, 4))
        assert kising("fit", tmp_path / "spins.npy", "--hidden", hidden, "--seed", 1).exit_code == 2
        for estimator in ("auto", "exact", "gibbs", "bp", "tap", "mean-field"):
            sweep = {**SWEEP, "model": {"visible": 4, "hidden": hidden}, "learner": {"estimator": estimator}}
            (tmp_path / "sweep.yaml").write_text(json.dumps(sweep))
            impossible = estimator == "exact" or hidden >= 2**63
            assert kising("plan", tmp_path / "sweep.yaml").exit_code == (2 if impossible else 0)

    def test_complex_numbers_are_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "spins.npy", random_spins(60, 4).astype(complex))
        assert kising("fit", tmp_path / "spins.npy", "--hidden", 1, "--seed", 1).exit_code == 2


class TestArrays:
    SHAPES = st.sampled_from(
        [
            "(60, 4)",
            "(10000000000000,)",
            "(10000000000000, 10000000000000)",
            "(-5, 4)",
            "(60.5, 4)",
            "60",
            "()",
            "(True, 4)",
        ]
    )
    KINDS = st.sampled_from(
        ["'|i1'", "'<f8'", "'<c16'", "'|O'", "'<M8[ns]'", "'|S4'", "[('a', '<i4')]", "'|V0'", "7", "''"]
    )

    @hostile
    @given(
        shape=SHAPES,
        kind=KINDS,
        order=st.sampled_from(["False", "True", "3", "'x'"]),
        data=st.binary(max_size=500),
    )
    @example(shape="(" * 2000 + ")" * 2000, kind="'|i1'", order="False", data=b"")
    @example(shape="__import__('os').abort()", kind="'|i1'", order="False", data=b"")
    def test_headers_that_lie(self, tmp_path: Path, shape: str, kind: str, order: str, data: bytes) -> None:
        header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
        (tmp_path / "spins.npy").write_bytes(npy(header, data))
        result = kising(
            "fit", tmp_path / "spins.npy", "--hidden", 1, "--seed", 1, "--out", tmp_path / "fit.npz"
        )
        assert result.exit_code == 2, result.output

    @hostile
    @given(
        data=st.binary(max_size=300),
        start=st.sampled_from([b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00", b"PK\x03\x04"]),
    )
    def test_noise(self, tmp_path: Path, data: bytes, start: bytes) -> None:
        for name in ("spins.npy", "spins.npz", "spins.mat", "spins.parquet"):
            (tmp_path / name).write_bytes(start + data)
            result = kising("fit", tmp_path / name, "--hidden", 1, "--seed", 1, "--out", tmp_path / "fit.npz")
            assert result.exit_code == 2, (name, result.output)
