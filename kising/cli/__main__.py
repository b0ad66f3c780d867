"""`python -m kising.cli` is `kising`."""

from kising.cli import main

if __name__ == "__main__":
    main(prog_name="kising")
