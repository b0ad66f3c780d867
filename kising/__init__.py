"""kising learns the couplings of kinetic Ising networks when some of their spins are hidden.

`draw_couplings` and `simulate` make networks and recordings, `infer` and `gradient` average over hidden spins, `fit`
learns couplings from the visible spins alone, and `run_sweep` (or the command `kising`) does all of this for many
parameters on many cores. Errors are in `kising.errors`; all of them are a `KisingError`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kising.errors import KisingError
from kising.version import __version__

if TYPE_CHECKING:
    from kising.estimators.gradient import Gradient, gradient
    from kising.estimators.moments import Moments, infer
    from kising.learning.fit import Fit, fit
    from kising.learning.fitted.saving import load_fit
    from kising.model import Couplings, Recording, bond_scales, draw_couplings, simulate
    from kising.recordings import Segments, read_recording
    from kising.report.results import Results, load_results
    from kising.run import run_sweep
    from kising.sklearn import KineticIsing

# Names are loaded when first used: the command line must answer `--help` without waiting for a compiler.
_HOMES = {
    "kising.model": ("Couplings", "Recording", "bond_scales", "draw_couplings", "simulate"),
    "kising.recordings": ("Segments", "read_recording"),
    "kising.estimators.gradient": ("Gradient", "gradient"),
    "kising.estimators.moments": ("Moments", "infer"),
    "kising.learning.fit": ("Fit", "fit"),
    "kising.learning.fitted.saving": ("load_fit",),
    "kising.report.results": ("Results", "load_results"),
    "kising.run": ("run_sweep",),
    "kising.sklearn": ("KineticIsing",),
}

__all__ = [  # noqa: RUF022  # by what they are for
    "KisingError",
    "__version__",
    "Couplings",
    "Recording",
    "bond_scales",
    "draw_couplings",
    "simulate",
    "Segments",
    "read_recording",
    "Gradient",
    "Moments",
    "gradient",
    "infer",
    "Fit",
    "fit",
    "load_fit",
    "Results",
    "load_results",
    "run_sweep",
]
# `from kising import *` must work without scikit-learn.
__all__ += ["KineticIsing"] * (find_spec("sklearn") is not None)


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'kising' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
