"""Every column of a sweep's tables, declared once: name, type, meaning, and how a point summarises it.

From here come the types of the parquet files, the columns of summary.parquet, the tables that people read, and
docs/reference/columns.md. A new column needs an entry here and the code that computes its value.

One run is one row, done or failed. `COLUMNS` are those of runs.parquet, in this order; a part holds them, the
artifacts (`ARTIFACTS`) and `committed`. Bump `SCHEMA_VERSION` when these change: parts of an older schema stay
readable (the columns they lack are null), parts of a newer one are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

from kising.blocks import BLOCKS
from kising.learning.trace_columns import TRACE
from kising.option_types import Leaf, leaves_of
from kising.options import LEAVES, Header
from kising.sweep.store.column_types import Column, Kind, Summary, runs_of

SCHEMA_VERSION: Final = 12

Row = Mapping[str, object]


def _parameter(leaf: Leaf) -> Column:
    return Column(leaf.key, cast(Kind, leaf.kind.column), leaf.nullable, leaf.option.help)


PARAMETERS: Final = (
    *(_parameter(leaf) for leaf in leaves_of(Header) if leaf.key in ("task", "seed")),
    *(_parameter(leaf) for leaf in LEAVES.values()),
)
"""The parameters that define a point: the keys of `Point.values()`. Null where the value has no effect on the point."""

STATUSES: Final = ("done", "failed")
OUTCOMES: Final = ("converged", "stalled", "diverged")

_MEAN: Final = Summary("mean", diverged=True)
_FRACTION: Final = Summary("fraction", diverged=True)
# The RMSE of a diverged run only shows where it was stopped, so it enters no mean.
_MEAN_UNLESS_DIVERGED: Final = Summary("mean", diverged=False)
_SPREAD_UNLESS_DIVERGED: Final = Summary("spread", diverged=False)

_IDS: Final = (
    Column("run_id", "string", False, "16 hexadecimal digits made from the point and the realization"),
    Column("point_id", "string", False, "16 hexadecimal digits made from the parameters"),
)
_REALIZATION: Final = Column(
    "realization", "int", False, "number of the independent network, or of the held-out fold, from 0"
)
_BASELINES: Final = {
    "visible_only": "a network without hidden spins (J, h, F)",
    "memoryless": "a network without memory (K, h, b, F, G; J = L = M = 0)",
}

RESULTS: Final = (
    _REALIZATION,
    Column("status", "string", False, "done, or failed (it raised an error, or timed out)", allowed=STATUSES),
    Column("error", "string", meaning="the error of a failed run, in one line"),
    Column("traceback", "string", meaning="the traceback of a failed run", deterministic=False),
    Column("estimator", "string", meaning="the estimator that ran; for `auto`, the one that was chosen"),
    Column(
        "outcome",
        "string",
        meaning="how learning ended: converged, stalled (see `missing`) or diverged; for task infer: "
        "converged if the E-step converged in every slice, otherwise stalled",
        allowed=OUTCOMES,
    ),
    Column(
        "missing",
        "string",
        meaning="if learning stalled: for each block that had not converged, how far it was from its limit; drift and "
        "Monte-Carlo error are in units of the statistical error, steps in bond scales",
    ),
    Column(
        "excess_X",
        "float",
        meaning="if learning stalled before X had converged: how many times its limit the step, the drift or the "
        "Monte-Carlo error of X was (`missing` tells which); below 1 if it had not been small for long enough",
        summary=_MEAN,
        heading="X",
        console="stalled",
    ),
    Column(
        "converged_X",
        "bool",
        meaning="whether X had converged when learning ended",
        summary=_FRACTION,
        heading="X",
        console="convergence",
    ),
    Column(
        "rmse_X",
        "float",
        meaning="RMSE of the learned X, in bond scales (those of strength 1 where the strength is 0)",
        summary=_SPREAD_UNLESS_DIVERGED,
        heading="X",
        console="errors",
    ),
    Column(
        "rmse_pruned_X",
        "float",
        meaning="RMSE of X after pruning, in bond scales (`score.pruned`)",
        summary=_SPREAD_UNLESS_DIVERGED,
        heading="X pruned",
    ),
    Column(
        "error_X",
        "float",
        meaning="root mean square of the standard errors of X, in bond scales: the RMSE to expect; couplings that the "
        "data do not determine are left out (`score.errors`)",
        summary=_MEAN_UNLESS_DIVERGED,
        heading="X expected",
    ),
    Column(
        "covered_X",
        "float",
        meaning="fraction of the true X within 1.96 standard errors of the learned values; couplings that the data do "
        "not determine are left out (`score.errors`)",
        summary=_MEAN_UNLESS_DIVERGED,
        heading="X covered",
    ),
    Column(
        "baseline_rmse",
        "float",
        meaning="RMSE of an estimate that is zero everywhere, in bond scales; without meaning where the strength is 0, "
        "and then null in summaries",
        summary=_MEAN,
        heading="all zero",
        console="errors",
    ),
    Column("iterations", "int", meaning="number of EM iterations", summary=_MEAN, heading="iterations"),
    Column(
        "bp_converged",
        "float",
        meaning="fraction of slices whose E-step reached its tolerance",
        summary=_MEAN,
        heading="slices converged",
        console="averages",
    ),
    Column(
        "corrected",
        "float",
        meaning="fraction of pair averages that were outside [-1, 1] and were replaced",
        summary=_MEAN,
        heading="pairs corrected",
        console="averages",
    ),
    Column(
        "log_likelihood",
        "float",
        meaning="log-likelihood of the recording, in nats per slice; with `data.file`, of the training data",
        summary=_MEAN,
    ),
    Column(
        "held_out",
        "float",
        meaning="log-likelihood of the held-out fold, all spins jointly, in nats per slice (`data.file`)",
        summary=_SPREAD_UNLESS_DIVERGED,
        heading="held out",
        console="held out",
    ),
    Column(
        "forecast",
        "float",
        meaning="log-likelihood of the held-out fold, each spin by itself, summed over spins, in nats per slice "
        "(`data.file`)",
        summary=_SPREAD_UNLESS_DIVERGED,
        heading="forecast",
        console="held out",
    ),
    *(
        Column(
            f"{score}_{name}",
            "float",
            meaning=f"`{score}` of {what} on the same fold",
            summary=_SPREAD_UNLESS_DIVERGED,
            heading=f"{score.replace('_', ' ')}, {name.replace('_', ' ')}",
            console="held out",
        )
        for name, what in _BASELINES.items()
        for score in ("held_out", "forecast")
    ),
    Column(
        "hidden_overlap",
        "float",
        meaning="mean of hidden spin times sign of its average: 1 if all states are inferred correctly, 0 by chance",
        summary=_MEAN,
        heading="hidden overlap",
        console="averages",
    ),
    Column(
        "rmse_m",
        "float",
        meaning="RMSE of the averages m against exact ones (`score.exact`)",
        summary=_MEAN,
        heading="RMSE m",
        console="averages",
    ),
    Column(
        "rmse_mu",
        "float",
        meaning="RMSE of the averages μ against exact ones (`score.exact`)",
        summary=_MEAN,
        heading="RMSE μ",
        console="averages",
    ),
    Column(
        "rmse_pair",
        "float",
        meaning="RMSE of the pair averages ⟨τσ⟩ against exact ones (`score.exact`)",
        summary=_MEAN,
        heading="RMSE ⟨τσ⟩",
        console="averages",
    ),
    Column(
        "seconds",
        "float",
        meaning="duration in seconds; null if the worker died",
        summary=_MEAN,
        deterministic=False,
    ),
    Column(
        "cpu_seconds",
        "float",
        meaning="CPU time of all threads, in seconds: the cost of the run, also where other programs shared the cores; "
        "null if the worker died",
        summary=_MEAN,
        deterministic=False,
    ),
    Column("host", "string", meaning="the machine; null if the worker died", deterministic=False),
    Column("numerics", "int", False, "version of the numerics that made the row"),
    Column("version", "string", False, "version of kising that made the row"),
)
"""The results of a run, with one entry for all blocks."""


def _for_blocks(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield from column.for_blocks()


COLUMNS: Final = (*_IDS, *PARAMETERS, *_for_blocks(RESULTS))
"""Of runs.parquet."""

ARTIFACTS: Final = (Column("couplings", "bytes"), Column("trace", "bytes"))
"""In parts only, and null unless the sweep file asks for them: see kising.sweep.store.artifacts."""

ROW_COLUMNS: Final = (*COLUMNS, *ARTIFACTS)
"""The columns that the row of a finished run may have."""

COMMITTED: Final = Column("committed", "int", False)
"""In parts only: number of the commit, strictly increasing within a directory. It tells which of two rows of one run is
the later one, after any number of compactions. (Older versions counted microseconds since 1970; numbers continue from
there.)"""

PART_COLUMNS: Final = (*ROW_COLUMNS, COMMITTED)

DETERMINISTIC_COLUMNS: Final = tuple(column.name for column in COLUMNS if column.deterministic)
"""The columns in which a resumed sweep is equal to an uninterrupted one, bit for bit."""

COUNTS: Final = (
    Column("runs", "int", False, "runs with a row"),
    Column("failed", "int", False, "runs that failed"),
    Column("diverged", "int", False, "done runs that diverged"),
    Column(
        "stalled", "int", False, "done runs that stalled: `excess_X` says how far they were from convergence"
    ),
)

SUMMARY_COLUMNS: Final = (
    *(column for column in _IDS if column.name == "point_id"),
    *PARAMETERS,
    *COUNTS,
    *(summary for column in COLUMNS for summary in column.summary_columns()),
)
"""Of summary.parquet, one row per point."""

SLOPES: Final = (
    Column("block", "string", False, "block of couplings"),
    Column("slope", "float", meaning="slope of log RMSE on log T: mean over realizations"),
    Column("slope_low", "float", meaning="lower end of its 95% t interval"),
    Column("slope_high", "float", meaning="upper end of the interval"),
    Column("points", "int", False, "number of different lengths T"),
    Column("realizations", "int", False, "number of realizations with a slope"),
    Column("shortest", "int", meaning="shortest T (steps)"),
    Column("longest", "int", meaning="longest T (steps)"),
    Column(
        "left_out",
        "int",
        False,
        "number of runs that failed or diverged, or whose RMSE is not a positive number",
    ),
)

SCALING_COLUMNS: Final = (*(column for column in PARAMETERS if column.name != "data.length"), *SLOPES)
"""Of scaling.parquet, one row per block and group of points that differ in data.length only."""

COUPLINGS: Final = (
    *_IDS,
    _REALIZATION,
    Column("block", "string", False, "block of couplings"),
    Column("row", "int", False, "target spin, from 0"),
    Column("column", "int", False, "source spin, from 0"),
    Column("true", "float", meaning="coupling of the network"),
    Column("start", "float", meaning="coupling that learning started from"),
    Column("learned", "float", meaning="learned coupling"),
)
"""Of couplings.parquet, one row per coupling."""

TRACES: Final = (
    *_IDS,
    _REALIZATION,
    *(
        Column(name, "int", False, text) if name == "iteration" else Column(name, "float", meaning=text)
        for name, text in TRACE.items()
    ),
)
"""Of traces.parquet, one row per EM iteration."""

TABLES: Final = {
    "summary": SUMMARY_COLUMNS,
    "scaling": SCALING_COLUMNS,
    "couplings": COUPLINGS,
    "traces": TRACES,
}
"""The columns of every table that is derived from the runs, <name>.parquet."""


def reference() -> str:
    """The columns of every table as Markdown: docs/reference/columns.md."""
    return "\n".join(
        [
            "# Columns",
            "",
            "This page explains every column of the tables in a sweep's directory. It is generated by `python -m "
            "kising.sweep.store.columns`.",
            "",
            f"X stands for a block of couplings: {', '.join(BLOCKS)}. An RMSE in *bond scales* is divided by the "
            "standard deviation of a non-zero bond. Types never depend on the values. Columns marked with a star are "
            "never null. Columns marked † may differ after a resume; all others are the same, bit for bit.",
            *_table(
                "runs.parquet",
                "One row per run. Every parameter has a column named after its key.",
                [*_IDS, *RESULTS],
                summarised=True,
            ),
            *_table(
                "summary.parquet",
                "One row per point: `point_id`, its parameters, these counts, and the summaries listed above.",
                COUNTS,
            ),
            *_table(
                "scaling.parquet",
                "One row per block and group of points that differ in `data.length` only: their other parameters, and "
                "these columns.",
                SLOPES,
            ),
            *_table("couplings.parquet", "One row per coupling, if `keep` asks for couplings.", COUPLINGS),
            *_table("traces.parquet", "One row per EM iteration, if `keep` asks for traces.", TRACES),
            "",
        ]
    )


def _table(title: str, lead: str, columns: Iterable[Column], *, summarised: bool = False) -> Iterator[str]:
    yield from ("", f"## {title}", "", lead, "")
    yield "| column | type | meaning |" + (" summary |" if summarised else "")
    yield "|---|---|---|" + ("---|" if summarised else "")
    for column in columns:
        marks = ("" if column.nullable else "*") + ("" if column.deterministic else "†")
        meaning = column.meaning.replace("|", "\\|")
        cells = [f"`{column.name}`{marks}", column.kind, meaning]
        if summarised:
            cells.append(_summary_text(column))
        yield f"| {' | '.join(cells)} |"


def _summary_text(column: Column) -> str:
    if column.summary is None:
        return ""
    names = ", ".join(f"`{summary.name}`" for summary in column.summary_columns())
    return f"{column.summary.statistic} over {runs_of(column.summary)}: {names}"


if __name__ == "__main__":
    print(reference(), end="")
