"""How figures look: colours that colour-blind readers can tell apart, markers, and texts for parameters."""

from __future__ import annotations

from itertools import cycle
from typing import Final

from kising.blocks import BONDS

#: By block: the first three green, red and blue as in the paper; shapes tell them apart without colour.
COLOURS: Final = dict(
    zip(BONDS, cycle(("#009e73", "#d55e00", "#0072b2", "#cc79a7", "#e69f00", "#56b4e9", "#000000")))
)
MARKERS: Final = dict(zip(BONDS, cycle("os^DvPX")))
#: For what has no block: averages, fractions.
OTHER_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
OTHER_MARKERS: Final = ("o", "D", "v", "P")
GUIDE_COLOUR: Final = "#666666"
#: Two learners in one panel: the first with filled marks on solid lines, the second open and dashed.
LINE_STYLES: Final = ("-", "--")

PANEL_INCHES: Final = (4.4, 4.0)

_LABELS: Final = {
    "data.length": "length of the recording T (steps)",
    "network.size": "number of spins N = Nv + Nh",
    "network.fraction": "fraction of visible spins Nv/N",
    "model.visible": "number of visible spins Nv",
    "model.hidden": "number of hidden spins Nh",
    "model.strength": "strength of the couplings g",
    "model.connectivity": "probability of a bond c",
    "model.bias": "standard deviation of the biases",
    "model.hidden_coupling": "strength of M, relative to that of K",
}
_SYMBOLS: Final = {
    "data.length": "T",
    "network.size": "N",
    "network.fraction": "Nv/N",
    "model.visible": "Nv",
    "model.hidden": "Nh",
    "model.strength": "g",
    "model.connectivity": "c",
    "learner.estep.damping": "damping",
    "model.hidden_coupling": "M/K",
}
#: What a learner has or does not have, where an option says so.
_PARTS: Final = {"learner.bias": "biases", "learner.hidden_couplings": "M"}
_SLUGS: Final = {"data.length": "length", "network.size": "size", "network.fraction": "visible-fraction"}


def axis_label(key: str) -> str:
    """What a parameter is called along an axis."""
    return _LABELS.get(key, key)


def axis_slug(key: str) -> str:
    """What a parameter is called in the name of a file."""
    return _SLUGS.get(key, key.rpartition(".")[2].replace("_", "-"))


def describe_setting(key: str, value: object) -> str:
    """A parameter and its value in few characters: `c = 0.1`, or the value alone where it is clear enough."""
    if key in ("learner.estimator", "learner.correlations", "learner.start"):
        return str(value)
    if key in _PARTS:
        return f"{'with' if value else 'no'} {_PARTS[key]}"
    if key == "learner.step":
        return f"{value} step"
    short = _SYMBOLS.get(key, key.rpartition(".")[2].replace("_", " "))
    return f"{short} = {value:g}" if isinstance(value, int | float) else f"{short} = {value}"
