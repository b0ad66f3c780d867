"""All commands of `kising`."""

from __future__ import annotations

import sys

import click

from kising.cli.bench import bench
from kising.cli.exits import MISTAKE
from kising.cli.fit import fit
from kising.cli.results import report, serve, show, status, verify
from kising.cli.run import plan, run
from kising.cli.write import init, schema
from kising.version import __version__


class _Commands(click.Group):
    """A group that takes only arguments that are text.

    A name whose bytes are not UTF-8 could not be written into the records and pages of results.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse such a name before any command begins."""
        for argument in args:
            try:
                argument.encode()
            except UnicodeEncodeError:
                click.echo(f"kising: {argument!r} is not UTF-8: choose another name", err=True)
                sys.exit(MISTAKE)
        return super().parse_args(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kising")
def main() -> None:
    """Learn the couplings of kinetic Ising networks with hidden spins, in sweeps that resume after any interruption."""


for command in (init, run, plan, status, serve, show, verify, report, fit, schema, bench):
    main.add_command(command)
