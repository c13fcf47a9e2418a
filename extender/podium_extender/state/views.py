"""What is known of each node, by name, and which nodes changed since a moment: so that whoever keeps something for each
node looks again at those alone. Written by `node_cache`, read by `results`.

Each node has a place, a small number, by which what is kept for it lies in an array: 5,000 names are looked up once a
pod, and what several readers keep for them is then gathered in microseconds.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.views import NodeView

UNKNOWN = -1


class Views:
    """A dictionary of views with a memory of its last changes. A version is the number of changes so far."""

    def __init__(self, views: Iterable[NodeView] = ()) -> None:
        self._views: dict[str, NodeView] = {}
        self._places: dict[str, int] = {}
        self._given = 0  # places so far; that of a node that is gone is not given again in the same layout
        self.layout = 0  # another one: all places are others, and every reader is told to look at all
        self.roster = 0  # another one: nodes came or went
        self._asked: tuple[str, ...] | None = None  # whose places were asked last
        self._found = np.empty(0, dtype=np.intp)
        self._log: list[str] = []
        self._forgotten = 0  # changes that came before the log's first
        for view in views:
            self.put(view)

    @property
    def version(self) -> int:
        return self._forgotten + len(self._log)

    def get(self, name: str) -> NodeView:
        """A node without a GPUNode has no GPUs and was never heard."""
        return self._views.get(name) or NodeView(name, (), None)

    def known(self, name: str) -> bool:
        return name in self._views

    def names(self) -> KeysView[str]:
        return self._views.keys()

    def placed(self) -> ItemsView[str, int]:
        """Each node with its place."""
        return self._places.items()

    def place(self, name: str) -> int:
        return self._places.get(name, UNKNOWN)

    def places(self, names: Sequence[str]) -> NDArray[np.intp]:
        """One a name, UNKNOWN where no GPUNode is known. The same tuple as last time (filter and prioritize of one pod
        come with one) is not looked up again.
        """
        if names is self._asked:
            return self._found
        try:
            found = np.fromiter(map(self._places.__getitem__, names), np.intp, len(names))
        except KeyError:
            found = np.fromiter((self._places.get(name, UNKNOWN) for name in names), np.intp, len(names))
        if isinstance(names, tuple):  # nothing else is sure to stay what it is
            self._asked, self._found = names, found
        return found

    def put(self, view: NodeView) -> None:
        if view.name not in self._places:
            self._places[view.name] = self._given
            self._given += 1
            self._another_roster()
        self._views[view.name] = view
        self._note(view.name)

    def drop(self, name: str) -> None:
        if self._views.pop(name, None) is None:
            return
        del self._places[name]
        self._another_roster()
        self._note(name)
        if self._given > 2 * len(self._views) + 64:
            self._lay_out()

    def changed_since(self, version: int) -> Iterable[str] | None:
        """Names, each once; None where that is too long ago to be told: look at all."""
        if version < self._forgotten:
            return None
        return dict.fromkeys(self._log[version - self._forgotten :])

    def _another_roster(self) -> None:
        self.roster += 1
        self._asked = None

    def _note(self, name: str) -> None:
        self._log.append(name)
        if len(self._log) > 4 * len(self._views) + 64:  # by then looking at all costs no more
            half = len(self._log) // 2
            del self._log[:half]
            self._forgotten += half

    def _lay_out(self) -> None:
        """Nodes come and go: without this the places would grow for ever."""
        self._places = {name: place for place, name in enumerate(self._views)}
        self._given = len(self._places)
        self.layout += 1
        self._forgotten += len(self._log) + 1
        self._log.clear()
