"""Options as command-line flags: those of `kising fit` are the keyword arguments of `fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from kising.arguments import Arguments
from kising.option_types import Leaf
from kising.options import LEAVES, READING
from kising.values import Flag, Kind, RefusedError, Text, WordOrReal, scalar

F = TypeVar("F", bound=Callable[..., Any])


class _Value(click.ParamType[Any]):
    """A value of a kind, written as in a sweep file."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        words = kind.json_schema().get("enum")
        self.name = "|".join(words) if words else kind.column if not isinstance(kind, WordOrReal) else "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            # The shell has no quotes left: a text may look like a number.
            plain = isinstance(value, str) and not isinstance(self.kind, Text)
            return self.kind.parse(scalar(value) if plain else value)
        except RefusedError as refusal:
            self.fail(str(refusal), param, ctx)


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers from 0, separated by commas; each counts once, and they are sorted."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        try:
            found = sorted({self._kind.parse(scalar(part.strip())) for part in str(value).split(",")})
        except RefusedError as refusal:
            self.fail(str(refusal), param, ctx)
        return tuple(found)

    _kind = LEAVES["model.hidden"].kind


def flags(arguments: Arguments) -> Callable[[F], F]:
    """Decorate a command with a flag for every option that needs no true couplings; those not given are left out."""

    return _flags({name: leaf for name, leaf in arguments.leaves.items() if not leaf.option.needs_truth})


def reading_flags() -> Callable[[F], F]:
    """Decorate a command with a flag for every option of how a recording is read."""
    return _flags(READING)


def _flags(leaves: Mapping[str, Leaf]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for name, leaf in reversed(list(leaves.items())):
            default = "" if leaf.default is None else f" [default: {leaf.default}]"
            flag = "--" + name.replace("_", "-")
            kind = _Value(leaf.kind)
            # Without a value, what is true or false is true.
            alone = True if isinstance(leaf.kind, Flag) else None
            command = click.option(
                flag,
                name,
                type=kind,
                metavar=kind.name,
                help=f"{leaf.option.help}{default}",
                is_flag=False,
                flag_value=alone,
            )(command)
        return command

    return decorate


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}
