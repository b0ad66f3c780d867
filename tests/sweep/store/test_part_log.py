"""The log of parts: a missing part is noticed, and no damage to the log loses a row."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.part_rows import failed_row, ids_in, make_row, numbers, order_of

from kising.errors import StoreError
from kising.sweep.store import part_log
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.inventory import take_inventory
from kising.sweep.store.part_log import Entry, PartLog, view
from kising.sweep.store.parts import FAN_IN, LAST_NUMBER, PartFiles, checksum, number_of
from kising.sweep.store.run_store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    directory = SweepDirectory.create(tmp_path / "sweep")
    with directory.lock():
        yield Store.open(directory)


def reopened(store: Store) -> Store:
    return Store.open(store.directory)


def names(store: Store) -> set[str]:
    return set(os.listdir(store.directory.parts))


def logged(store: Store) -> set[str]:
    return set(view(store.directory.parts_log.read_bytes()).rows)


def test_the_log_holds_the_parts_that_are_there(store: Store) -> None:
    for i in range(3 * FAN_IN):
        store.commit([make_row(i)])
        store.compact()
        assert logged(store) == names(store)
    found = take_inventory(store.directory)
    assert (found.log.state, found.vanished, found.unlogged) == ("whole", {}, ())


def test_a_part_that_vanishes_is_known_once_and_its_rows_are_missing(store: Store) -> None:
    store.commit([make_row(0)])
    gone = store.commit([make_row(1), make_row(2)])
    gone.unlink()
    assert take_inventory(store.directory).vanished == {gone.name: 2}
    scan = reopened(store).scan()
    assert scan.inventory.vanished == {gone.name: 2}
    assert {int(i) for i in scan.ids} == numbers([0])
    # The driver knows now: its runs are repeated.
    assert reopened(store).scan().inventory.vanished == {}


def test_all_parts_vanish(store: Store) -> None:
    store.commit([make_row(0)])
    store.commit([make_row(1)])
    shutil.rmtree(store.directory.parts)
    assert sum(take_inventory(store.directory).vanished.values()) == 2


def test_a_part_that_became_a_link_has_vanished(store: Store, tmp_path: Path) -> None:
    part = store.commit([make_row(0)])
    shutil.move(part, tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    assert take_inventory(store.directory).vanished == {part.name: 1}


def test_a_part_that_was_set_aside_has_not_vanished(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit([make_row(0)])
    part = store.commit([make_row(1)])
    part.write_bytes(b"damaged")

    def refuse(*arguments: Any, **options: Any) -> bool:
        raise StoreError("full")

    with monkeypatch.context() as patch:
        patch.setattr(part_log, "append", refuse)  # a full disk has room for a rename
        scan = reopened(store).scan()
    assert [found.name for found in scan.damaged] == [part.name]
    assert part.name in logged(store)
    assert take_inventory(store.directory).vanished == {}


def test_a_directory_of_an_older_version_gets_a_log(store: Store) -> None:
    parts = PartFiles(store.directory)
    new = store.commit([make_row(0)])
    old = f"part-20260131T235959999999Z-0011aabb-{checksum(new.read_bytes())}.parquet"
    new.rename(parts.folder / old)
    store.directory.parts_log.unlink()
    found = take_inventory(store.directory)
    assert (found.log.state, found.log_was_lost, found.vanished) == ("missing", False, {})
    later = reopened(store)
    assert {int(i) for i in later.scan().ids} == numbers([0])
    assert logged(store) == {old}
    # Numbers go on from the time of the old part: the later row counts.
    path = later.commit([make_row(0, iterations=77)])
    assert number_of(path.name) == (number_of(old) or 0) + 1
    assert later.table(order_of([0]))["iterations"].to_pylist() == [77]


@pytest.mark.parametrize("stamp", ["29991231T235959999999Z", "99991231T235959999999Z"])
def test_no_time_in_an_old_name_hides_later_parts(store: Store, stamp: str) -> None:
    new = store.commit([failed_row(0)])
    old = new.with_name(f"part-{stamp}-0011aabb-{checksum(new.read_bytes())}.parquet")
    new.rename(old)
    for i in range(FAN_IN + 2):
        later = reopened(store)
        later.commit([failed_row(0, error=str(i)), make_row(i + 1)])
        later.compact()
    assert ids_in(reopened(store)) == numbers(range(FAN_IN + 3))
    assert store.table(order_of([0]))["error"].to_pylist() == [str(FAN_IN + 1)]


def test_the_clock_plays_no_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1 / 0)
    monkeypatch.setattr("time.time_ns", lambda: 1 / 0)
    paths = [store.commit([failed_row(0, error=str(i))]) for i in range(3)]
    assert [number_of(path.name) for path in paths] == [1, 2, 3]
    assert store.table(order_of([0]))["error"].to_pylist() == ["2"]


def test_a_number_is_not_used_again_after_its_part_has_vanished(store: Store) -> None:
    store.commit([failed_row(0, error="first")])
    store.commit([failed_row(0, error="second")]).unlink()
    assert number_of(reopened(store).commit([make_row(1)]).name) == 3


def test_the_last_number_is_said(store: Store) -> None:
    part = store.commit([make_row(0)])
    part.rename(part.with_name(part.name.replace("part-000000000001", f"part-{LAST_NUMBER}")))
    with pytest.raises(StoreError, match="no number is left"):
        reopened(store).commit([make_row(1)])


def test_a_row_that_claims_to_be_newer_than_its_part_is_forged(store: Store) -> None:
    store.commit([make_row(0)])
    part = store.commit([make_row(1)])
    part.rename(part.with_name(part.name.replace("part-000000000002", "part-000000000001")))
    scan = reopened(store).scan()
    assert {int(i) for i in scan.ids} == numbers([0])
    assert "newer than the part itself" in scan.damaged[0].reason


DAMAGE = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 10_000), st.integers(0, 7)),
    st.tuples(st.just("cut"), st.integers(0, 10_000), st.just(0)),
    st.tuples(st.just("add"), st.integers(0, 10_000), st.integers(0, 255)),
    st.tuples(st.just("drop line"), st.integers(0, 100), st.just(0)),
    st.tuples(st.just("remove"), st.just(0), st.just(0)),
    st.tuples(st.just("binary"), st.integers(0, 10_000), st.integers(0, 255)),
)


@given(damage=DAMAGE, vanishes=st.booleans())
@pytest.mark.slow
def test_no_damage_to_the_log_loses_a_row_or_goes_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, damage: tuple[str, int, int], vanishes: bool
) -> None:
    directory = SweepDirectory.create(tmp_path_factory.mktemp("sweep"))
    with directory.lock():
        store = Store.open(directory)
        paths = [store.commit([make_row(i)]) for i in range(FAN_IN + 3)]
        store.compact()
        good = directory.parts_log.read_bytes()
        bad = damaged(good, *damage)
        if bad is None:
            directory.parts_log.unlink()
        else:
            directory.parts_log.write_bytes(bad)
        if vanishes:
            paths[-1].unlink()
        found = take_inventory(directory)
        # Any damage shows: as damage, or in a part that is not in the log or not in parts/. Only a cut between two
        # lines whose parts are gone by now does not.
        noticed = found.log.state != "whole" or bool(found.unlogged or found.vanished)
        if bad != good and damage[0] != "cut":
            assert noticed
        later = Store.open(directory)
        assert ids_in(later) == numbers(range(FAN_IN + 2 if vanishes else FAN_IN + 3))
        later.commit([make_row(100)])
        after = take_inventory(directory)
        assert (after.log.state, after.vanished, after.unlogged) == ("whole", {}, ())


def damaged(data: bytes, kind: str, place: int, value: int) -> bytes | None:
    bad = bytearray(data)
    match kind:
        case "flip":
            bad[place % len(bad)] ^= 1 << value
        case "cut":
            del bad[place % len(bad) :]
        case "add":
            bad.insert(place % len(bad), value)
        case "drop line":
            lines = data.splitlines(keepends=True)
            del lines[place % len(lines)]
            return b"".join(lines)
        case "binary":
            bad[place % len(bad) :] = bytes([value]) * 300
        case "remove":
            return None
    return bytes(bad)


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = PartLog(path)
    log.note([Entry("commit", "a", 1)])
    log.note([Entry("commit", "b", 2)])
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 2, len(whole)):
        path.write_bytes(whole[:cut])
        again = PartLog(path)
        assert (again.view().state, dict(again.view().rows)) == ("torn", {"a": 1})
        again.note([Entry("commit", "c", 3)])
        assert (view(path.read_bytes()).state, dict(view(path.read_bytes()).rows)) == (
            "whole",
            {"a": 1, "c": 3},
        )


def test_what_a_full_disk_refused_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = PartLog(path)
    log.note([Entry("commit", "a", 1)])
    before = path.read_bytes()
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        real(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(StoreError, match="no space left"):
            log.note([Entry("commit", "b", 2)])
    assert path.read_bytes() == before
    log.note([Entry("commit", "c", 3)])
    assert dict(view(path.read_bytes()).rows) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("change", ["removed", "longer", "link", "pipe"])
def test_a_log_changed_by_somebody_else_is_written_anew(tmp_path: Path, change: str) -> None:
    path = tmp_path / "log"
    log = PartLog(path)
    log.note([Entry("commit", "a", 1)])
    if change == "longer":
        path.write_bytes(path.read_bytes() + b"x")
    else:
        path.unlink()
    if change == "link":
        (tmp_path / "precious").write_bytes(b"precious")
        path.symlink_to(tmp_path / "precious")
    if change == "pipe":
        os.mkfifo(path)
    log.note([Entry("commit", "b", 2)])
    assert dict(view(path.read_bytes()).rows) == {"a": 1, "b": 2}
    if change == "link":
        assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_long_log_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_log, "LONGEST", 10)
    path = tmp_path / "log"
    log = PartLog(path)
    for i in range(40):
        log.note([Entry("commit", f"p{i}", 1), *([Entry("merged", f"p{i - 1}", 1)] if i else [])])
        found = view(path.read_bytes())
        assert (dict(found.rows), found.state) == ({f"p{i}": 1}, "whole")
        assert found.lines <= 12
