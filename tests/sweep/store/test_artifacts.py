"""What is kept of learning: the numbers themselves, through kills and resumption, and only when asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.bits import assert_same_bits

from kising import draw_couplings, run_sweep, simulate
from kising.learning.fit import fit
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.model import bond_scales
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec
from kising.sweep.status import describe_plan
from kising.sweep.store.artifacts import unpack_couplings, unpack_trace
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.sweep.task import execute, perform

SWEEP = {
    "name": "kept",
    "seed": 9,
    "realizations": 3,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"estimator": "exact", "max_iterations": 12, "tolerance": 1e-9},
    "axes": {"data.length": [200, 400]},
    "keep": {"couplings": True, "trace": True, "realizations": 2},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def runs(**changes):
    return list(Plan.of(parse_spec({**SWEEP, **changes})).runs())


def kept_in(path, mapping=SWEEP):
    return Store.open(SweepDirectory(path), writable=False).artifacts(Plan.of(parse_spec(mapping)).ids)


@pytest.mark.parametrize("start", ["signs", "random"])
def test_what_is_kept_is_what_was_learned(start: str) -> None:
    run = runs(learner={**SWEEP["learner"], "start": start})[0]
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, seed=run.network_seed)
    recording = simulate(truth, 200, seed=run.data_seed)
    scales = bond_scales(6, 2, strength=1.0, connectivity=1.0)
    result = fit(
        recording.visible, 2, estimator="exact", start=start, truth=truth, scales=scales,
        seed=run.start_seed, tolerance=1e-9, max_iterations=12,
    )  # fmt: skip
    true, first, learned = unpack_couplings(row["couplings"], 6, 2)
    for name in "JKLhb":
        block = getattr(truth, name)
        np.testing.assert_array_equal(true[name], block)
        error = np.sqrt(np.mean((learned[name] - block) ** 2)) / getattr(scales, name)
        assert error == pytest.approx(row[f"rmse_{name}"], rel=1e-12)
        assert first[name].shape == block.shape
    np.testing.assert_array_equal(np.abs(learned["J"]), np.abs(result.couplings.J))
    if start == "signs":
        assert all((np.sign(first[name]) == np.sign(true[name])).all() for name in "JKL")
    trace = unpack_trace(row["trace"])
    np.testing.assert_array_equal(trace, result.trace.to_numpy(dtype=float))
    # The start is the one that learning began with.
    begun = np.sqrt(np.mean((first["J"] - true["J"]) ** 2)) / scales.J
    assert begun == pytest.approx(trace[0, TRACE_COLUMNS.index("rmse_J")])


def test_a_run_that_was_cut_short_keeps_the_same_bytes() -> None:
    run = runs(learner={**SWEEP["learner"], "start": "random"})[1]
    whole = execute(run, 1, None)
    states = [state() for state in perform(run, 1, None, None)]
    ended = []

    def resumed():
        ended.append((yield from perform(run, 1, None, states[4])))

    assert len(list(resumed())) == len(states) - 5
    assert ended == [whole]


def test_keeping_changes_neither_rows_nor_ids_and_only_the_first_realizations_are_kept(tmp_path) -> None:
    kept = run_sweep(SWEEP, out=tmp_path / "kept", in_process=True)
    plain = run_sweep({**SWEEP, "keep": {}}, out=tmp_path / "plain", in_process=True)
    assert_same_bits(kept.runs, plain.runs)
    assert list(kept.runs.columns) == list(plain.runs.columns)
    assert kept_in(tmp_path / "plain") == []
    found = {f"{one.run_id:016x}" for one in kept_in(tmp_path / "kept")}
    assert found == set(kept.runs[kept.runs["realization"] < 2]["run_id"])
    assert run_sweep(SWEEP, out=tmp_path / "kept", in_process=True).outcome.done == 0
    couplings = pd.read_parquet(tmp_path / "kept" / "couplings.parquet")
    assert len(couplings) == 4 * (6 * 6 + 2 * 6 * 2 + 6 + 2)
    for run in kept.runs[kept.runs["realization"] < 2].to_dict("records"):
        own = couplings[(couplings["run_id"] == run["run_id"]) & (couplings["block"] == "L")]
        error = (
            np.sqrt(np.mean((own["learned"] - own["true"]) ** 2))
            / bond_scales(6, 2, strength=1.0, connectivity=1.0).L
        )
        assert error == pytest.approx(run["rmse_L"])
        assert sorted(set(zip(own["row"], own["column"], strict=True))) == [
            (a, j) for a in range(2) for j in range(6)
        ]
    traces = pd.read_parquet(tmp_path / "kept" / "traces.parquet")
    assert list(traces.groupby("run_id", sort=False).size()) == [12] * 4
    assert not (tmp_path / "plain" / "traces.parquet").exists()


def test_what_is_asked_for_later_is_made_then(tmp_path) -> None:
    plain = {**SWEEP, "keep": {"trace": True, "realizations": 1}}
    before = run_sweep(plain, out=tmp_path / "r", in_process=True)
    assert [one.couplings for one in kept_in(tmp_path / "r")] == [None, None]
    assert any("2 of 6 runs are done" in line for line in describe_plan(parse_spec(SWEEP), tmp_path / "r"))
    after = run_sweep(SWEEP, out=tmp_path / "r", in_process=True)
    assert after.outcome.done == 4
    assert_same_bits(before.runs, after.runs)
    fresh = run_sweep(SWEEP, out=tmp_path / "fresh", in_process=True)
    assert kept_in(tmp_path / "r") == kept_in(fresh.directory)
    assert all(one.couplings and one.trace for one in kept_in(tmp_path / "r"))


def test_what_is_kept_survives_compaction(tmp_path) -> None:
    many = {**SWEEP, "realizations": 40, "keep": {"trace": True, "realizations": 40}}
    results = run_sweep(many, out=tmp_path / "r", in_process=True)
    store = Store.open(SweepDirectory(tmp_path / "r"))
    plan = Plan.of(parse_spec(many))
    rows = results.runs.astype(object).where(results.runs.notna(), None).to_dict("records")
    before = store.artifacts(plan.ids)
    assert len(before) == 80
    with store.directory.lock("a test"):
        for run, row in zip(before[:9], rows[:9], strict=True):
            store.commit([row | {"trace": run.trace}])
        assert store.compact() > 0
        assert store.artifacts(plan.ids) == before
