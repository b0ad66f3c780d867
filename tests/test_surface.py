"""The public surface: names, errors, and results that can be printed and compared."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.brute_force import small_network

import kising
from kising import errors
from kising.sweep.spec import parse_spec

SWEEP = {
    "name": "tiny",
    "seed": 1,
    "model": {"visible": 4, "hidden": 2},
    "data": {"length": 100},
    "learner": {"max_iterations": 3},
    "realizations": 2,
    "presets": {"one": {"realizations": 1}, "long": {"axes": {"data.length": [100, 200]}}},
}


def test_dir_lists_every_public_name_and_each_exists() -> None:
    assert set(kising.__all__) <= set(dir(kising))
    for name in kising.__all__:
        assert getattr(kising, name) is not None
    assert inspect.signature(kising.fit).parameters["seed"].kind is inspect.Parameter.KEYWORD_ONLY
    with pytest.raises(AttributeError, match="no attribute 'fits'"):
        _ = kising.fits


def test_the_package_is_typed() -> None:
    assert (Path(kising.__file__).parent / "py.typed").is_file()


def test_errors_have_one_base_and_mistakes_are_value_errors() -> None:
    named = [x for _, x in inspect.getmembers(errors, inspect.isclass) if issubclass(x, Exception)]
    found = [x for x in named if not issubclass(x, Warning)]
    assert set(named) - set(found) == {errors.RecordingWarning}
    assert len(found) > 5
    assert all(issubclass(x, kising.KisingError) for x in found)
    assert {x for x in found if issubclass(x, ValueError)} == {
        *(errors.InputError, errors.RecordingError, errors.SpecError, errors.CheckpointError)
    }
    with pytest.raises(kising.KisingError, match="visible=0"):
        kising.draw_couplings(0, 1, seed=1)
    with pytest.raises(ValueError, match="seed: missing"):
        kising.run_sweep({"name": "a"})


def results() -> list[object]:
    couplings, recording = small_network(3, visible=30, hidden=8, length=2000)
    fit = kising.fit(recording, 8, estimator="bp", max_iterations=2, seed=1)
    moments = kising.infer(couplings, recording, estimator="bp")
    slopes = kising.gradient(couplings, recording, estimator="bp")
    return [fit, moments, slopes, couplings, kising.simulate(couplings, 1000, seed=2)]


def test_results_print_on_one_screen_and_compare() -> None:
    for one, same in zip(results(), results(), strict=True):
        text = repr(one)
        assert len(text) < 2000
        assert text.count("\n") < 24
        assert text.startswith(type(one).__name__)
        assert one == same
        assert (one != same) is False
        assert one != 3
        assert (one == None) is False  # noqa: E711


def test_results_that_differ_in_one_number_differ() -> None:
    fit, moments, _, couplings, _ = results()
    K = couplings.K.copy()
    K[0, 0] += 1e-15 + abs(K[0, 0]) * 1e-15
    assert couplings != couplings._replace(K=K)
    assert moments != moments._replace(m=moments.m + 1e-12)
    assert fit != replace(fit, outcome="else")
    gone = moments.mu.copy()
    gone[0] = np.nan
    assert moments._replace(mu=gone) == moments._replace(mu=gone.copy())
    assert pickle.loads(pickle.dumps(couplings)) == couplings


@pytest.mark.parametrize(
    ("preset", "overrides", "runs"),
    [
        (None, (), 2),
        ("one", (), 1),
        ("long", (), 4),
        ("one", ("data.length=50",), 1),
        (None, ("realizations=3",), 3),
    ],
)
def test_a_spec_honours_presets_and_overrides(
    tmp_path: Path, preset: str | None, overrides: tuple[str, ...], runs: int
) -> None:
    spec = parse_spec(SWEEP)
    asked = {"preset": preset, "overrides": overrides, "in_process": True}
    mine = kising.run_sweep(spec, out=tmp_path / "spec", **asked)
    same = kising.run_sweep(SWEEP, out=tmp_path / "mapping", **asked)
    assert len(mine.runs) == runs
    assert list(mine.runs["run_id"]) == list(same.runs["run_id"])


def test_a_preset_that_a_spec_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.SpecError, match="there is no preset 'quik'; allowed: one, long"):
        kising.run_sweep(parse_spec(SWEEP), out=tmp_path, preset="quik")
