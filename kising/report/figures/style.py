"""How figures look: the paper's colours in shades that stay apart for colour-blind eyes, and words for axes."""

from __future__ import annotations

from typing import Final

#: J green, K red, L blue as in the paper; shapes tell them apart without colour.
COLOURS: Final = {"J": "#009e73", "K": "#d55e00", "L": "#0072b2"}
MARKERS: Final = {"J": "o", "K": "s", "L": "^"}
#: For what has no block: averages, fractions.
PLAIN: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
PLAIN_MARKERS: Final = ("o", "D", "v", "P")
GUIDE: Final = "#666666"
#: Two ways of learning in one panel: the first as filled marks on solid lines, the second open and dashed.
LINES: Final = ("-", "--")

PANEL_INCHES: Final = (4.4, 4.0)

_WORDS: Final = {
    "data.length": "length of the recording T (steps)",
    "network.size": "number of spins N = Nv + Nh",
    "network.fraction": "fraction of visible spins Nv/N",
    "model.visible": "number of visible spins Nv",
    "model.hidden": "number of hidden spins Nh",
    "model.strength": "strength of the couplings g",
    "model.connectivity": "probability of a bond c",
}
_SHORT: Final = {
    "data.length": "T",
    "network.size": "N",
    "network.fraction": "Nv/N",
    "model.visible": "Nv",
    "model.hidden": "Nh",
    "model.strength": "g",
    "model.connectivity": "c",
    "learner.estep.damping": "damping",
}
_NAMES: Final = {"data.length": "length", "network.size": "size", "network.fraction": "visible-fraction"}


def words(key: str) -> str:
    """What an axis is called under a figure."""
    return _WORDS.get(key, key)


def file_word(key: str) -> str:
    """What an axis is called in the name of a file."""
    return _NAMES.get(key, key.rpartition(".")[2].replace("_", "-"))


def setting(key: str, value: object) -> str:
    """A parameter and its value, as short as they can be said: c = 0.1, or a word that speaks for itself."""
    if key in ("learner.estimator", "learner.correlations", "learner.start"):
        return str(value)
    if key == "learner.step":
        return f"{value} step"
    short = _SHORT.get(key, key.rpartition(".")[2].replace("_", " "))
    return f"{short} = {value:g}" if isinstance(value, int | float) else f"{short} = {value}"
