"""fit.json: the data, the options, how learning ended, and the versions that were used."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kising.fitting.saved_state import data_hash
from kising.recordings import Segments
from kising.version import NUMERICS, __version__

if TYPE_CHECKING:
    from kising.learning.fit import Fit
    from kising.learning.selection import Choice


@dataclass(frozen=True, kw_only=True)
class Record:
    """The contents of fit.json."""

    recording: str
    data_sha256: str
    """of the spins, inputs and names that were fitted"""
    command: str
    written: str
    """UTC"""
    versions: dict[str, Any]
    visible: int
    hidden: int
    inputs: int
    steps: int
    segments: int
    slices: int
    names: list[str]
    input_names: list[str]
    notes: list[str]
    seed: Any
    options: dict[str, Any]
    estimator: str
    """the one that ran, where `auto` was asked for"""
    outcome: str
    missing: str | None
    iterations: int
    converged: dict[str, bool]
    """by block"""
    errors: bool
    """whether there are standard errors"""
    log_likelihood: float | None
    """of the training data, nats per slice; None where learning diverged"""
    likelihood: str
    """what that number is: exact, sampled, or an approximation"""
    choice: dict[str, Any] | None
    """held-out scores, where the number of hidden spins was chosen"""

    def as_json(self) -> str:
        """Plain JSON: no NaN, no infinity."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False)


def record(found: Fit, segments: Segments, choice: Choice | None, file: Path, command: str) -> Record:
    """What fit.json says."""
    score = found.training_log_likelihood
    return Record(
        recording=str(file),
        data_sha256=data_hash(segments),
        command=command,
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={
            "kising": __version__,
            "numerics": NUMERICS,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        visible=segments.n_visible,
        hidden=found.hidden,
        inputs=segments.n_covariates,
        steps=segments.n_steps,
        segments=len(segments.spins),
        slices=segments.n_slices,
        names=list(segments.names),
        input_names=list(segments.covariate_names),
        notes=list(segments.notes),
        seed=found.seed,
        options=found.options,
        estimator=found.estimator,
        outcome=found.outcome,
        missing=found.missing,
        iterations=found.iterations,
        converged=found.converged,
        errors=found.standard_error is not None,
        log_likelihood=score if np.isfinite(score) else None,
        likelihood=found.likelihood,
        choice=None if choice is None else _scores(choice),
    )


def _scores(choice: Choice) -> dict[str, Any]:
    return {
        "hidden": choice.hidden,
        "why": choice.reason,
        "folds": choice.folds,
        "candidates": [
            {
                "hidden": one.hidden,
                "behind": one.behind,
                "error": one.error,
                "converged": one.converged,
                **{
                    column: [x if np.isfinite(x) else None for x in each]
                    for column, each in one.scores.items()
                },
            }
            for one in choice.candidates
        ],
        "left_out": list(choice.left_out),
    }
