"""Parts and their log, compared: which parts have vanished, and which the log does not hold. Reads no part."""

from __future__ import annotations

from typing import NamedTuple

from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.part_log import LogView, read_bytes, view
from kising.sweep.store.parts import Listing, PartFiles, is_numbered


class Inventory(NamedTuple):
    """parts/ and its log at one moment."""

    listing: Listing
    log: LogView
    vanished: dict[str, int]
    """rows of parts that the log holds and parts/ does not, by name"""
    unlogged: tuple[str, ...]
    """parts that the log does not hold: a driver was killed before it wrote the line, or somebody put them there"""

    @property
    def logged_rows(self) -> int:
        """The rows of the parts that the log holds and that are there."""
        return sum(rows for name, rows in self.log.rows.items() if name not in self.vanished)

    @property
    def log_was_lost(self) -> bool:
        """Whether there was a log once. Parts of older versions have none, until the next driver writes it."""
        return self.log.state == "missing" and any(map(is_numbered, self.listing.parts))


def compare(listing: Listing, log: LogView, quarantined: tuple[str, ...]) -> Inventory:
    """Compare a listing with a log."""
    gone = log.rows.keys() - {*listing.parts, *quarantined}
    return Inventory(
        listing,
        log,
        {name: log.rows[name] for name in sorted(gone)},
        tuple(name for name in listing.parts if name not in log.rows),
    )


def take_inventory(directory: SweepDirectory) -> Inventory:
    """List parts/ and read the log, both of the same moment: a driver may be at work."""
    files = PartFiles(directory)
    while True:
        data = read_bytes(directory.parts_log)
        listing = files.list_settled()
        # A part is listed before the log holds it, and for as long as it does.
        if read_bytes(directory.parts_log) == data:
            return compare(listing, view(data), files.quarantined())
