"""The blocks of a network's couplings: their names and shapes. All code that goes block by block uses this table.

J couples visible to visible spins, K hidden to visible, L visible to hidden, M hidden to hidden; h and b are the biases
of visible and hidden spins, F and G the weights of known inputs (docs/maths.md, "Model and time indices" and "The
larger model"). Every network has J, K and L. The others are optional: a learner that leaves one out has an empty array
in its place.
"""

from typing import NamedTuple


class Block(NamedTuple):
    """One block of couplings."""

    name: str
    rows: str
    """which spins it acts on: visible or hidden"""
    columns: str
    """what it comes from: visible or hidden spins, one (a constant), or input"""

    @property
    def is_field(self) -> bool:
        """Whether it comes from outside the network, not from other spins."""
        return self.columns in ("one", "input")

    @property
    def is_optional(self) -> bool:
        """Whether a network may be without it."""
        return self.is_field or self.name == "M"

    def shape(self, visible: int, hidden: int, inputs: int = 0) -> tuple[int, ...]:
        """Its shape in a network of these sizes; biases are vectors."""
        sizes = {"visible": visible, "hidden": hidden, "input": inputs}
        return (sizes[self.rows],) if self.columns == "one" else (sizes[self.rows], sizes[self.columns])


TABLE = (
    Block("J", "visible", "visible"),
    Block("K", "visible", "hidden"),
    Block("L", "hidden", "visible"),
    Block("h", "visible", "one"),
    Block("b", "hidden", "one"),
    Block("F", "visible", "input"),
    Block("G", "hidden", "input"),
    Block("M", "hidden", "hidden"),
)
BLOCKS = tuple(block.name for block in TABLE)
"""The names, in the order of `Couplings`."""
BONDS = tuple(block.name for block in TABLE if not block.is_field)
"""Those that couple spins."""
REQUIRED = tuple(block.name for block in TABLE if not block.is_optional)
"""Those that every network has."""


def shapes(visible: int, hidden: int, inputs: int = 0) -> dict[str, tuple[int, ...]]:
    """The shape of every block."""
    return {block.name: block.shape(visible, hidden, inputs) for block in TABLE}


def n_couplings(
    visible: int, hidden: int, *, bias: bool = False, inputs: int = 0, hidden_couplings: bool = False
) -> int:
    """The number of couplings that are learned."""
    fields = (visible + hidden) * (bias + inputs)
    return fields + visible * (visible + 2 * hidden) + hidden_couplings * hidden**2
