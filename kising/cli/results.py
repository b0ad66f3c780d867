"""Commands about the results of a sweep: `status`, `serve`, `show`, `verify` and `report`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import click

from kising.cli.conclusion import print_results
from kising.cli.exits import FAILED, plainly

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.command()
@_directory
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until it ends.")
@plainly
def status(directory: Path, watch: bool) -> None:
    """Show how a sweep is doing, from any terminal, also while it runs."""
    from kising.sweep.status import describe_status, is_running

    while True:
        if watch:
            click.clear()
        for line in describe_status(directory):
            click.echo(line)
        if not watch or not is_running(directory):
            return
        time.sleep(2)


@click.command()
@_directory
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; if other machines can reach it, they need a token.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@plainly
def serve(directory: Path, host: str, port: int) -> None:
    """Serve a page that follows the sweep while it runs.

    The server ends with Ctrl-C; the sweep continues.
    """
    from kising.live.server import LiveServer
    from kising.sweep.store.directory import SweepDirectory

    SweepDirectory.open(directory)
    server = LiveServer(directory, host, port)
    click.echo(f"Page: {server.url}\nCtrl-C ends the server; the sweep continues.")
    with suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
    server.server_close()


@click.command()
@_directory
@click.argument("run", metavar="RUN")
@plainly
def show(directory: Path, run: str) -> None:
    """Show everything about one run.

    RUN is its id, or the beginning of it. The last lines repeat the run in Python.
    """
    from kising.report.one_run import describe_run

    for line in describe_run(directory, run):
        click.echo(line)


@click.command()
@_directory
@plainly
def verify(directory: Path) -> None:
    """Check that no result is missing, damaged or forged.

    Checks every part against its checksum and the log, every row against the plan, and every table against the
    parts. Exit code 0: all is in order.
    """
    from kising.report.tables import derived
    from kising.run import locate
    from kising.sweep.plan import Plan
    from kising.sweep.store.directory import SweepDirectory
    from kising.sweep.store.verify import verify as check
    from kising.sweep.store.verify import verify_published

    opened = SweepDirectory.open(directory)
    spec, _ = locate(directory)
    if opened.is_published:
        in_order, line = verify_published(opened, Plan.of(spec))
        click.echo(line)
    else:
        report = check(opened, Plan.of(spec), derived)
        in_order = report.in_order
        for line in report.lines():
            click.echo(line)
    if not in_order:
        sys.exit(FAILED)


@click.command()
@_directory
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print: tables, or everything on the page as JSON.",
)
@click.option(
    "--publish",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write a Markdown page with figures and tables, to be kept with other documentation.",
)
@plainly
def report(directory: Path, form: str, folder: Path | None) -> None:
    """Print the results, and write a page with figures.

    Also rewrites the tables from the parts.
    """
    from kising.report.build import build
    from kising.report.published import publish
    from kising.report.tables import refresh_tables

    frames = refresh_tables(directory)
    built = build(directory, frames)
    published = None if folder is None else publish(directory, frames, built, folder)
    if form == "json":
        click.echo((built.page.parent / "report.json").read_text())
        return
    print_results(directory, frames.runs, frames.summary, frames.scaling, whole=built.whole)
    for path in built.figures:
        click.echo(f"Figure: {path}")
    click.echo(f"Page: {built.page}")
    if published is not None:
        click.echo(f"Published: {published}")
