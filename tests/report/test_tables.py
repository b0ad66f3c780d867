"""The tables on disk: their types are those of their columns, whatever a sweep found."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kising import run_sweep
from kising.report.tables import Tables
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec
from kising.sweep.store.columns import COLUMNS, TABLES
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store

LEARN = {
    "name": "types",
    "seed": 1,
    "realizations": 2,
    "model": {"visible": 4, "hidden": 1},
    "learner": {"estimator": "exact", "max_iterations": 5},
    "axes": {"data.length": [50, 100]},
    "score": {"pruned": True, "errors": True},
}
INFER = {key: LEARN[key] for key in ("name", "seed", "realizations", "model", "axes")} | {
    "task": "infer",
    "learner": {"estimator": "bp"},
    "score": {"exact": True},
}
PLAIN = {**LEARN, "score": {}, "learner": {**LEARN["learner"], "estimator": "bp"}}
TYPES = {"string": "string", "int": "int64", "float": "double", "bool": "bool", "bytes": "binary"}


def written(path: Path) -> dict[str, pa.Schema]:
    return {name: pq.read_schema(path / f"{name}.parquet") for name in ("runs", "summary", "scaling")}


def empty(mapping: dict, path: Path) -> dict[str, pa.Schema]:
    directory = SweepDirectory.create(path)
    with directory.lock():
        Tables(Store.open(directory), Plan.of(parse_spec(mapping))).write()
    return written(path)


def test_types_do_not_depend_on_what_a_sweep_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = {}
    for name, mapping in (("learn", LEARN), ("plain", PLAIN), ("infer", INFER)):
        run_sweep(mapping, out=tmp_path / name, in_process=True)
        found[name] = written(tmp_path / name)
        found[f"{name}, empty"] = empty(mapping, tmp_path / f"{name}-empty")
    assert len(pd.read_parquet(tmp_path / "learn" / "scaling.parquet")) > 0

    def fail(run, threads, timeout, saved):
        raise ValueError("no luck")

    monkeypatch.setattr("kising.sweep.task.perform", fail)
    for name, mapping in (("learn", LEARN), ("infer", INFER)):
        results = run_sweep(mapping, out=tmp_path / f"{name}-failed", in_process=True)
        assert set(results.runs["status"]) == {"failed"}
        found[f"{name}, failed"] = written(tmp_path / f"{name}-failed")
    assert len(found) == 8
    for sweep, schemas in found.items():
        for table, columns in {"runs": COLUMNS, **TABLES}.items():
            if table not in schemas:
                continue
            declared = [(column.name, TYPES[column.kind], column.nullable) for column in columns]
            stored = [(field.name, str(field.type), field.nullable) for field in schemas[table]]
            assert stored == declared, (sweep, table)
            assert schemas[table].equals(found["learn"][table], check_metadata=True), (sweep, table)


def test_frames_have_the_same_types_as_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keeping = {**LEARN, "keep": {"couplings": True, "trace": True, "realizations": 1}}
    for name, mapping in (("learn", keeping), ("infer", INFER)):
        results = run_sweep(mapping, out=tmp_path / name, in_process=True)
        for table, frame in (("summary", results.summary), ("scaling", results.scaling)):
            assert {column.name: column.dtype for column in TABLES[table]} == {
                key: "string[pyarrow]" if isinstance(dtype, pd.StringDtype) else str(dtype)
                for key, dtype in frame.dtypes.items()
            }
            pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / name / f"{table}.parquet"), frame)
    for table in ("couplings", "traces"):
        schema = pq.read_schema(tmp_path / "learn" / f"{table}.parquet")
        assert [(field.name, str(field.type)) for field in schema] == [
            (column.name, TYPES[column.kind]) for column in TABLES[table]
        ]
