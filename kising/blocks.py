"""The blocks of a network's couplings: their names, shapes and number. Everything that goes block by block starts here.

Symbols: J couples visible to visible spins, K hidden to visible, L visible to hidden (docs/maths.md, "Model and
time indices").
"""

from typing import NamedTuple


class Block(NamedTuple):
    """One block of couplings."""

    name: str
    rows: str
    """which spins it acts on: visible or hidden"""
    columns: str
    """which spins it comes from"""

    def shape(self, visible: int, hidden: int) -> tuple[int, int]:
        """Rows and columns in a network of these sizes."""
        sizes = {"visible": visible, "hidden": hidden}
        return sizes[self.rows], sizes[self.columns]


TABLE = (
    Block("J", "visible", "visible"),
    Block("K", "visible", "hidden"),
    Block("L", "hidden", "visible"),
)
BLOCKS = tuple(block.name for block in TABLE)
"""The names, in the order of `Couplings`."""


def shapes(visible: int, hidden: int) -> dict[str, tuple[int, int]]:
    """The shape of every block."""
    return {block.name: block.shape(visible, hidden) for block in TABLE}


def n_couplings(visible: int, hidden: int) -> int:
    """The number of couplings of a network."""
    return sum(rows * columns for rows, columns in shapes(visible, hidden).values())
