"""`python -m kising` is the command `kising`."""

from kising.cli import main

main(prog_name="kising")
