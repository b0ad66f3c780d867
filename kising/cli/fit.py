"""The command `fit`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from kising.arguments import FIT
from kising.cli.exits import FAILED, plainly, stopped_by
from kising.cli.flags import Numbers, flags, given, reading_flags
from kising.options import READING


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--hidden",
    type=Numbers(),
    required=True,
    metavar="N[,N...]",
    help="Number of hidden spins to assume; several, as in 0,1,2,4: choose by cross-validation.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    required=True,
    help="Seed of all random numbers; another seed may lead to another maximum.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the results [FILE with the ending .fit], or a .npz file for the couplings alone.",
)
@click.option(
    "--errors/--no-errors",
    default=None,
    help="Compute standard errors of the couplings [yes, if the network is small enough].",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Number of cores to use; it affects the time, not the result [all].",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Number of parts that are held out in turn, to choose --hidden.",
)
@click.option(
    "--address", metavar="HOST:PORT", help="Choose --hidden on the Ray cluster there; see `kising run`."
)
@click.option("--local-debug", is_flag=True, help="Choose --hidden in this process, without Ray.")
@reading_flags()
@flags(FIT)
@plainly
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
    **options: Any,
) -> None:
    """Learn the couplings from a recording of your own.

    FILE is .npy, .npz, .csv, .tsv, .parquet or .mat, with one row per time step. Writes a folder with a page,
    index.html. The same command resumes where it was stopped. Values of options are written as in a sweep file.
    """
    from kising.fitting.command import Request, StoppedError
    from kising.fitting.command import run as run_fit
    from kising.sweep.drive.signals import stop_on_signals

    reading = {name: options.pop(name) for name in READING}
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
            sys.exit(stopped_by(stop.reason))
    if not converged:
        sys.exit(FAILED)
