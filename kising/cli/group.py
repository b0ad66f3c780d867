"""All commands of `kising`."""

from __future__ import annotations

import click

from kising.cli.bench import bench
from kising.cli.fit import fit
from kising.cli.results import report, serve, show, status, verify
from kising.cli.run import plan, run
from kising.cli.write import init, schema
from kising.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kising")
def main() -> None:
    """Learn the couplings of kinetic Ising networks with hidden spins, in sweeps that resume after any interruption."""


for command in (init, run, plan, status, serve, show, verify, report, fit, schema, bench):
    main.add_command(command)
