"""Known inputs: in the forms of recordings, with as many rows, and finite."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.spin_data import TimeSeries, random_spins

from kising.errors import InputError
from kising.recordings import as_segments, read_recording

X = random_spins(120, 4)
U = np.random.default_rng(3).normal(size=(120, 2))
TRIALS = [X[:30], X[30:70], X[70:]]
INPUTS = [U[:30], U[30:70], U[70:]]
NAMED = pd.DataFrame(U, columns=["light", "sound"])

FORMS = {
    "an array": (X, U),
    "lists": (X, U.tolist()),
    "a table": (X, NAMED),
    "a time series": (X, TimeSeries(np.arange(120), U)),
    "trials": (TRIALS, INPUTS),
    "trials, one array": (TRIALS, U),
    "trials, one table": (TRIALS, NAMED),
    "one recording, inputs in pieces": (X, INPUTS),
    "stacks": (X.reshape(3, 40, 4), U.reshape(3, 40, 2)),
    "epochs": (TimeSeries(np.arange(120), X, epochs=[(0, 29), (30, 119)]), U),
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_stay_beside_their_steps(form: str) -> None:
    segments = as_segments(*FORMS[form])
    assert tuple(map(len, segments.covariates)) == segments.lengths
    np.testing.assert_array_equal(np.concatenate(segments.covariates), U)
    assert all(x.dtype == np.float64 and x.flags.c_contiguous for x in segments.covariates)
    names = {"a time series": ("0", "1")} | dict.fromkeys(
        ("a table", "trials, one table"), ("light", "sound")
    )
    assert segments.covariate_names == names.get(form, ("u0", "u1"))


@pytest.mark.parametrize(
    ("data", "inputs"), [(X, U[:, 0]), (TRIALS, [x[:, 0] for x in INPUTS]), (TRIALS, U[:, 0])]
)
def test_a_single_input_may_be_flat(data, inputs) -> None:
    segments = as_segments(data, inputs)
    assert segments.covariate_names == ("u0",)
    np.testing.assert_array_equal(np.concatenate(segments.covariates), U[:, :1])


def test_inputs_need_not_be_known_where_spins_are_missing() -> None:
    data, inputs = X.astype(float), U.copy()
    data[10, 1] = inputs[10] = np.nan
    with pytest.raises(InputError, match=r"covariate u0 at step 10 is nan: .* leave that step out"):
        as_segments(data, inputs)
    segments = as_segments(data, inputs, missing="drop")
    assert segments.lengths == (10, 109)
    np.testing.assert_array_equal(segments.covariates[1], U[11:])


HOLED = U.copy()
HOLED[33, 1] = np.nan
BAD = {
    "not finite": (X, HOLED, "covariate u1 at step 33 is nan: covariates must be finite; fill it in"),
    "not finite in a trial": (TRIALS, HOLED, "covariate u1 at trial 1, step 3 is nan"),
    "infinite, named": (X, NAMED * np.inf, "covariate light at step 0 is -?inf"),
    "too short": (X, U[:-1], "has 120 steps in 1 segment, the covariates 119 rows in 1 segment"),
    "a trial too short": (TRIALS, [*INPUTS[:2], U[71:]], "segment 2 has 50 steps and 49 rows of covariates"),
    "other borders": (TRIALS, [U[:31], U[31:70], U[70:]], "segment 0 has 30 steps and 31 rows"),
    "other trials": (TRIALS, [U[:60], U[60:]], "in 3 segments, the covariates 120 rows in 2 segments"),
    "transposed": (X, U.T, "the covariates 2 rows"),
    "complex": (X, U * 1j, "the covariates: complex numbers"),
    "text": (X, U.astype(str), "text"),
    "no columns": (X, U[:, :0], "at least one"),
    "other widths": (TRIALS, [*INPUTS[:2], U[70:, :1]], r"same columns in every trial.*\[1, 2\]"),
    "four dimensions": (X, U[None, None], "4 dimensions"),
}


@pytest.mark.parametrize("case", BAD)
def test_inputs_that_do_not_fit_are_refused(case: str) -> None:
    data, inputs, message = BAD[case]
    with pytest.raises(InputError, match=message):
        as_segments(data, inputs)


def test_inputs_of_an_archive_have_the_names_of_its_arrays(tmp_path) -> None:
    np.save(tmp_path / "data.npy", X)
    np.savez(tmp_path / "inputs.npz", light=U[:, 0], sound=U[:, 1])
    segments = read_recording(tmp_path / "data.npy", covariates=tmp_path / "inputs.npz")
    assert segments.covariate_names == ("light", "sound")
    np.testing.assert_array_equal(segments.covariates[0], U)
    np.savez(tmp_path / "data.npz", spins=X, covariates=U, covariate_names=["light", "sound"])
    assert read_recording(tmp_path / "data.npz").covariate_names == ("light", "sound")
    np.savez(tmp_path / "data.npz", spins=X, covariates=U, covariate_names=["light"])
    with pytest.raises(InputError, match="1 name for 2 inputs"):
        read_recording(tmp_path / "data.npz")
