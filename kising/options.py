"""The sections of a sweep file as frozen models, every key with its kind, and which keys matter when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from kising.values import Amount, Choice, Flag, Kind, Real, Whole, WordOrReal

Task = Literal["learn", "infer"]
Bonds = Literal["gaussian", "binary"]
Estimator = Literal["auto", "exact", "gibbs", "bp", "tap", "mean-field"]
Precision = Literal["float64", "float32"]
Correlations = Literal["iterated", "closed", "pair", "corrected", "iterated-corrected"]
Start = Literal["signs", "random"]
Step = Literal["scaled", "gradient"]

#: Enumeration sums over 2^hidden states. A test holds this equal to kising.estimators.exact.enumeration.MAX_HIDDEN,
#: which is not imported here: it would load the compiler of the kernels. The same holds for what decides `auto`.
EXACT_MAX_HIDDEN = 20
AUTO_EXACT_HIDDEN = 8
#: The same for the matrix that standard errors come from (kising.learning.errors).
ERRORS_MOST_COUPLINGS = 10_000

_POSITIVE = Real("numbers > 0", lambda x: x > 0)
#: A fixed fraction of the old message that is kept, or one that follows how the iteration goes.
_DAMPING = WordOrReal(("adaptive",), "a number with 0 <= number < 1", lambda x: 0 <= x < 1)
#: The share of couplings that may differ from zero: all, as many as the network has bonds, or a number.
_DECIMATE = WordOrReal(("none", "known"), "a number with 0 < number <= 1", lambda x: 0 < x <= 1)
#: The width of a Gaussian prior in bond scales.
_PRIOR = WordOrReal(("none",), "a number > 0", lambda x: x > 0)
_BYTES = {
    **{"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Section(BaseModel):
    """A mapping of a sweep file: keys are known, values are checked, nothing changes afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(Section):
    """The network: sizes and the ensemble its couplings are drawn from."""

    visible: Annotated[int, Whole(1)]
    hidden: Annotated[int, Whole(1)]
    bonds: Annotated[Bonds, Choice("a kind of bonds", get_args(Bonds))] = "gaussian"
    strength: Annotated[float, Real("numbers >= 0", lambda x: x >= 0)] = 1.0
    connectivity: Annotated[float, Real("numbers > 0, up to 1", lambda x: 0 < x <= 1)] = 1.0


class Data(Section):
    """The recording: its length in time steps (an estimate needs three)."""

    length: Annotated[int, Whole(3)]


class EStep(Section):
    """The iteration inside an E-step."""

    tolerance: Annotated[float, _POSITIVE] = 1e-9
    damping: Annotated[Literal["adaptive"] | float, _DAMPING] = "adaptive"
    max_iterations: Annotated[int, Whole(1)] = 200
    precision: Annotated[Precision, Choice("a precision", get_args(Precision))] = "float64"


class Learner(Section):
    """How couplings are learnt, or with task infer how averages are estimated."""

    estimator: Annotated[Estimator, Choice("an estimator", get_args(Estimator))] = "bp"
    correlations: Annotated[Correlations, Choice("a correlation rule", get_args(Correlations))] = "corrected"
    start: Annotated[Start, Choice("a start", get_args(Start))] = "signs"
    starts: Annotated[int, Whole(1)] = 1
    step: Annotated[Step, Choice("a step", get_args(Step))] = "scaled"
    rate: Annotated[float, _POSITIVE] = 0.1
    momentum: Annotated[float, Real("numbers >= 0, below 1", lambda x: 0 <= x < 1)] = 0.0
    tolerance: Annotated[float, _POSITIVE] = 1e-4
    hold: Annotated[int, Whole(1)] = 3
    max_iterations: Annotated[int, Whole(1)] = 300
    noise: Annotated[float, _POSITIVE] = 0.1
    prior: Annotated[Literal["none"] | float, _PRIOR] = "none"
    l1: Annotated[float, Real("numbers >= 0", lambda x: x >= 0)] = 0.0
    decimate: Annotated[Literal["none", "known"] | float, _DECIMATE] = "none"
    estep: EStep = EStep()


class Score(Section):
    """What is compared besides: with task infer, averages with exact ones; with task learn, couplings with the truth
    after those of a bond's size were told from zeros by the known number of bonds, and with their standard errors.
    """

    exact: Annotated[bool, Flag()] = False
    pruned: Annotated[bool, Flag()] = False
    errors: Annotated[bool, Flag()] = False


class Keep(Section):
    """What is kept of learning besides its row, for the first so many realizations of every point. It changes no
    result, and a point's id does not hold it.
    """

    couplings: Annotated[bool, Flag()] = False
    trace: Annotated[bool, Flag()] = False
    realizations: Annotated[int, Whole(1)] = 1

    @property
    def asks(self) -> bool:
        """Whether anything is kept."""
        return self.couplings or self.trace


class Resources(Section):
    """What one run asks of the machine: cores, bytes of memory, seconds before it is stopped, and seconds
    between two checkpoints.
    """

    cpus: Annotated[int, Whole(1)] = 1
    memory: Annotated[int | None, Amount("an amount of memory", "bytes", _BYTES, "2GiB", whole=True)] = None
    timeout: Annotated[float | None, Amount("a time", "seconds", _SECONDS, "15m")] = None
    checkpoint: Annotated[float | None, Amount("a time", "seconds", _SECONDS, "15m")] = 60.0


#: The sections whose values define a point, in the order of a sweep file.
POINT_SECTIONS: Mapping[str, type[Section]] = {
    "model": Model,
    "data": Data,
    "learner": Learner,
    "score": Score,
}


def kind_of(section: type[BaseModel], key: str) -> Kind | None:
    """Return the kind of a key's values, or None where the key is a section itself (or unknown)."""
    field = section.model_fields.get(key)
    kinds = [] if field is None else [entry for entry in field.metadata if isinstance(entry, Kind)]
    return kinds[0] if kinds else None


def _leaves(section: type[Section], prefix: str) -> Iterator[tuple[str, Kind, Any]]:
    for key, field in section.model_fields.items():
        kind = kind_of(section, key)
        if kind is not None:
            yield f"{prefix}.{key}", kind, None if field.is_required() else field.default
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _leaves(field.annotation, f"{prefix}.{key}")


_TABLE = [row for name, section in POINT_SECTIONS.items() for row in _leaves(section, name)]
#: Every dotted key that can be an axis, with the kind of its values ...
LEAVES: Mapping[str, Kind] = {key: kind for key, kind, _ in _TABLE}
#: ... and its default, None where it has none.
DEFAULTS: Mapping[str, Any] = {key: default for key, _, default in _TABLE}

#: Keys that sweep files did not have from the beginning. A point's id holds them only where they are not at their
#: defaults, so that points written down before keep their ids, and their results.
ADDED_LATER = frozenset(
    {
        "learner.estep.precision",
        "learner.noise",
        "learner.l1",
        "learner.decimate",
        "learner.starts",
        "learner.prior",
        "score.pruned",
        "score.errors",
    }
)

#: The task that each score is for.
SCORES: Mapping[str, str] = {"score.exact": "infer", "score.pruned": "learn", "score.errors": "learn"}

_GRADIENT_ONLY = ("learner.rate", "learner.momentum")
_LEARNING_ONLY = (
    *("learner.start", "learner.starts", "learner.step", *_GRADIENT_ONLY),
    *("learner.tolerance", "learner.hold", "learner.max_iterations", "learner.noise"),
    *("learner.prior", "learner.l1", "learner.decimate", "score.pruned", "score.errors"),
)
_BP_ONLY = ("learner.correlations", "learner.estep.precision")
_ESTEP = tuple(key for key in LEAVES if key.startswith("learner.estep."))


def unused_keys(task: str, estimator: str, step: str) -> Mapping[str, str]:
    """Return the keys whose values change nothing at a point with these values, each with the reason."""
    unused: dict[str, str] = {}
    if task == "infer":
        unused |= dict.fromkeys(_LEARNING_ONLY, "task infer learns nothing")
    elif step == "gradient":
        unused["learner.prior"] = "only step scaled uses it"
    else:
        unused |= dict.fromkeys(_GRADIENT_ONLY, "only step gradient uses it")
    if estimator in ("auto", "exact", "gibbs"):
        unused |= dict.fromkeys(_ESTEP, f"estimator {estimator} does not iterate")
    if estimator == "gibbs":
        unused["learner.tolerance"] = "estimator gibbs ends by learner.noise"
    elif estimator != "auto":
        unused["learner.noise"] = "only estimator gibbs uses it"
    if estimator != "bp":
        unused |= dict.fromkeys(_BP_ONLY, "only estimator bp uses it")
    return unused
