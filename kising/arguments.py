"""Options as keyword arguments: `fit`, `infer` and `gradient` take the options of a sweep file, with its defaults.

A function that is decorated with `FIT.taken_by` or `INFER.taken_by` takes `**options`. The decorator lists the options
in its signature and docstring, and `learner` turns them into one checked, frozen `Learner`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from kising.conflicts import RULES
from kising.errors import InputError
from kising.messages import did_you_mean, nearest
from kising.option_types import Leaf, Task
from kising.options import LEAVES, EStep, Learner, gates, unused_keys
from kising.values import RefusedError, WordOrReal

F = TypeVar("F", bound=Callable[..., Any])
_LEARNER = "learner."
_INSIDE = "estep."


@dataclass(frozen=True)
class Arguments:
    """The options that a function takes."""

    task: Task
    leaves: Mapping[str, Leaf]
    """by the name of the argument"""

    def taken_by(self, function: F) -> F:
        """Decorate a function: its signature and docstring list the options."""
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=leaf.default)
            for name, leaf in self.leaves.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        listed = "\n".join(f"    {name}: {leaf.option.help}" for name, leaf in self.leaves.items())
        text = textwrap.dedent((function.__doc__ or "").replace("\n    ", "\n"))
        function.__doc__ = f"{text.rstrip()}\n\nOptions, with the defaults of a sweep file:\n{listed}\n"
        return function

    def learner(self, given: Mapping[str, Any], others: Mapping[str, Any], *, function: str) -> Learner:
        """The options given, checked one by one, and together with `others`: values of keys outside `learner`."""
        for name in given:
            if name not in self.leaves:
                meant = did_you_mean(nearest(name, self.leaves))
                raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")
        values: dict[str, Any] = {}
        mistakes = []
        for name, leaf in self.leaves.items():
            try:
                values[leaf.key] = _parsed(leaf, given[name]) if name in given else leaf.default
            except RefusedError as refusal:
                mistakes.append(f"{name}={given[name]!r}: {refusal}")
        if not mistakes:
            mistakes = list(self._conflicts({**_defaults(), **values, **others}))
        if mistakes:
            raise InputError("; ".join(mistakes))
        return _assembled(values)

    def of_learner(self, learner: Learner) -> dict[str, Any]:
        """The keyword arguments that give this learner: the inverse of `learner`."""
        return {
            name: attrgetter(leaf.key.removeprefix(_LEARNER))(learner) for name, leaf in self.leaves.items()
        }

    def _conflicts(self, values: Mapping[str, Any]) -> Iterable[str]:
        for rule in RULES:
            if rule.task in (None, self.task):
                for conflict in rule.conflicts(values):
                    name = next((n for n, leaf in self.leaves.items() if leaf.key == conflict.key), None)
                    name = name or conflict.key.rpartition(".")[2]
                    value = "" if conflict.value is None else f"{conflict.value} is "
                    yield f"{name}: {value}{conflict.message}"


def check_values(section: str, **values: Any) -> None:
    """Raise an InputError that lists the arguments which an option of the same name would refuse."""
    mistakes = []
    for name, value in values.items():
        try:
            _parsed(LEAVES[f"{section}.{name}"], value)
        except RefusedError as refusal:
            mistakes.append(f"{name}={value!r}: {refusal}")
    if mistakes:
        raise InputError("; ".join(mistakes))


def _parsed(leaf: Leaf, value: Any) -> Any:
    if hasattr(value, "tolist"):  # a number of NumPy's
        value = value.tolist()
    kind = leaf.option.kind
    return kind.parse(kind.words[0] if value is None and isinstance(kind, WordOrReal) else value)


def _defaults() -> dict[str, Any]:
    return {key: leaf.default for key, leaf in LEAVES.items() if not key.startswith(_LEARNER)}


def _assembled(values: Mapping[str, Any]) -> Learner:
    """The section that holds these values."""
    flat = {key.removeprefix(_LEARNER): value for key, value in values.items()}
    inside = {key.removeprefix(_INSIDE): value for key, value in flat.items() if key.startswith(_INSIDE)}
    return Learner(
        **{key: value for key, value in flat.items() if not key.startswith(_INSIDE)}, estep=EStep(**inside)
    )


def _named(leaf: Leaf) -> str:
    return leaf.option.argument or leaf.key.removeprefix(_LEARNER).replace(".", "_")


def _has_effect(leaf: Leaf, task: Task) -> bool:
    """Whether an option has an effect with this task, for some estimator and step."""
    return any(leaf.key not in unused_keys(gate) for gate in gates(task))


_OPTIONS = [leaf for key, leaf in LEAVES.items() if key.startswith(_LEARNER)]
FIT = Arguments("learn", {_named(leaf): leaf for leaf in _OPTIONS})
"""The options of `fit`: those inside `estep` as estep_tolerance and so on."""
INFER = Arguments(
    "infer", {leaf.key.rpartition(".")[2]: leaf for leaf in _OPTIONS if _has_effect(leaf, "infer")}
)
"""The options of `infer` and `gradient`, which only make E-steps: tolerance is that of the E-step here."""
