"""The command `bench`."""

from __future__ import annotations

from pathlib import Path

import click

from kising.cli.exits import plainly


@click.command()
@click.option("--full", is_flag=True, help="More rounds and longer recordings.")
@click.option(
    "--driver", is_flag=True, help="Measure what the driver costs instead, and simulate thousands of workers."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("bench.json"),
    show_default=True,
    help="File for the numbers.",
)
@plainly
def bench(full: bool, driver: bool, out: Path) -> None:
    """Time the kernels on this machine against the same maths in NumPy."""
    if driver:
        from kising.bench.scaling import bench_driver

        for line in bench_driver(window=120.0 if full else 60.0):
            click.echo(line)
        return
    from kising.bench.report import bench as measure

    for line in measure(out, full=full):
        click.echo(line)
    click.echo(f"Numbers: {out}")
