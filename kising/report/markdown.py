"""A sweep's findings as a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kising.messages import plural
from kising.report.summary import core_hours
from kising.sweep.plan import Plan
from kising.sweep.spec import SweepSpec
from kising.sweep.store.records import Manifest


class Entry(NamedTuple):
    """What a page is made of."""

    name: str
    spec: SweepSpec
    manifest: Manifest
    runs: pd.DataFrame
    claims: Sequence[Mapping[str, Any]]
    """findings as report.json has them"""
    figures: Sequence[tuple[Mapping[str, Any], str]]
    """figures as report.json has them, each with its file in the folder figures/"""
    notes: str
    """written by hand, Markdown"""
    tables: Path
    """the directory with the tables that it was made from"""


def markdown(entry: Entry) -> str:
    """The page."""
    lines = [f"# {entry.name}", "", *_lead(entry)]
    if entry.notes:
        lines += ["", entry.notes]
    if entry.claims:
        lines += ["", "## Claims", *_claims(entry.claims)]
    for figure, file in entry.figures:
        lines += [
            "",
            f"## {figure['title']}",
            "",
            f"![{figure['title']}](figures/{file})",
            "",
            figure["caption"],
        ]
    return "\n".join([*lines, ""])


def _lead(entry: Entry) -> Iterator[str]:
    runs, made = entry.runs, entry.manifest
    if entry.spec.description:
        yield from (entry.spec.description, "")
    yield f"    {made.command}"
    yield ""
    failed = int((runs["status"] == "failed").sum())
    numerics = ", ".join(str(x) for x in sorted(runs["numerics"].unique()))
    done, planned = len(runs) - failed, Plan.of(entry.spec).n_runs
    count = plural(done, "run") if len(runs) == planned else f"{done} of {plural(planned, 'run')}"
    yield (
        f"{count}, {failed} failed, {_cost(runs)}. "
        f"Run on {made.updated[:10]}; kising {made.packages.get('kising', '?')}, numerics {numerics}, commit "
        f"{(made.commit or 'unknown')[:12]}; Python {made.python}, "
        + ", ".join(f"{name} {version}" for name, version in made.packages.items() if name != "kising")
        + "."
    )
    yield ""
    yield f"`kising report {entry.tables}` draws it again from the tables there."


def _cost(runs: pd.DataFrame) -> str:
    """Core-hours, or durations where some rows were made before CPU time was measured."""
    measured = runs.loc[runs["status"] == "done", "cpu_seconds"].notna().all()
    return f"{core_hours(runs):.2g} {'core-hours' if measured else 'hours of runs, added up'}"


def _claims(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for (figure, claim, rule), found in groupby(claims, lambda x: (x["figure"], x["claim"], x["rule"])):
        rows = list(found)
        counts = [f"{sum(x['verdict'] == verdict for x in rows)} {verdict}" for verdict in _verdicts(rows)]
        source = "Not in the paper" if figure in ("kising", "proposed") else f"Figure {figure}"
        yield from ("", f"**{claim}** {source}: {', '.join(counts)}. ({_sentence(rule)})", "")
        yield "| where | quantity | value | 95% interval | verdict |"
        yield "|---|---|---|---|---|"
        for row in rows:
            measured = row["measured"]
            interval = f"{_number(measured['low'])} .. {_number(measured['high'])}"
            cells = (row["where"], row["quantity"], _number(measured["value"]), interval, row["decision"])
            yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["verdict"] for row in rows))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
