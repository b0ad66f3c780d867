from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kising import draw_couplings, fit, load_fit, simulate
from kising.blocks import BLOCKS
from kising.cli import main

pytestmark = pytest.mark.usefixtures("plain_figures")

FILES = {".kising-fit", ".lock", "couplings.npz", "edges.csv", "fit.json", "index.html"}


@pytest.fixture
def visible() -> np.ndarray:
    return simulate(draw_couplings(6, 1, seed=1), 2000, seed=2).visible


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["fit", *map(str, arguments)])


def assert_same(found, expected) -> None:
    for name in BLOCKS:
        np.testing.assert_array_equal(found[name], getattr(expected.couplings, name))


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".txt"])
def test_a_file_is_fitted_like_an_array(suffix: str, visible, tmp_path) -> None:
    path = tmp_path / f"data{suffix}"
    if suffix == ".npy":
        np.save(path, visible)
    else:
        np.savetxt(path, visible > 0, fmt="%d", delimiter="," if suffix == ".csv" else " ")
    result = run(path, "--hidden", 1, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert "converged" in result.output
    expected = fit(visible, 1, seed=3, errors=True)
    folder = tmp_path / "data.fit"
    assert {x.name for x in folder.iterdir()} == FILES
    with np.load(folder / "couplings.npz", allow_pickle=False) as found:
        assert_same(found, expected)
        np.testing.assert_array_equal(found["trace_log_likelihood"], expected.trace.log_likelihood)
        np.testing.assert_array_equal(found["J_error"], expected.standard_error.J)
    assert load_fit(folder / "couplings.npz").edges().equals(expected.edges())
    lines = (folder / "edges.csv").read_text().splitlines()
    assert lines[0] == "block,target,source,value,error,z,p,q"
    assert len(lines) == 1 + len(expected.edges())


def test_fit_json_tells_what_was_fitted(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3, "--prior", 2)
    about = json.loads((tmp_path / "data.fit" / "fit.json").read_text())
    assert (about["visible"], about["hidden"], about["steps"], about["seed"]) == (6, 1, 2000, 3)
    assert about["outcome"] == "converged"
    assert about["options"]["prior"] == 2.0
    assert about["choice"] is None
    np.save(tmp_path / "other.npy", -visible)
    run(tmp_path / "other.npy", "--hidden", 1, "--seed", 3)
    other = json.loads((tmp_path / "other.fit" / "fit.json").read_text())
    assert other["data_sha256"] != about["data_sha256"]


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["--l1", "2"], {"l1": 2.0}),
        (["--decimate", "0.5"], {"decimate": 0.5}),
        (["--starts", "3"], {"starts": 3}),
        (["--prior", "0.5"], {"prior": 0.5}),
        (["--bias", "false"], {"bias": False}),
        (["--threads", "2"], {}),
    ],
)
def test_options_are_those_of_the_fit_in_one_file_too(options: list[str], how, visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    out = tmp_path / "couplings.npz"
    result = run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3, "--out", out, *options)
    assert result.exit_code == 0, result.output
    assert {x.name for x in tmp_path.iterdir()} == {"data.npy", "couplings.npz"}
    expected = fit(visible, 1, seed=3, **how)
    with np.load(out, allow_pickle=False) as found:
        assert_same(found, expected)
        # Standard errors are those of maximum likelihood: sparse fits have none unless they are asked for.
        assert ("J_error" in found.files) == (not {"l1", "decimate"} & set(how))


def test_errors_can_be_left_out(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3, "--no-errors")
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        assert "J_error" not in found.files


def test_a_large_network_has_errors_only_where_they_are_asked_for(tmp_path, monkeypatch, visible) -> None:
    monkeypatch.setattr("kising.fitting.command.LARGEST_ERROR_MATRIX", 50)
    np.save(tmp_path / "data.npy", visible)
    run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3)
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        assert "J_error" not in found.files


def test_a_fit_that_does_not_converge_is_written_with_exit_code_1(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    result = run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3, "--max-iterations", 2)
    assert result.exit_code == 1
    assert "stalled after 2 iterations" in result.output
    assert {x.name for x in (tmp_path / "data.fit").iterdir()} == FILES


def test_notes_come_first_and_silent_spins_are_left_out(visible, tmp_path) -> None:
    visible = visible.copy()
    visible[:, 2] = -1
    np.save(tmp_path / "data.npy", visible)
    result = run(tmp_path / "data.npy", "--hidden", 0, "--seed", 3)
    assert result.exit_code == 0
    assert result.output.startswith("note: ")
    assert "5 of 6 spins are fitted" in result.output
    assert "never changed" in (tmp_path / "data.fit" / "index.html").read_text()


def test_reading_options_reach_the_reader(visible, tmp_path) -> None:
    inputs = np.random.default_rng(1).normal(size=(len(visible), 1))
    step, unit = np.nonzero(visible > 0)
    np.savez(tmp_path / "times.npz", unit=unit, time=0.02 * (step + 0.5))
    (tmp_path / "trials.csv").write_text("start,stop\n0,20\n20,40\n")
    np.savetxt(tmp_path / "inputs.csv", inputs, delimiter=",")
    result = run(
        tmp_path / "times.npz", "--hidden", 0, "--seed", 3, "--bin", "20ms",
        "--trials", tmp_path / "trials.csv", "--covariates", tmp_path / "inputs.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    expected = fit([visible[:1000], visible[1000:]], 0, seed=3, covariates=[inputs[:1000], inputs[1000:]])
    with np.load(tmp_path / "times.fit" / "couplings.npz") as found:
        assert_same(found, expected)


def test_nothing_but_results_where_the_output_is_no_terminal_and_the_fit_is_short(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible[:500])
    result = run(tmp_path / "data.npy", "--hidden", 0, "--seed", 3)
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) < 24


BAD = {
    "missing": ("nowhere.npy", None, "No such file"),
    "another kind": ("data.xyz", b"x", "recordings are .npy"),
    "not an array": ("data.npy", b"garbage", "this is not a .npy file"),
    "words": ("data.csv", b"up,down\n", "a header and no rows"),
    "not spins": ("data.csv", b"1,0\n1,1\n-1,1\n", "both -1 (line 3, spin 0) and 0 (line 1, spin 1)"),
    "too short": ("data.csv", b"1,1\n", "no segment has 3 steps"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_a_recording_is_refused_in_a_line(case: str, tmp_path) -> None:
    name, content, message = BAD[case]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    result = run(path, "--hidden", 1, "--seed", 0)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert {x.name for x in tmp_path.iterdir()} <= {name}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hidden", "-1"], "too small"),
        (["--hidden", "1,two"], "whole number"),
        (["--hidden", "1,"], "whole number"),
        (["--hidden", "30", "--estimator", "exact"], "too large for estimator exact"),
        (["--hidden", "100000000000"], "assume fewer hidden spins"),
        (["--hidden", "2000"], "more hidden spins than the recording has slices"),
        (["--hidden", "1", "--l1", "1", "--errors"], "errors: cannot be computed with learner.l1"),
        (["--hidden", "1", "--threads", "0"], "--threads"),
        (["--hidden", "1", "--trials", "t.csv"], "give bin too"),
        (["--hidden", "0,1", "--folds", "900"], "too short"),
        (["--hidden", "0,1", "--out", "one.npz"], "leave .npz out"),
    ],
)
def test_mistakes_are_refused_before_anything_is_fitted(
    options, message, visible, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("data.npy", visible)
    monkeypatch.setattr("kising.learning.fit.fit", lambda *_, **__: pytest.fail("it was fitted"))
    result = run("data.npy", "--seed", 0, *options)
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_couplings_among_hidden_spins_are_a_flag(tmp_path) -> None:
    network = draw_couplings(6, 1, bias=0.3, hidden_coupling=2.0, seed=1)
    recording = simulate(network, 1500, seed=2).visible
    np.save(tmp_path / "data.npy", recording)
    expected = fit(recording, 1, seed=3, hidden_couplings=True, errors=True)
    for words in (("--hidden-couplings",), ("--hidden-couplings", "true")):
        result = run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3, *words)
        assert result.exit_code == 0, result.output
        assert "M  hidden <- hidden" in result.output
        with np.load(tmp_path / "data.fit" / "couplings.npz", allow_pickle=False) as found:
            assert_same(found, expected)
            np.testing.assert_array_equal(found["M_error"], expected.standard_error.M)
    page = (tmp_path / "data.fit" / "index.html").read_text()
    assert "Heat map of M, hidden to hidden" in page
    told = json.loads((tmp_path / "data.fit" / "fit.json").read_text())
    assert told["options"]["hidden_couplings"] is True
    wrong = run(tmp_path / "data.npy", "--hidden", 1, "--seed", 3, "--estimator", "bp", "--hidden-couplings")
    assert wrong.exit_code == 2
    assert "estimator bp cannot treat couplings M among hidden spins; use exact" in wrong.output
    mistaken = run("--hidden-couplings", tmp_path / "data.npy", "--hidden", 1, "--seed", 3)
    assert mistaken.exit_code == 2
    assert "is neither true nor false" in mistaken.output
