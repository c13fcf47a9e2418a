"""What is known of each node, by name, and which nodes changed since a moment: so that whoever keeps something for each
node looks again at those alone. Written by `telemetry`, read by `findings`.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView

from podium.placement.views import NodeView


class Views:
    """A dictionary of views with a memory of its last changes. A version is the number of changes so far."""

    def __init__(self, views: Iterable[NodeView] = ()) -> None:
        self._views: dict[str, NodeView] = {}
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

    def put(self, view: NodeView) -> None:
        self._views[view.name] = view
        self._note(view.name)

    def drop(self, name: str) -> None:
        if self._views.pop(name, None) is not None:
            self._note(name)

    def changed_since(self, version: int) -> Iterable[str] | None:
        """Names, each once; None where that is too long ago to be told: look at all."""
        if version < self._forgotten:
            return None
        return dict.fromkeys(self._log[version - self._forgotten :])

    def _note(self, name: str) -> None:
        self._log.append(name)
        if len(self._log) > 4 * len(self._views) + 64:  # by then looking at all costs no more
            half = len(self._log) // 2
            del self._log[:half]
            self._forgotten += half
