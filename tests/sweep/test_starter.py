"""Starter files: they plan as they are, and editors find their schema."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kising import draw_couplings, simulate
from kising.cli import main
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.spec.loading import read_document
from kising.sweep.spec.reference import json_schema
from kising.sweep.starter import MODELINE, SCHEMA, schema_text, shipped_sweeps

SHIPPED = Path(__file__).parents[2] / "sweeps"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def kising(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


def test_a_starter_plans_and_runs_as_it_is(tmp_path: Path) -> None:
    result = kising("init")
    assert result.exit_code == 0
    assert "kising plan my-sweep.yaml" in result.output
    assert kising("plan", "my-sweep.yaml").exit_code == 0
    plan = Plan.of(read_spec("my-sweep.yaml"))
    assert (plan.spec.name, plan.n_runs) == ("my-sweep", 15)
    ran = kising("run", "my-sweep.yaml", "--preset", "quick", "--local-debug")
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "results" / "my-sweep-quick" / "runs.parquet").is_file()


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine")
    result = kising("init", "mine")
    assert result.exit_code == 2
    assert "mine.yaml exists already" in result.output
    assert (tmp_path / "mine.yaml").read_text() == "name: mine"


@pytest.mark.parametrize("source", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_a_shipped_sweep_under_another_name(source: str) -> None:
    assert kising("init", "mine", "--from", source).exit_code == 0
    mine, theirs = read_spec("mine.yaml"), read_spec(SHIPPED / f"{source}.yaml")
    assert mine.name == "mine"
    assert mine == theirs.model_copy(update={"name": "mine"})


@pytest.mark.parametrize(
    ("name", "steps", "hidden"), [("long spikes.npz", 3000, [0, 1, 2, 4]), ("short.csv", 60, [0, 1])]
)
def test_a_starter_for_a_recording_plans_as_it_is(
    tmp_path: Path, name: str, steps: int, hidden: list[int]
) -> None:
    spins = simulate(draw_couplings(6, 1, seed=1), steps, seed=2).visible > 0
    folder = tmp_path / "recordings"
    folder.mkdir()
    if name.endswith("npz"):
        np.savez(folder / name, spikes=spins)
    else:
        np.savetxt(
            folder / name, spins.astype(int), fmt="%d", delimiter=",", header="a,b,c,d,e,f", comments=""
        )
    result = kising("init", "--for", folder / name)
    assert result.exit_code == 0, result.output
    planned = kising("plan", "hidden-spins.yaml")
    assert planned.exit_code == 0, planned.output
    spec = read_spec("hidden-spins.yaml")
    assert f'file: "{Path("recordings") / name}"' in Path("hidden-spins.yaml").read_text()
    assert (spec.model.visible, spec.data.length) == (6, steps)
    assert list(spec.axes[0].columns[0]) == hidden
    assert Plan.of(read_spec("hidden-spins.yaml", preset="quick")).n_runs == 2 * spec.data.folds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "fig3c"], "no such sweep comes with kising; there are arrival, correlations, "),
        (["--from", "fig3b", "--for", "x.npz"], "exclude each other"),
        (["--for", "nowhere.npz"], "nowhere.npz: cannot read the recording: no such file"),
        (["my sweep"], "is not a name"),
    ],
)
def test_mistakes_write_nothing(words: list[str], message: str, tmp_path: Path) -> None:
    result = kising("init", *words)
    assert result.exit_code == 2
    assert message in result.output
    assert not list(tmp_path.glob("*.yaml"))


def test_every_shipped_file_names_the_schema_beside_it_and_follows_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    # Installed, the files lie inside the package.
    contents = {path.name: path.read_text() for path in SHIPPED.glob("*.yaml")}
    assert {path.name: path.read_text() for path in shipped_sweeps().values()} == contents
    # Made by `kising schema > sweeps/kising.schema.json`.
    assert (SHIPPED / SCHEMA).read_text() == schema_text()
    assert json.loads(schema_text()) == json_schema()
    kising("init")
    checker = jsonschema.Draft202012Validator(json_schema())
    for path in (*SHIPPED.glob("*.yaml"), Path("my-sweep.yaml")):
        assert path.read_text().splitlines()[0] == MODELINE
        assert (path.parent / MODELINE.partition("$schema=")[2]).is_file()
        checker.validate(read_document(path).value)
    with pytest.raises(jsonschema.ValidationError):
        checker.validate({"name": "a", "seed": 1, "modle": {}})


def test_shells_complete_commands_options_and_names() -> None:
    def completed(words: str, number: int) -> set[str]:
        surroundings = {"_KISING_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        lines = CliRunner(env=surroundings).invoke(main, prog_name="kising").output.splitlines()
        return {line.partition(",")[2] for line in lines}

    assert completed("kising st", 1) == {"status"}
    assert "--preset" in completed("kising run --", 2)
    assert completed("kising init --from fig3", 3) == {"fig3a", "fig3b"}
    script = CliRunner(env={"_KISING_COMPLETE": "bash_source"}).invoke(main, prog_name="kising").output
    assert "complete -o nosort -F" in script
