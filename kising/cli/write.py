"""Commands that write files for people to edit: `init` and `schema`."""

from __future__ import annotations

from pathlib import Path

import click

from kising.cli.exits import plainly
from kising.errors import InputError


def _names_of_sweeps(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from kising.sweep.starter import shipped_sweeps

    return [name for name in shipped_sweeps() if name.startswith(incomplete)]


@click.command()
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
    help="Write a sweep that finds the number of hidden spins of a recording of your own.",
)
@plainly
def init(name: str | None, source: str | None, recording: Path | None) -> None:
    """Write a commented sweep file to start from.

    Writes NAME.yaml in this directory, and beside it the schema with which your editor can check it.
    """
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


@click.command()
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
