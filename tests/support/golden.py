"""Golden values: small E-steps, fits and sweeps with every option given, and a few numbers of each.

    cd tests && python -m support.golden

measures them all and writes golden/values.json. Do that together with a new NUMERICS in kising/version.py,
when the same sweep is meant to give other numbers than before.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kising
from kising.version import NUMERICS

FILE = Path(__file__).parents[1] / "golden" / "values.json"
# Stored numbers are rounded to this many digits, more than any tolerance below looks at.
DIGITS = 10
WRITE = "rewrite tests/golden/values.json: cd tests && python -m support.golden"

#: name: (visible, hidden, connectivity, steps of the recording)
NETWORKS = {
    "small": (8, 3, 1.0, 2000),
    "sparse": (20, 4, 0.3, 3000),
    "eight": (8, 8, 1.0, 60),
    "nine": (8, 9, 1.0, 60),
}

E_STEP: Mapping[str, Any] = {
    "estimator": "exact",
    "correlations": "closed",
    "tolerance": 1e-9,
    "damping": None,
    "max_iterations": 200,
    "precision": "float64",
    "sweeps": 50,
    "seed": 5,
    "threads": 1,
}
RULES = ("iterated", "closed", "pair", "corrected", "iterated-corrected", "bounded")
E_STEPS: Mapping[str, Mapping[str, Any]] = {
    "exact": {},
    "gibbs": {"estimator": "gibbs"},
    **{f"bp {rule}": {"estimator": "bp", "correlations": rule} for rule in RULES},
    "bp undamped": {"estimator": "bp", "correlations": "iterated-corrected", "damping": 0.0},
    "bp float32": {"estimator": "bp", "correlations": "corrected", "precision": "float32"},
    "tap": {"estimator": "tap"},
    "tap damped": {"estimator": "tap", "damping": 0.5},
    "mean-field": {"estimator": "mean-field", "damping": 0.5},
}

FIT: Mapping[str, Any] = {
    "bias": False,
    "estimator": "exact",
    "correlations": "corrected",
    "start": "signs",
    "seed": 3,
    "step": "scaled",
    "rate": 0.5,
    "momentum": 0.9,
    "tolerance": 1e-4,
    "hold": 3,
    "max_iterations": 300,
    "estep_tolerance": 1e-9,
    "estep_damping": None,
    "estep_max_iterations": 200,
    "precision": "float64",
    "noise": 0.1,
    "prior": None,
    "l1": 0.0,
    "decimate": None,
    "starts": 1,
    "errors": False,
    "threads": 1,
}
#: What a fit does by default.
USUAL = {"start": "random", "bias": True, "prior": "auto"}
COUPLED = {**USUAL, "hidden_couplings": True}
PAPER = {"estimator": "bp", "step": "gradient", "estep_damping": 0.0, "max_iterations": 60}
#: name: (network, options that differ from FIT). Approximate averages make learning sensitive to rounding: where it
#: does not converge soon, two kinds of CPU part after 50 to 100 iterations (naive mean field after 7), so these end
#: before that. So does sampling on a sparse network.
FITS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "exact": ("small", {}),
    "exact random": ("small", {"start": "random"}),
    "exact gradient": ("small", {"step": "gradient", "max_iterations": 60}),
    "exact l1": ("small", {"start": "random", "l1": 1.0}),
    "exact gradient l1": ("small", {"step": "gradient", "l1": 1.0, "max_iterations": 60}),
    "exact decimate": ("small", {"start": "random", "decimate": 0.5}),
    "exact prior": ("small", {"start": "random", "prior": 3.0}),
    "exact starts": ("small", {"start": "random", "starts": 3}),
    "exact errors": ("small", {"errors": True}),
    "exact sparse": ("sparse", {}),
    "exact usual": ("small", {**USUAL, "errors": True}),
    "exact coupled": ("small", {**COUPLED, "errors": True}),
    "gibbs": ("small", {"estimator": "gibbs"}),
    "gibbs random": ("small", {"estimator": "gibbs", "start": "random", "prior": 3.0, "errors": True}),
    "gibbs starts": ("small", {"estimator": "gibbs", "start": "random", "starts": 3}),
    "gibbs sparse": ("sparse", {"estimator": "gibbs", "prior": 3.0, "max_iterations": 40}),
    "gibbs usual": ("small", {**USUAL, "estimator": "gibbs", "errors": True}),
    "gibbs coupled": ("small", {**COUPLED, "estimator": "gibbs", "max_iterations": 80}),
    **{f"bp {rule}": ("small", {"estimator": "bp", "correlations": rule}) for rule in RULES},
    "bp random": ("small", {"estimator": "bp", "start": "random", "prior": 3.0}),
    "bp float32": ("small", {"estimator": "bp", "precision": "float32"}),
    "bp gradient": ("small", {**PAPER, "correlations": "iterated-corrected"}),
    "bp starts": ("small", {"estimator": "bp", "start": "random", "starts": 3}),
    "bp l1": ("small", {"estimator": "bp", "l1": 1.0, "max_iterations": 30}),
    "bp decimate": ("small", {"estimator": "bp", "decimate": 0.5, "max_iterations": 30}),
    "bp sparse": ("sparse", {"estimator": "bp", "max_iterations": 40}),
    "tap": ("small", {"estimator": "tap"}),
    "tap random": ("small", {"estimator": "tap", "start": "random", "prior": 3.0}),
    "tap sparse": ("sparse", {"estimator": "tap", "max_iterations": 40}),
    "mean-field": ("small", {"estimator": "mean-field", "max_iterations": 5}),
    "auto eight": ("eight", {"estimator": "auto", "max_iterations": 3}),
    "auto nine": ("nine", {"estimator": "auto", "max_iterations": 3}),
}

LEARNER = {
    **{
        key: FIT[key]
        for key in (
            "bias",
            "start",
            "step",
            "rate",
            "momentum",
            "tolerance",
            "hold",
            "max_iterations",
            "noise",
        )
    },
    **{"prior": 3.0, "l1": 0.0, "decimate": "none", "starts": 1, "correlations": "corrected"},
    "estep": {"tolerance": 1e-9, "damping": "adaptive", "max_iterations": 200, "precision": "float64"},
}
MODEL = {"visible": 6, "hidden": 2, "bonds": "binary", "strength": 1.0, "connectivity": 0.6}
SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "learn": {
        "learner": {**LEARNER, "estimator": "exact", "start": "random"},
        "axes": {"learner.decimate": ["none", "known"]},
        "score": {"pruned": True},
    },
    "infer": {
        "learner": {**LEARNER, "estimator": "bp"},
        "axes": {"learner.estimator": ["bp", "gibbs"]},
        "score": {"exact": True},
    },
}
#: Columns of a run whose numbers belong to one machine or one session, or which only repeat the sweep file.
NOT_GOLDEN = (
    "seconds",
    "cpu_seconds",
    "host",
    "numerics",
    "version",
    "schema",
    "error",
    "traceback",
    "started",
    "finished",
)


def names() -> list[str]:
    return [
        *(f"draw {name}" for name in NETWORKS),
        *(f"e-step {network}: {name}" for network in ("small", "sparse") for name in E_STEPS),
        *(f"fit {name}" for name in FITS),
        *(f"sweep {name}" for name in SWEEPS),
    ]


def measure(name: str) -> dict[str, Any]:
    """The numbers of a case, rounded."""
    kind, _, rest = name.partition(" ")
    cases: Mapping[str, Callable[[str], Iterator[tuple[str, Any]]]] = {
        "draw": _drawn,
        "e-step": _e_step,
        "fit": _fitted,
        "sweep": _swept,
    }
    return {key: _rounded(value) for key, value in cases[kind](rest)}


def tolerance(name: str) -> float:
    """The relative difference that another kind of CPU may make. Counts and words may not differ at all."""
    # Learning from samples is in float32 too.
    if "float32" in name or name.startswith("fit gibbs"):
        return 1e-4
    return 1e-6 if name.startswith(("draw", "e-step")) else 1e-5


def same(value: Any, golden: Any, tolerance: float) -> bool:
    if isinstance(golden, float) and isinstance(value, float):
        return math.isclose(value, golden, rel_tol=tolerance, abs_tol=tolerance / 10)
    return bool(value == golden)


@cache
def _network(name: str) -> tuple[kising.Couplings, kising.Recording, Any]:
    visible, hidden, connectivity, length = NETWORKS[name]
    ensemble = {"strength": 1.0, "connectivity": connectivity}
    couplings = kising.draw_couplings(visible, hidden, **ensemble, bonds="gaussian", seed=1)
    scales = kising.bond_scales(visible, hidden, **ensemble)
    return couplings, kising.simulate(couplings, length, seed=2), scales


def _drawn(name: str) -> Iterator[tuple[str, Any]]:
    couplings, recording, _ = _network(name)
    visible, hidden, connectivity, _ = NETWORKS[name]
    binary = kising.draw_couplings(
        visible, hidden, strength=0.7, connectivity=connectivity, bonds="binary", seed=1
    )
    yield from _blocks("", couplings)
    yield from _blocks("binary ", binary)
    for side, spins in zip(("visible", "hidden"), recording, strict=True):
        place = 1 + np.arange(spins.size).reshape(spins.shape) % 97
        yield f"{side} checksum", int(np.sum(place * spins, dtype=np.int64))


def _e_step(name: str) -> Iterator[tuple[str, Any]]:
    network, _, estimator = name.partition(": ")
    couplings, recording, _ = _network(network)
    options = {**E_STEP, **E_STEPS[estimator]}
    moments = kising.infer(couplings, recording.visible[:200], **options)
    for key in ("m", "mu", "pair", "log_likelihood"):
        yield from _array(key, getattr(moments, key))
    slopes = kising.gradient(couplings, recording.visible, **options)
    yield from _blocks("gradient ", slopes)
    for key in ("log_likelihood", "abs_m", "abs_mu", "abs_pair", "converged", "corrected"):
        yield f"gradient {key}", float(getattr(slopes, key))


def _fitted(name: str) -> Iterator[tuple[str, Any]]:
    network, options = FITS[name]
    couplings, recording, scales = _network(network)
    hidden = NETWORKS[network][1]
    fit = kising.fit(recording.visible, hidden, truth=couplings, scales=scales, **{**FIT, **options})
    yield "estimator", fit.estimator
    yield "outcome", fit.outcome
    yield "iterations", fit.iterations
    for block, converged in fit.converged.items():
        yield f"{block} converged", bool(converged)
    yield from _blocks("", fit.couplings, fit.converged)
    for block, rmse in (fit.rmse or {}).items():
        yield f"{block} rmse", float(rmse)
    yield "log_likelihood", float(fit.trace["log_likelihood"].iloc[-1])
    for key in ("monte_carlo_error", "standard_error"):
        errors = getattr(fit, key)
        if errors is not None:
            yield from _blocks(f"{key} ", errors, fit.converged)


def _swept(task: str) -> Iterator[tuple[str, Any]]:
    spec = {
        "name": "golden",
        "task": task,
        "seed": 4,
        "realizations": 2,
        "model": MODEL,
        "data": {"length": 300},
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = kising.run_sweep({**spec, **SWEEPS[task]}, out=Path(folder) / "golden", in_process=True).runs
    for row, run in enumerate(runs.to_dict("records")):
        for key, value in run.items():
            if str(key) not in NOT_GOLDEN and "." not in str(key) and not pd.isna(value):
                yield f"run {row} {key}", value


def _blocks(prefix: str, couplings: Any, blocks: Iterable[str] = "JKL") -> Iterator[tuple[str, Any]]:
    for block in blocks:
        yield from _array(f"{prefix}{block}", getattr(couplings, block))


def _array(name: str, array: np.ndarray) -> Iterator[tuple[str, Any]]:
    finite = array[np.isfinite(array)]
    if finite.size < array.size:
        yield f"{name} not finite", int(array.size - finite.size)
    yield f"{name} norm", float(np.linalg.norm(finite))
    # Weights tell entries apart, so that a permutation or a sign is noticed.
    yield (
        f"{name} weighted",
        float(finite.ravel() @ np.cos(np.arange(finite.size))) / max(finite.size, 1) ** 0.5,
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return None if math.isnan(value) else float(f"{value:.{DIGITS}g}")
    return value.item() if isinstance(value, np.generic) else value


def main() -> None:
    values = {name: measure(name) for name in names()}
    FILE.write_text(json.dumps({"numerics": NUMERICS, "values": values}, indent=1, sort_keys=True) + "\n")
    print(f"wrote {sum(map(len, values.values()))} numbers of {len(values)} cases to {FILE}")


if __name__ == "__main__":
    main()
