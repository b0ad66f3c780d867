"""One driver per mirror."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from kising.errors import LockedError
from kising.sweep.store.mirror.lease import KEY, Lease
from kising.sweep.store.mirror.places import Place, open_place


def lease(place: Place, seconds: float = 60.0) -> Lease:
    return Lease(place, seconds=seconds, say=lambda line: None)


def held_by(place: Place) -> dict[str, object]:
    found = place.get(KEY)
    assert found is not None
    about: dict[str, object] = json.loads(found[0])
    return about


def left_behind(place: Place, **changes: object) -> None:
    """The lease of a driver that is gone."""
    about = {"holder": "somebody", "host": "elsewhere", "pid": 1, "beat": 3, **changes}
    place.create(KEY, json.dumps(about).encode())


def test_taken_renewed_and_given_back(url: str) -> None:
    place = open_place(url)
    ours = lease(place, seconds=0.0)
    ours.take()
    assert held_by(place)["pid"] == os.getpid()
    ours.renew()
    assert held_by(place)["beat"] == 1
    ours.release()
    assert place.get(KEY) is None
    lease(place).take()


def test_one_that_is_renewed_is_refused(url: str) -> None:
    place = open_place(url)
    first = lease(place, seconds=2.0)
    first.take()
    done = threading.Event()

    def keep() -> None:
        while not done.wait(0.05):
            first.renew()

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        with pytest.raises(LockedError, match=f"pid {os.getpid()} on {socket.gethostname()}"):
            lease(open_place(url), seconds=2.0).take()
    finally:
        done.set()
        keeper.join()
    first.release()


def test_one_that_is_not_renewed_expires(url: str) -> None:
    place = open_place(url)
    left_behind(place)
    said: list[str] = []
    start = time.monotonic()
    Lease(place, seconds=0.4, say=said.append).take()
    assert time.monotonic() - start >= 0.4
    assert held_by(place)["pid"] == os.getpid()
    assert len(said) == 1
    assert "pid 1 on elsewhere" in said[0]


def test_that_of_a_dead_process_of_this_machine_does_not_count(url: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    place = open_place(url)
    left_behind(place, host=socket.gethostname(), pid=child.pid)
    lease(place, seconds=3600.0).take()
    assert held_by(place)["pid"] == os.getpid()


@pytest.mark.parametrize("content", [b"", b"[" * 5000, b"{}", b"\xff", b'{"pid": 1e400, "host": 3}'])
def test_a_garbled_one_expires_too(url: str, content: bytes) -> None:
    place = open_place(url)
    place.put(KEY, content)
    lease(place, seconds=0.2).take()
    assert held_by(place)["pid"] == os.getpid()


def test_one_that_was_taken_over_is_lost(url: str) -> None:
    place = open_place(url)
    ours = lease(place, seconds=0.0)
    ours.take()
    place.remove(KEY)
    left_behind(place)
    with pytest.raises(LockedError, match="taken over by pid 1 on elsewhere"):
        ours.renew()
    ours.release()
    assert held_by(place)["holder"] == "somebody"


def test_a_renewal_whose_answer_was_lost_is_ours(url: str) -> None:
    place = open_place(url)
    ours = lease(place, seconds=0.0)
    ours.take()
    before = ours._tag
    ours.renew()
    ours._tag = before  # the answer never came
    ours.renew()
    ours.renew()
    assert held_by(place)["beat"] == 3


def test_one_that_is_ours_already_is_taken_at_once(url: str) -> None:
    """As after a silence of the mirror."""
    place = open_place(url)
    ours = lease(place, seconds=3600.0)
    ours.take()
    ours.take()
    assert held_by(place)["pid"] == os.getpid()
