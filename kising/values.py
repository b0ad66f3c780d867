"""The kinds of value a sweep file holds: what each accepts, what it makes of it, and how it refuses.

A kind is the metadata of a field (``Annotated[int, Whole(1)]``): pydantic calls it for the sections of a
file, and the axes call the same ``parse`` for each of their values, so both refuse in the same words.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from kising.messages import did_you_mean, listing, nearest, show

Scalar = bool | int | float | str

#: Whole numbers end in columns of 64 bits.
MAX_WHOLE = 2**63 - 1
#: The type by which a kind's own refusals are known among pydantic's errors.
REFUSED = "refused"


#: No number that means anything is longer; Python is slow at, or refuses, much longer ones.
MAX_DIGITS = 100


def scalar(text: str) -> Any:
    """Return what an unquoted YAML word means: null, a boolean, a number, or else the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > MAX_DIGITS or not _NUMBER_START.match(text):
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER_START = re.compile(r"[-+.0-9]")
_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_HEX = re.compile(r"[-+]?0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


class RefusedError(Exception):
    """A value that its kind does not accept; the text says why, without what is allowed."""


class Kind(ABC):
    """A kind of value."""

    #: Whether linspace, logspace and range can make values of this kind.
    numeric = False

    @property
    def allowed(self) -> str:
        """What the kind accepts, in words."""
        return self._allowed()

    @abstractmethod
    def _allowed(self) -> str: ...

    @abstractmethod
    def _accept(self, value: Any) -> Any:
        """Return the value in its one form, or raise RefusedError."""

    def parse(self, value: Any) -> Any:
        """Return the value in its one form; RefusedError, with what is allowed, where it has none."""
        try:
            return self._accept(value)
        except RefusedError as refusal:
            raise RefusedError(f"{refusal}; allowed: {self.allowed}{self._meant(value)}") from None

    def _meant(self, value: Any) -> str:
        """Return the end of a refusal that offers what was probably meant, if anything."""
        return ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            try:
                return self.parse(value)
            except RefusedError as refusal:
                raise PydanticCustomError(REFUSED, "{message}", {"message": str(refusal)}) from None

        return core_schema.no_info_plain_validator_function(validate)


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number of at least ``least``; ``1e5`` and ``20.0`` are whole numbers too."""

    least: int
    numeric = True

    def _allowed(self) -> str:
        return f"whole numbers from {self.least}"

    def _accept(self, value: Any) -> int:
        number = _number(value, "a whole number")
        if isinstance(number, float):
            if not number.is_integer():  # neither are inf and nan
                raise RefusedError(f"{show(value)} is not a whole number")
            number = int(number)
        if number < self.least:
            raise RefusedError(f"{show(value)} is too small")
        if number > MAX_WHOLE:
            raise RefusedError(f"{show(value)} is too large for a 64-bit number")
        return number


@dataclass(frozen=True)
class Real(Kind):
    """A finite number for which ``holds`` is true."""

    allowed_range: str
    holds: Callable[[float], bool]
    numeric = True

    def _allowed(self) -> str:
        return self.allowed_range

    def _accept(self, value: Any) -> float:
        number = _number(value, "a number")
        try:
            number = float(number) + 0.0  # -0.0 + 0.0 is 0.0: one zero, one id
        except OverflowError:
            raise RefusedError(f"{show(value)} is too large") from None
        if not math.isfinite(number):
            raise RefusedError(f"{show(value)} is not a finite number")
        if not self.holds(number):
            raise RefusedError(f"{show(value)} is out of range")
        return number


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words; ``noun`` says what they name."""

    noun: str
    words: tuple[str, ...]

    def _allowed(self) -> str:
        return listing(self.words)

    def _accept(self, value: Any) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        raise RefusedError(f"{show(value)} is not {self.noun}")

    def _meant(self, value: Any) -> str:
        return did_you_mean(nearest(value, self.words)) if isinstance(value, str) else ""


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def _allowed(self) -> str:
        return "true, false"

    def _accept(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and isinstance(scalar(value.strip()), bool):
            raise RefusedError(f"{show(value)} is text; write it without quotes")
        raise RefusedError(f"{show(value)} is neither true nor false")

    def _meant(self, value: Any) -> str:
        said = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
        meant = said.get(show(value).strip("'").lower())
        return f"; did you mean {meant}?" if meant else ""  # bare: in quotes it would be text


@dataclass(frozen=True)
class WordOrReal(Kind):
    """One of a few words, or a finite number for which ``holds`` is true."""

    words: tuple[str, ...]
    allowed_range: str
    holds: Callable[[float], bool]
    numeric = True

    def _allowed(self) -> str:
        return f"{listing(self.words)}, or {self.allowed_range}"

    def _accept(self, value: Any) -> str | float:
        if isinstance(value, str):
            if value in self.words:
                return value
            raise RefusedError(f"{show(value)} is neither the word {' or '.join(self.words)} nor a number")
        return Real(self.allowed, self.holds)._accept(value)

    def _meant(self, value: Any) -> str:
        return did_you_mean(nearest(value, self.words)) if isinstance(value, str) else ""


@dataclass(frozen=True)
class Text(Kind):
    """Any text."""

    def _allowed(self) -> str:
        return "text"

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str):
            raise RefusedError(f"{show(value)} is not text" + _quoting(value))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RefusedError(f"{show(value)} cannot be written as UTF-8") from None
        return value


@dataclass(frozen=True)
class Name(Kind):
    """The name of a sweep, which becomes the name of a directory."""

    longest: int = 100

    def _allowed(self) -> str:
        return (
            f"up to {self.longest} letters, digits, dots, hyphens and underscores, "
            "the first a letter or a digit (it names a directory)"
        )

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str):
            raise RefusedError(f"{show(value)} is not a name" + _quoting(value))
        if len(value) > self.longest:
            raise RefusedError(f"{show(value)} is a name of {len(value)} characters")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
            raise RefusedError(f"{show(value)} is not a name")
        return value

    def _meant(self, value: Any) -> str:
        if not isinstance(value, str) or len(value) > self.longest:
            return ""
        return did_you_mean(re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("-._") or None)


@dataclass(frozen=True)
class Amount(Kind):
    """A positive amount as a number of base units or as text with a unit (``2GiB``, ``15m``), or nothing."""

    noun: str
    base: str
    units: Mapping[str, int]
    example: str
    whole: bool = False

    def _allowed(self) -> str:
        units = listing(self.units)
        return f"a number of {self.base}, a number with a unit ({units}) such as {self.example}, or null"

    def _accept(self, value: Any) -> float | int | None:
        if value is None:
            return None
        number, unit = value, 1
        if isinstance(value, str):
            match = re.fullmatch(r"\s*([^\sA-Za-z]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z]+)\s*", value)
            number = scalar(match[1]) if match else None
            if match is None or isinstance(number, (str, type(None))) or match[2] not in self.units:
                raise RefusedError(f"{show(value)} is not {self.noun}")
            unit = self.units[match[2]]
        number = _number(number, self.noun)
        amount = number * unit
        if self.whole and (isinstance(amount, int) or math.isfinite(amount)):
            amount = round(amount)  # 1.1GB is a whole number of bytes but for the rounding of 1.1
        if not 0 < amount <= MAX_WHOLE:
            raise RefusedError(f"{show(value)} is out of range")
        return amount if self.whole else float(amount)

    def _meant(self, value: Any) -> str:
        match = re.fullmatch(r"\s*([0-9._]+)\s*([A-Za-z]+)\s*", value) if isinstance(value, str) else None
        if match is None or match[2] in self.units or scalar(match[1]) == match[1]:
            return ""
        first = [unit for unit in self.units if unit.lower().startswith(match[2][0].lower())]
        near = nearest(match[2], self.units) or (first[0] if first else None)
        return "" if near is None else did_you_mean(match[1] + near)


def _number(value: Any, noun: str) -> int | float:
    """Return a number as it is; text, truth values and collections are none, whatever they look like."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    quoted = isinstance(value, str) and isinstance(scalar(value.strip()), (int, float))
    if quoted and not isinstance(scalar(value.strip()), bool):
        raise RefusedError(f"{show(value)} is text; write it without quotes")
    raise RefusedError(f"{show(value)} is not {noun}")


def _quoting(value: Any) -> str:
    return "" if value is None or isinstance(value, (list, dict)) else ' (put it in quotes: "...")'
