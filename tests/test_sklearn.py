"""`KineticIsing` is a scikit-learn estimator like others, but for the data that it takes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from sklearn.utils.validation import validate_data
from support.brute_force import small_network

import kising
from kising import KineticIsing
from kising.arguments import FIT
from kising.errors import InputError, RecordingWarning

RECORDING = small_network(7, length=400)[1]

#: These give numbers of every size, and a recording is of two values. The same checks pass with `OfSigns`.
NEED_ANY_NUMBERS = (
    *(
        "check_dict_unchanged",
        "check_dont_overwrite_parameters",
        "check_dtype_object",
        "check_estimators_dtypes",
    ),
    *("check_estimators_fit_returns_self", "check_estimators_nan_inf", "check_estimators_overwrite_params"),
    *("check_estimators_pickle", "check_f_contiguous_array_estimator", "check_fit2d_1feature"),
    *(
        "check_fit2d_predict1d",
        "check_fit_check_is_fitted",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
    ),
    *("check_methods_sample_order_invariance", "check_methods_subset_invariance", "check_n_features_in"),
    *(
        "check_n_features_in_after_fitting",
        "check_pipeline_consistency",
        "check_positive_only_tag_during_fit",
    ),
    *("check_readonly_memmap_input",),
)


class OfSigns(KineticIsing):
    """The same for any numbers, which is what scikit-learn's checks give: up where they are above the median of the
    training data.
    """

    def _recording(self, X, *, reset=False):
        found = validate_data(self, X, reset=reset, ensure_min_samples=3)
        if reset:
            self.middle_ = np.median(found, axis=0)
        return np.where(found > self.middle_, 1, -1)


# The data of these checks are short.
@pytest.mark.filterwarnings("ignore::kising.errors.RecordingWarning")
@parametrize_with_checks([OfSigns(max_iterations=3)])
def test_scikit_learn_s_checks_pass(estimator, check) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore")
def test_its_data_are_the_only_thing_that_the_checks_complain_of() -> None:
    results = check_estimator(KineticIsing(max_iterations=3), on_fail=None, on_skip=None)
    failed = {
        result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"
    }
    assert set(failed) <= set(NEED_ANY_NUMBERS)
    assert len(results) - len(failed) >= 15


def test_it_is_a_fit() -> None:
    model = KineticIsing(hidden=3, seed=4, estimator="bp", max_iterations=6, estep_damping=0.5, errors=True)
    assert model.fit(RECORDING) is model
    how = {"seed": 4, "estimator": "bp", "max_iterations": 6, "estep_damping": 0.5, "errors": True}
    expected = kising.fit(RECORDING, 3, **how)
    assert model.fit_ == expected
    assert model.couplings_ == expected.couplings
    other = small_network(9, length=50)[1]
    assert model.score(other) == expected.log_likelihood(other)
    assert model.score(RECORDING) == expected.log_likelihood()
    np.testing.assert_array_equal(model.forecast(other), expected.forecast(other))
    np.testing.assert_array_equal(model.hidden_states(other), expected.hidden_states(other))


def test_its_parameters_are_the_options_of_the_table() -> None:
    model = KineticIsing()
    params = model.get_params()
    assert set(params) == {"hidden", "seed", "errors", "threads", *FIT.leaves}
    assert {name: params[name] for name in FIT.leaves} == {n: leaf.default for n, leaf in FIT.leaves.items()}
    assert set(inspect.signature(KineticIsing).parameters) == set(params)
    model.set_params(hidden=2, prior=3.0, estep_tolerance=1e-7)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert (copy.hidden, copy.prior, copy.estep_tolerance) == (2, 3.0, 1e-7)
    with pytest.raises(TypeError, match="unexpected keyword argument 'priod'; did you mean 'prior'"):
        KineticIsing(priod=1)
    with pytest.raises(InputError, match="hold=0"):
        KineticIsing(hold=0).fit(RECORDING)
    assert "prior=3.0" in repr(model)


def test_recordings_are_of_signs_or_of_zeros_and_ones() -> None:
    model = KineticIsing(2, max_iterations=4)
    signs = model.fit(RECORDING).fit_
    for other in (RECORDING > 0, (RECORDING + 1) // 2, (RECORDING + 1) / 2.0, RECORDING.tolist()):
        assert clone(model).fit(other).fit_ == signs
    assert model.score(RECORDING > 0) == signs.log_likelihood()
    with pytest.raises(InputError, match=r"step 0, spin 0 is -?2: spins are ±1 or 0/1"):
        model.fit(RECORDING * 2)
    with pytest.raises(InputError, match=r"the recording holds both -1 .* and 0 \(step 0, spin 0\)"):
        model.fit(np.vstack([np.zeros(4), RECORDING]))


def test_names_of_columns_are_names_of_edges() -> None:
    table = pd.DataFrame(RECORDING, columns=["ada", "bob", "cid", "dot"])
    model = KineticIsing(2, max_iterations=4).fit(table)
    assert model.fit_.names == ("ada", "bob", "cid", "dot")
    assert set(model.fit_.edges().target) == {"ada", "bob", "cid", "dot", "hidden 0", "hidden 1"}
    with pytest.raises(ValueError, match="feature names"):
        model.score(table[["bob", "ada", "cid", "dot"]])


def test_before_fitting_there_is_nothing_to_ask() -> None:
    model = KineticIsing()
    for use in (model.score, model.forecast, model.hidden_states, lambda _: model.couplings_):
        with pytest.raises(NotFittedError):
            use(RECORDING)


def test_a_grid_search_finds_the_better_parameters() -> None:
    search = GridSearchCV(
        KineticIsing(2, max_iterations=30),
        {"prior": [None, 1e-3]},
        cv=TimeSeriesSplit(2),
        error_score="raise",
    )
    search.fit(RECORDING)
    assert search.best_params_ == {"prior": None}
    first = kising.fit(RECORDING[:134], 2, seed=0, max_iterations=30, prior=None)
    held_out = search.cv_results_["split0_test_score"][0]
    assert held_out == pytest.approx(first.log_likelihood(RECORDING[134:267]), rel=1e-12)
    folds = GridSearchCV(KineticIsing(max_iterations=3), {"hidden": [1, 2]}, cv=3, error_score="raise")
    assert np.isfinite(folds.fit(RECORDING).cv_results_["mean_test_score"]).all()


def test_it_ends_a_pipeline() -> None:
    rates = np.random.default_rng(1).random((200, 3))
    model = make_pipeline(Binarizer(threshold=0.5), KineticIsing(max_iterations=3)).fit(rates)
    assert model.score(rates) == model[-1].score(rates > 0.5)


def test_without_scikit_learn_the_message_names_the_extra_and_the_rest_works() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "sklearn" else find(name, *rest)
from kising import *
import kising
print(fit.__name__, "KineticIsing" in dir(kising))
try:
    kising.KineticIsing
except ImportError as error:
    print(error)
"""
    root = Path(kising.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.splitlines() == [
        "fit False",
        "KineticIsing needs scikit-learn 1.6 or newer: pip install 'kising[sklearn]'",
    ]


def test_trials_are_fitted_as_trials_and_held_out_whole() -> None:
    trials = [RECORDING[:150], RECORDING[150:250], RECORDING[250:]]
    expected = kising.fit(trials, 1, seed=2)
    found = KineticIsing(1, seed=2).fit(trials)
    assert found.fit_ == expected
    assert found.n_features_in_ == RECORDING.shape[1]
    assert found.score(trials) == expected.log_likelihood(trials)
    assert [x.shape[0] for x in found.forecast(trials)] == [148, 98, 148]
    stack = RECORDING.reshape(4, 100, -1)
    assert KineticIsing(1, seed=2).fit(stack).fit_ == kising.fit(stack, 1, seed=2)
    search = GridSearchCV(KineticIsing(0), {"prior": [None, 0.5]}, cv=2).fit(stack)
    half = kising.fit(stack[2:], 0, seed=0, prior=None)
    assert search.cv_results_["split0_test_score"][0] == half.log_likelihood(stack[:2])
    with pytest.raises(InputError, match="X has 2 features, but KineticIsing is expecting"):
        found.score([trial[:, :2] for trial in trials])


def test_names_are_those_of_the_spins_that_were_fitted() -> None:
    table = pd.DataFrame(RECORDING, columns=[f"unit {k}" for k in range(RECORDING.shape[1])])
    table["unit 1"] = -1
    with pytest.warns(RecordingWarning):
        found = KineticIsing(0).fit(table)
    assert found.fit_.names == tuple(name for name in table.columns if name != "unit 1")
    found.fit([RECORDING[:200], RECORDING[200:]])
    assert not hasattr(found, "feature_names_in_")
