"""The columns of a finished run, and run ids as integers.

One run is one row, done or failed. `COLUMNS` is what runs.parquet holds, in this order; a part holds them,
what is kept besides (`KEPT`) and `committed`. Any change to these wants `SCHEMA_VERSION` raised: parts of an
older schema stay readable (the columns they lack are null), parts of a newer one are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

SCHEMA_VERSION: Final = 6

Kind = Literal["string", "int", "float", "bool", "bytes"]
Row = Mapping[str, object]


class Column(NamedTuple):
    """One column: its name, the kind of its values, and whether a row may leave it null."""

    name: str
    kind: Kind
    nullable: bool = True


PARAMETERS: Final = (
    Column("task", "string", False),
    Column("seed", "int", False),
    Column("model.visible", "int", False),
    Column("model.hidden", "int", False),
    Column("model.bonds", "string", False),
    Column("model.strength", "float", False),
    Column("model.connectivity", "float", False),
    Column("data.length", "int", False),
    Column("learner.estimator", "string", False),
    # Null where the value has no effect on the point: see kising.sweep.plan.
    Column("learner.correlations", "string"),
    Column("learner.start", "string"),
    Column("learner.starts", "int"),
    Column("learner.step", "string"),
    Column("learner.rate", "float"),
    Column("learner.momentum", "float"),
    Column("learner.tolerance", "float"),
    Column("learner.hold", "int"),
    Column("learner.max_iterations", "int"),
    Column("learner.noise", "float"),
    Column("learner.prior", "string"),
    Column("learner.l1", "float"),
    Column("learner.decimate", "string"),
    Column("learner.estep.tolerance", "float"),
    Column("learner.estep.damping", "string"),
    Column("learner.estep.max_iterations", "int"),
    Column("learner.estep.precision", "string"),
    Column("score.exact", "bool"),
    Column("score.pruned", "bool"),
    Column("score.errors", "bool"),
)
"""What defines a point: the keys of `Point.values()`."""

COLUMNS: Final = (
    Column("run_id", "string", False),
    Column("point_id", "string", False),
    *PARAMETERS,
    Column("realization", "int", False),
    Column("status", "string", False),
    Column("error", "string"),
    Column("traceback", "string"),
    # The one that ran: another than asked for where that was `auto`.
    Column("estimator", "string"),
    Column("outcome", "string"),
    Column("converged_J", "bool"),
    Column("converged_K", "bool"),
    Column("converged_L", "bool"),
    Column("rmse_J", "float"),
    Column("rmse_K", "float"),
    Column("rmse_L", "float"),
    # After pruning, where score.pruned asks for it.
    Column("rmse_pruned_J", "float"),
    Column("rmse_pruned_K", "float"),
    Column("rmse_pruned_L", "float"),
    # Where score.errors asks for them: the root mean square standard error in bond scales, which is the RMSE to expect,
    # and the fraction of true couplings within 1.96 of them; couplings that the data do not determine are left out.
    Column("error_J", "float"),
    Column("error_K", "float"),
    Column("error_L", "float"),
    Column("covered_J", "float"),
    Column("covered_K", "float"),
    Column("covered_L", "float"),
    Column("baseline_rmse", "float"),
    Column("iterations", "int"),
    Column("bp_converged", "float"),
    Column("corrected", "float"),
    Column("log_likelihood", "float"),
    Column("hidden_overlap", "float"),
    Column("rmse_m", "float"),
    Column("rmse_mu", "float"),
    Column("rmse_pair", "float"),
    # A run whose worker died has neither.
    Column("seconds", "float"),
    Column("host", "string"),
    Column("numerics", "int", False),
    Column("version", "string", False),
)

KEPT: Final = (Column("couplings", "bytes"), Column("trace", "bytes"))
"""In parts only, and null unless the sweep file asks for them: see kising.sweep.store.artifacts."""

ROW_COLUMNS: Final = (*COLUMNS, *KEPT)
"""What a finished run may bring."""

COMMITTED: Final = Column("committed", "int", False)
"""In parts only: microseconds since 1970 of the commit, strictly growing within a directory whatever the
clock does, so that of two rows of one run the later is known, through any number of compactions."""

PART_COLUMNS: Final = (*ROW_COLUMNS, COMMITTED)

DETERMINISTIC_COLUMNS: Final = tuple(
    column.name for column in COLUMNS if column.name not in {"seconds", "host", "traceback"}
)
"""The columns in which a resumed sweep equals an uninterrupted one, bit for bit."""

STATUSES: Final = ("done", "failed")
OUTCOMES: Final = ("converged", "stalled", "diverged")

LONGEST_TEXT: Final = 8_000
"""Characters kept of an error or a traceback: a million failed runs must not fill the disk with them."""

_KINDS: Final[Mapping[Kind, tuple[type, ...]]] = {
    "string": (str,),
    "int": (int, np.integer),
    "float": (float, int, np.floating, np.integer),
    "bool": (bool, np.bool_),
    "bytes": (bytes,),
}

ID_DIGITS: Final = 16
_NIBBLES: Final = np.full(256, 255, dtype=np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)


def columns_of(rows: Sequence[Row]) -> dict[str, list[object]]:
    """Lay rows out by column; ValueError for an unknown column or word, or a value that does not fit.

    Texts that come from outside are made storable: over-long ones lose their middle, what UTF-8 cannot hold
    is spelt out.
    """
    unknown = set().union(*rows) - {column.name for column in ROW_COLUMNS}
    if unknown:
        raise ValueError(f"no column is called {min(unknown)!r}")
    columns = {column.name: [row.get(column.name) for row in rows] for column in ROW_COLUMNS}
    for column in ROW_COLUMNS:
        for kind in set(map(type, columns[column.name])):
            if kind is type(None):
                if not column.nullable:
                    raise ValueError(f"column {column.name!r} must have a value in every row")
            # A bool is an int to Python, and a float would be cut to an int without a word.
            elif not issubclass(kind, _KINDS[column.kind]) or (kind is bool and column.kind != "bool"):
                raise ValueError(f"column {column.name!r} wants {column.kind} values, not {kind.__name__}")
    for name in ("error", "traceback", "host"):
        columns[name] = [_storable(value) if isinstance(value, str) else value for value in columns[name]]
    check_words("status", columns["status"])
    check_words("outcome", columns["outcome"])
    return columns


def check_words(name: str, values: Iterable[object]) -> None:
    """Raise ValueError if a status or an outcome is none of the words there are."""
    words = {"status": STATUSES, "outcome": OUTCOMES}[name]
    for value in values:
        if value is not None and value not in words:
            raise ValueError(f"{name} {value!r} is none of {', '.join(words)}")


def _storable(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        head, tail = LONGEST_TEXT // 4, LONGEST_TEXT - LONGEST_TEXT // 4
        text = f"{text[:head]}\n... {len(text) - LONGEST_TEXT} characters left out ...\n{text[-tail:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def ids_from_bytes(digits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Turn an (n, 16) array of ASCII hexadecimal digits into n integers; ValueError names a bad one."""
    nibbles = _NIBBLES[digits]
    bad = np.flatnonzero((nibbles > 15).any(axis=1))
    if bad.size:
        raise ValueError(f"run_id {bytes(digits[bad[0]])!r} is not {ID_DIGITS} lower-case hexadecimal digits")
    pairs = (nibbles[:, 0::2] << 4) | nibbles[:, 1::2]
    return np.ascontiguousarray(pairs).view(">u8")[:, 0].astype(np.uint64)


def id_text(run_id: int | np.uint64) -> str:
    """Write an integer run id as its 16 hexadecimal digits."""
    return f"{int(run_id):016x}"
