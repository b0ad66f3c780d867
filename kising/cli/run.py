"""Commands that take a sweep file: `run` and `plan`."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import click

from kising.cli.conclusion import conclude
from kising.cli.exits import plainly

_source = click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
_out = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Directory of the results [results/<name>, or results/<name>-<preset>].",
)
_preset = click.option("--preset", metavar="NAME", help="Use a preset of the sweep file.")
_set = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value, such as model.visible=40.",
)


@click.command()
@_source
@_out
@_preset
@_set
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Run on the Ray cluster at this address ('auto': the one that this host is part of).",
)
@click.option("--cpus", type=click.IntRange(min=1), help="Cores of this machine to use [all].")
@click.option("--retry-failed", is_flag=True, help="Run failed runs again.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failed run.")
@click.option(
    "--stale",
    type=click.Choice(["keep", "redo"]),
    help="What to do with finished runs made by another version of the numerics.",
)
@click.option(
    "--shrink", is_flag=True, help="Drop finished runs that the edited sweep no longer has from the tables."
)
@click.option(
    "--reuse",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Take over runs that are finished in this directory of another sweep, or of published tables.",
)
@click.option("--page", is_flag=True, help="Serve a live page of the sweep on this machine while it runs.")
@click.option(
    "--mirror",
    metavar="URL",
    help="Keep a copy there, and resume from it: s3://bucket/prefix, gs://, az://, or a directory.",
)
@click.option("--local-debug", is_flag=True, help="Run in this process, without Ray.")
@plainly
def run(
    source: Path,
    out: Path | None,
    preset: str | None,
    overrides: tuple[str, ...],
    address: str | None,
    cpus: int | None,
    retry_failed: bool,
    fail_fast: bool,
    stale: Literal["keep", "redo"] | None,
    shrink: bool,
    reuse: tuple[Path, ...],
    page: bool,
    mirror: str | None,
    local_debug: bool,
) -> None:
    """Run a sweep file, or resume the sweep in a directory."""
    from kising.run import Session, locate
    from kising.run import run as run_session
    from kising.sweep.drive.progress import open_display
    from kising.sweep.drive.signals import announced, stop_on_signals

    def say(line: str) -> None:
        click.echo(line, err=True)

    spec, directory = locate(source, out, preset=preset, overrides=overrides)
    with ExitStack() as stack:
        if page:
            from kising.live.child import page_of

            click.echo(f"Page: {stack.enter_context(page_of(directory))}", err=True)
        stop = stack.enter_context(stop_on_signals())
        display = stack.enter_context(open_display(spec.name, sys.stderr))
        session = Session(
            address=address,
            cpus=cpus,
            in_process=local_debug,
            retry_failed=retry_failed,
            fail_fast=fail_fast,
            stale=stale,
            shrink=shrink,
            reuse=reuse,
            mirror=mirror,
            command=shlex.join(["kising", *sys.argv[1:]]),
            stop=stop,
            observers=(display, announced(stop, say)),
            say=say,
        )
        results = run_session(spec, directory, session)
    conclude(spec, results, session)


@click.command()
@_source
@_out
@_preset
@_set
@click.option("--calibrate", is_flag=True, help="Measure this machine first, with small runs.")
@plainly
def plan(
    source: Path, out: Path | None, preset: str | None, overrides: tuple[str, ...], calibrate: bool
) -> None:
    """Show what a sweep would run, and what it would cost.

    Counts what is already done, and starts nothing.
    """
    from kising.run import locate
    from kising.sweep.status import calibrate as measure
    from kising.sweep.status import describe_plan

    spec, directory = locate(source, out, preset=preset, overrides=overrides)
    if calibrate:
        measure(spec)
    for line in describe_plan(spec, directory):
        click.echo(line)
