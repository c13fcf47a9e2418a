"""Views of the nodes by name, with a log of changes.

Code that keeps a result for each node uses the log to update only the nodes that changed. `node_cache` writes the
views, `node_results` reads them.

Each node has a place, a small number that is its index in arrays. The places of 5,000 names are looked up once for each
pod. Gathering the results of several readers for them then takes microseconds.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.views import NodeView

UNKNOWN = -1


class Views:
    """A dictionary of views with a log of its last changes; a version is the number of changes so far."""

    def __init__(self, views: Iterable[NodeView] = ()) -> None:
        self._views: dict[str, NodeView] = {}
        self._places: dict[str, int] = {}
        self._given = 0  # places so far; the place of a deleted node is not reused in the same layout
        self.layout = 0  # increases when all places change, and every reader has to update all nodes
        self.roster = 0  # increases when nodes are added or removed
        self._last_names: tuple[str, ...] | None = None  # of the last look-up of places
        self._last_places = np.empty(0, dtype=np.intp)
        self._log: list[str] = []
        self._forgotten = 0  # changes before the first one in the log
        for view in views:
            self.put(view)

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._forgotten + len(self._log)

    def get(self, name: str) -> NodeView:
        """Return the view of a node; a node without a GPUNode has no GPUs and no report."""
        return self._views.get(name) or NodeView(name, (), None)

    def known(self, name: str) -> bool:
        """Return whether the node has a GPUNode."""
        return name in self._views

    def names(self) -> KeysView[str]:
        """Return the names of all nodes with a GPUNode."""
        return self._views.keys()

    def placed(self) -> ItemsView[str, int]:
        """Return each node with its place."""
        return self._places.items()

    def place(self, name: str) -> int:
        """Return the node's place, or UNKNOWN."""
        return self._places.get(name, UNKNOWN)

    def places(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Return the place of each name, UNKNOWN for a node without a GPUNode.

        The same tuple as in the last call is not looked up again: filter and prioritize of one pod use one tuple.
        """
        if names is self._last_names:
            return self._last_places
        try:
            places = np.fromiter(map(self._places.__getitem__, names), np.intp, len(names))
        except KeyError:
            places = np.fromiter((self._places.get(name, UNKNOWN) for name in names), np.intp, len(names))
        if isinstance(names, tuple):  # other sequences may change
            self._last_names, self._last_places = names, places
        return places

    def put(self, view: NodeView) -> None:
        """Add or replace the view of a node."""
        if view.name not in self._places:
            self._places[view.name] = self._given
            self._given += 1
            self._roster_changed()
        self._views[view.name] = view
        self._note(view.name)

    def drop(self, name: str) -> None:
        """Remove a node, if it is known."""
        if self._views.pop(name, None) is None:
            return
        del self._places[name]
        self._roster_changed()
        self._note(name)
        if self._given > 2 * len(self._views) + 64:
            self._lay_out()

    def changed_since(self, version: int) -> Iterable[str] | None:
        """Return the names of the nodes that changed, each once; None: all may have changed."""
        if version < self._forgotten:
            return None
        return dict.fromkeys(self._log[version - self._forgotten :])

    def _roster_changed(self) -> None:
        self.roster += 1
        self._last_names = None

    def _note(self, name: str) -> None:
        self._log.append(name)
        if len(self._log) > 4 * len(self._views) + 64:  # then updating all nodes costs no more
            half = len(self._log) // 2
            del self._log[:half]
            self._forgotten += half

    def _lay_out(self) -> None:
        """Assign new places, because they would grow without limit as nodes come and go."""
        self._places = {name: place for place, name in enumerate(self._views)}
        self._given = len(self._places)
        self.layout += 1
        self._forgotten += len(self._log) + 1
        self._log.clear()
