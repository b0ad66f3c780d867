"""The progress of a sweep in a notebook: one output that is replaced, with the means of IPython alone."""

from __future__ import annotations

import sys
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from kising.sweep.drive.progress import Snapshot


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookBar:
    """Shows snapshots as a bar with counts and time left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._handle: Any = None

    def __enter__(self) -> Self:
        from IPython.display import display

        self._handle = display(_Bar(self._name, "starting", 0, 1), display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, snapshot: Snapshot) -> None:
        """Replace what is shown."""
        from kising.sweep.drive.progress import describe

        finished = snapshot.done + snapshot.failed
        self._handle.update(_Bar(self._name, describe(snapshot), finished, snapshot.total))


class _Bar:
    """A bar as a notebook shows it; as text where there is no HTML."""

    def __init__(self, name: str, text: str, finished: int, total: int) -> None:
        self.name, self.text, self.finished, self.total = name, text, finished, total

    def __repr__(self) -> str:
        return f"{self.name}: {self.text}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.finished}" max="{max(self.total, 1)}"></progress>'
        return f"{escape(self.name)} {bar} {escape(self.text)}"
