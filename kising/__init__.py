"""kising: how well can the couplings of a network be learned when some of its spins are hidden?

Networks are drawn and simulated (`draw_couplings`, `simulate`), hidden spins averaged over (`infer`,
`gradient`), couplings learned back from the visible spins alone (`fit`), and all of it swept over parameters
on many cores (`run_sweep`, or the command `kising`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kising.version import __version__

if TYPE_CHECKING:
    from kising.estimators.inference import Gradient, Moments, gradient, infer
    from kising.learning.fit import Fit, fit
    from kising.model import Couplings, Recording, bond_scales, draw_couplings, simulate
    from kising.run import Results, run_sweep

__all__ = [
    "Couplings",
    "Fit",
    "Gradient",
    "Moments",
    "Recording",
    "Results",
    "__version__",
    "bond_scales",
    "draw_couplings",
    "fit",
    "gradient",
    "infer",
    "run_sweep",
    "simulate",
]

_HOMES = {
    "kising.model": ("Couplings", "Recording", "bond_scales", "draw_couplings", "simulate"),
    "kising.estimators.inference": ("Gradient", "Moments", "gradient", "infer"),
    "kising.learning.fit": ("Fit", "fit"),
    "kising.run": ("Results", "run_sweep"),
}


def __getattr__(name: str) -> Any:
    # Names are loaded when first used: the command line must answer `--help` without waiting for a compiler.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'kising' has no attribute {name!r}")
