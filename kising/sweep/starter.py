"""`kising init`: a commented sweep file to start from, and the schema by which editors complete and check it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import kising
from kising.errors import InputError
from kising.messages import did_you_mean, listing, nearest
from kising.option_types import leaves_of
from kising.options import Header
from kising.sweep.spec import read_spec
from kising.sweep.spec.recording import read_content
from kising.sweep.spec.reference import json_schema
from kising.sweep.store.atomic import atomic_write, make_directory
from kising.values import RefusedError

SCHEMA: Final = "kising.schema.json"
"""The name of the schema beside a sweep file; editors find it without network access."""
MODELINE: Final = f"# yaml-language-server: $schema={SCHEMA}"
"""The first line of every sweep file that comes with kising."""
FEWEST_FOLDS: Final = 2
#: With fewer steps than this per coupling, hidden spins are hard to detect.
ENOUGH_STEPS: Final = 20

_STARTER: Final = """\
{modeline}
# {name}: how fast does the error of the learned couplings fall with the length of the recording?
#
{commands}
#
# Every key with its values and its default: `kising schema --format markdown`.
name: {name}
task: learn # learn couplings from data; or infer: averages at the true couplings
seed: 1 # all random numbers follow from it
realizations: 5 # number of independent networks per point

model: # the networks that are drawn
  visible: 20 # spins that are recorded
  hidden: 3 # spins that are not
  bonds: gaussian # or binary
  strength: 1.0 # g: the larger, the less random are the dynamics
  connectivity: 1.0 # c: the fraction of bonds that are not zero

learner: # how couplings are learned back
  bias: false # true: also learn a bias for every spin; the networks above have none
  estimator: exact # averages over hidden spins: exact, gibbs, bp, tap, mean-field, or auto
  start: signs # start from the signs of the true couplings, as in the paper; random does not use them

axes: # what varies: all combinations of all keys. For keys that vary together see docs/sweeps.md
  data.length: {{logspace: [1e3, 1e4, 3]}} # from, to, number of values; or a list: [1000, 3000, 10000]

presets: # small versions
  quick:
    realizations: 2
    axes: {{data.length: [500, 1000]}}

# keep: {{couplings: true, trace: true, realizations: 1}} # keep couplings and traces of some runs
# resources: {{cpus: 1, timeout: 2h}} # for one run
"""

_RECORDING: Final = """\
{modeline}
# {name}: how many hidden spins does {recording} need?
# {visible} visible spins, {steps} time steps{segments}. Every fold is held out once and scored with what was learned
# from the others, beside two baselines: a network without hidden spins, and one without memory.
#
{commands}
#
# Every key with its values and its default: `kising schema --format markdown`.
name: {name}
seed: 1 # all random numbers follow from it

data:
  file: {path} # relative to this file; the sizes are taken from it
  folds: {folds} # number of parts of the recording; each is held out in turn

learner:
  estimator: auto # exact for few hidden spins, gibbs for many
  start: random # signs needs the true couplings
  starts: 3 # try three starts, and continue from the likeliest
  prior: auto # found from the recording; bounds couplings that it does not determine

axes:
  model.hidden: {hidden} # the numbers of hidden spins to compare

presets: # a small version, to check that everything works
  quick:
    learner: {{starts: 1, max_iterations: 20}}
    axes: {{model.hidden: [0, 1]}}
"""


def shipped_sweeps() -> dict[str, Path]:
    """The sweep files that come with kising, by name."""
    package = Path(kising.__file__).parent
    for folder in (package / "sweeps", package.parent / "sweeps"):  # installed, or a source checkout
        if (folder / SCHEMA).is_file():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return {}


def starter(name: str) -> str:
    """A sweep over lengths of recordings of simulated networks."""
    return _STARTER.format(modeline=MODELINE, name=name, commands=_commands(name))


def _commands(name: str) -> str:
    """What to do with the file, as comments in it."""
    commands = {
        f"kising plan {name}.yaml": "show what would run and what it would cost; start nothing",
        f"kising run {name}.yaml --preset quick": f"run a small version, into results/{name}-quick",
        f"kising run {name}.yaml": "run all of it; run it again to resume, or after adding values",
        f"kising report results/{name}": "write a page with figures and tables",
    }
    width = max(map(len, commands))
    return "\n".join(f"#   {command:{width}}  {meaning}" for command, meaning in commands.items())


def starter_from(source: str, name: str) -> str:
    """A sweep file that comes with kising, under another name."""
    files = shipped_sweeps()
    if source not in files:
        near = did_you_mean(nearest(source, files))
        raise InputError(
            f"--from {source}: no such sweep comes with kising; there are {listing(files)}{near}"
        )
    text = files[source].read_text(encoding="utf-8")
    return re.sub("^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE)


def starter_for(recording: Path, name: str, folder: Path) -> str:
    """A sweep over numbers of hidden spins of a recording; `folder` will hold the file."""
    found = read_content(str(recording), FEWEST_FOLDS, {})
    segments = "" if len(found.spins) == 1 else f" in {len(found.spins)} segments"
    most = max(1, min(4, found.n_steps // (ENOUGH_STEPS * 2 * max(found.n_visible, 1))))
    return _RECORDING.format(
        modeline=MODELINE,
        name=name,
        commands=_commands(name),
        recording=recording.name,
        path=json.dumps(os.path.relpath(recording.resolve(), folder.resolve()), ensure_ascii=False),
        visible=found.n_visible,
        steps=found.n_steps,
        segments=segments,
        folds=min(5, max(FEWEST_FOLDS, found.n_steps // 10)),
        hidden=[0, *(count for count in (1, 2, 4) if count <= most)],
    )


def check_name(name: str) -> None:
    """Raise an InputError unless a sweep can have this name."""
    kind = next(leaf.kind for leaf in leaves_of(Header) if leaf.key == "name")
    try:
        kind.parse(name)
    except RefusedError as refusal:
        raise InputError(str(refusal)) from None


def write_starter(text: str, name: str, folder: Path) -> list[Path]:
    """Write a sweep file, and the schema beside it; an existing sweep file is not overwritten."""
    path = folder / f"{name}.yaml"
    if path.exists():
        raise InputError(f"{path} exists already: choose another name, as in `kising init {name}-2`")
    make_directory(folder)
    schema = atomic_write(folder / SCHEMA, schema_text().encode())
    written = atomic_write(path, text.encode())
    read_spec(written)
    return [written, schema]


def schema_text() -> str:
    """The JSON Schema of sweep files, as `kising schema` prints it."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
