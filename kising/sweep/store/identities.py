"""Checks of rows: their ids must follow from their values."""

from __future__ import annotations

from kising.sweep.plan import point_id_of, run_id_of
from kising.sweep.store.index import PartRows, id_text


def misfits(part: PartRows) -> dict[int, str]:
    """The rows of a part whose ids do not follow from their values: number of the row, and what is wrong with it."""
    wrong: dict[int, str] = {}
    misnamed = {point_id for point_id, values in part.points if not _follows(point_id, values)}
    for row, point_id in enumerate(part.point_ids):
        run_id = id_text(part.ids[row])
        if point_id in misnamed:
            wrong[row] = f"run {run_id}: its parameters are not those of point {point_id}"
        elif run_id_of(point_id, int(part.realizations[row])) != run_id:
            wrong[row] = f"run {run_id} is not realization {part.realizations[row]} of point {point_id}"
    return wrong


def _follows(point_id: str, values: dict[str, object]) -> bool:
    try:
        return point_id_of(values) == point_id
    except ValueError:  # no point has a parameter that is not finite
        return False
