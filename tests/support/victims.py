"""What the campaign kills: short sweeps, sweeps on Ray, and fits; with M, gaps, checkpoints and kept couplings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

from kising import draw_couplings, simulate

SHORT: Final = {
    "learn": """
name: learn
seed: 7
realizations: 10
model: {visible: 6, hidden: 2}
learner: {max_iterations: 20, tolerance: 1.0e-12}
axes:
  - {learner.estimator: [exact, bp]}
  - {data.length: [100, 200, 2000]}
keep: {couplings: true, trace: true, realizations: 2}
resources: {checkpoint: 0.01}
""",
    "infer": """
name: infer
task: infer
seed: 8
realizations: 24
model: {visible: 6, hidden: 2, connectivity: 0.5}
score: {exact: true}
learner: {correlations: corrected}
axes: {learner.estimator: [bp, tap, mean-field], data.length: [500, 4000]}
""",
    "coupled": """
name: coupled
seed: 10
realizations: 8
model: {visible: 5, hidden: 2, hidden_coupling: 1.0, bias: 0.3}
learner: {hidden_couplings: true, bias: true, max_iterations: 10, tolerance: 1.0e-12, start: random}
axes: {data.missing: [0, 0.1], data.length: [60, 200]}
keep: {couplings: true, trace: true, realizations: 1}
resources: {checkpoint: 0.01}
""",
}
"""Sweeps that are run in one process."""

ON_RAY: Final = {
    "ray": """
name: ray
seed: 9
realizations: 12
model: {visible: 8, hidden: 2}
learner: {estimator: bp, max_iterations: 50, tolerance: 1.0e-12}
axes: {data.length: [500, 2000, 12000]}
keep: {couplings: true, trace: true, realizations: 2}
resources: {checkpoint: 0.2}
""",
    "ray-coupled": """
name: ray-coupled
seed: 11
realizations: 4
model: {visible: 6, hidden: 2, hidden_coupling: 1.0}
learner: {hidden_couplings: true, max_iterations: 60, tolerance: 1.0e-12, start: random}
axes: {data.missing: [0, 0.1], data.length: [300, 3000]}
keep: {couplings: true, trace: true, realizations: 1}
resources: {checkpoint: 0.1}
""",
}

FITS: Final = {
    "fit with M and gaps": [
        "--hidden",
        "1",
        "--hidden-couplings",
        "true",
        "--max-iterations",
        "100",
        "--no-errors",
    ],
    "fit": ["--hidden", "2", "--missing", "drop", "--max-iterations", "100", "--tolerance", "1e-15"],
}
"""Arguments of `kising fit`."""


def shortened(text: str, realizations: int | None) -> str:
    """A sweep with fewer realizations."""
    if realizations is None:
        return text
    return re.sub(r"(?m)^realizations: \d+$", f"realizations: {realizations}", text)


def write_recording(file: Path, steps: int = 400) -> Path:
    """A recording of which some entries are missing."""
    couplings = draw_couplings(5, 2, hidden_coupling=1.0, bias=0.3, seed=1)
    visible = simulate(couplings, steps, seed=2).visible.astype(float)
    visible[np.random.default_rng(3).random(visible.shape) < 0.05] = np.nan
    np.save(file, visible)
    return file
