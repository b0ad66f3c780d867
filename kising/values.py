"""The kinds of value that options have: what each accepts, the one form it gives a value, and how it refuses others.

Sweep files, axes, `--set`, keyword arguments and command-line flags all call the same ``parse``, so they accept the
same values and refuse them with the same message. A kind also knows the type of its parquet column and its JSON
Schema.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kising.messages import did_you_mean, listing, nearest, show

Scalar = bool | int | float | str

#: Whole numbers end in columns of 64 bits.
MAX_WHOLE = 2**63 - 1


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
    #: Whether null is a value that can be asked for.
    nullable = False
    #: The type of its parquet column: string, int, float or bool.
    column: ClassVar[str] = "string"

    @property
    def allowed(self) -> str:
        """What the kind accepts, in words."""
        return self._allowed()

    @abstractmethod
    def _allowed(self) -> str: ...

    @abstractmethod
    def _accept(self, value: Any) -> Any:
        """Return the value in its one form, or raise RefusedError."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values."""

    def in_column(self, value: Any) -> Any:
        """Return a parsed value as its parquet column holds it."""
        return value

    def parse(self, value: Any) -> Any:
        """Return the value in its one form; RefusedError, with what is allowed, where it has none."""
        try:
            return self._accept(value)
        except RefusedError as refusal:
            raise RefusedError(f"{refusal}; allowed: {self.allowed}{self._meant(value)}") from None

    def _meant(self, value: Any) -> str:
        """Return the end of a refusal that offers what was probably meant, if anything."""
        return ""


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number of at least ``least``; ``1e5`` and ``20.0`` are whole numbers too. Null where that is allowed."""

    least: int
    nullable: bool = False
    numeric = True
    column = "int"

    def _allowed(self) -> str:
        return f"whole numbers from {self.least}" + (", or null" if self.nullable else "")

    def json_schema(self) -> dict[str, Any]:
        """A JSON number without a fraction."""
        kinds = ["integer", "null"] if self.nullable else "integer"
        return {"type": kinds, "minimum": self.least, "maximum": MAX_WHOLE}

    def _accept(self, value: Any) -> int | None:
        if value is None and self.nullable:
            return None
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


@dataclass(frozen=True, kw_only=True)
class Real(Kind):
    """A finite number within bounds: above or at least a lower one, below or at most an upper one."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    numeric = True
    column = "float"

    def _allowed(self) -> str:
        low = f"> {self.above:g}" if self.above is not None else f">= {self.least:g}"
        high = "" if self.most is None else f", up to {self.most:g}"
        return f"numbers {low}" + (high if self.below is None else f", below {self.below:g}")

    def in_words(self) -> str:
        """What is accepted, after "or": ``a number > 0``, ``a number with 0 <= number < 1``."""
        low = f"{self.above:g} <" if self.above is not None else f"{self.least:g} <="
        if self.below is None and self.most is None:
            return f"a number {'>' if self.above is not None else '>='} {low.split()[0]}"
        high = f"< {self.below:g}" if self.below is not None else f"<= {self.most:g}"
        return f"a number with {low} number {high}"

    def holds(self, number: float) -> bool:
        """Whether a number lies within the bounds."""
        return (
            (self.above is None or number > self.above)
            and (self.least is None or number >= self.least)
            and (self.below is None or number < self.below)
            and (self.most is None or number <= self.most)
        )

    def json_schema(self) -> dict[str, Any]:
        """A JSON number with the same bounds."""
        bounds = {
            "exclusiveMinimum": self.above,
            "minimum": self.least,
            "exclusiveMaximum": self.below,
            "maximum": self.most,
        }
        return {"type": "number", **{key: bound for key, bound in bounds.items() if bound is not None}}

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

    def json_schema(self) -> dict[str, Any]:
        """One of the words."""
        return {"enum": list(self.words)}

    def _accept(self, value: Any) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        raise RefusedError(f"{show(value)} is not {self.noun}")

    def _meant(self, value: Any) -> str:
        return did_you_mean(nearest(value, self.words)) if isinstance(value, str) else ""


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    column = "bool"

    def json_schema(self) -> dict[str, Any]:
        """A JSON boolean."""
        return {"type": "boolean"}

    def _allowed(self) -> str:
        return "true, false"

    def _accept(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and isinstance(scalar(value.strip()), bool):
            raise RefusedError(f"{show(value)} is text; write it without quotes")
        raise RefusedError(f"{show(value)} is neither true nor false")

    def _meant(self, value: Any) -> str:
        meanings = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
        meant = meanings.get(show(value).strip("'").lower())
        return f"; did you mean {meant}?" if meant else ""  # bare: in quotes it would be text


@dataclass(frozen=True)
class WordOrReal(Kind):
    """One of a few words, or a finite number within bounds. The first word is what None means in Python."""

    words: tuple[str, ...]
    real: Real
    numeric = True

    def _allowed(self) -> str:
        return f"{listing(self.words)}, or {self.real.in_words()}"

    def json_schema(self) -> dict[str, Any]:
        """One of the words, or a number."""
        return {"anyOf": [{"enum": list(self.words)}, self.real.json_schema()]}

    def in_column(self, value: Any) -> Any:
        """A column has one type: numbers are written as text, in their shortest exact form."""
        return repr(value) if isinstance(value, float) else value

    def _accept(self, value: Any) -> str | float:
        if isinstance(value, str):
            if value in self.words:
                return value
            raise RefusedError(f"{show(value)} is neither the word {' or '.join(self.words)} nor a number")
        return self.real._accept(value)

    def _meant(self, value: Any) -> str:
        return did_you_mean(nearest(value, self.words)) if isinstance(value, str) else ""


@dataclass(frozen=True)
class Text(Kind):
    """Any text."""

    def json_schema(self) -> dict[str, Any]:
        """A JSON string."""
        return {"type": "string"}

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
class FilePath(Text):
    """The path of a file, or nothing. Its column holds the file's name."""

    def json_schema(self) -> dict[str, Any]:
        """A JSON string, or null."""
        return {"type": ["string", "null"], "pattern": "^[^\\u0000]+$"}

    def in_column(self, value: Any) -> Any:
        """The name of the file: the same results on every machine have the same rows."""
        return None if value is None else Path(value).name

    def _allowed(self) -> str:
        return "the path of a file, or null"

    def _accept(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, str) or not value or "\0" in value:
            raise RefusedError(f"{show(value)} is not a path" + _quoting(value))
        return super()._accept(value)


@dataclass(frozen=True)
class OptionalText(Text):
    """Text, or nothing."""

    def json_schema(self) -> dict[str, Any]:
        """A JSON string, or null."""
        return {"type": ["string", "null"]}

    def _allowed(self) -> str:
        return "text, or null"

    def _accept(self, value: Any) -> Any:
        return None if value is None else super()._accept(value)


#: Seconds per unit of time, by the name of the unit.
SECONDS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6}
DURATION = re.compile(rf"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*({'|'.join(SECONDS)})")


@dataclass(frozen=True)
class Duration(Text):
    """A time with its unit, as text, or nothing. A bare number is refused: it might be meant in milliseconds."""

    def json_schema(self) -> dict[str, Any]:
        """A JSON string, or null."""
        return {"type": ["string", "null"], "pattern": f"^{DURATION.pattern}$"}

    def _allowed(self) -> str:
        return "a duration with its unit such as 20ms, 0.5s or 500us, or null"

    def _accept(self, value: Any) -> Any:
        if value is None:
            return None
        match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or not 0 < float(match[1]) < math.inf:
            raise RefusedError(f"{show(value)} is not a duration")
        return value.strip()


@dataclass(frozen=True)
class Digest(Kind):
    """The first 16 hexadecimal digits of a SHA-256, or nothing."""

    def json_schema(self) -> dict[str, Any]:
        """A JSON string of 16 digits, or null."""
        return {"type": ["string", "null"], "pattern": "^[0-9a-f]{16}$"}

    def _allowed(self) -> str:
        return "16 hexadecimal digits, or null"

    def _accept(self, value: Any) -> str | None:
        if value is None or (isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value)):
            return value
        raise RefusedError(f"{show(value)} is not a hash" + _quoting(value))


_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"


@dataclass(frozen=True)
class Name(Kind):
    """The name of a sweep, which becomes the name of a directory."""

    longest: int = 100

    def json_schema(self) -> dict[str, Any]:
        """A JSON string of the allowed characters."""
        return {"type": "string", "pattern": f"^{_NAME}$", "maxLength": self.longest}

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
        if not re.fullmatch(_NAME, value):
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

    def json_schema(self) -> dict[str, Any]:
        """A number of base units, text with a unit, or null."""
        pattern = rf"^\s*[0-9._eE+-]+\s*({'|'.join(self.units)})\s*$"
        # Half a byte is rounded to none.
        number = {"type": "number", "exclusiveMinimum": 0.5 if self.whole else 0, "maximum": MAX_WHOLE}
        return {"anyOf": [number, {"type": "string", "pattern": pattern}, {"type": "null"}]}

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
