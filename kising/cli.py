"""The command `kising`: arguments in, calls out. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import errno
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kising.arguments import FIT
from kising.errors import InputError, KisingError, SpecError
from kising.flags import Numbers, flags, given, reading_flags
from kising.messages import plural
from kising.options import READING
from kising.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from kising.report.results import Results
    from kising.sweep.spec import SweepSpec

# Exit codes: 0 all went well, 1 failed runs or a failure of the machine, 2 a mistake in what was asked, 128 + n
# stopped by signal n.
FAILED, MISTAKE = 1, 2


def _plainly(command: Callable[..., None]) -> Callable[..., None]:
    """Report errors in one line each, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SpecError as error:
            click.echo(str(error), err=True)
            sys.exit(MISTAKE)
        except KisingError as error:
            click.echo(f"kising: {error}", err=True)
            sys.exit(MISTAKE if isinstance(error, InputError) else FAILED)
        except MemoryError as error:
            click.echo(f"kising: not enough memory for this: {error}", err=True)
            sys.exit(FAILED)
        except BrokenPipeError:
            # The reader has gone (`kising status | head`): there is nobody to report to.
            sys.stderr.close()
            sys.exit(FAILED)
        except OSError as error:
            # A name that no file can have is a mistake; anything else that was not foreseen is the machine's.
            name = str(error.filename or "")[:200]
            click.echo(f"kising: {name}: {error.strerror or error}", err=True)
            sys.exit(MISTAKE if error.errno == errno.ENAMETOOLONG else FAILED)

    return wrapped


_source = click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kising")
def main() -> None:
    """Learn the couplings of kinetic Ising networks with hidden spins, in sweeps that survive anything."""


def _names_of_sweeps(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from kising.sweep.starter import shipped_sweeps

    return [name for name in shipped_sweeps() if name.startswith(incomplete)]


@main.command()
@click.argument("name", required=False)
@click.option(
    "--from",
    "source",
    metavar="SWEEP",
    help="Start from a sweep that comes with kising, such as fig3b.",
    shell_complete=_names_of_sweeps,
)
@click.option(
    "--for",
    "recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A sweep over a recording of your own: how many hidden spins does it have?",
)
@_plainly
def init(name: str | None, source: str | None, recording: Path | None) -> None:
    """Write a commented sweep file NAME.yaml to start from, and beside it the schema for your editor."""
    from kising.sweep.starter import check_name, starter, starter_for, starter_from, write_starter

    if source is not None and recording is not None:
        raise InputError("--from and --for exclude each other: give one")
    chosen = name or ("my-sweep" if recording is None else "hidden-spins")
    check_name(chosen)
    folder = Path()
    if recording is not None:
        text = starter_for(recording, chosen, folder)
    else:
        text = starter(chosen) if source is None else starter_from(source, chosen)
    file, schema = write_starter(text, chosen, folder)
    click.echo(f"Wrote {file}, and {schema} for your editor. Next: kising plan {file}")


@main.command()
@_source
@_out
@_preset
@_set
@click.option(
    "--address", metavar="HOST:PORT", help="Run on the Ray cluster there ('auto': the one this host is in)."
)
@click.option("--cpus", type=click.IntRange(min=1), help="Cores of this machine to use [all].")
@click.option("--retry-failed", is_flag=True, help="Run failed runs again.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first failed run.")
@click.option(
    "--stale", type=click.Choice(["keep", "redo"]), help="What to do with runs made by other numerics."
)
@click.option(
    "--shrink", is_flag=True, help="Let finished runs that the edited sweep no longer has leave the tables."
)
@click.option("--page", is_flag=True, help="Serve a live page of the sweep on this machine while it runs.")
@click.option(
    "--mirror",
    metavar="URL",
    help="Keep a copy there, and go on from it: s3://bucket/prefix, gs://, az://, or a directory.",
)
@click.option("--local-debug", is_flag=True, help="Run in this process, without Ray.")
@_plainly
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
    page: bool,
    mirror: str | None,
    local_debug: bool,
) -> None:
    """Run a sweep file, or go on with the sweep in a directory."""
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
            mirror=mirror,
            command=shlex.join(["kising", *sys.argv[1:]]),
            stop=stop,
            observers=(display, announced(stop, say)),
            say=say,
        )
        results = run_session(spec, directory, session)
    _conclude(spec, results, stop.reason)


def _conclude(spec: SweepSpec, results: Results, reason: str) -> None:
    from kising.report.choice import choice_among
    from kising.report.console import show as show_tables
    from kising.sweep.failures import failure_of
    from kising.sweep.labels import varied_keys
    from kising.sweep.status import SHOWN, describe_failures

    outcome, directory = results.outcome, results.directory
    assert outcome is not None
    resume = f"kising run {shlex.quote(str(directory))}"
    if len(results.runs):
        show_tables(_console(), results.summary, results.scaling)
    for line in () if outcome.unfinished else choice_among(results.runs):
        click.echo(line)
    click.echo(f"Results: {directory}/runs.parquet, summary.parquet, scaling.parquet")
    failed = results.runs[results.runs["status"] == "failed"]
    if len(failed):
        count = plural(len(failed), "run")
        click.echo(f"{count} failed; `{resume} --retry-failed` runs them again:", err=True)
        failures = [failure_of(row) for row in failed.head(SHOWN).to_dict("records")]
        for line in describe_failures(directory, failures, varied_keys(spec), len(failed)):
            click.echo(line, err=True)
    if outcome.unfinished:
        why = f"stopped by {reason}" if reason else "stopped"
        click.echo(f"{why} with {plural(outcome.unfinished, 'run')} to go; to go on: {resume}", err=True)
        sys.exit(128 + signal.Signals[reason] if reason in signal.Signals.__members__ else FAILED)
    if len(failed):
        sys.exit(FAILED)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # Tables take the width they need: a line that the terminal folds is read more easily than a number cut short.
    console.width = max(console.width, 240)
    return console


@main.command()
@_source
@_out
@_preset
@_set
@click.option("--calibrate", is_flag=True, help="Measure this machine first, with small runs.")
@_plainly
def plan(
    source: Path, out: Path | None, preset: str | None, overrides: tuple[str, ...], calibrate: bool
) -> None:
    """Show what a sweep would run, how much of it is done, and what the rest will cost. Starts nothing."""
    from kising.run import locate
    from kising.sweep.status import calibrate as measure
    from kising.sweep.status import describe_plan

    spec, directory = locate(source, out, preset=preset, overrides=overrides)
    if calibrate:
        measure(spec)
    for line in describe_plan(spec, directory):
        click.echo(line)


@main.command()
@_directory
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until it ends.")
@_plainly
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


@main.command()
@_directory
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; one that other machines can reach asks them for a token.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@_plainly
def serve(directory: Path, host: str, port: int) -> None:
    """Serve a page of a sweep that updates itself while the sweep runs, until Ctrl-C."""
    from kising.live.server import LiveServer
    from kising.sweep.store.directory import SweepDirectory

    SweepDirectory.open(directory)
    server = LiveServer(directory, host, port)
    click.echo(f"Page: {server.url}\nCtrl-C ends the server; the sweep goes on.")
    with suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
    server.server_close()


@main.command()
@_directory
@click.argument("run", metavar="RUN")
@_plainly
def show(directory: Path, run: str) -> None:
    """Show everything about one run, given by its id or the beginning of it, and how to repeat it in Python."""
    from kising.report.one_run import describe_run

    for line in describe_run(directory, run):
        click.echo(line)


@main.command()
@_directory
@_plainly
def verify(directory: Path) -> None:
    """Check every part against its checksum and the log, every row against the plan, every table against the parts.

    Exit code 0: nothing is missing, damaged or forged.
    """
    from kising.report.tables import derived
    from kising.run import locate
    from kising.sweep.plan import Plan
    from kising.sweep.store.directory import SweepDirectory
    from kising.sweep.store.verify import verify as check

    opened = SweepDirectory.open(directory)
    spec, _ = locate(directory)
    report = check(opened, Plan.of(spec), derived)
    for line in report.lines():
        click.echo(line)
    if not report.in_order:
        sys.exit(FAILED)


@main.command()
@_directory
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print: tables, or all that the page says as JSON.",
)
@click.option(
    "--publish",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write a Markdown page, its figures and the tables, to be kept beside documentation.",
)
@_plainly
def report(directory: Path, form: str, folder: Path | None) -> None:
    """Rewrite a sweep's tables from its parts, and make a page with figures, claims and their verdicts."""
    from kising.report.build import build
    from kising.report.choice import choice_among
    from kising.report.console import show as show_tables
    from kising.report.published import publish
    from kising.report.tables import refresh_tables

    frames = refresh_tables(directory)
    built = build(directory, frames)
    published = None if folder is None else publish(directory, frames, built, folder)
    if form == "json":
        click.echo((built.page.parent / "report.json").read_text())
        return
    if len(frames.runs):
        show_tables(_console(), frames.summary, frames.scaling)
    for line in choice_among(frames.runs):
        click.echo(line)
    click.echo(f"Results: {directory}/runs.parquet, summary.parquet, scaling.parquet")
    for path in built.figures:
        click.echo(f"Figure: {path}")
    click.echo(f"Page: {built.page}")
    if published is not None:
        click.echo(f"Published: {published}")


@main.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--hidden",
    type=Numbers(),
    required=True,
    metavar="N[,N...]",
    help="Number of hidden spins to assume; several, as in 0,1,2,4: choose by cross-validation.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), required=True, help="Of the start; another may end elsewhere."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the results [FILE with .fit], or a file that ends in .npz, for the couplings alone.",
)
@click.option(
    "--errors/--no-errors",
    default=None,
    help="Standard errors of the couplings [for networks that are small enough].",
)
@click.option("--threads", type=click.IntRange(min=1), help="Cores to use; they change the time alone [all].")
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Parts held out, to choose --hidden.",
)
@click.option(
    "--address", metavar="HOST:PORT", help="Choose --hidden on the Ray cluster there; see `kising run`."
)
@click.option("--local-debug", is_flag=True, help="Choose --hidden in this process, without Ray.")
@click.option(
    "--missing",
    type=click.Choice(["sample", "drop"]),
    help="Missing entries: average over them, or leave out steps that have any [sample].",
)
@reading_flags()
@flags(FIT)
@_plainly
def fit(
    file: Path,
    hidden: tuple[int, ...],
    seed: int,
    out: Path | None,
    errors: bool | None,
    threads: int | None,
    folds: int,
    address: str | None,
    local_debug: bool,
    missing: str | None,
    **options: Any,
) -> None:
    """Learn couplings from a recording of your own: .npy, .npz, .csv, .tsv, .parquet or .mat, one row per time step.

    Writes a folder with a page, index.html. The same command goes on where it was stopped. Values of options are
    written as in a sweep file.
    """
    from kising.fitting.command import Request, StoppedError
    from kising.fitting.command import run as run_fit
    from kising.sweep.drive.signals import stop_on_signals

    reading = {name: options.pop(name) for name in READING} | {"missing": missing}
    request = Request(
        file=file,
        hidden=hidden,
        seed=seed,
        out=out,
        errors=errors,
        threads=threads,
        folds=folds,
        address=address,
        in_process=local_debug,
        reading=given(reading),
        options=given(options),
        command=shlex.join(["kising", *sys.argv[1:]]),
    )
    with stop_on_signals() as stop:
        try:
            converged = run_fit(
                request,
                say=click.echo,
                report=lambda line: click.echo(line, err=True),
                stream=sys.stderr,
                stop=stop,
            )
        except StoppedError as stopped:
            click.echo(str(stopped), err=True)
            sys.exit(
                128 + signal.Signals[stop.reason] if stop.reason in signal.Signals.__members__ else FAILED
            )
    if not converged:
        sys.exit(FAILED)


@main.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "markdown"]),
    default="json",
    show_default=True,
    help="JSON Schema for editors, or the key reference for people.",
)
def schema(form: str) -> None:
    """Describe sweep files: every key, its values and its default."""
    from kising.sweep.spec.reference import markdown
    from kising.sweep.starter import schema_text

    click.echo(markdown() if form == "markdown" else schema_text(), nl=False)


@main.command()
@click.option("--full", is_flag=True, help="More rounds and longer recordings.")
@click.option(
    "--driver", is_flag=True, help="Measure what the driver costs instead, and simulate thousands of workers."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("bench.json"),
    show_default=True,
    help="File of the numbers.",
)
@_plainly
def bench(full: bool, driver: bool, out: Path) -> None:
    """Time the kernels of this machine against NumPy doing the same maths."""
    if driver:
        from kising.bench.scaling import bench_driver

        for line in bench_driver(window=120.0 if full else 60.0):
            click.echo(line)
        return
    from kising.bench.report import bench as measure

    for line in measure(out, full=full):
        click.echo(line)
    click.echo(f"Numbers: {out}")


if __name__ == "__main__":
    main()
