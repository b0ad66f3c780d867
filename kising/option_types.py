"""What the declaration of an option consists of, and what follows from it: checks, places, columns, ids.

The options themselves are in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from kising.values import Kind, RefusedError

Task = Literal["learn", "infer"]

#: The type that marks an option's own refusals among pydantic's errors.
REFUSED: Final = "refused"


class Gate(NamedTuple):
    """The values that decide which options have an effect."""

    task: str
    estimator: str
    step: str
    file: str | None = None


#: Returns why an option has no effect, or None where it has one.
Condition = Callable[[Gate], str | None]


@dataclass(frozen=True, kw_only=True)
class Option:
    """The declaration of an option, apart from its name, type and default."""

    kind: Kind
    """what values it takes"""
    help: str
    """one line"""
    applies: tuple[Condition, ...] = ()
    """conditions that must all hold for it to have an effect; where it has none, its column is null"""
    task: Task | None = None
    """the one task whose files may set it"""
    since: int = 1
    """schema version that introduced it. It enters the ids of points only where it differs from what was implied
    before, so that earlier results keep their ids"""
    implied: Any = None
    """the value that describes sweeps from before the option existed, if that is not its default"""
    argument: str | None = None
    """its name as a keyword argument, if that is not its key"""
    needs_truth: bool = False
    """whether it needs the true couplings; `kising fit` then has no flag for it"""
    varies: bool = True
    """whether it can be an axis"""
    in_ids: bool = True
    """whether ids of points depend on it"""
    reads: bool = False
    """whether it says how data.file is read; it is then an argument of `read_recording` and a flag of `kising fit`"""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            try:
                return self.kind.parse(value)
            except RefusedError as refusal:
                raise PydanticCustomError(REFUSED, "{message}", {"message": str(refusal)}) from None

        return core_schema.no_info_plain_validator_function(validate)


class Section(BaseModel):
    """A mapping of a sweep file: unknown keys are refused, values are checked, and it cannot be changed afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Leaf(NamedTuple):
    """An option with its place."""

    key: str
    """dotted, as in an axis"""
    option: Option
    default: Any
    required: bool

    @property
    def kind(self) -> Kind:
        """What values it takes."""
        return self.option.kind

    @property
    def nullable(self) -> bool:
        """Whether its column can be null: where it has no effect, or in rows from before it existed."""
        return bool(self.option.applies or self.option.task or self.option.since > 1)

    def in_id(self, value: object) -> bool:
        """Whether a value is part of an id. The implied value of an option that was added later is not."""
        implied = self.default if self.option.implied is None else self.option.implied
        if not self.option.in_ids:
            return False
        return self.option.since == 1 or value not in (None, implied)


def option_of(section: type[BaseModel], key: str) -> Option | None:
    """The option of a key; None where the key is a section itself, or unknown."""
    field = section.model_fields.get(key)
    return next((x for x in field.metadata if isinstance(x, Option)), None) if field else None


def leaves_of(section: type[BaseModel], prefix: str = "") -> Iterator[Leaf]:
    """The options of a section and of the sections inside it."""
    for key, field in section.model_fields.items():
        option = option_of(section, key)
        if option is not None:
            yield Leaf(
                f"{prefix}{key}", option, None if field.is_required() else field.default, field.is_required()
            )
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from leaves_of(field.annotation, f"{prefix}{key}.")
