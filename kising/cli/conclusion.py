"""What commands print of a sweep's results, and how `kising run` ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kising.cli.exits import FAILED, stopped_by
from kising.messages import plural

if TYPE_CHECKING:
    import pandas as pd

    from kising.report.results import Results
    from kising.run import Session
    from kising.sweep.spec import SweepSpec

# Tables take the width they need: a line that the terminal folds is read more easily than a number cut short.
WIDTH = 240


def print_results(
    directory: Path, runs: pd.DataFrame, summary: pd.DataFrame, scaling: pd.DataFrame, *, whole: bool = True
) -> None:
    """Print the tables of a sweep and where they are; whole: all runs have ended, and a number of hidden
    spins can be chosen."""
    from rich.console import Console

    from kising.report.choice import choice_among
    from kising.report.console import show

    if len(runs):
        console = Console(highlight=False)
        console.width = max(console.width, WIDTH)
        show(console, summary, scaling)
    for line in choice_among(runs) if whole else ():
        click.echo(line)
    click.echo(f"Results: {directory}/runs.parquet, summary.parquet, scaling.parquet")


def conclude(spec: SweepSpec, results: Results, session: Session) -> None:
    """Print what a session made, what failed, and how to resume; exit with its code unless all went well."""
    from kising.sweep.failures import failure_of
    from kising.sweep.labels import varied_keys
    from kising.sweep.resuming import resume_command
    from kising.sweep.status import SHOWN, describe_failures

    outcome, directory, reason = results.outcome, results.directory, session.stop.reason
    assert outcome is not None
    flags = {"--address": session.address, "--mirror": session.mirror, "--stale": session.stale}
    resume = resume_command(directory, flags)
    print_results(directory, results.runs, results.summary, results.scaling, whole=not outcome.unfinished)
    failed = results.runs[results.runs["status"] == "failed"]
    if len(failed):
        count = plural(len(failed), "run")
        click.echo(f"{count} failed; `{resume} --retry-failed` runs them again:", err=True)
        failures = [failure_of(row) for row in failed.head(SHOWN).to_dict("records")]
        for line in describe_failures(directory, failures, varied_keys(spec), len(failed)):
            click.echo(line, err=True)
    if outcome.unfinished:
        why = f"stopped by {reason}" if reason else "stopped"
        click.echo(f"{why} with {plural(outcome.unfinished, 'run')} left; to resume: {resume}", err=True)
        sys.exit(stopped_by(reason))
    if len(failed):
        sys.exit(FAILED)
