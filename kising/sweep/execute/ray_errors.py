"""What Ray's errors mean, in one line for the user."""

from __future__ import annotations

import re
from typing import Final

_REFUSED: Final = re.compile(r"AuthenticationError|InvalidAuthToken|Unauthenticated", re.IGNORECASE)
_TOKEN: Final = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
_VERSIONS: Final = re.compile(
    r"cluster was started with:\s*Ray: (\S+)\s*Python: (\S+).*?was started with:\s*Ray: (\S+)\s*Python: (\S+)",
    re.DOTALL,
)
_MEMORY_USED: Final = re.compile(r"actual memory used=([\d.]+ ?[A-Za-z]+)")


NOT_A_MEMBER: Final = (
    "this host is not part of it: run kising on one of its hosts (`ray exec`, `ray submit`), "
    "or make this host one with `ray start --address`"
)


def connection_failure(error: BaseException) -> str:
    """Why a cluster did not let us join."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    text = " ".join(f"{type(cause).__name__} {cause}" for cause in causes)
    versions = _VERSIONS.search(text)
    if versions is not None:
        theirs, ours = versions.group(1, 2), versions.group(3, 4)
        return (
            f"it runs Ray {theirs[0]} on Python {theirs[1]}, this is Ray {ours[0]} on Python {ours[1]}: "
            "install the same versions on both"
        )
    if _REFUSED.search(text):
        return f"it refused our token; {_TOKEN}"
    return one_line(error)


def one_line(error: BaseException) -> str:
    """An error as one line of limited length, without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    return " ".join(text.split())[-300:]


def loss_reason(error: Exception) -> str:
    """Why a batch was lost: the first sentence, and the memory it used if the error gives it."""
    text = " ".join(str(error).split()) or type(error).__name__
    used = _MEMORY_USED.search(text)
    return f"{text.split('. ')[0]}{f' (it used {used[1]})' if used else ''}"
