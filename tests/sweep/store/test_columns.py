"""The declaration of columns, and what follows from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kising.blocks import BLOCKS, BONDS
from kising.sweep.store.columns import COLUMNS, DETERMINISTIC_COLUMNS, SUMMARY_COLUMNS, TABLES, reference

TESTS = Path(__file__).parents[2]
REFERENCE = TESTS.parent / "docs" / "reference" / "columns.md"


def test_the_reference_is_up_to_date() -> None:
    assert REFERENCE.read_text() == reference(), (
        "run: python -m kising.sweep.store.columns > docs/reference/columns.md"
    )


def test_the_reference_loads_nothing_heavy() -> None:
    heavy = {"pandas", "pyarrow", "numba", "ray"}
    code = f"import sys, kising.sweep.store.columns as c; c.reference(); print({heavy} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_names_are_unique_and_results_have_a_meaning() -> None:
    for columns in (COLUMNS, *TABLES.values()):
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        for column in columns:
            assert column.meaning or "." in column.name or column.name in ("task", "seed")
            assert "\n" not in column.meaning


def test_only_time_and_place_may_differ_after_a_resume() -> None:
    names = {column.name for column in COLUMNS}
    assert names - set(DETERMINISTIC_COLUMNS) == {"seconds", "cpu_seconds", "host", "traceback"}


def test_every_block_has_its_columns() -> None:
    names = [column.name for column in COLUMNS]
    for family in ("converged", "rmse", "rmse_pruned", "error", "covered"):
        first = names.index(f"{family}_{BLOCKS[0]}")
        assert names[first : first + len(BLOCKS)] == [f"{family}_{x}" for x in BLOCKS]
    summaries = {column.name for column in SUMMARY_COLUMNS}
    for x in BLOCKS:
        assert {f"converged_{x}", f"converged_{x}_low", f"converged_{x}_high"} <= summaries
        assert {
            f"{name}_{x}_{what}" for name in ("rmse", "rmse_pruned") for what in ("mean", "sd", "sem")
        } <= summaries
        assert {f"error_{x}", f"covered_{x}"} <= summaries
    assert {column.name for column in COLUMNS if "_X" in column.name} == set()


WITH_ANOTHER_BLOCK = """
import kising.blocks

kising.blocks.TABLE += (kising.blocks.Block("Q", "hidden", "hidden"),)
kising.blocks.BLOCKS += ("Q",)
kising.blocks.BONDS += ("Q",)

import sys

sys.path.insert(0, sys.argv[1])
import pandas as pd
from rich.console import Console
from support.rows import make_runs

from kising.report.claims.paper import claims
from kising.report.console import show
from kising.report.figures.curves import curves
from kising.report.summary import scaling, summarise

runs = make_runs([
    {"point_id": str(t), "data.length": t, "realization": r} | {f"rmse_{x}": t**-0.5 for x in kising.blocks.BONDS}
    for t in (100, 1000)
    for r in range(3)
])
summary = summarise(runs)
print(*summary.columns)
print(*(finding.where for finding in claims(runs, pd.DataFrame()) if finding.figure == "3B, 6, 8"))
print(next(curves(runs)).caption)
show(Console(width=200), summary, scaling(runs))
"""


def test_a_new_block_is_in_every_table_without_being_named_elsewhere() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", WITH_ANOTHER_BLOCK, str(TESTS)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    summary, slopes, caption, *tables = answer.stdout.splitlines()
    added = {"converged_Q", "converged_Q_low", "rmse_Q_mean", "rmse_Q_sem", "rmse_pruned_Q_sd", "covered_Q"}
    assert added <= set(summary.split())
    assert slopes.split() == [*BONDS, "Q"]
    assert "and Q in units" in caption
    headings = [line.split() for line in tables if line.split()[:1] == ["length"]]
    assert len(headings) == 2
    assert all("Q" in heading for heading in headings)
    assert [line.split()[0] for line in tables if "100 .. 1000" in line] == [*BONDS, "Q"]
