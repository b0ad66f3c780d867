"""A sweep with a mirror: another machine can resume from it, and a mirror that does not answer costs nothing."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.judging import count_wrong
from support.part_rows import ids_in, make_row, numbers
from support.s3_server import S3Server

from kising import run_sweep
from kising.errors import InputError, LockedError, ShrinkError, StoreError
from kising.sweep.execute.protocol import Saved
from kising.sweep.store.checkpoints import Checkpoints
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.inventory import take_inventory
from kising.sweep.store.mirror import copying
from kising.sweep.store.mirror.copying import Mirror, mirrored
from kising.sweep.store.mirror.places import Place, UnreachableError, open_place
from kising.sweep.store.parts import FAN_IN, PartFiles
from kising.sweep.store.run_store import Store

SWEEP = {
    "name": "tiny",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 5, "hidden": 2},
    "learner": {"estimator": "exact", "max_iterations": 4},
    "axes": {"data.length": [100, 200]},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(copying, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(copying, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(copying, "LAST_SECONDS", 1.0)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return run_sweep(SWEEP, out=tmp_path_factory.mktemp("reference") / "tiny", in_process=True).runs


class Flaky:
    """A place that can be silent, from the first request for a certain file on if need be."""

    def __init__(self, place: Place, until: str | None = None) -> None:
        self._place = place
        self._until = until
        self.silent = False
        self.asked = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            self.asked += 1
            self.silent |= (name, *arguments) == ("get", self._until)
            if self.silent:
                raise UnreachableError("no route to host")
            return getattr(self._place, name)(*arguments)

        return ask


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[SweepDirectory]:
    found = SweepDirectory.create(tmp_path / "here")
    with found.lock():
        yield found


def elsewhere(tmp_path: Path) -> SweepDirectory:
    """The directory of another machine."""
    shutil.rmtree(tmp_path / "there", ignore_errors=True)
    return SweepDirectory.create(tmp_path / "there")


def say(line: str) -> None: ...


def fetched(url: str, tmp_path: Path) -> SweepDirectory:
    """What another machine gets."""
    there = elsewhere(tmp_path)
    with there.lock(), mirrored(url, there, "tiny", say):
        pass
    return there


def test_another_machine_goes_on(url: str, tmp_path: Path, reference: pd.DataFrame) -> None:
    first = run_sweep(SWEEP, out=tmp_path / "here", in_process=True, mirror=url)
    assert count_wrong(first.runs, reference) == 0
    again = run_sweep(SWEEP, out=tmp_path / "there", in_process=True, mirror=url)
    assert again.outcome.batches == 0
    assert count_wrong(again.runs, reference) == 0
    names = ("runs.parquet", "summary.parquet", "scaling.parquet")
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    place = open_place(url)
    assert {*names, "sweep.yaml", "manifest.json", "parts.log"} <= place.list("")
    assert place.get("lease.json") is None


def test_a_half_done_sweep_goes_on_elsewhere(url: str, tmp_path: Path, reference: pd.DataFrame) -> None:
    half = {**SWEEP, "axes": {"data.length": [100]}}
    run_sweep(half, out=tmp_path / "here", in_process=True, mirror=url)
    done = run_sweep(SWEEP, out=tmp_path / "there", in_process=True, mirror=url)
    assert done.outcome.done == 2
    assert count_wrong(done.runs, reference) == 0


def test_a_sweep_that_was_shrunk_goes_on_elsewhere(tmp_path: Path, reference: pd.DataFrame) -> None:
    """The runs that it dropped are still in the mirror. The mirror's sweep.yaml tells that they were dropped."""
    url = str(tmp_path / "mirror")
    half = {**SWEEP, "axes": {"data.length": [100]}}
    run_sweep(SWEEP, out=tmp_path / "here", in_process=True, mirror=url)
    run_sweep(half, out=tmp_path / "here", in_process=True, mirror=url, shrink=True)
    manifest = SweepDirectory(tmp_path / "here").read_manifest()
    older = manifest.model_copy(update={"created": "2015-07-01 12:00:00 UTC"})
    older.write(tmp_path / "mirror" / "manifest.json", durable=False)
    there = tmp_path / "there"
    with pytest.raises(ShrinkError, match="1 finished run there would leave the tables"):
        run_sweep({**half, "realizations": 1}, out=there, in_process=True, mirror=url)
    again = run_sweep(half, out=there, in_process=True, mirror=url)
    assert (again.outcome.batches, len(again.runs)) == (0, 2)
    assert count_wrong(again.runs, reference[reference["data.length"] == 100]) == 0
    assert SweepDirectory(there).read_manifest().created == older.created


def test_a_sweep_file_that_is_here_is_not_replaced(tmp_path: Path, directory: SweepDirectory) -> None:
    url = str(tmp_path / "mirror")
    directory.write_sweep("name: tiny")
    with mirrored(url, directory, "tiny", say):
        pass
    there = elsewhere(tmp_path)
    with there.lock():
        there.write_sweep("name: mine")
        Mirror(url, open_place(url), there, "tiny", say)._fetch()
    assert there.sweep_file.read_text() == "name: mine"


def test_merges_and_removals_reach_the_mirror(url: str, tmp_path: Path, directory: SweepDirectory) -> None:
    with mirrored(url, directory, "tiny", say):
        store = Store.open(directory)
        for i in range(3 * FAN_IN + 2):
            store.commit([make_row(i)])
            store.compact()
    assert open_place(url).list("parts") == {path.name for path in directory.parts.iterdir()}
    there = fetched(url, tmp_path)
    found = take_inventory(there)
    assert (found.log.state, found.vanished, found.unlogged) == ("whole", {}, ())
    with there.lock():
        assert ids_in(Store.open(there)) == numbers(range(3 * FAN_IN + 2))


def test_the_mirror_is_right_at_every_moment(tmp_path: Path, directory: SweepDirectory) -> None:
    """Whatever its last write was, another machine finds what was committed before, and nothing that vanished."""
    url = str(tmp_path / "mirror")
    states: list[tuple[Path, int]] = []
    real = open_place(url)
    committed = 0

    class Recorded:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def ask(*arguments: Any) -> Any:
                answer = getattr(real, name)(*arguments)
                if name in ("put", "remove") and not arguments[0].startswith("lease"):
                    states.append((shutil.copytree(url, tmp_path / f"state-{len(states)}"), committed))
                return answer

            return ask

    mirror = Mirror(url, Recorded(), directory, "tiny", say)
    mirror._connect()
    store = Store.open(directory)
    for i in range(2 * FAN_IN + 1):
        store.commit([make_row(i)])
        store.compact()
        if i % 3 == 0 or i > FAN_IN:
            mirror._copy()
            committed = i + 1
    assert len(states) > 2 * FAN_IN
    for state, least in states:
        (state / "lease.json").unlink()
        there = fetched(str(state), tmp_path)
        assert take_inventory(there).vanished == {}
        with there.lock():
            assert ids_in(Store.open(there)) >= numbers(range(least))


def test_a_log_tells_of_no_part_that_the_mirror_lacks(
    tmp_path: Path, directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are merged after the log was read, and before the parts are listed, never reach the mirror."""
    url = str(tmp_path / "mirror")
    mirror = Mirror(url, open_place(url), directory, "tiny", say)
    mirror._connect()
    store = Store.open(directory)
    for i in range(FAN_IN):
        store.commit([make_row(i)])
    real = PartFiles.list
    with monkeypatch.context() as patch:
        patch.setattr(mirror._files, "list", lambda: (store.compact(), real(mirror._files))[1])
        mirror._copy()
    mirror._lease.release()
    there = fetched(url, tmp_path)
    assert take_inventory(there).vanished == {}
    with there.lock():
        assert ids_in(Store.open(there)) == numbers(range(FAN_IN))


def test_checkpoints_travel(url: str, tmp_path: Path, directory: SweepDirectory) -> None:
    states = Checkpoints(directory, numerics=1)
    with mirrored(url, directory, "tiny", say):
        for run_id, state in (("0" * 16, b"first"), ("1" * 16, b"other"), ("0" * 16, b"second")):
            states.put(run_id, Saved(state, 1.0, 0.5))
        states.drop(["1" * 16])
    found = Checkpoints(fetched(url, tmp_path), numerics=1)
    assert found.run_ids == {"0" * 16}
    assert found.get("0" * 16) == Saved(b"second", 1.0, 0.5)
    with mirrored(url, directory, "tiny", say):
        states.drop(["0" * 16])
    assert open_place(url).list("checkpoints") == set()


def test_a_mirror_that_falls_silent_is_caught_up(url: str, tmp_path: Path, directory: SweepDirectory) -> None:
    said: list[str] = []
    place = Flaky(open_place(url))
    mirror = Mirror(url, place, directory, "tiny", said.append)
    mirror.start()
    store = Store.open(directory)
    store.commit([make_row(0)])
    place.silent = True
    for i in range(1, 2 * FAN_IN):
        store.commit([make_row(i)])
        store.compact()
    wait_for(lambda: any("does not answer: no route to host" in line for line in said))
    place.silent = False
    wait_for(lambda: any("answers again" in line for line in said))
    store.commit([make_row(99)])
    mirror.close()
    assert len(said) == 2
    there = fetched(url, tmp_path)
    with there.lock():
        assert ids_in(Store.open(there)) == numbers([*range(2 * FAN_IN), 99])


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError


def test_a_mirror_that_stays_silent_is_said_at_the_end(tmp_path: Path, directory: SweepDirectory) -> None:
    url = str(tmp_path / "mirror")
    place = Flaky(open_place(url))
    mirror = Mirror(url, place, directory, "tiny", say)
    mirror.start()
    place.silent = True
    Store.open(directory).commit([make_row(0)])
    with pytest.raises(StoreError, match=r"is not complete: no route to host; the results in .* are"):
        mirror.close()
    place.silent = False
    mirror._lease.release()
    with mirrored(url, directory, "tiny", say):  # the same command copies them
        pass
    assert len(open_place(url).list("parts")) == 1


def test_a_mirror_that_is_silent_from_the_start(tmp_path: Path, directory: SweepDirectory) -> None:
    url = str(tmp_path / "mirror")
    place = Flaky(open_place(url))
    place.silent = True
    with pytest.raises(StoreError, match=r"may hold what .* lacks: no route to host"):
        Mirror(url, place, directory, "tiny", say).start()
    Store.open(directory).commit([make_row(0)])
    mirror = Mirror(url, place, directory, "tiny", say)
    mirror.start()  # with results here, the sweep goes on
    place.silent = False
    mirror.close()
    assert len(open_place(url).list("parts")) == 1


@pytest.mark.parametrize("at", ["second part", "sweep", "checkpoint"])
def test_a_mirror_that_drops_out_while_it_is_fetched(
    tmp_path: Path, directory: SweepDirectory, at: str
) -> None:
    """What came before is no reason to go on: the rest would be run again, and its checkpoints removed."""
    url = str(tmp_path / "mirror")
    with mirrored(url, directory, "tiny", say):
        parts = sorted(Store.open(directory).commit([make_row(i)]).name for i in range(3))
        directory.write_sweep("name: tiny")
        directory.write_sweep("name: tiny")
        Checkpoints(directory, numerics=1).put("0" * 16, Saved(b"state", 1.0, 0.5))
    state = next(directory.checkpoints.glob("*.state")).name
    key = {"second part": f"parts/{parts[1]}", "sweep": "sweep.yaml", "checkpoint": f"checkpoints/{state}"}[
        at
    ]
    there = elsewhere(tmp_path)
    with there.lock():
        place = Flaky(open_place(url), until=key)
        mirror = Mirror(url, place, there, "tiny", say)
        with pytest.raises(StoreError, match=r"may hold what .* lacks: no route to host"):
            mirror.start()
        assert PartFiles(there).list().parts
        with pytest.raises(StoreError, match="may hold what"):  # the second attempt finds some parts here
            Mirror(url, place, there, "tiny", say).start()
        place.silent = False
        mirror._lease.release()
        with mirrored(url, there, "tiny", say):
            assert ids_in(Store.open(there)) == numbers(range(3))
        assert Checkpoints(there, numerics=1).run_ids == {"0" * 16}
    assert take_inventory(there).log.state == "whole"


@pytest.mark.slow
def test_a_mirror_that_comes_back_empty_gets_everything_again(
    tmp_path: Path, directory: SweepDirectory
) -> None:
    url = str(tmp_path / "mirror")
    place = Flaky(open_place(url))
    said: list[str] = []
    mirror = Mirror(url, place, directory, "tiny", said.append)
    mirror.start()
    store = Store.open(directory)
    store.commit([make_row(0)])
    wait_for(lambda: len(open_place(url).list("parts")) == 1)
    place.silent = True
    wait_for(lambda: bool(said))
    shutil.rmtree(url)
    place.silent = False
    store.commit([make_row(1)])
    mirror.close()
    there = fetched(url, tmp_path)
    with there.lock():
        assert ids_in(Store.open(there)) == numbers([0, 1])


def test_a_second_driver_is_refused(
    url: str, tmp_path: Path, directory: SweepDirectory, monkeypatch: Any
) -> None:
    monkeypatch.setattr("kising.sweep.store.mirror.lease.RENEW_SECONDS", 0.5)
    first = Mirror(url, open_place(url), directory, "tiny", say)
    first.start()
    there = elsewhere(tmp_path)
    with there.lock(), pytest.raises(LockedError, match="the mirror is in use"):
        Mirror(url, open_place(url), there, "tiny", say).start()
    first.close()


def test_a_driver_that_lost_its_mirror_stops(tmp_path: Path, directory: SweepDirectory) -> None:
    url = str(tmp_path / "mirror")
    mirror = Mirror(url, open_place(url), directory, "tiny", say)
    mirror._lease._seconds = 0.1
    mirror.start()
    mirror()
    open_place(url).put("lease.json", b'{"holder": "other", "host": "elsewhere", "pid": 7}')
    wait_for(lambda: mirror._lost is not None)
    with pytest.raises(LockedError, match="taken over by pid 7 on elsewhere"):
        mirror()
    mirror.abandon()


def test_a_mirror_of_another_sweep_is_refused(url: str, tmp_path: Path, directory: SweepDirectory) -> None:
    with mirrored(url, directory, "tiny", say):
        pass
    with pytest.raises(InputError, match="not of the sweep 'huge'"):
        Mirror(url, open_place(url), directory, "huge", say).start()


@pytest.mark.parametrize("name", ["sweep.yaml", "parts.log", "manifest.json", "tables.json", "runs.parquet"])
def test_files_of_others_are_not_replaced(url: str, directory: SweepDirectory, name: str) -> None:
    """Somebody gives the directory of another sweep as a mirror."""
    place = open_place(url)
    place.put(name, b"mine")
    with pytest.raises(InputError, match=f"there is a {name} and no kising-mirror.json"):
        Mirror(url, place, directory, "tiny", say).start()
    assert place.list("") == {name}
    assert (place.get(name) or [None])[0] == b"mine"


def test_a_place_with_other_files_is_taken(url: str, tmp_path: Path, directory: SweepDirectory) -> None:
    open_place(url).put("notes.txt", b"mine")
    with mirrored(url, directory, "tiny", say):
        Store.open(directory).commit([make_row(0)])
    assert {"notes.txt", "parts.log"} <= open_place(url).list("")


@pytest.mark.parametrize("where", ["here", "here/mirror", "here/parts", ".", "link", "here/../here"])
def test_a_mirror_is_not_in_what_it_mirrors(tmp_path: Path, directory: SweepDirectory, where: str) -> None:
    (tmp_path / "link").symlink_to(directory.path)
    before = sorted(tmp_path.rglob("*"))
    with (
        pytest.raises(InputError, match="cannot be one inside the other"),
        mirrored(str(tmp_path / where), directory, "tiny", say),
    ):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_copy_is_not_fetched(tmp_path: Path, directory: SweepDirectory) -> None:
    url = tmp_path / "mirror"
    with mirrored(str(url), directory, "tiny", say):
        store = Store.open(directory)
        store.commit([make_row(0)])
        part = store.commit([make_row(1)])
    (url / "parts" / part.name).write_bytes(b"damaged")
    (url / "parts" / "../../evil").resolve().touch()
    (url / "parts" / "notes.txt").touch()
    said: list[str] = []
    there = elsewhere(tmp_path)
    with there.lock(), mirrored(str(url), there, "tiny", said.append):
        scan = Store.open(there).scan()
        assert {int(i) for i in scan.ids} == numbers([0])
        assert list(scan.inventory.vanished) == [part.name]
    assert any("its runs are run again" in line for line in said)


def test_a_part_that_vanished_here_is_fetched(url: str, tmp_path: Path, directory: SweepDirectory) -> None:
    with mirrored(url, directory, "tiny", say):
        part = Store.open(directory).commit([make_row(0)])
    part.unlink()
    with mirrored(url, directory, "tiny", say):
        scan = Store.open(directory).scan()
    assert scan.inventory.vanished == {}
    assert np.array_equal(scan.ids, np.array(sorted(numbers([0])), dtype=np.uint64))


def test_a_server_that_is_stopped_and_killed(
    server: S3Server, bucket: str, tmp_path: Path, directory: SweepDirectory
) -> None:
    """A server that keeps nothing: after its death it comes back empty, and gets everything again."""
    said: list[str] = []
    with mirrored(bucket, directory, "tiny", said.append):
        store = Store.open(directory)
        store.commit([make_row(0)])
        server.kill()
        store.commit([make_row(1)])
        wait_for(lambda: any("does not answer" in line for line in said))
        server.start()
        wait_for(lambda: any("answers again" in line for line in said))
        store.commit([make_row(2)])
    there = fetched(bucket, tmp_path)
    with there.lock():
        assert ids_in(Store.open(there)) == numbers(range(3))
