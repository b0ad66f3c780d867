from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from kising import draw_couplings, fit, simulate
from kising.cli import main


@pytest.fixture
def visible() -> np.ndarray:
    return simulate(draw_couplings(6, 1, seed=1), 4000, seed=2).visible


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".txt"])
def test_a_file_is_fitted_like_an_array(suffix: str, visible, tmp_path) -> None:
    path = tmp_path / f"data{suffix}"
    if suffix == ".npy":
        np.save(path, visible)
    else:
        np.savetxt(path, visible, fmt="%d", delimiter="," if suffix == ".csv" else " ")
    result = CliRunner().invoke(
        main, ["fit", str(path), "--hidden", "1", "--seed", "3", "--estimator", "exact"]
    )
    assert result.exit_code == 0, result.output
    assert "converged" in result.output
    expected = fit(visible, 1, estimator="exact", start="random", seed=3)
    with np.load(tmp_path / "data.couplings.npz", allow_pickle=False) as found:
        for name in "JKL":
            np.testing.assert_array_equal(found[name], getattr(expected.couplings, name))
        np.testing.assert_array_equal(found["trace_log_likelihood"], expected.trace.log_likelihood)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["--l1", "2"], {"l1": 2.0}),
        (["--decimate", "0.5"], {"decimate": 0.5}),
        (["--starts", "3"], {"starts": 3}),
        (["--prior", "0.5"], {"prior": 0.5}),
    ],
)
def test_options_are_those_of_the_fit(options: list[str], how, visible, tmp_path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, visible)
    CliRunner().invoke(
        main, ["fit", str(path), "--hidden", "1", "--seed", "3", "--estimator", "exact", *options]
    )
    plain, expected = (
        fit(visible, 1, estimator="exact", start="random", seed=3, **more) for more in ({}, how)
    )
    with np.load(tmp_path / "data.couplings.npz", allow_pickle=False) as found:
        for name in "JKL":
            np.testing.assert_array_equal(found[name], getattr(expected.couplings, name))
        assert not np.array_equal(found["J"], plain.couplings.J)


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
    result = CliRunner().invoke(main, ["fit", str(path), "--hidden", "1", "--seed", "0"])
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert not list(tmp_path.glob("*.npz"))
