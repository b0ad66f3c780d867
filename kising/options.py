"""Every option, declared once: its kind of value, default, help, where it has an effect, and since which schema.

From these declarations come the checks of sweep files and of keyword arguments, the flags of `kising fit`, the
parameter columns of the tables, the JSON Schema (`kising schema`) and the key reference in the documentation. To add
an option, declare it here and use it where it acts. Options that do not go together are in `conflicts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, get_args

from kising.estimators import registry
from kising.estimators.bp.rules import RULES as CORRELATIONS
from kising.messages import listing
from kising.option_types import Condition, Gate, Leaf, Option, Section, Task, leaves_of
from kising.values import (
    Amount,
    Choice,
    Digest,
    Duration,
    FilePath,
    Flag,
    Kind,
    Name,
    OptionalText,
    Real,
    Text,
    Whole,
    WordOrReal,
)


def _learning(gate: Gate) -> str | None:
    return "task infer learns nothing" if gate.task == "infer" else None


def _step(name: str) -> Condition:
    return lambda gate: None if gate.task == "infer" or gate.step == name else f"only step {name} uses it"


def _iterated(gate: Gate) -> str | None:
    some = any(entry.iterates for entry in registry.candidates(gate.estimator))
    return None if some else f"estimator {gate.estimator} does not iterate"


def _read(key: str) -> Condition:
    readers = listing(entry.name for entry in registry.ESTIMATORS if key in entry.reads)

    def condition(gate: Gate) -> str | None:
        some = any(key in entry.reads for entry in registry.candidates(gate.estimator))
        return None if some else f"only estimator {readers} uses it"

    return condition


def _sampled(gate: Gate) -> str | None:
    samplers = listing(entry.name for entry in registry.ESTIMATORS if entry.samples)
    some = any(entry.samples for entry in registry.candidates(gate.estimator))
    return None if some else f"only estimator {samplers} uses it"


def _not_sampled(gate: Gate) -> str | None:
    some = any(not entry.samples for entry in registry.candidates(gate.estimator))
    return None if some else f"estimator {gate.estimator} ends by learner.noise"


def _drawn(gate: Gate) -> str | None:
    return None if gate.file is None else "data.file is a recording, not a network that is drawn"


def _recorded(gate: Gate) -> str | None:
    return "only data.file uses it" if gate.file is None else None


def _reading(kind: Kind, text: str, *, since: int = 9, argument: str | None = None) -> Option:
    """An option of `read_recording`. Points are identified by the hash of what was read, not by how it was read."""
    return Option(
        kind=kind,
        help=text,
        applies=(_recorded,),
        since=since,
        varies=False,
        in_ids=False,
        reads=True,
        argument=argument,
    )


class Header(Section):
    """The sweep as a whole."""

    name: Annotated[str, Option(kind=Name(), help="Name of the sweep, and of its directory below results/.")]
    description: Annotated[str, Option(kind=Text(), help="What the sweep is for; the report shows it.")] = ""
    task: Annotated[
        Task,
        Option(
            kind=Choice("a task", get_args(Task)),
            help="learn: learn couplings from data by EM; infer: compute averages at the true couplings.",
        ),
    ] = "learn"
    seed: Annotated[int, Option(kind=Whole(0), help="All random numbers of the sweep follow from it.")]
    realizations: Annotated[
        int,
        Option(
            kind=Whole(1), help="Number of independent networks per point; with data.file, number of folds."
        ),
    ] = 1


class Model(Section):
    """The network: its sizes, and the ensemble from which its couplings are drawn."""

    visible: Annotated[int, Option(kind=Whole(1), help="Number of visible spins, Nv.")]
    hidden: Annotated[int, Option(kind=Whole(0), help="Number of hidden spins, Nh.")]
    bonds: Annotated[
        str,
        Option(
            kind=Choice("a kind of bonds", ("gaussian", "binary")),
            help="Values of non-zero bonds. gaussian: normal, with the bond scale as standard deviation; binary: plus "
            "or minus the bond scale.",
            applies=(_drawn,),
        ),
    ] = "gaussian"
    strength: Annotated[float, Option(kind=Real(least=0), help="Coupling strength g.", applies=(_drawn,))] = (
        1.0
    )
    connectivity: Annotated[
        float,
        Option(kind=Real(above=0, most=1), help="Probability c that a bond is not zero.", applies=(_drawn,)),
    ] = 1.0
    bias: Annotated[
        float,
        Option(
            kind=Real(least=0),
            help="Standard deviation of the biases of all spins; 0: none.",
            applies=(_drawn,),
            since=7,
        ),
    ] = 0.0
    hidden_coupling: Annotated[
        float,
        Option(
            kind=Real(least=0),
            help="Strength of the couplings M among hidden spins, relative to that of K; 0: none.",
            applies=(_drawn,),
            since=9,
        ),
    ] = 0.0


class Data(Section):
    """The recording: simulated, or read from a file and held out fold by fold. A file sets model.visible and length."""

    @property
    def has_gaps(self) -> bool:
        """Whether entries are missing."""
        return bool(self.missing or self.absent)

    length: Annotated[int, Option(kind=Whole(3), help="Length T of the recording, in time steps.")]
    missing: Annotated[
        float,
        Option(
            kind=Real(least=0, below=1),
            help="Fraction of the visible entries that are removed at random; learning averages over them.",
            applies=(_drawn,),
            since=9,
        ),
    ] = 0.0
    file: Annotated[
        str | None,
        Option(
            kind=FilePath(),
            help="Path of a recording (docs/recordings.md), relative to the sweep file; null: simulate networks.",
            since=8,
            varies=False,
            in_ids=False,  # the hash identifies a recording, wherever its file lies
        ),
    ] = None
    key: Annotated[str | None, _reading(OptionalText(), "Name of the array in a .npz or .mat file.")] = None
    bin: Annotated[
        str | None, _reading(Duration(), "Width of a bin, such as 20ms, for a file of spike times.")
    ] = None
    trials: Annotated[
        str | None, _reading(FilePath(), "With bin: a table of starts and stops of trials, in seconds.")
    ] = None
    covariates: Annotated[
        str | None, _reading(FilePath(), "A table of known inputs, with one row per time step.")
    ] = None
    delimiter: Annotated[
        str | None,
        _reading(OptionalText(), "Character between the cells of a text file; null: recognise it."),
    ] = None
    gaps: Annotated[
        str,
        _reading(
            Choice("a way to treat missing entries", ("sample", "drop")),
            "Missing entries of the recording: average over them, or leave out steps that have any.",
            since=10,
            argument="missing",  # in sweep files, `missing` is the fraction removed from simulated recordings
        ),
    ] = "sample"
    absent: Annotated[
        float,
        Option(
            kind=Real(least=0, below=1),
            help="Fraction of the recording's entries that are missing; written by kising.",
            applies=(_recorded,),
            since=10,
            varies=False,
            in_ids=False,  # the hash identifies the recording
        ),
    ] = 0.0
    folds: Annotated[
        int,
        Option(
            kind=Whole(2),
            help="Number of parts of the recording; each is held out once, and couplings are learned from the others.",
            applies=(_recorded,),
            since=8,
            varies=False,
        ),
    ] = 5
    hash: Annotated[
        str | None,
        Option(
            kind=Digest(),
            help="Hash of the recording's content; written by kising.",
            applies=(_recorded,),
            since=8,
            varies=False,
        ),
    ] = None


class EStep(Section):
    """The iteration inside an E-step."""

    tolerance: Annotated[
        float,
        Option(
            kind=Real(above=0),
            help="A slice has converged when the mean square change of its messages is below this.",
            applies=(_iterated,),
        ),
    ] = 1e-9
    damping: Annotated[
        Literal["adaptive"] | float,
        Option(
            kind=WordOrReal(("adaptive",), Real(least=0, below=1)),
            help="Fraction of the old message that is kept at each iteration; adaptive: none at first, more where that "
            "does not converge.",
            applies=(_iterated,),
        ),
    ] = "adaptive"
    max_iterations: Annotated[
        int,
        Option(
            kind=Whole(1),
            help="Iterations after which a slice counts as not converged.",
            applies=(_iterated,),
        ),
    ] = 200
    precision: Annotated[
        str,
        Option(
            kind=Choice("a precision", ("auto", "float64", "float32")),
            help="Precision of the messages; float32 takes about two thirds of the time; averages of single slices "
            "then have about 4 digits. auto: float32 while couplings are learned from a long recording, until their "
            "steps are very small; else float64.",
            applies=(_iterated, _read("learner.estep.precision")),
            since=2,
            argument="precision",
        ),
    ] = "auto"


class Learner(Section):
    """How couplings are learned or, with task infer, how averages are computed."""

    estimator: Annotated[
        str,
        Option(
            kind=Choice("an estimator", registry.NAMES),
            help="How hidden spins are averaged over; auto: "
            f"exact up to {registry.AUTO_LARGEST_EXACT} hidden spins ({registry.AUTO_LARGEST_COUPLED} if they are "
            "coupled), gibbs beyond that and where entries are missing.",
        ),
    ] = registry.AUTO
    correlations: Annotated[
        str,
        Option(
            kind=Choice("a correlation rule", tuple(CORRELATIONS)),
            help="How belief propagation computes pair averages; corrected, bounded: closed, with values outside "
            "[-1, 1] replaced.",
            applies=(_read("learner.correlations"),),
        ),
    ] = "bounded"
    bias: Annotated[
        bool,
        Option(
            kind=Flag(),
            help="Learn a bias for every spin; false: the paper's model, which has no biases.",
            applies=(_learning,),
            since=7,
            implied=False,
        ),
    ] = True
    hidden_couplings: Annotated[
        bool,
        Option(
            kind=Flag(),
            help="Learn couplings M among hidden spins; false: the paper's model, which has none.",
            applies=(_learning,),
            since=9,
        ),
    ] = False
    start: Annotated[
        str,
        Option(
            kind=Choice("a start", ("signs", "random")),
            help="Initial couplings; signs: the paper's start, with the sign of every true coupling.",
            applies=(_learning,),
            needs_truth=True,
        ),
    ] = "random"
    starts: Annotated[
        int,
        Option(
            kind=Whole(1),
            help="Number of starts to try on the beginning of the recording; learning continues from the likeliest.",
            applies=(_learning,),
            since=6,
        ),
    ] = 1
    step: Annotated[
        str,
        Option(
            kind=Choice("a step", ("scaled", "gradient")),
            help="scaled: gradient divided by the information, with acceleration; gradient: the paper's plain ascent.",
            applies=(_learning,),
        ),
    ] = "scaled"
    rate: Annotated[
        float,
        Option(
            kind=Real(above=0),
            help="Learning rate: change of a coupling per unit of the gradient of the mean log-likelihood.",
            applies=(_learning, _step("gradient")),
        ),
    ] = 0.1
    momentum: Annotated[
        float,
        Option(
            kind=Real(least=0, below=1),
            help="Fraction of the previous step that is added to this one.",
            applies=(_learning, _step("gradient")),
        ),
    ] = 0.0
    tolerance: Annotated[
        float,
        Option(
            kind=Real(above=0),
            help="A block has settled when its next step is below this, in bond scales.",
            applies=(_learning, _not_sampled),
        ),
    ] = 1e-4
    hold: Annotated[
        int,
        Option(
            kind=Whole(1),
            help="Number of iterations in a row for which a block must have settled before it counts as converged.",
            applies=(_learning,),
        ),
    ] = 3
    max_iterations: Annotated[
        int | None,
        Option(
            kind=Whole(1, nullable=True),
            help=f"Largest number of EM iterations; null: {registry.iteration_limits()}.",
            applies=(_learning,),
        ),
    ] = None
    noise: Annotated[
        float,
        Option(
            kind=Real(above=0),
            help="A block has settled when its Monte-Carlo error is below this fraction of its statistical error.",
            applies=(_learning, _sampled),
            since=4,
        ),
    ] = 0.1
    prior: Annotated[
        Literal["none", "auto"] | float,
        Option(
            kind=WordOrReal(("none", "auto"), Real(above=0)),
            help="Width of a Gaussian prior on every coupling, in bond scales; auto: the size of a typical coupling of "
            "the block; none: maximum likelihood.",
            applies=(_learning, _step("scaled")),
            since=6,
            implied="none",
        ),
    ] = "auto"
    l1: Annotated[
        float,
        Option(
            kind=Real(least=0),
            help="Penalty on the size of every coupling, in standard errors; 0: none.",
            applies=(_learning,),
            since=5,
        ),
    ] = 0.0
    decimate: Annotated[
        Literal["none", "known"] | float,
        Option(
            kind=WordOrReal(("none", "known"), Real(above=0, most=1)),
            help="Fraction of couplings that may differ from zero, enforced at every step; known: the true number.",
            applies=(_learning,),
            since=5,
        ),
    ] = "none"
    estep: EStep = EStep()


class Score(Section):
    """Additional scores."""

    exact: Annotated[
        bool, Option(kind=Flag(), help="Compare the averages with exact ones.", task="infer")
    ] = False
    pruned: Annotated[
        bool,
        Option(
            kind=Flag(),
            help="Also score pruned couplings: the known number of bonds is kept, and set to their mean size.",
            applies=(_learning,),
            task="learn",
            since=5,
        ),
    ] = False
    errors: Annotated[
        bool,
        Option(
            kind=Flag(),
            help="Compute standard errors of the couplings, and how often their 95% intervals contain the truth.",
            applies=(_learning,),
            task="learn",
            since=5,
            argument="errors",
        ),
    ] = False


class Keep(Section):
    """Optional artifacts, kept for the first realizations of every point. They change no result and no id."""

    couplings: Annotated[bool, Option(kind=Flag(), help="Keep true, initial and learned couplings.")] = False
    trace: Annotated[bool, Option(kind=Flag(), help="Keep one row per EM iteration.")] = False
    realizations: Annotated[
        int, Option(kind=Whole(1), help="For how many realizations per point they are kept.")
    ] = 1

    @property
    def asks(self) -> bool:
        """Whether anything is kept."""
        return self.couplings or self.trace


_BYTES = {
    **{"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
}
_TIME = Amount("a time", "seconds", {"s": 1, "m": 60, "h": 3600, "d": 86400}, "15m")


class Resources(Section):
    """What one run requires of the machine."""

    cpus: Annotated[int, Option(kind=Whole(1), help="Number of cores per run.")] = 1
    memory: Annotated[
        int | None,
        Option(
            kind=Amount("an amount of memory", "bytes", _BYTES, "2GiB", whole=True),
            help="Memory that Ray reserves per run; null: none.",
        ),
    ] = None
    timeout: Annotated[
        float | None, Option(kind=_TIME, help="Time after which a run counts as failed; null: never.")
    ] = None
    checkpoint: Annotated[
        float | None, Option(kind=_TIME, help="Time between two checkpoints of a long run; null: none.")
    ] = 60.0


#: The sections whose values define a point, in the order of a sweep file.
POINT_SECTIONS: Mapping[str, type[Section]] = {
    "model": Model,
    "data": Data,
    "learner": Learner,
    "score": Score,
}
#: The sections that do not define points.
OTHER_SECTIONS: Mapping[str, type[Section]] = {"keep": Keep, "resources": Resources}


#: Every option that belongs to a point, by its dotted key.
LEAVES: Mapping[str, Leaf] = {
    leaf.key: leaf for name, section in POINT_SECTIONS.items() for leaf in leaves_of(section, f"{name}.")
}


#: The options that say how data.file is read, by the name of the argument of `read_recording`.
READING: Mapping[str, Leaf] = {
    leaf.option.argument or key.removeprefix("data."): leaf
    for key, leaf in LEAVES.items()
    if leaf.option.reads
}


def choices(key: str) -> tuple[str, ...]:
    """The words that an option accepts."""
    kind = LEAVES[key].kind
    assert isinstance(kind, Choice)
    return kind.words


#: The keys whose values decide which options have an effect.
GATE_KEYS: Final = ("learner.estimator", "learner.step", "data.file")


def gates(task: str) -> Iterator[Gate]:
    """Every gate of a task, for simulated networks."""
    return (
        Gate(task, estimator, step)
        for estimator in choices("learner.estimator")
        for step in choices("learner.step")
    )


def unused_keys(gate: Gate) -> Mapping[str, str]:
    """The options that have no effect at a point with these values, each with the reason."""
    unused: dict[str, str] = {}
    for key, leaf in LEAVES.items():
        for condition in leaf.option.applies:
            why = condition(gate)
            if why is not None:
                unused[key] = why
    return unused
