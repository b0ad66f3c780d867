"""Fits in files: an .npz archive of plain arrays and a JSON text. Reading it cannot run code.

The arrays have the names of the blocks (J, K, ...), with `_error` for standard errors and `_noise` for the Monte-Carlo
part of them; `state` is a checkpoint of learning, and `about` a JSON text with everything else.
"""

from __future__ import annotations

import io
import json
import os
import platform
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kising.arguments import FIT
from kising.atomic import atomic_write
from kising.blocks import BLOCKS
from kising.errors import CheckpointError, InputError, KisingError, StoreError
from kising.learning import checkpoint
from kising.model import Couplings, as_couplings
from kising.version import NUMERICS, __version__

if TYPE_CHECKING:
    from kising.learning.fit import Fit

FORMAT = 1
#: What a fit is called in a folder that `kising fit` wrote.
IN_FOLDER = "couplings.npz"


def save(fit: Fit, path: str | os.PathLike[str]) -> Path:
    """Write a fit, whole or not at all; an older file of that name is replaced."""
    # A symbolic link is kept, and the file that it leads to is replaced.
    target = Path(os.path.realpath(path))
    _check_regular(target, path, "save a fit there")
    try:
        atomic_write(target, to_bytes(fit))
    except StoreError as error:
        cause = error.__cause__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or str(error)
        raise StoreError(f"{os.fspath(path)}: cannot save a fit there: {reason}") from error
    return target


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Read a saved fit, bit for bit as it was. Raises a KisingError if the file is not a complete fit.

    `path` is the file, or the folder that `kising fit` wrote.
    """
    name, file = os.fspath(path), Path(path)
    if (file / IN_FOLDER).is_file():
        file /= IN_FOLDER
    _check_regular(file, path, "read a fit from there")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot read a fit from there: {error.strerror}") from error
    try:
        return from_bytes(data)
    except KisingError as error:
        raise InputError(f"{name}: {error}") from error


def _check_regular(found: Path, path: str | os.PathLike[str], doing: str) -> None:
    """Refuse a path that exists but is not a file: a FIFO would block forever, a device would be replaced."""
    try:
        mode = found.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise InputError(f"{os.fspath(path)}: cannot {doing}: it is {kind}, not a file")


def to_bytes(fit: Fit) -> bytes:
    """The whole fit."""
    about = {
        "format": FORMAT,
        "kising": __version__,
        "numerics": NUMERICS,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "options": FIT.of_learner(fit.learner),
        "seed": fit.seed,
        "names": fit.names,
        "input_names": fit.input_names,
        "steps": fit.steps,
        "outcome": fit.outcome,
        "missing": fit.missing,
        "excess": fit.excess,
        "prior_widths": fit.prior_widths,
        "iterations": fit.iterations,
        "estimator": fit.estimator,
        "converged": fit.converged,
        "likelihood": fit.likelihood,
    }
    arrays: dict[str, Any] = {
        "about": np.array(json.dumps(about)),
        **_named(fit.couplings, ""),
        **_named(fit.standard_error, "_error"),
        **_named(fit.monte_carlo_error, "_noise"),
        "training_log_likelihood": np.array(fit.training_log_likelihood),
        "state": np.frombuffer(checkpoint.save(fit.state), dtype=np.uint8),
    }
    if fit.rmse is not None:
        arrays["rmse"] = np.array([fit.rmse.get(name, np.nan) for name in BLOCKS])
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Fit:
    """The fit that was saved; an InputError where the bytes are damaged, or of another version."""
    from kising.learning.fit import Fit

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            if damaged := members.testzip():
                raise InputError(f"not a saved fit, or a damaged one: {damaged} does not match its checksum")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        about = json.loads(str(found["about"]))
        if about["format"] != FORMAT:
            raise InputError(
                f"a fit of kising {about['kising']}, in a format that kising {__version__} does not read"
            )
        couplings = as_couplings(_couplings(found, ""))
        nv, nh = couplings.K.shape
        names = about["names"]
        if names is not None and len(names) != nv:
            raise InputError(f"not a saved fit: {len(names)} names for {nv} visible spins")
        input_names = about.get("input_names")
        if input_names is not None and len(input_names) != couplings.F.shape[1]:
            raise InputError(
                f"not a saved fit: {len(input_names)} names for {couplings.F.shape[1]} known inputs"
            )
        options = about["options"]
        return Fit(
            couplings=couplings,
            converged={name: bool(about["converged"][name]) for name in BLOCKS if name in about["converged"]},
            rmse={k: float(x) for k, x in zip(BLOCKS, found["rmse"], strict=True) if k in about["converged"]}
            if "rmse" in found
            else None,
            outcome=str(about["outcome"]),
            missing=about.get("missing"),
            excess=about.get("excess", {}),
            prior_widths=about.get("prior_widths"),
            iterations=int(about["iterations"]),
            estimator=str(about["estimator"]),
            monte_carlo_error=_optional(found, "_noise"),
            standard_error=_optional(found, "_error"),
            state=checkpoint.load(found["state"].tobytes()),
            learner=FIT.learner(options, {"model.visible": nv, "model.hidden": nh}, function="load_fit"),
            seed=about["seed"] if isinstance(about["seed"], int) else tuple(map(int, about["seed"])),
            steps=int(about["steps"]),
            training_log_likelihood=float(found["training_log_likelihood"]),
            # Whether it was exact depends on the recording, which older files say nothing of.
            likelihood=str(about.get("likelihood", "exact or not: not recorded")),
            names=None if names is None else tuple(map(str, names)),
            input_names=None if input_names is None else tuple(map(str, input_names)),
        )
    except CheckpointError as error:
        raise InputError(f"not a fit that kising {__version__} can read: {error}") from error
    except InputError:
        raise
    except Exception as error:  # damaged archives, arrays and texts raise many undocumented exceptions
        raise InputError(f"not a saved fit, or a damaged one: {error}") from error


def _named(couplings: Couplings | None, suffix: str) -> dict[str, Any]:
    return {} if couplings is None else {f"{name}{suffix}": getattr(couplings, name) for name in BLOCKS}


def _couplings(found: dict[str, Any], suffix: str) -> Couplings:
    return Couplings(*(found[f"{name}{suffix}"] for name in BLOCKS))


def _optional(found: dict[str, Any], suffix: str) -> Couplings | None:
    return _couplings(found, suffix) if f"{BLOCKS[0]}{suffix}" in found else None
