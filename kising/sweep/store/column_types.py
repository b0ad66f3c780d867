"""What the declaration of a column consists of, and what follows from it: types, checks, summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from kising.blocks import BLOCKS

Kind = Literal["string", "int", "float", "bool", "bytes"]

_TYPES: Final[Mapping[Kind, tuple[type, ...]]] = {
    "string": (str,),
    "int": (int, np.integer),
    "float": (float, int, np.floating, np.integer),
    "bool": (bool, np.bool_),
    "bytes": (bytes,),
}


class Summary(NamedTuple):
    """How a point summarises a column over its runs. Failed runs never count, nulls neither."""

    statistic: Literal["mean", "spread", "fraction"]
    diverged: bool
    """whether diverged runs count"""


class Column(NamedTuple):
    """One column of a table."""

    name: str
    """X in it stands for a block: the column exists once for each"""
    kind: Kind
    nullable: bool = True
    """whether a row may leave it null"""
    meaning: str = ""
    """one line, with the unit"""
    summary: Summary | None = None
    """how a point summarises it; None: not at all"""
    deterministic: bool = True
    """whether a resumed sweep has the same bits in it as an uninterrupted one"""
    allowed: tuple[str, ...] = ()
    """the only values of a string; empty: any"""
    heading: str = ""
    """in the tables of points that people read; empty: it is not in them"""
    console: Literal["convergence", "stalled", "errors", "held out", "averages"] | None = None
    """which table of the console has it; None: only the page's has"""

    @property
    def dtype(self) -> str:
        """The type in a data frame."""
        match self.kind:
            case "string":
                return "string[pyarrow]"
            case "int":
                return "Int64" if self.nullable else "int64"
            case "bool":
                return "boolean" if self.nullable else "bool"
            case "float":
                return "float64"
            case "bytes":
                return "object"

    def check(self, values: Sequence[object]) -> None:
        """Raise ValueError if a value is missing, of the wrong type, or not allowed."""
        for found in set(map(type, values)):
            if found is type(None):
                if not self.nullable:
                    raise ValueError(f"column {self.name!r} must have a value in every row")
            # A bool is an int to Python, and a float would silently be cut to an int.
            elif not issubclass(found, _TYPES[self.kind]) or (found is bool and self.kind != "bool"):
                raise ValueError(f"column {self.name!r} needs {self.kind} values, not {found.__name__}")
        for value in values if self.allowed else ():
            if value is not None and value not in self.allowed:
                raise ValueError(f"{self.name} {value!r} is none of {', '.join(self.allowed)}")

    def for_blocks(self) -> tuple[Column, ...]:
        """The column once for each block of couplings; itself alone if it has no X in its name."""
        if not self.name.endswith("_X"):
            return (self,)
        return tuple(
            self._replace(
                name=self.name.replace("X", block),
                meaning=self.meaning.replace("X", block),
                heading=self.heading.replace("X", block),
            )
            for block in BLOCKS
        )

    def summary_columns(self) -> tuple[Column, ...]:
        """The columns of summary.parquet that summarise this one."""
        if self.summary is None:
            return ()
        return tuple(
            Column(self.name + suffix, "float", meaning=f"{what} of {self.name} over {runs_of(self.summary)}")
            for suffix, what in STATISTICS[self.summary.statistic].items()
        )


STATISTICS: Final[Mapping[str, Mapping[str, str]]] = {
    "mean": {"": "mean"},
    "spread": {"_mean": "mean", "_sd": "standard deviation", "_sem": "standard error of the mean"},
    "fraction": {"": "fraction", "_low": "lower end of the 95% Wilson interval", "_high": "upper end"},
}
"""What each statistic of a column adds to summary.parquet, by the suffix of its name."""


def runs_of(summary: Summary) -> str:
    """Name the runs that a summary is over."""
    return "done runs" if summary.diverged else "done runs that did not diverge"
