"""The table that follows a search: in a terminal by rich, in a notebook by a display that is replaced in place.

Notebooks need no widgets for it: the last state of the display is stored in the notebook as an ordinary output.
"""

from __future__ import annotations

import html as markup
import sys
from typing import Any, Protocol

from podium_api import display
from podium_api.backend import Objects


class Live(Protocol):
    """A display of a running search."""

    def show(self, name: str, seen: Objects) -> None:
        """Show the present state."""

    def note(self, text: str) -> None:
        """Show a sentence instead, until the next state."""

    def close(self) -> None:
        """Leave the last state on the screen."""


def open_live(enabled: bool) -> Live:
    """Return the display of the place in which Python runs."""
    if not enabled:
        return _Silent()
    return _Notebook() if in_kernel() else _Terminal()


def in_kernel() -> bool:
    """Return whether Python runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class _Silent:
    def show(self, name: str, seen: Objects) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Terminal:
    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(auto_refresh=False, transient=False)
        self._live.start()

    def show(self, name: str, seen: Objects) -> None:
        self._live.update(display.table(name, seen), refresh=True)

    def note(self, text: str) -> None:
        self._live.update(text, refresh=True)

    def close(self) -> None:
        self._live.stop()


class _Notebook:
    def __init__(self) -> None:
        self._handle: Any = None
        self._shown: dict[str, str] = {}

    def show(self, name: str, seen: Objects) -> None:
        self._put({"text/html": display.html(name, seen), "text/plain": display.title(name, seen)})

    def note(self, text: str) -> None:
        self._put({"text/html": f"<p>{markup.escape(text)}</p>", "text/plain": text})

    def close(self) -> None:
        pass

    def _put(self, data: dict[str, str]) -> None:
        if data == self._shown:
            return
        self._shown = data
        if self._handle is None:
            ipython: Any = sys.modules["IPython.display"]
            self._handle = ipython.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
