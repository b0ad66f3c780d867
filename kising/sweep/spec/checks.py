"""The checks that no single value can fail: values together, and how many runs they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kising.messages import listing, show
from kising.options import (
    AUTO_EXACT_HIDDEN,
    DEFAULTS,
    ERRORS_MOST_COUPLINGS,
    EXACT_MAX_HIDDEN,
    LEAVES,
    SCORES,
    Keep,
    kind_of,
    unused_keys,
)
from kising.sweep.spec.axes import MAX_POINTS, Axes
from kising.sweep.spec.documents import Document, Problem, path_of, said_at
from kising.sweep.store.artifacts import LARGEST_KEPT, bytes_a_run
from kising.values import Kind, RefusedError, Scalar

MAX_RUNS = 10**7
#: So many culprits of one kind are named.
MAX_NAMED = 5

VISIBLE, ITERATIONS = "model.visible", "learner.max_iterations"
L1, DECIMATE = "learner.l1", "learner.decimate"
ESTIMATOR, STEP, HIDDEN, EXACT = "learner.estimator", "learner.step", "model.hidden", "score.exact"
ERRORS = "score.errors"


def check_combinations(document: Document, axes: Axes, *, task: Kind, realizations: Kind) -> list[Problem]:
    """Return the mistakes that lie in values together; values mistaken by themselves take no part."""
    known_task = _settled(document, "task", task, "learn")
    return [
        *_scores_of_the_other_task(document, axes, known_task),
        *_unfit_for_sparse(document, axes, known_task),
        *_unfit_for_errors(document, axes, known_task),
        *_sampled_by_gradient(document, axes, known_task),
        *_too_large_for_exact(document, axes),
        *_idle_axes(document, axes, known_task),
        *_keeping(document, axes, known_task, _settled(document, "realizations", realizations, 1)),
        *_too_many_runs(document, axes, _settled(document, "realizations", realizations, 1)),
    ]


def _settled(document: Document, key: str, kind: Kind, default: Any) -> Any:
    """Return the value of a key, its default where nothing is said, None where what is said is mistaken."""
    said, raw = said_at(document.value, path_of(key))
    try:
        return kind.parse(raw) if said else default
    except RefusedError:
        return None


def _combinations(document: Document, axes: Axes, keys: Sequence[str]) -> Iterator[dict[str, Scalar | None]]:
    """Yield the different combinations that ``keys`` take, without going through all points."""
    varied = {key for axis in axes.axes for key in axis.keys}
    fixed = {
        # An axis whose values could not be read leaves its key unknown.
        key: None if key in axes.named else _settled(document, key, LEAVES[key], DEFAULTS[key])
        for key in keys
        if key not in varied
    }
    groups = []
    for axis in axes.axes:
        columns = {key: column for key, column in zip(axis.keys, axis.columns, strict=True) if key in keys}
        if columns:
            different = dict.fromkeys(zip(*columns.values(), strict=True))
            groups.append([dict(zip(columns, values, strict=True)) for values in different])
    for choice in itertools.product(*groups):
        combination: dict[str, Scalar | None] = dict(fixed)
        for part in choice:
            combination |= part
        yield combination


def _scores_of_the_other_task(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    score = document.value.get("score")
    said = {f"score.{key}": ("score", key) for key in score} if isinstance(score, dict) else {}
    for key, path in [*said.items(), *axes.named.items()]:
        wanted = SCORES.get(key)
        if task is not None and wanted not in (None, task):
            yield document.problem(
                path, f"is for task {wanted}, but the task is {task}; leave it out, or say task: {wanted}"
            )


def _unfit_for_sparse(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    """Yield what l1 and decimate do not go with, anywhere among the points."""
    if task != "learn":
        return
    found: dict[tuple[str, str], None] = {}
    for values in _combinations(document, axes, (ESTIMATOR, HIDDEN, STEP, L1, DECIMATE)):
        l1, decimate = values[L1], values[DECIMATE]
        penalised, decimated = isinstance(l1, float) and l1 > 0, decimate not in (None, "none")
        if penalised and decimated:
            found[DECIMATE, "takes the place of learner.l1; where one is on, let the other be none or 0"] = (
                None
            )
        if decimated and values[STEP] == "gradient":
            found[DECIMATE, "goes with learner.step: scaled alone, not with gradient"] = None
        why = _samples(values)
        for key, on in ((L1, penalised), (DECIMATE, decimated)):
            if on and why is not None:
                found[key, f"does not go with estimator gibbs{why}; take bp or exact"] = None
    for key, message in found:
        yield document.problem(axes.named.get(key, path_of(key)), message)


def _unfit_for_errors(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    """Yield where score.errors cannot be had: of a penalised fit, or of too large a network."""
    if task != "learn":
        return
    found: dict[str, None] = {}
    for values in _combinations(document, axes, (ERRORS, VISIBLE, HIDDEN, L1, DECIMATE)):
        nv, nh = values[VISIBLE], values[HIDDEN]
        if values[ERRORS] is not True:
            continue
        if values[L1] not in (None, 0) or values[DECIMATE] not in (None, "none"):
            found["are those of maximum likelihood; leave out learner.l1 and learner.decimate, or errors"] = (
                None
            )
        if isinstance(nv, int) and isinstance(nh, int) and nv * (nv + 2 * nh) > ERRORS_MOST_COUPLINGS:
            found[
                f"need a matrix of all couplings, and a network of {nv} visible and {nh} hidden spins has "
                f"{nv * (nv + 2 * nh)}; allowed: up to {ERRORS_MOST_COUPLINGS}"
            ] = None
    for message in itertools.islice(found, MAX_NAMED):
        yield document.problem(axes.named.get(ERRORS, path_of(ERRORS)), message)


def _sampled_by_gradient(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    """Yield where samples would be learned from by plain gradient ascent, which has no end with them."""
    if task != "learn":
        return
    for values in _combinations(document, axes, (ESTIMATOR, HIDDEN, STEP)):
        why = _samples(values)
        if why is not None and values[STEP] == "gradient":
            message = f"gradient does not go with estimator gibbs{why}; say scaled, or take another estimator"
            yield document.problem(axes.named.get(STEP, path_of(STEP)), message)
            return


def _samples(values: Mapping[str, Scalar | None]) -> str | None:
    """Return None where the estimator does not sample, else what to add to the name of gibbs: why it is that one."""
    hidden = values[HIDDEN]
    if values[ESTIMATOR] == "auto" and isinstance(hidden, int) and hidden > AUTO_EXACT_HIDDEN:
        return f", which auto is for more than {AUTO_EXACT_HIDDEN} hidden spins"
    return "" if values[ESTIMATOR] == "gibbs" else None


def _too_large_for_exact(document: Document, axes: Axes) -> Iterator[Problem]:
    by_estimator: dict[int, None] = {}
    by_score: dict[int, None] = {}
    for values in _combinations(document, axes, (ESTIMATOR, HIDDEN, EXACT)):
        hidden = values[HIDDEN]
        if isinstance(hidden, int) and hidden > EXACT_MAX_HIDDEN:
            if values[ESTIMATOR] == "exact":
                by_estimator[hidden] = None
            if values[EXACT] is True:
                by_score[hidden] = None
    path = axes.named.get(HIDDEN, path_of(HIDDEN))
    for culprits, name in ((by_estimator, "estimator exact"), (by_score, "score.exact")):
        if culprits:
            message = f"{_named(culprits)} too large for {name}, which sums over 2^hidden states"
            yield document.problem(path, f"{message}; allowed: up to {EXACT_MAX_HIDDEN}")


def _named(culprits: Mapping[int, None]) -> str:
    first = [show(culprit) for culprit in itertools.islice(culprits, MAX_NAMED)]
    more = len(culprits) - len(first)
    words = listing(first) + (f" and {more} more" if more else "")
    return f"{words} {'is' if len(culprits) == 1 else 'are'}"


def _idle_axes(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    """Yield the axes whose values change no point: more runs would be expected than there are."""
    if task is None:
        return
    idle: dict[str, str] | None = None
    for values in _combinations(document, axes, (ESTIMATOR, STEP)):
        if None in values.values():
            return
        unused = unused_keys(task, str(values[ESTIMATOR]), str(values[STEP]))
        idle = dict(unused) if idle is None else {key: why for key, why in idle.items() if key in unused}
    for key, path in axes.named.items():
        if idle and key in idle:
            yield document.problem(path, f"this axis changes nothing: {idle[key]}; leave it out")


def _keeping(document: Document, axes: Axes, task: str | None, realizations: int | None) -> Iterator[Problem]:
    """Yield what is wrong with keeping: nothing is learned, or it would be too much."""
    said = document.value.get("keep")
    if not isinstance(said, dict) or not said:
        return
    if task == "infer":
        yield document.problem(
            ("keep",), "task infer learns nothing to keep; leave it out, or say task: learn"
        )
        return
    kinds = {key: kind_of(Keep, key) for key in Keep.model_fields}
    settled = {
        key: _settled(document, f"keep.{key}", kind, Keep.model_fields[key].default)
        for key, kind in kinds.items()
        if kind is not None
    }
    if None in settled.values() or axes.points > MAX_POINTS or realizations is None:
        return  # what is mistaken by itself is said already
    keep = Keep(**settled)
    largest = 0
    for values in _combinations(document, axes, (VISIBLE, HIDDEN, ITERATIONS)):
        visible, hidden, iterations = (values[key] for key in (VISIBLE, HIDDEN, ITERATIONS))
        if isinstance(visible, int) and isinstance(hidden, int) and isinstance(iterations, int):
            largest = max(largest, bytes_a_run(keep, visible, hidden, iterations))
    total = largest * axes.points * min(keep.realizations, realizations)
    if total > LARGEST_KEPT:
        yield document.problem(
            ("keep",),
            f"up to {total / 1e6:.0f} MB would be kept; allowed: at most {LARGEST_KEPT / 1e6:.0f} MB; keep fewer "
            "realizations, or only one of couplings and trace",
        )


def _too_many_runs(document: Document, axes: Axes, realizations: int | None) -> Iterator[Problem]:
    points = axes.points if axes.points <= MAX_POINTS else 1  # too many points are said already
    runs = points * (realizations or 0)
    if runs > MAX_RUNS:
        many = (
            f"{points} points x {realizations} realizations = {runs} runs" if points > 1 else f"{runs} runs"
        )
        yield document.problem(("realizations",), f"{many}; allowed: at most {MAX_RUNS}")
