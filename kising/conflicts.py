"""Options that exclude each other, and what to do about it.

A rule looks at several options and yields the conflicts among them. Sweep files and keyword arguments are checked by
the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kising.blocks import n_couplings
from kising.estimators import registry
from kising.messages import listing
from kising.option_types import Task
from kising.options import READING


class Conflict(NamedTuple):
    """Options that exclude each other."""

    key: str
    """the one to change"""
    message: str
    value: Any = None
    """its value, if the message is about it"""


Values = Mapping[str, Any]

LARGEST_ERROR_MATRIX: Final = 10_000
"""largest number of couplings for standard errors: the square matrix takes 0.8 GB, and its factor as much"""

#: A value that rules may use besides the options: the number of known inputs of a recording.
INPUTS: Final = "inputs"


class Rule(NamedTuple):
    """A condition on several options together."""

    keys: tuple[str, ...]
    """the options it looks at; a value that is invalid by itself is None"""
    conflicts: Callable[[Values], Iterator[Conflict]]
    task: Task | None = "learn"
    """the task it is for; None: both"""


def _sparse(values: Values) -> Iterator[Conflict]:
    l1, decimate = values["learner.l1"], values["learner.decimate"]
    penalised, decimated = isinstance(l1, float) and l1 > 0, decimate not in (None, "none")
    if penalised and decimated:
        yield Conflict(
            "learner.decimate", "excludes learner.l1; turn one of them off (decimate: none, or l1: 0)"
        )
    if decimated and values["learner.step"] == "gradient":
        yield Conflict("learner.decimate", "needs learner.step: scaled")
    along_paths = values["learner.hidden_couplings"] is True or _incomplete(values)
    why = _why_sampled(values) if along_paths else None
    for key, on in (("learner.l1", penalised), ("learner.decimate", decimated)):
        if on and why is not None:
            cause = "with hidden couplings" if values["learner.hidden_couplings"] is True else "with gaps"
            yield Conflict(
                key, f"{cause} it does not work with estimator gibbs{why}; leave it out, or use exact"
            )


def _errors(values: Values) -> Iterator[Conflict]:
    if values["score.errors"] is not True:
        return
    if values["learner.l1"] not in (None, 0) or values["learner.decimate"] not in (None, "none"):
        yield Conflict(
            "score.errors",
            "cannot be computed with learner.l1 or learner.decimate; leave these out, or errors",
        )
    nv, nh = values["model.visible"], values["model.hidden"]
    if not (isinstance(nv, int) and isinstance(nh, int)):
        return
    inputs = values.get(INPUTS, 0)
    size = _n_couplings(nv, nh, values)
    if size > LARGEST_ERROR_MATRIX:
        known = f", with {inputs} known input{'s' * (inputs > 1)}," if inputs else ""
        yield Conflict(
            "score.errors",
            f"need a matrix over all couplings, and a network of {nv} visible and {nh} hidden spins{known} has {size}; "
            f"allowed: up to {LARGEST_ERROR_MATRIX}",
        )


def _n_couplings(visible: int, hidden: int, values: Values) -> int:
    coupled = values["learner.hidden_couplings"] is True
    bias, inputs = values["learner.bias"] is True, values.get(INPUTS, 0)
    return n_couplings(visible, hidden, bias=bias, inputs=inputs, hidden_couplings=coupled)


def _ascent(values: Values) -> Iterator[Conflict]:
    why = _why_sampled(values)
    if why is not None and values["learner.step"] == "gradient":
        yield Conflict(
            "learner.step",
            f"gradient does not work with estimator gibbs{why}; use scaled, or another estimator",
        )


def _why_sampled(values: Values) -> str | None:
    estimator, coupled = values["learner.estimator"], values["learner.hidden_couplings"] is True
    if estimator is None:
        return None
    return registry.why_sampled(estimator, values["model.hidden"], coupled=coupled, gaps=_incomplete(values))


def _incomplete(values: Values) -> bool:
    """Whether entries are missing: hidden at random, or in the recording itself."""
    return bool(values["data.missing"]) or bool(values["data.absent"])


def _enumerable(values: Values) -> Iterator[Conflict]:
    hidden, estimator = values["model.hidden"], values["learner.estimator"]
    if not isinstance(hidden, int):
        return
    asked = []
    if estimator is not None and estimator != registry.AUTO:
        others = listing(entry.name for entry in registry.ESTIMATORS if entry.largest_hidden is None)
        asked.append(
            (registry.entry(estimator), f"estimator {estimator}", f", or another estimator ({others})")
        )
    if values["score.exact"] is True:
        asked.append((registry.entry("exact"), "score.exact", ", or leave score.exact out"))
    for entry, name, cure in asked:
        if entry.largest_hidden is not None and hidden > entry.largest_hidden:
            message = f"too large for {name}, which sums over 2^hidden states"
            yield Conflict("model.hidden", f"{message}; allowed: up to {entry.largest_hidden}{cure}", hidden)


def _learned_couplings(values: Values) -> Iterator[Conflict]:
    if values["learner.hidden_couplings"] is True:
        yield from _coupled(values, "learner.hidden_couplings", "leave it out")


def _true_couplings(values: Values) -> Iterator[Conflict]:
    if values["model.hidden_coupling"]:
        yield from _coupled(values, "learner.estimator")


def _coupled(values: Values, key: str, cure: str = "") -> Iterator[Conflict]:
    """Conflicts with couplings M among hidden spins."""
    hidden, estimator = values["model.hidden"], values["learner.estimator"]
    if not isinstance(hidden, int) or hidden == 0 or estimator is None:
        return
    able = [entry for entry in registry.ESTIMATORS if entry.knows_M]
    entry = registry.resolve(estimator, hidden, coupled=True)
    if not entry.knows_M:
        limits = (f" (up to {x.largest_coupled} hidden spins)" if x.largest_coupled else "" for x in able)
        names = listing([f"{x.name}{limit}" for x, limit in zip(able, limits, strict=True)])
        yield Conflict(
            key,
            f"estimator {entry.name} cannot treat couplings M among hidden spins; use {names}"
            + (f", or {cure}" if cure else ""),
        )
    exact = registry.entry("exact")
    for one, name in ((entry, f"estimator {entry.name}"), (exact, "score.exact")):
        asked = one is entry if name != "score.exact" else values["score.exact"] is True
        if asked and one.largest_coupled is not None and hidden > one.largest_coupled:
            others = listing([x.name for x in able if x.largest_coupled is None])
            yield Conflict(
                "model.hidden",
                f"too large for {name} with couplings M among hidden spins, which sums over 4^hidden transitions; "
                f"allowed: up to {one.largest_coupled}" + (f", or estimator {others}" if others else ""),
                hidden,
            )


def _gaps(values: Values) -> Iterator[Conflict]:
    estimator = values["learner.estimator"]
    if _incomplete(values) and estimator is not None:
        able = [entry.name for entry in registry.ESTIMATORS if entry.gaps]
        if estimator not in (registry.AUTO, *able):
            recorded = bool(values["data.absent"])
            where = "the recording has some" if recorded else "data.missing hides some"
            cure = (
                ", or leave out steps with gaps (data.gaps: drop; in fit, missing: drop)" if recorded else ""
            )
            message = f"{estimator} cannot treat missing entries, and {where}; use auto, "
            yield Conflict("learner.estimator", f"{message}{listing(able)}{cure}")


def _truth(values: Values) -> Iterator[Conflict]:
    if values["data.file"] is None:
        return
    for key, value, cure in (
        ("learner.start", "signs", "use random"),
        ("learner.decimate", "known", "give a fraction, or none"),
        ("score.pruned", True, "leave it out"),
    ):
        if values[key] == value and type(values[key]) is type(value):
            word = "true" if value is True else value
            yield Conflict(key, f"{word} needs true couplings, and a recording (data.file) has none; {cure}")


def _unread(values: Values) -> Iterator[Conflict]:
    if values["data.file"] is None:
        for leaf in READING.values():
            if values[leaf.key] not in (None, leaf.default):
                yield Conflict(
                    leaf.key, "describes how data.file is read, but there is no data.file; leave it out"
                )


def _inferred(values: Values) -> Iterator[Conflict]:
    if values["data.file"] is not None:
        yield Conflict(
            "data.file", "task infer needs true couplings, and a recording has none; use task: learn"
        )


#: What decides whether the estimator samples.
_SAMPLED: Final = (
    "learner.estimator",
    "model.hidden",
    "learner.hidden_couplings",
    "data.missing",
    "data.absent",
)

RULES: Final = (
    Rule((*_SAMPLED, "learner.step", "learner.l1", "learner.decimate"), _sparse),
    Rule(
        (
            "score.errors",
            "model.visible",
            "model.hidden",
            "learner.bias",
            "learner.hidden_couplings",
            "learner.l1",
            "learner.decimate",
        ),
        _errors,
    ),
    Rule((*_SAMPLED, "learner.step"), _ascent),
    Rule(("learner.estimator", "model.hidden", "score.exact"), _enumerable, task=None),
    Rule((*_SAMPLED, "score.exact"), _learned_couplings),
    Rule(
        ("learner.estimator", "model.hidden", "model.hidden_coupling", "score.exact"),
        _true_couplings,
        task="infer",
    ),
    Rule(("data.missing", "data.absent", "learner.estimator"), _gaps, task=None),
    Rule(("data.file", "learner.start", "learner.decimate", "score.pruned"), _truth),
    Rule(("data.file", *(leaf.key for leaf in READING.values())), _unread, task=None),
    Rule(("data.file",), _inferred, task="infer"),
)
