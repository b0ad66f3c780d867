"""Sweeps over a recording: what a sweep file takes from it, how points are identified, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from support.spin_data import random_spins

from kising.errors import RecordingError, SpecError
from kising.recordings import as_segments, read_recording
from kising.sweep.plan import Plan, point_id_of
from kising.sweep.spec import SweepSpec, dump_spec, parse_spec, read_spec, recording_of
from kising.sweep.spec.recording import content_hash


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "spikes.npz"
    np.savez(path, spins=random_spins(90, 4))
    return path


def spec_of(file: Path | str, **more: object) -> SweepSpec:
    base = {"name": "folds", "seed": 1, "model": {}, "axes": {"model.hidden": [0, 1]}}
    return parse_spec({**base, "data": {"file": str(file)}, **more})


def point_ids(spec: SweepSpec) -> list[str]:
    return [point.point_id for point in Plan.of(spec).points]


def test_sizes_and_realizations_come_from_the_recording(file: Path) -> None:
    spec = spec_of(file)
    assert (spec.model.visible, spec.data.length, spec.data.folds, spec.realizations) == (4, 90, 5, 5)
    assert spec.data.hash == content_hash(read_recording(file))
    values = Plan.of(spec).points[1].values()
    assert (values["data.file"], values["data.hash"]) == ("spikes.npz", spec.data.hash)
    for key in ("bonds", "strength", "connectivity", "bias"):
        assert values[f"model.{key}"] is None
    assert point_id_of(values) == Plan.of(spec).points[1].point_id
    assert Plan.of(spec).n_runs == 10


def test_a_path_is_relative_to_the_sweep_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = file.parent / "sweep.yaml"
    sweep.write_text("name: x\nseed: 1\nmodel: {hidden: 1}\ndata: {file: spikes.npz, folds: 3}\n")
    monkeypatch.chdir("/")
    spec = read_spec(sweep)
    assert spec.data.file == str(file)
    assert spec.realizations == 3


def test_what_is_written_is_read_again_without_the_file(file: Path, tmp_path: Path) -> None:
    spec = spec_of(file)
    (tmp_path / "sweep.yaml").write_text(dump_spec(spec))
    file.unlink()
    again = read_spec(tmp_path / "sweep.yaml")
    assert again == spec
    assert point_ids(again) == point_ids(spec)
    assert again.current() == spec
    with pytest.raises(
        RecordingError, match=r"spikes\.npz: cannot read the recording: no such file; put it back"
    ):
        recording_of(again.data)


def test_a_recording_that_moved_is_given_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(file)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "sweep.yaml").write_text(dump_spec(spec))
    file.rename(tmp_path / "moved.npz")
    monkeypatch.chdir(tmp_path)
    moved = read_spec("results/sweep.yaml", overrides=["data.file=moved.npz"]).current()
    assert moved.data.file == str(tmp_path / "moved.npz")
    assert point_ids(moved) == point_ids(spec)


def test_another_content_makes_other_points_and_another_place_does_not(file: Path, tmp_path: Path) -> None:
    before = spec_of(file)
    elsewhere = tmp_path / "copy.npz"
    elsewhere.write_bytes(file.read_bytes())
    assert point_ids(spec_of(elsewhere)) == point_ids(before)
    spins = random_spins(90, 4).copy()
    spins[40, 2] *= -1
    np.savez(file, spins=spins)
    assert not set(point_ids(before.current())) & set(point_ids(before))
    with pytest.raises(RecordingError, match="it changed while it was read"):
        recording_of(before.data)


def test_folds_are_part_of_the_id(file: Path) -> None:
    ids = [point_ids(spec_of(file, data={"file": str(file), "folds": folds}))[0] for folds in (4, 5, 6)]
    assert len(set(ids)) == 3


def test_every_part_of_the_content_is_in_the_hash() -> None:
    spins, inputs = random_spins(40, 3), np.random.default_rng(1).standard_normal((40, 2))
    other_input = inputs.copy()
    other_input[7, 1] += 1e-12
    recordings = [
        as_segments(spins),
        as_segments(-spins),
        as_segments([spins[:20], spins[20:]]),
        as_segments([spins[:21], spins[21:]]),
        as_segments(spins, inputs),
        as_segments(spins, other_input),
    ]
    assert len({content_hash(x) for x in recordings}) == len(recordings)
    assert content_hash(as_segments((spins + 1) // 2)) == content_hash(as_segments(spins))
    # The same segments, once of one trial with a gap.
    gap = np.insert(spins.astype(float), 20, np.nan, axis=0)
    assert as_segments(gap, missing="drop").lengths == recordings[2].lengths
    assert content_hash(as_segments(gap)) != content_hash(recordings[2])


MISTAKES = {
    "realizations": (
        {"realizations": 3},
        "realizations: 3: with data.file every fold is a realization, and there are 5 folds",
    ),
    "signs": (
        {"learner": {"start": "signs"}},
        "learner.start: signs needs true couplings, and a recording (data.file) has none; use random",
    ),
    "known": ({"learner": {"decimate": "known"}}, "learner.decimate: known needs true couplings"),
    "pruned": ({"score": {"pruned": True}}, "score.pruned: true needs true couplings"),
    "infer": ({"task": "infer"}, "data.file: task infer needs true couplings"),
    "couplings": (
        {"keep": {"couplings": True}},
        "keep.couplings: it also keeps true couplings",
    ),
    "visible": (
        {"axes": {"model.hidden": [1], "model.visible": [2, 3]}},
        "axes.model.visible: this axis changes nothing: data.file has 4",
    ),
    "length": (
        {"axes": {"model.hidden": [1], "data.length": [20, 30]}},
        "axes.data.length: this axis changes nothing: data.file has 90",
    ),
    "strength": (
        {"axes": {"model.hidden": [1], "model.strength": [1, 2]}},
        "axes.model.strength: this axis changes nothing: data.file is a recording",
    ),
    "file axis": ({"axes": {"data.file": ["a"]}}, "axes.data.file: cannot be an axis"),
    "folds axis": ({"axes": {"data.folds": [2, 3]}}, "axes.data.folds: cannot be an axis"),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(file: Path, change: dict, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(file, **change)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"file": "nowhere.npz"}, "nowhere.npz: cannot read the recording: no such file"),
        ({"file": 3}, "data.file: 3 is not a path"),
        ({"file": "FILE", "folds": 1}, "data.folds: 1 is too small; allowed: whole numbers from 2"),
        ({"file": "FILE", "folds": 40}, "data.folds: 40 folds of a recording of 90 steps are too short"),
    ],
)
def test_mistakes_of_the_data_are_the_only_ones(file: Path, data: dict, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(file, data={k: str(file) if v == "FILE" else v for k, v in data.items()})
    (problem,) = caught.value.problems
    assert message in str(problem)


def test_a_file_that_is_no_recording_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.npz").write_text("hello")
    with pytest.raises(SpecError) as caught:
        spec_of(tmp_path / "notes.npz")
    (problem,) = caught.value.problems
    assert problem.place.key == "data.file"


@pytest.fixture
def spike_times(tmp_path: Path) -> Path:
    """Spike times in three trials, and inputs beside them."""
    step, unit = np.nonzero(random_spins(90, 4) > 0)
    np.savetxt(tmp_path / "times.csv", np.c_[unit, 0.02 * (step + 0.5)], delimiter=";")
    (tmp_path / "trials.csv").write_text("start,stop\n0,0.6\n0.6,1.2\n1.2,1.8\n")
    np.savetxt(tmp_path / "inputs.csv", np.random.default_rng(1).standard_normal((90, 2)), delimiter=",")
    return tmp_path / "times.csv"


def test_a_sweep_reads_what_a_fit_reads(spike_times: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = spike_times.parent / "sweep.yaml"
    reading = "bin: 20ms, trials: trials.csv, covariates: inputs.csv, delimiter: ';'"
    sweep.write_text(
        f"name: x\nseed: 1\nmodel: {{hidden: 1}}\ndata: {{file: times.csv, folds: 3, {reading}}}\n"
    )
    monkeypatch.chdir("/")
    spec = read_spec(sweep)
    folder = spike_times.parent
    expected = read_recording(
        spike_times,
        bin="20ms",
        trials=folder / "trials.csv",
        covariates=folder / "inputs.csv",
        delimiter=";",
    )
    assert recording_of(spec.data) == expected
    assert expected.lengths == (30, 30, 30)
    # The file as run stands on its own, wherever it is read from.
    (folder / "results").mkdir()
    (folder / "results" / "sweep.yaml").write_text(dump_spec(spec))
    again = read_spec(folder / "results" / "sweep.yaml")
    assert again == spec
    assert recording_of(again.current().data) == expected
    # A table that changes is read again.
    (folder / "trials.csv").write_text("start,stop\n0,0.9\n0.9,1.8\n")
    assert recording_of(spec.current().data).lengths == (45, 45)


def test_the_limit_for_standard_errors_counts_known_inputs(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `kising fit` does. With one hidden spin there are 29 couplings, and 10 more with two inputs."""
    monkeypatch.setattr("kising.conflicts.LARGEST_ERROR_MATRIX", 30)
    np.savetxt(tmp_path / "inputs.csv", np.random.default_rng(1).standard_normal((90, 2)), delimiter=",")
    sweep = tmp_path / "sweep.yaml"
    text = "name: x\nseed: 1\nmodel: {hidden: 1}\nscore: {errors: true}\ndata: {file: spikes.npz}\n"
    sweep.write_text(text)
    spec = read_spec(sweep)
    sweep.write_text(text.replace("spikes.npz", "spikes.npz, covariates: inputs.csv"))
    message = "4 visible and 1 hidden spins, with 2 known inputs, has 39; allowed: up to 30"
    with pytest.raises(SpecError, match=rf"sweep\.yaml:4: score\.errors: .* {message}"):
        read_spec(sweep)
    # A sweep that was run before its recording had inputs, and one that is only looked at.
    monkeypatch.setattr("kising.conflicts.LARGEST_ERROR_MATRIX", 40)
    sweep.write_text(dump_spec(read_spec(sweep)))
    monkeypatch.setattr("kising.conflicts.LARGEST_ERROR_MATRIX", 30)
    with pytest.raises(SpecError, match=message):
        read_spec(sweep).current()
    assert spec.current() == spec


def test_ids_depend_on_what_was_read_not_on_how(file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", spins=random_spins(90, 4), other=random_spins(90, 4, seed=2))
    one, other = (
        spec_of(tmp_path, data={"file": str(tmp_path / "two.npz"), "key": k}) for k in ("spins", "other")
    )
    assert point_ids(one) == point_ids(spec_of(file))
    assert not set(point_ids(other)) & set(point_ids(one))


def test_gaps_are_kept_unless_they_are_to_be_dropped(file: Path) -> None:
    spins = random_spins(90, 4).astype(float)
    spins[[20, 50], [1, 2]] = np.nan
    np.savez(file, spins=spins)
    kept = spec_of(file)
    assert (kept.data.length, kept.data.absent) == (90, pytest.approx(2 / 360))
    assert recording_of(kept.data).n_missing == 2
    assert parse_spec(yaml.safe_load(dump_spec(kept))) == kept
    assert {point.data.has_gaps for point in Plan.of(kept).points} == {True}
    dropped = spec_of(file, data={"file": str(file), "gaps": "drop"}, learner={"estimator": "bp"})
    assert (dropped.data.length, dropped.data.absent) == (88, 0.0)
    assert recording_of(dropped.data).n_missing == 0
    for learner, message in (
        (
            {"estimator": "bp"},
            "the recording has some; use auto, exact, gibbs, or leave out steps with gaps",
        ),
        ({"l1": 0.5}, "gibbs, which auto uses where entries are missing"),
        ({"step": "gradient"}, "gibbs, which auto uses where entries are missing"),
    ):
        with pytest.raises(SpecError, match=message):
            spec_of(file, learner=learner)


def test_mistakes_of_reading_are_named(file: Path, spike_times: Path) -> None:
    cases = [
        ({"file": str(spike_times), "bin": 20}, "data.bin: 20 is not a duration"),
        ({"file": str(file), "key": "nothing"}, "data.file: "),
        ({"file": str(spike_times), "bin": "20ms", "trials": "nowhere.csv"}, "nowhere.csv: cannot read"),
        (
            {"length": 100, "bin": "20ms"},
            "data.bin: describes how data.file is read, but there is no data.file",
        ),
    ]
    for data, message in cases:
        with pytest.raises(SpecError) as caught:
            spec_of(file, data=data, **({} if "file" in data else {"model": {"visible": 3}}))
        (problem,) = caught.value.problems
        assert message in str(problem)


def test_spins_that_are_silent_in_some_training_data_have_no_part(tmp_path: Path) -> None:
    spins = np.column_stack([random_spins(90, 4), -np.ones(90, np.int8)])
    spins[5:9, 4] = 1  # inside the first fold alone
    np.save(tmp_path / "spins.npy", spins)
    spec = spec_of(tmp_path / "spins.npy")
    assert spec.model.visible == 4
    recording = recording_of(spec.data)
    assert recording.columns == (0, 1, 2, 3)
    assert "left out: spin 4 never changed in the training data" in recording.notes[-1]
    np.save(tmp_path / "spins.npy", spins[:, 4:])
    with pytest.raises(SpecError, match="every spin is constant in the training data of some fold"):
        spec_of(tmp_path / "spins.npy")
