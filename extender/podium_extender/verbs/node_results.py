"""One finding a node (why it is refused, what it costs), kept until the node changes in what it rests on. Used by
`decide`.

A question thus costs as much as the nodes that changed since the last one, and one look-up for each name asked, in
whatever order the scheduler's threads gave them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.views import CLOCK_SKEW, GpuReading, NodeView
from podium_extender.state.views import UNKNOWN, Views

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a finding rests on: these very GPUs (node_cache makes a new tuple for any change), the free CPUs if they are
    read, and whether all this is believed. `place`: where it lies; a node that was gone comes back with another.
    """

    place: int
    gpus: tuple[GpuReading, ...]
    cpu_free: int | None
    heard: bool
    fresh: bool

    def holds(self, place: int, node: NodeView, cpu_free: int | None, fresh: bool) -> bool:
        rest = place, cpu_free, node.reported_at is not None, fresh
        return self.gpus is node.gpus and (self.place, self.cpu_free, self.heard, self.fresh) == rest


class NodeResults(Generic[T]):
    """`look(nodes, fresh)` is called once for each state of a node, with all nodes at once that are to be looked at;
    they grow stale after `stale_after` seconds. `mark`: the number by which a finding is compared with others. `cpu`:
    what is found rests on the nodes' free CPUs, too.
    """

    def __init__(
        self,
        look: Callable[[Sequence[NodeView], Sequence[bool]], Sequence[T]],
        mark: Callable[[T], float],
        stale_after: float,
        cpu: bool = False,
    ) -> None:
        self._look = look
        self._mark = mark
        self._stale_after = stale_after
        self._cpu = cpu
        self._layout = -1
        self._found: dict[int, T] = {}  # by the node's place
        self._marks = np.empty(0, dtype=np.float64)  # of the same
        self._bases: dict[str, _Basis] = {}
        self._turns: list[tuple[float, str]] = []  # a heap: when freshness changes by time alone
        self._turns_at: dict[str, float] = {}
        self._version = -1
        self._asked_at = -math.inf

    def marks(self, names: Sequence[str], views: Views, now: float) -> NDArray[np.float64]:
        """Of one finding a name, in the order given."""
        self.catch_up(views, now)
        places = views.places(names)
        marks = self._marks.take(places, mode="clip") if len(self._marks) else np.full(len(places), math.nan)
        if len(places) and places.min() == UNKNOWN:  # nodes without a GPUNode are not kept: any name may be asked
            strange = np.flatnonzero(places == UNKNOWN)
            marks[strange] = self._marks_of(self._unheard([names[i] for i in strange.tolist()], views))
        return marks

    def of(self, name: str, views: Views) -> T:
        """The finding itself, as `marks` saw it last."""
        place = views.place(name)
        return self._unheard([name], views)[0] if place == UNKNOWN else self._found[place]

    def _unheard(self, names: Sequence[str], views: Views) -> Sequence[T]:
        return self._look([views.get(name) for name in names], [False] * len(names))

    def _marks_of(self, results: Sequence[T]) -> NDArray[np.float64]:
        return np.fromiter(map(self._mark, results), np.float64, len(results))

    def catch_up(self, views: Views, now: float) -> None:
        """Look at the nodes that changed, as `marks` does first."""
        changed = views.changed_since(self._version)
        if self._layout != views.layout:
            self._layout = views.layout
            self._found.clear()
            self._bases.clear()
            changed = None
        if changed is None or now < self._asked_at:  # the clock was set back: nothing that was known of time holds
            self._turns.clear()
            self._turns_at.clear()
            changed = *views.names(), *self._bases
        due = dict.fromkeys(changed)
        while self._turns and self._turns[0][0] <= now:
            at, name = heapq.heappop(self._turns)
            if self._turns_at.get(name) == at:
                del self._turns_at[name]
                due[name] = None
        outdated = {name: basis for name in due if (basis := self._outdated(name, views, now)) is not None}
        if outdated:
            fresh = [basis.fresh for basis in outdated.values()]
            self._keep(outdated, self._look([views.get(name) for name in outdated], fresh))
        self._version, self._asked_at = views.version, now

    def _outdated(self, name: str, views: Views, now: float) -> _Basis | None:
        """What the node's next finding rests on, where the one that is kept holds no longer."""
        if not views.known(name):
            self._bases.pop(name, None)
            return None
        node = views.get(name)
        fresh = not node.stale(now, self._stale_after)
        turn = self._turn(node, fresh, now)
        # a later turn is found when the earlier one comes: a heartbeat, most of all changes, leaves the heap alone
        if turn < self._turns_at.get(name, math.inf):
            self._turns_at[name] = turn
            heapq.heappush(self._turns, (turn, name))
        basis, place, cpu_free = self._bases.get(name), views.place(name), node.cpu_free if self._cpu else None
        if basis is not None and basis.holds(place, node, cpu_free, fresh):
            return None
        return _Basis(place, node.gpus, cpu_free, heard=node.reported_at is not None, fresh=fresh)

    def _keep(self, bases: Mapping[str, _Basis], results: Sequence[T]) -> None:
        places = [basis.place for basis in bases.values()]
        last = max(places)
        if last >= len(self._marks):
            self._marks = np.concatenate([self._marks, np.full(max(64, last + 1), math.nan)])
        self._bases.update(bases)
        self._found.update(zip(places, results, strict=True))
        self._marks[places] = self._marks_of(results)

    def _turn(self, node: NodeView, fresh: bool, now: float) -> float:
        """When it grows stale, or the time comes that a clock ahead of ours gave; never, where it is stale for good."""
        heard = node.reported_at
        if heard is None:
            return math.inf
        soonest = math.nextafter(now, math.inf)  # whatever was rounded: a turn never comes twice in one moment
        if fresh:
            return max(heard + self._stale_after, soonest)
        return max(heard - CLOCK_SKEW, soonest) if heard > now else math.inf
