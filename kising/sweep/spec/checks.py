"""Checks of values together, and of how many runs they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kising.conflicts import INPUTS, RULES, Rule
from kising.estimators import registry
from kising.messages import agree, listing, show
from kising.option_types import Gate, Leaf, leaves_of
from kising.options import GATE_KEYS, LEAVES, Header, Keep, unused_keys
from kising.sweep.spec.axes import MAX_POINTS, Axes
from kising.sweep.spec.documents import Document, Problem, lookup, path_of
from kising.sweep.spec.recording import FILE, SIZES
from kising.sweep.store.artifacts import LARGEST_KEPT, bytes_per_run
from kising.values import RefusedError, Scalar

MAX_RUNS = 10**7
#: This many culprits of one kind are named; the rest are counted.
MAX_NAMED = 5
#: The options of the sweep as a whole.
HEADER = {leaf.key: leaf for leaf in leaves_of(Header)}


def check_combinations(document: Document, axes: Axes, inputs: int) -> list[Problem]:
    """Return the mistakes in combinations of values; values that are wrong by themselves are left out. `inputs` is the
    number of known inputs of the recording.
    """
    task = _settled(document, "task", HEADER["task"])
    realizations = _settled(document, "realizations", HEADER["realizations"])
    return [
        *_options_of_the_other_task(document, axes, task),
        *(problem for rule in RULES for problem in _conflicts(document, axes, rule, task, inputs)),
        *_idle_axes(document, axes, task),
        *_sizes_of_recording(document, axes),
        *_keeping(document, axes, task, realizations),
        *_too_many_runs(document, axes, realizations),
    ]


def _settled(document: Document, key: str, leaf: Leaf) -> Any:
    """Return the value of a key: its default if nothing is written, None if it is invalid."""
    given, raw = lookup(document.value, path_of(key))
    try:
        return leaf.kind.parse(raw) if given else leaf.default
    except RefusedError:
        return None


def _combinations(document: Document, axes: Axes, keys: Sequence[str]) -> Iterator[dict[str, Scalar | None]]:
    """Yield the different combinations that ``keys`` take, without going through all points."""
    varied = {key for axis in axes.axes for key in axis.keys}
    fixed = {
        # An axis whose values could not be read leaves its key unknown.
        key: None if key in axes.named else _settled(document, key, LEAVES[key])
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


def _options_of_the_other_task(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    for key, leaf in LEAVES.items():
        wanted = leaf.option.task
        if task is None or wanted in (None, task):
            continue
        path = axes.named.get(key, path_of(key))
        if key in axes.named or lookup(document.value, path_of(key))[0]:
            yield document.problem(
                path, f"is for task {wanted}, but the task is {task}; leave it out, or set task: {wanted}"
            )


def _conflicts(
    document: Document, axes: Axes, rule: Rule, task: str | None, inputs: int
) -> Iterator[Problem]:
    """Yield where a rule does not hold, anywhere among the points; values that share a message are named together."""
    if rule.task not in (None, task):
        return
    found: dict[tuple[str, str], dict[Any, None]] = {}
    for values in _combinations(document, axes, rule.keys):
        for conflict in rule.conflicts({**values, INPUTS: inputs}):
            culprits = found.setdefault((conflict.key, conflict.message), {})
            if conflict.value is not None:
                culprits[conflict.value] = None
    for (key, message), culprits in itertools.islice(found.items(), MAX_NAMED):
        path = axes.named.get(key, path_of(key))
        yield document.problem(path, f"{_named(culprits)} {message}" if culprits else message)


def _named(culprits: Mapping[int, None]) -> str:
    first = [show(culprit) for culprit in itertools.islice(culprits, MAX_NAMED)]
    more = len(culprits) - len(first)
    words = listing(first) + (f" and {more} more" if more else "")
    return f"{words} {agree(len(culprits), 'is', 'are')}"


def _idle_axes(document: Document, axes: Axes, task: str | None) -> Iterator[Problem]:
    """Yield the axes whose values have no effect: a user would expect more runs than there are."""
    if task is None:
        return
    idle: dict[str, str] | None = None
    for values in _combinations(document, axes, GATE_KEYS):
        estimator, step, file = (values[key] for key in GATE_KEYS)
        if estimator is None or step is None:
            return
        unused = unused_keys(Gate(task, str(estimator), str(step), None if file is None else str(file)))
        idle = dict(unused) if idle is None else {key: why for key, why in idle.items() if key in unused}
    for key, path in axes.named.items():
        if idle and key in idle:
            yield document.problem(path, f"this axis changes nothing: {idle[key]}; leave it out")


def _sizes_of_recording(document: Document, axes: Axes) -> Iterator[Problem]:
    """Yield the axes over values that the recording determines."""
    if not _is_recorded(document):
        return
    for key in SIZES:
        if key in axes.named:
            size = lookup(document.value, path_of(key))[1]
            yield document.problem(
                axes.named[key], f"this axis changes nothing: data.file has {size}; leave it out"
            )


def _is_recorded(document: Document) -> bool:
    return lookup(document.value, FILE)[1] is not None


def _keeping(document: Document, axes: Axes, task: str | None, realizations: int | None) -> Iterator[Problem]:
    """Yield what is wrong with `keep`: nothing is learned, or too much would be kept."""
    written = document.value.get("keep")
    if not isinstance(written, dict) or not written:
        return
    if task == "infer":
        yield document.problem(
            ("keep",), "task infer learns nothing to keep; leave it out, or set task: learn"
        )
        return
    settled = {leaf.key: _settled(document, f"keep.{leaf.key}", leaf) for leaf in leaves_of(Keep)}
    if None in settled.values() or axes.points > MAX_POINTS or realizations is None:
        return  # reported already, each by itself
    keep = Keep(**settled)
    if keep.couplings and _is_recorded(document):
        yield document.problem(
            ("keep", "couplings"),
            "it also keeps true couplings, and a recording (data.file) has none; leave it out, and fit the recording "
            "with `kising fit`",
        )
        return
    largest = 0
    keys = ("model.visible", "model.hidden", "learner.max_iterations")
    for values in _combinations(document, axes, keys):
        visible, hidden, iterations = (values[key] for key in keys)
        if isinstance(visible, int) and isinstance(hidden, int):
            most = iterations if isinstance(iterations, int) else registry.largest_iteration_limit(hidden)
            largest = max(largest, bytes_per_run(keep, visible, hidden, most))
    total = largest * axes.points * min(keep.realizations, realizations)
    if total > LARGEST_KEPT:
        yield document.problem(
            ("keep",),
            f"up to {total / 1e6:.0f} MB would be kept; allowed: at most {LARGEST_KEPT / 1e6:.0f} MB; keep fewer "
            "realizations, or only one of couplings and trace",
        )


def _too_many_runs(document: Document, axes: Axes, realizations: int | None) -> Iterator[Problem]:
    points = axes.points if axes.points <= MAX_POINTS else 1  # too many points are reported elsewhere
    runs = points * (realizations or 0)
    if runs > MAX_RUNS:
        many = (
            f"{points} points x {realizations} realizations = {runs} runs" if points > 1 else f"{runs} runs"
        )
        yield document.problem(("realizations",), f"{many}; allowed: at most {MAX_RUNS}")
