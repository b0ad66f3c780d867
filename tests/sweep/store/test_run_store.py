from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.part_rows import failed_row, ids_in, make_row, number, numbers, order_of
from support.spin_data import random_spins

from kising.errors import LockedError, StoreError
from kising.sweep.store import parquet, run_store
from kising.sweep.store.columns import (
    COLUMNS,
    COUPLINGS,
    DETERMINISTIC_COLUMNS,
    PARAMETERS,
    PART_COLUMNS,
    SCHEMA_VERSION,
)
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import LONGEST_TEXT
from kising.sweep.store.parts import FAN_IN, FULL_PART, Listing, PartFiles, parts_to_merge
from kising.sweep.store.run_store import Store

Row = dict[str, Any]
ODD_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, None)


class Killed(BaseException):
    """Stands for a kill."""


def coupling_rows(count: int) -> pd.DataFrame:
    """A derived table, of the types that its columns declare."""
    integers, floats = range(count), np.linspace(0, 1, count)
    values = {
        **dict.fromkeys(("run_id", "point_id", "block"), ["x"] * count),
        **dict.fromkeys(("realization", "row", "column"), integers),
        **dict.fromkeys(("true", "start", "learned"), floats),
    }
    return pd.DataFrame({c.name: pd.Series(values[c.name], dtype=c.dtype) for c in COUPLINGS})


def reopened(store: Store, *, writable: bool = True) -> Store:
    return Store.open(store.directory, writable=writable)


def part_names(store: Store) -> list[str]:
    return sorted(name for name in os.listdir(store.directory.parts) if name.startswith("part-"))


def forge(store: Store, data: bytes) -> Path:
    """Put bytes among the parts under a name that has their checksum."""
    return PartFiles(store.directory).publish(data, 100)


def encoded(table: pa.Table, tags: Mapping[str, str]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(tags)
    return sink.getvalue()


def opened(path: Path) -> Store:
    """A store under its lock, which is held for as long as anything refers to its directory."""
    directory = SweepDirectory.create(path)
    directory.kept = directory.lock()  # type: ignore[attr-defined]
    directory.kept.__enter__()  # type: ignore[attr-defined]
    return Store.open(directory)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    directory = SweepDirectory.create(tmp_path / "sweep")
    directory.write_sweep("name: sweep\n")
    with directory.lock():
        yield Store.open(directory)


class TestRoundTrip:
    def test_every_value_comes_back_bit_for_bit(self, store: Store) -> None:
        floats = [c.name for c in COLUMNS if c.kind == "float" and c.nullable]
        rows = []
        for i, value in enumerate(ODD_FLOATS):
            rows.append(make_row(i, **dict.fromkeys(floats, value)))
        rows.append(make_row(50, seed=2**63 - 1, error="ünï\u2028\x00", host=None, seconds=None))
        store.commit(rows)
        table = store.table(order_of([*range(len(ODD_FLOATS)), 50]))
        assert table.column_names == [column.name for column in COLUMNS]
        for row, found in zip(rows, table.to_pylist(), strict=True):
            for column in COLUMNS:
                wanted, got = row.get(column.name), found[column.name]
                if isinstance(wanted, float):
                    assert struct.pack("d", wanted) == struct.pack("d", got)
                else:
                    assert wanted == got
                    assert type(wanted) is type(got)

    def test_numpy_scalars_are_values_too(self, store: Store) -> None:
        store.commit(
            [
                make_row(
                    1,
                    iterations=np.int32(5),
                    rmse_J=np.float64(0.25),
                    converged_J=np.bool_(False),
                    error=np.str_("e"),
                )
            ]
        )
        (row,) = store.table(order_of([1])).to_pylist()
        assert (row["iterations"], row["rmse_J"], row["converged_J"], row["error"]) == (5, 0.25, False, "e")

    def test_text_from_outside_is_made_storable(self, store: Store) -> None:
        long = "first line\n" + "x" * 100_000 + "\nlast line"
        store.commit([failed_row(1, error="bad name \udc80", traceback=long)])
        (row,) = store.table(order_of([1])).to_pylist()
        assert row["error"] == "bad name \\udc80"
        assert row["traceback"].startswith("first line")
        assert row["traceback"].endswith("last line")
        assert f"{len(long) - LONGEST_TEXT} characters left out" in row["traceback"]
        assert len(row["traceback"]) < LONGEST_TEXT + 100

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"rmse_Q": 1.0}, "'rmse_Q'"),
            ({"seed": None}, "'seed' must have a value"),
            ({"seed": 2**63}, "'seed' needs int"),
            ({"seed": 1.5}, "'seed' needs int"),
            ({"seed": True}, "'seed' needs int"),
            ({"rmse_J": "small"}, "'rmse_J' needs float"),
            ({"rmse_J": True}, "'rmse_J' needs float"),
            ({"converged_J": 1}, "'converged_J' needs bool"),
            ({"task": 3}, "'task' needs string"),
            ({"status": "running"}, "status 'running' is none of done, failed"),
            ({"outcome": "fine"}, "outcome 'fine' is none of"),
            ({"run_id": "XYZ"}, "run_id is not 16"),
            ({"run_id": "0123456789ABCDEF"}, "not 16 lower-case hexadecimal"),
        ],
    )
    def test_rows_that_do_not_fit_are_refused_whole(self, store: Store, change: Row, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            store.commit([make_row(1), make_row(2, **change)])
        assert os.listdir(store.directory.parts) == []

    def test_no_rows_are_no_part(self, store: Store) -> None:
        with pytest.raises(ValueError, match="at least one row"):
            store.commit([])


class TestFrames:
    def test_plan_order_and_only_what_is_asked_for(self, store: Store) -> None:
        store.commit([make_row(i) for i in (5, 1, 3)])
        store.commit([make_row(i) for i in (2, 4)])
        frame = store.read_runs(order_of([4, 99, 1, 5]))
        assert list(frame["data.length"]) == [1004, 1001, 1005]
        assert list(frame.columns) == [column.name for column in COLUMNS]

    def test_types_do_not_depend_on_values(self, store: Store) -> None:
        empty = store.read_runs(order_of([1]))
        store.commit([failed_row(1)])
        store.commit(
            [make_row(2, **{"learner.rate": 0.1, "learner.max_iterations": 5, "converged_L": False})]
        )
        frames = [empty, *(store.read_runs(order_of(chosen)) for chosen in ([1], [2], [1, 2]))]
        assert [len(frame) for frame in frames] == [0, 1, 1, 2]
        for frame in frames:
            assert dict(frame.dtypes) == dict(frames[-1].dtypes)
        wanted = {"run_id": "string", "seed": "int64", "iterations": "Int64", "converged_J": "boolean"}
        wanted |= {"rmse_J": "float64", "outcome": "string", "data.length": "int64"}
        assert {name: str(frames[0].dtypes[name]) for name in wanted} == wanted

    def test_derived_tables_replace_each_other_whole(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = coupling_rows(2), coupling_rows(1)
        path = store.write_table("couplings", first)
        assert path == store.directory.path / "couplings.parquet"
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refuse)
            with pytest.raises(StoreError, match="no space left"):
                store.write_table("couplings", second)
        pd.testing.assert_frame_equal(pd.read_parquet(path), first)
        store.write_table("couplings", second)
        assert len(pd.read_parquet(path)) == 1
        for name in ("../summary", "", "runs", "other"):
            with pytest.raises(ValueError, match="no table is called"):
                store.write_table(name, first)


def refuse(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class TestSchema:
    def test_a_changed_schema_has_a_new_version(self) -> None:
        # Parts of other columns under the same version would be set aside as alien. When this fails: raise
        # SCHEMA_VERSION, let new columns be nullable, and write the new pair here.
        described = "\n".join(f"{c.name} {c.kind} {c.nullable}" for c in PART_COLUMNS)
        assert (SCHEMA_VERSION, hashlib.sha256(described.encode()).hexdigest()[:16]) == (
            12,
            "158ae7e8d56e3c37",
        )

    def test_what_may_differ_between_equal_sweeps(self) -> None:
        names = [column.name for column in COLUMNS]
        assert [name for name in names if name not in DETERMINISTIC_COLUMNS] == [
            "traceback",
            "seconds",
            "cpu_seconds",
            "host",
        ]
        assert len(set(names)) == len(names)

    def test_importing_the_store_loads_nothing_heavy(self) -> None:
        heavy = {"pandas", "ray", "numba", "scipy", "matplotlib"}
        code = f"import sys, kising.sweep.store.run_store; print({heavy} & set(sys.modules))"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == "set()"


class TestScan:
    def test_arrays_agree_with_the_rows(self, store: Store) -> None:
        assert store.scan().ids.size == 0
        store.commit([make_row(1, numerics=1), failed_row(2, numerics=2)])
        store.commit([make_row(3, numerics=3)])
        for reader in (store, reopened(store), reopened(store, writable=False)):
            scan = reader.scan()
            assert list(scan.ids) == sorted(numbers([1, 2, 3]))
            at = scan.find(order_of([1, 2, 3, 4]))
            assert at[3] == -1
            assert list(scan.failed[at[:3]]) == [False, True, False]
            assert list(scan.numerics[at[:3]]) == [1, 2, 3]
            assert (scan.rows, scan.parts, scan.damaged, scan.strays) == (3, 2, (), ())

    def test_nothing_to_read_is_no_error(self, tmp_path: Path) -> None:
        store = Store.open(SweepDirectory(tmp_path / "new"), writable=False)
        assert store.scan().parts == 0
        assert not (tmp_path / "new").exists()

    def test_strays_are_named_left_alone_and_not_read(self, store: Store, tmp_path: Path) -> None:
        part = store.commit([make_row(1)])
        parts = store.directory.parts
        shutil.copy(part, parts / "copy of part.parquet")
        shutil.copy(part, parts / part.name.replace("part-0", f"part-{2**62 + 1}"))
        elsewhere = shutil.move(store.commit([make_row(2)]), tmp_path)
        link = parts / Path(elsewhere).name
        link.symlink_to(elsewhere)
        (parts / part.name.replace("part-0", "part-1")).mkdir()
        (parts / ".tmp-1-0000000000000000").write_bytes(b"half")
        before = sorted(os.listdir(parts))
        scan = store.scan()
        assert {int(i) for i in scan.ids} == numbers([1])
        assert set(scan.strays) == set(before) - {part.name, ".tmp-1-0000000000000000"}
        assert scan.damaged == ()
        assert sorted(os.listdir(parts)) == before

    def test_an_unreadable_part_stops_with_a_line(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.commit([make_row(1)])

        def read_bytes(path: Path) -> bytes:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(StoreError, match="permission denied"):
            store.scan()
        assert len(part_names(store)) == 1


def test_tables_are_not_made_while_parts_have_vanished(store: Store) -> None:
    store.commit([make_row(1)]).unlink()
    with pytest.raises(
        StoreError, match=r"1 part with 1 row has vanished; `kising run .*` repeats their runs"
    ):
        store.check_whole()
    store.commit([make_row(2), make_row(3)]).unlink()
    with pytest.raises(StoreError, match="2 parts with 3 rows have vanished"):
        store.check_whole()


class TestWhichRowCounts:
    def test_done_beats_failed_whichever_came_first(self, store: Store) -> None:
        store.commit([make_row(1), failed_row(2)])
        store.commit([failed_row(1), make_row(2)])
        assert not store.scan().failed.any()
        assert store.table(order_of([1, 2]))["status"].to_pylist() == ["done", "done"]

    def test_done_beats_failed_only_among_rows_of_the_same_numerics(self, store: Store) -> None:
        store.commit([make_row(i, numerics=1) for i in (1, 2, 3)])
        store.commit([failed_row(1, numerics=2), failed_row(2, numerics=2), make_row(3, numerics=2)])
        store.commit([make_row(2, numerics=1), failed_row(3, numerics=2)])  # 2 is taken over from elsewhere
        scan = store.scan()
        places = scan.find(order_of([1, 2, 3]))
        assert list(scan.failed[places]) == [True, False, False]
        assert list(scan.numerics[places]) == [2, 1, 2]
        assert store.table(order_of([1, 2, 3]))["status"].to_pylist() == ["failed", "done", "done"]

    def test_of_equals_the_later_counts_though_the_clock_goes_back(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for year, error in ((2040, "first"), (2030, "second"), (1975, "third")):
            monkeypatch.setattr(time, "time_ns", lambda year=year: (year - 1970) * 31_556_952 * 10**9)
            reopened(store).commit([failed_row(1, error=error)])
        assert store.table(order_of([1]))["error"].to_pylist() == ["third"]
        store.commit([make_row(1, numerics=1)])
        store.commit([make_row(1, numerics=2)])
        assert list(store.scan().numerics) == [2]

    @settings(max_examples=25, deadline=None)
    @given(
        commits=st.lists(
            st.lists(
                st.tuples(st.integers(0, 6), st.booleans()),
                min_size=1,
                max_size=3,
                unique_by=lambda row: row[0],
            ),
            min_size=1,
            max_size=24,
        ),
        data=st.data(),
    )
    def test_any_history_with_compactions_equals_a_dictionary(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        commits: list[list[tuple[int, bool]]],
        data: st.DataObject,
    ) -> None:
        store = opened(tmp_path_factory.mktemp("sweep"))
        model: dict[int, tuple[bool, int]] = {}
        upgrades = data.draw(st.sets(st.integers(1, len(commits)), max_size=3))
        start = 0  # of this version of the numerics
        for step, commit in enumerate(commits):
            rows = []
            start = step if step in upgrades else start
            for i, done in commit:
                was_done, when = model.get(i, (False, 0))
                if done or not was_done or when < start:
                    model[i] = (done, step)
                row = make_row(i, iterations=step) if done else failed_row(i, seconds=float(step))
                rows.append({**row, "numerics": 1 + start})
            store.commit(rows)
            if data.draw(st.booleans()):
                store.compact()
            if data.draw(st.integers(0, 5)) == 0:
                store = reopened(store)
        found = {}
        for row in store.table(order_of(range(7))).to_pylist():
            done = row["status"] == "done"
            found[row["data.length"] - 1000] = (done, row["iterations"] if done else int(row["seconds"]))
        assert found == model
        assert len(part_names(store)) <= len(commits)


class Step:
    """The k-th durable step (fsync of a file or directory, rename, unlink) raises instead of happening."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, k: int, error: BaseException) -> None:
        self.count = 0
        for name in ("fsync", "replace", "unlink"):
            self._wrap(monkeypatch, name, k, error)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str, k: int, error: BaseException) -> None:
        real = getattr(os, name)

        def step(*arguments: Any, **options: Any) -> None:
            # Removing a temporary file, or the lock of a directory that is garbage, is cleaning up and not a step.
            if name == "unlink" and Path(str(arguments[0])).suffix != ".parquet":
                real(*arguments, **options)
                return
            self.count += 1
            if self.count == k:
                raise error
            real(*arguments, **options)

        monkeypatch.setattr(os, name, step)


class TestFailingCommits:
    STEPS = 4  # fsync of the file, rename, fsync of the directory, fsync of the log

    def test_number_of_steps(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.commit([make_row(0)])  # makes the log
        step = Step(monkeypatch, 0, Killed())
        store.commit([make_row(1)])
        assert step.count == self.STEPS

    @pytest.mark.parametrize("k", [1, 2, 3, 4])
    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "ro"), Killed()])
    def test_all_or_none_and_the_same_store_goes_on(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, k: int, error: BaseException
    ) -> None:
        store.commit([make_row(0)])
        with monkeypatch.context() as patch:
            Step(patch, k, error)
            with pytest.raises((StoreError, Killed)) as caught:
                store.commit([make_row(1), make_row(2)])
        assert "\n" not in str(caught.value)
        assert ids_in(reopened(store)) == numbers([0, 1, 2] if k >= 3 else [0])
        store.commit([make_row(1), make_row(2)])
        assert ids_in(store) == ids_in(reopened(store)) == numbers([0, 1, 2])
        assert store.table(order_of([2, 1]))["data.length"].to_pylist() == [1002, 1001]

    def test_a_disk_that_fills_up_while_writing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.commit([make_row(0)])
        real = os.fdopen

        class Full:
            def __init__(self, handle: Any) -> None:
                self.handle = handle

            def write(self, data: bytes) -> None:
                self.handle.write(data[:100])
                raise OSError(errno.ENOSPC, "No space left on device")

            def close(self) -> None:
                self.handle.close()

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdopen", lambda descriptor, mode: Full(real(descriptor, mode)))
            with pytest.raises(StoreError, match="no space left"):
                store.commit([make_row(1)])
        assert store.directory.temporaries() == []
        assert ids_in(reopened(store)) == numbers([0])

    @pytest.mark.parametrize("failure", ["kill", "full disk"])
    def test_compaction_at_every_step(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, failure: str
    ) -> None:
        rows = [make_row(i) for i in range(FAN_IN)] + [failed_row(0)]
        for row in rows:
            store.commit([row])
        before = store.directory.path.with_name("before")
        shutil.copytree(store.directory.parts, before)
        log = store.directory.parts_log.read_bytes()
        with monkeypatch.context() as patch:
            counter = Step(patch, 0, Killed())
            store.compact()
        assert len(part_names(store)) < FAN_IN
        assert counter.count == self.STEPS + FAN_IN + 1  # a commit, the unlinks, the fsync of the directory
        for k in range(1, counter.count + 1):
            shutil.rmtree(store.directory.parts)
            shutil.copytree(before, store.directory.parts)
            store.directory.parts_log.write_bytes(log)
            error = Killed() if failure == "kill" else OSError(errno.ENOSPC, "full")
            with monkeypatch.context() as patch:
                Step(patch, k, error)
                with pytest.raises((Killed, StoreError)):
                    reopened(store).compact()
            survivor = reopened(store)
            scan = survivor.scan()
            assert {int(i) for i in scan.ids} == numbers(range(FAN_IN))
            assert not scan.failed.any()
            assert (scan.damaged, scan.inventory.vanished) == ((), {})
            survivor.compact()
            assert ids_in(reopened(store)) == numbers(range(FAN_IN))

    def test_runs_file_stays_whole_when_the_disk_is_full(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.commit([make_row(1)])
        path = store.write_runs(order_of([1, 2]))
        before = path.read_bytes()
        store.commit([make_row(2)])
        for k in (1, 2):
            with monkeypatch.context() as patch:
                Step(patch, k, OSError(errno.ENOSPC, "full"))
                with pytest.raises(StoreError, match="no space left"):
                    store.write_runs(order_of([1, 2]))
            assert path.read_bytes() == before
        assert store.directory.temporaries() == []

    def test_a_disk_that_fills_up_under_the_parquet_writer(self, tmp_path: Path) -> None:
        code = f"""
            import resource, signal
            from pathlib import Path
            import numpy as np
            from kising.errors import StoreError
            from kising.sweep.store.directory import SweepDirectory
            from kising.sweep.store.run_store import Store
            directory = SweepDirectory.create(Path({str(tmp_path / "sweep")!r}))
            with directory.lock():
                store = Store.open(directory)
                store.commit([{make_row(1)!r}])
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
                try:
                    store.write_runs(np.array([{number(1)}], dtype=np.uint64))
                except StoreError as error:
                    print(error)
        """
        answer = run_python(code)
        assert answer.stdout.count("\n") == 1
        assert "File too large" in answer.stdout
        directory = SweepDirectory(tmp_path / "sweep")
        assert not directory.runs_file.exists()
        assert directory.temporaries() == []


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class TestTheLock:
    WRITES = (
        lambda store: store.commit([make_row(9)]),
        lambda store: store.write_runs(order_of([0])),
        lambda store: store.write_table("couplings", coupling_rows(1)),
        lambda store: store.compact(),
    )

    @pytest.mark.parametrize("write", WRITES)
    def test_nothing_is_written_without_it(self, tmp_path: Path, write: Any) -> None:
        directory = SweepDirectory.create(tmp_path / "sweep")
        with directory.lock():
            store = Store.open(directory)
            for i in range(FAN_IN):
                store.commit([make_row(i)])
        before = sorted(path.name for path in directory.path.rglob("*"))
        with pytest.raises(LockedError, match="without its lock"):
            write(Store.open(SweepDirectory(directory.path)))
        assert sorted(path.name for path in directory.path.rglob("*")) == before

    @pytest.mark.parametrize("write", WRITES)
    def test_a_driver_whose_lock_file_was_removed_writes_nothing_more(
        self, tmp_path: Path, write: Any
    ) -> None:
        directory = SweepDirectory.create(tmp_path / "sweep")
        with directory.lock():
            store = Store.open(directory)
            for i in range(FAN_IN):
                store.commit([make_row(i)])
            directory.lock_file.unlink()
            with pytest.raises(LockedError, match="removed or replaced"):
                write(store)
            with SweepDirectory(directory.path).lock("the next one"):
                with pytest.raises(LockedError, match="removed or replaced"):
                    write(store)
                holder = directory.holder()
                assert holder is not None
                assert holder.command == "the next one"
            assert len(part_names(store)) == FAN_IN

    def test_a_part_is_not_set_aside_without_it(self, tmp_path: Path) -> None:
        directory = SweepDirectory.create(tmp_path / "sweep")
        with directory.lock():
            path = Store.open(directory).commit([make_row(1)])
        path.write_bytes(b"")
        with pytest.raises(LockedError):
            Store.open(SweepDirectory(directory.path)).scan()
        assert path.exists()


class TestRealKills:
    CODE = """
        import os, signal
        from pathlib import Path
        from kising.sweep.store.directory import SweepDirectory
        from kising.sweep.store.run_store import Store
        rows = {rows!r}
        left = {k}
        def step(real):
            def wrapped(*arguments, **options):
                global left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)
            return wrapped
        directory = SweepDirectory.create(Path({path!r}))
        lock = directory.lock()
        lock.__enter__()
        store = Store.open(directory)
        for row in rows[:-1]:
            store.commit([row])
        os.fsync, os.replace, os.unlink = step(os.fsync), step(os.replace), step(os.unlink)
        store.commit(rows[-1:])
        store.compact()
    """

    @pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 9, 12, 17])
    def test_sigkill_in_commit_and_compaction(self, tmp_path: Path, k: int) -> None:
        path = tmp_path / "sweep"
        code = self.CODE.format(rows=[make_row(i) for i in range(8)], k=k, path=str(path))
        answer = run_python(code)
        assert answer.returncode == -signal.SIGKILL, answer.stderr
        directory = SweepDirectory(path)
        if k in (1, 2, 6, 7):  # 4 and 9 look for a temporary file to remove
            assert len(directory.temporaries()) == 1
        with directory.lock():
            assert directory.temporaries() == []
            store = Store.open(directory)
            assert ids_in(store) == numbers(range(8 if k > 2 else 7))
            assert (store.scan().damaged, store.scan().inventory.vanished) == ((), {})
            store.compact()
            assert ids_in(store) == numbers(range(8 if k > 2 else 7))


class TestDamage:
    def test_no_flip_or_truncation_is_read_as_data(self, store: Store) -> None:
        store.commit([make_row(0)])
        good = store.commit([make_row(i) for i in range(1, 20)])
        data = good.read_bytes()
        generator = random.Random(2015)
        for trial in range(400):
            damaged = bytearray(data)
            if trial % 4 == 3:
                del damaged[generator.randrange(len(data)) :]
            else:
                for _ in range(generator.choice((1, 1, 1, 8))):
                    damaged[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            if damaged == data:
                continue
            good.write_bytes(damaged)
            reader = reopened(store, writable=False)
            scan = reader.scan()
            assert {int(i) for i in scan.ids} == numbers([0])
            assert [part.name for part in scan.damaged] == [good.name]
            if trial % 40 == 0:
                assert reader.table(order_of(range(20))).num_rows == 1
        good.write_bytes(data)
        assert ids_in(reopened(store)) == numbers(range(20))

    @pytest.mark.parametrize("change", ["emptied", "extended", "flipped"])
    def test_a_damaged_part_is_set_aside_with_its_reason_and_its_runs_can_be_redone(
        self, store: Store, change: str
    ) -> None:
        store.commit([make_row(0)])
        part = store.commit([make_row(1)])
        data = part.read_bytes()
        damaged = {"emptied": b"", "extended": data + b"\0", "flipped": bytes([data[0] ^ 1]) + data[1:]}[
            change
        ]
        part.write_bytes(damaged)
        opened = reopened(store)
        (found,) = opened.scan().damaged
        assert found.name == part.name
        assert f"{len(damaged)} bytes" in found.reason
        assert not part.exists()
        aside = store.directory.quarantine / part.name
        assert aside.read_bytes() == damaged
        assert aside.with_name(f"{part.name}.reason.txt").read_text() == found.reason + "\n"
        assert opened.scan().damaged == ()
        opened.commit([make_row(1)])
        assert ids_in(opened) == numbers([0, 1])
        # The same part, restored and damaged once more, does not overwrite the first.
        part.write_bytes(b"other")
        assert len(reopened(store).scan().damaged) == 1
        assert aside.read_bytes() == damaged
        assert len(os.listdir(store.directory.quarantine)) == 4

    def test_a_reader_moves_nothing(self, store: Store) -> None:
        part = store.commit([make_row(1)])
        part.write_bytes(b"damaged")
        assert len(reopened(store, writable=False).scan().damaged) == 1
        assert part.exists()
        assert not store.directory.quarantine.exists()

    def test_a_quarantine_that_cannot_be_is_not_fatal(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.commit([make_row(0)])
        part = store.commit([make_row(1)])
        part.write_bytes(b"damaged")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refuse)
            opened = reopened(store)
            for _ in range(2):
                scan = opened.scan()
                assert {int(i) for i in scan.ids} == numbers([0])
                assert [found.name for found in scan.damaged] == [part.name]
        assert part.exists()

    def test_a_part_that_the_disk_cannot_read_is_damaged(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.commit([make_row(0)])
        part = store.commit([make_row(1)])
        real = Path.read_bytes

        def read_bytes(path: Path) -> bytes:
            if path.name == part.name:
                raise OSError(errno.EIO, "Input/output error")
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        scan = reopened(store).scan()
        assert {int(i) for i in scan.ids} == numbers([0])
        assert "input/output" in scan.damaged[0].reason

    def test_damage_found_while_compacting_loses_only_that_part(self, store: Store) -> None:
        paths = [store.commit([make_row(i)]) for i in range(FAN_IN + 2)]
        store.scan()
        paths[3].write_bytes(b"damaged")
        store.compact()
        assert ids_in(store) == numbers(set(range(FAN_IN + 2)) - {3})
        assert (store.directory.quarantine / paths[3].name).exists()
        assert len(part_names(store)) == 2

    def test_damage_found_between_index_and_table(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paths = [store.commit([make_row(i)]) for i in range(3)]
        real = PartFiles.read
        reads: list[str] = []

        def read(files: PartFiles, name: str) -> bytes:
            reads.append(name)
            if len(reads) == 4:
                paths[1].write_bytes(b"damaged")
            return real(files, name)

        monkeypatch.setattr(PartFiles, "read", read)
        assert store.table(order_of(range(3)))["data.length"].to_pylist() == [1000, 1002]


TAGS = {"kising.schema": str(SCHEMA_VERSION), "kising.version": "0.1.0"}


class TestAlienParts:
    def genuine(self, store: Store) -> pa.Table:
        path = store.commit([make_row(1)])
        table = pq.read_table(path).replace_schema_metadata(None)
        path.unlink()
        return table

    @pytest.mark.parametrize(
        "make",
        [
            lambda table, tags: b"",
            lambda table, tags: b"not parquet at all",
            lambda table, tags: encoded(table, {}),
            lambda table, tags: encoded(table, tags | {"kising.schema": "one"}),
            lambda table, tags: encoded(table.drop_columns(["rmse_J"]), tags),
            lambda table, tags: encoded(table.append_column("extra", pa.array([1])), tags),
            lambda table, tags: encoded(retyped(table, "seed", pa.array([7.0])), tags),
            lambda table, tags: encoded(retyped(table, "run_id", pa.array(["xyz"])), tags),
            lambda table, tags: encoded(retyped(table, "run_id", pa.array(["G" * 16])), tags),
            lambda table, tags: encoded(retyped(table, "status", pa.array(["perhaps"])), tags),
            lambda table, tags: encoded(retyped(table, "numerics", pa.array([None], pa.int64())), tags),
        ],
    )
    def test_right_checksum_wrong_contents(self, store: Store, make: Any) -> None:
        table = self.genuine(store)
        store.commit([make_row(0)])
        part = forge(store, make(table, TAGS))
        scan = store.scan()
        assert {int(i) for i in scan.ids} == numbers([0])
        assert [found.name for found in scan.damaged] == [part.name]
        assert "not a part of kising's" in scan.damaged[0].reason
        assert (store.directory.quarantine / part.name).exists()

    def test_a_part_without_a_version_says_so(self, store: Store) -> None:
        forge(store, encoded(self.genuine(store), {}))
        assert "no version of a schema" in store.scan().damaged[0].reason

    def test_genuine_contents_are_taken(self, store: Store) -> None:
        forge(store, encoded(self.genuine(store), TAGS))
        assert ids_in(store) == numbers([1])

    def test_nulls_where_there_must_be_none_are_found_when_the_column_is_read(self, store: Store) -> None:
        table = retyped(self.genuine(store), "seed", pa.array([None], pa.int64()))
        store.commit([make_row(0)])
        part = forge(store, encoded(table, TAGS))
        assert store.table(order_of([0, 1]))["data.length"].to_pylist() == [1000]
        assert (store.directory.quarantine / part.name).exists()

    def test_a_newer_schema_is_refused_by_version_and_stays(self, store: Store) -> None:
        table = self.genuine(store).append_column("novelty", pa.array([1]))
        part = forge(
            store, encoded(table, {"kising.schema": str(SCHEMA_VERSION + 1), "kising.version": "9.9"})
        )
        for reader in (store, reopened(store, writable=False)):
            with pytest.raises(
                StoreError,
                match=rf"kising 9\.9 \(schema {SCHEMA_VERSION + 1}\).*\(schema {SCHEMA_VERSION}\).*upgrade",
            ) as caught:
                reader.scan()
            assert "\n" not in str(caught.value)
        assert part.exists()

    def test_an_older_schema_reads_with_nulls(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        forge(store, encoded(self.genuine(store).drop_columns(["rmse_J"]), TAGS))
        monkeypatch.setattr(parquet, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
        store.commit([make_row(2)])
        assert store.table(order_of([1, 2]))["rmse_J"].to_pylist() == [None, 1 / 3]
        forge(store, encoded(self.genuine(store).drop_columns(["seed"]), TAGS))
        assert len(store.scan().damaged) == 1


def retyped(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


class TestCompaction:
    def test_small_histories_are_left_alone(self, store: Store) -> None:
        for i in range(FAN_IN - 1):
            store.commit([make_row(i)])
        assert store.compact() == 0
        store.commit([make_row(FAN_IN)])
        assert store.compact() == FAN_IN - 1
        assert len(part_names(store)) == 1

    def test_nothing_is_lost_and_parts_stay_few(self, store: Store) -> None:
        generator = random.Random(1)
        waiting = list(range(400))
        while waiting:
            size = generator.choice((1, 1, 2, 5, 20))
            rows, waiting = waiting[:size], waiting[size:]
            store.commit([make_row(i) if generator.random() < 0.9 else failed_row(i) for i in rows])
            store.compact()
            assert parts_to_merge(store._rows) == []
        assert ids_in(reopened(store)) == numbers(range(400))
        table = store.table(order_of(range(400)))
        assert table["data.length"].to_pylist() == [1000 + i for i in range(400)]
        assert len(part_names(store)) <= 3 * (FAN_IN - 1)

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_rewriting_is_logarithmic_and_the_number_of_parts_bounded(self, seed: int) -> None:
        generator = random.Random(seed)
        rows: dict[str, int] = {}
        total = rewritten = most = 0
        for i in range(20_000):
            size = {0: 1, 1: 50, 2: int(10 ** generator.uniform(0, 4))}[seed]
            rows[f"{i:09d}"] = size
            total += size
            while chosen := parts_to_merge(rows):
                assert 2 <= len(chosen) <= FAN_IN
                merged = sum(rows.pop(name) for name in chosen)
                assert merged < 2 * FULL_PART
                rewritten += merged
                rows[f"{i:09d}-{rewritten}"] = merged
            most = max(most, sum(count < FULL_PART for count in rows.values()))
        classes = math.ceil(math.log(FULL_PART, FAN_IN))
        assert sum(rows.values()) == total
        assert rewritten <= classes * total
        assert most <= classes * (FAN_IN - 1)
        assert len(rows) <= classes * (FAN_IN - 1) + total // FULL_PART

    def test_merging_drops_the_rows_that_do_not_count(self, store: Store) -> None:
        for i in range(FAN_IN):
            store.commit([failed_row(1, error=str(i)), make_row(2, iterations=i)])
        assert store.scan().rows == 2 * FAN_IN
        store.compact()
        assert store.scan().rows == 2
        (first, second) = store.table(order_of([1, 2])).to_pylist()
        assert (first["error"], second["iterations"]) == (str(FAN_IN - 1), FAN_IN - 1)

    def test_parts_that_vanish_are_noticed(self, store: Store) -> None:
        paths = [store.commit([make_row(i)]) for i in range(FAN_IN)]
        store.scan()
        paths[0].unlink()
        assert store.compact() == 1
        assert ids_in(store) == numbers(range(1, FAN_IN))

    def test_a_merged_part_that_reads_back_differently_costs_nothing(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for i in range(FAN_IN):
            store.commit([make_row(i)])
        store.scan()
        real = PartFiles.publish

        def publish(files: PartFiles, data: Any, stamp: int) -> Path:
            path = real(files, data, stamp)
            path.write_bytes(bytes(data)[:-1])
            return path

        monkeypatch.setattr(PartFiles, "publish", publish)
        with pytest.raises(StoreError, match="other bytes than were written"):
            store.compact()
        assert ids_in(reopened(store)) == numbers(range(FAN_IN))

    def test_readers_beside_a_compacting_driver_miss_nothing(self, store: Store) -> None:
        count = 60
        committed = 0

        def drive() -> None:
            nonlocal committed
            for i in range(count):
                store.commit([make_row(i)])
                committed = i + 1
                store.compact()

        driver = threading.Thread(target=drive)
        driver.start()
        looks = 0
        while driver.is_alive():
            least = committed
            reader = reopened(store, writable=False)
            scan = reader.scan()
            assert scan.ids.size >= least
            assert scan.damaged == ()
            assert reader.table(order_of(range(count))).num_rows >= least
            looks += 1
        driver.join()
        assert looks > 2
        assert ids_in(store) == numbers(range(count))

    def test_a_reader_does_not_trust_a_listing_torn_by_a_compaction(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.commit([make_row(1)])
        real = PartFiles.list
        torn = [Listing([], [])]
        monkeypatch.setattr(PartFiles, "list", lambda files: torn.pop() if torn else real(files))
        assert ids_in(reopened(store, writable=False)) == numbers([1])


class TestRunsFile:
    def history(self, tmp_path: Path, name: str, seed: int) -> Store:
        """Commit the same rows in an order, in parts, with duplicates and compactions by the seed."""
        store = opened(tmp_path / name)
        generator = random.Random(seed)
        waiting = list(range(100))
        generator.shuffle(waiting)
        while waiting:
            size = generator.randint(1, 30)
            chunk, waiting = waiting[:size], waiting[size:]
            odd = {i: ODD_FLOATS[i % len(ODD_FLOATS)] for i in chunk}
            store.commit([failed_row(i) for i in chunk if generator.random() < 0.2] or [failed_row(chunk[0])])
            store.commit([make_row(i, rmse_K=odd[i], error="e" * (i % 7)) for i in chunk])
            if generator.random() < 0.5:
                store.compact()
        return store

    @pytest.mark.parametrize("block", [7, 65_536])
    def test_bytes_depend_on_the_rows_and_the_order_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
    ) -> None:
        monkeypatch.setattr(run_store, "BLOCK", block)
        order = order_of([*range(50, 100), 200, *range(50)])
        files = [self.history(tmp_path, f"s{seed}", seed).write_runs(order).read_bytes() for seed in range(4)]
        assert len(set(files)) == 1
        table = pq.read_table(io.BytesIO(files[0]))
        assert table["data.length"].to_pylist() == [*range(1050, 1100), *range(1000, 1050)]
        assert table.column_names == [column.name for column in COLUMNS]

    def test_currency(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run_store, "BLOCK", 4)
        order = order_of(range(10))
        assert not store.runs_file_is_current(order)
        store.commit([make_row(i, rmse_J=ODD_FLOATS[i % 5]) for i in range(8)])
        store.write_runs(order)
        assert store.runs_file_is_current(order)
        assert not store.runs_file_is_current(order[::-1])
        assert not store.runs_file_is_current(order[:4])
        store.commit([make_row(8)])
        assert not store.runs_file_is_current(order)
        store.write_runs(order)
        assert store.runs_file_is_current(order)
        store.commit([make_row(8, rmse_J=0.5)])
        assert not store.runs_file_is_current(order)

    def test_a_damaged_runs_file_is_not_current(self, store: Store) -> None:
        order = order_of(range(10))
        store.commit([make_row(i) for i in range(10)])
        path = store.write_runs(order)
        data = path.read_bytes()
        good = pq.read_table(path)
        generator = random.Random(3)
        noticed = 0
        for trial in range(200):
            damaged = bytearray(data)
            damaged[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            if trial % 4 == 0:
                del damaged[generator.randrange(len(data)) :]
            path.write_bytes(damaged)
            if store.runs_file_is_current(order):
                assert pq.read_table(path).equals(good)
            else:
                noticed += 1
        assert noticed > 100


def test_parameters_are_those_of_a_point(tmp_path: Path) -> None:
    from kising.sweep.plan import Plan
    from kising.sweep.spec import parse_spec

    kinds = {str: "string", int: "int", float: "float", bool: "bool"}
    sweep = {
        "name": "n",
        "seed": 1,
        "model": {"visible": 3, "hidden": 1, "strength": 1},
        "data": {"length": 1e3},
    }
    estimators = {
        "learner.estimator": ["exact", "gibbs", "bp", "tap", "mean-field"],
        "learner.estep.damping": ["adaptive", 0.5],
    }
    seen: dict[str, set[str]] = {}
    by_gradient = {"learner.estimator": ["exact", "bp"], "learner.step": ["gradient"]}
    np.savez(tmp_path / "spins.npz", spins=random_spins(40, 3))
    step, unit = np.nonzero(random_spins(40, 3) > 0)
    np.savetxt(
        tmp_path / "times.csv", np.c_[unit, step + 0.5], delimiter=";", header="unit;time", comments=""
    )
    (tmp_path / "trials.csv").write_text("start,stop\n0,20\n20,40\n")
    np.savetxt(tmp_path / "inputs.csv", np.arange(40.0))
    paths = {"file": "times.csv", "trials": "trials.csv", "covariates": "inputs.csv"}
    recorded = {"model": {"hidden": 1}, "data": {"file": str(tmp_path / "spins.npz"), "key": "spins"}}
    binned = {
        "model": {"hidden": 1},
        "data": {"bin": "1s", "delimiter": ";", **{k: str(tmp_path / v) for k, v in paths.items()}},
    }
    for task, axes, more in (
        ("learn", estimators, {}),
        ("learn", by_gradient, {"learner": {"max_iterations": 7}}),
        ("infer", estimators, {}),
        ("learn", {}, recorded),
        ("learn", {}, binned),
    ):
        for point in Plan.of(parse_spec({**sweep, "task": task, "axes": axes, **more})).points:
            values = point.values()
            assert set(values) == {column.name for column in PARAMETERS}
            for name, value in values.items():
                seen.setdefault(name, set()).add("null" if value is None else kinds[type(value)])
    for column in PARAMETERS:
        allowed = {column.kind} | ({"null"} if column.nullable else set())
        assert seen[column.name] <= allowed, column.name
        assert column.kind in seen[column.name]


def test_modes_follow_the_umask(store: Store) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(store.commit([make_row(1)]).stat().st_mode) == 0o666 & ~mask
