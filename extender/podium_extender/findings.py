"""One finding a node (why it is refused, what it costs), kept until the node changes in what it rests on. Used by
`decide`.

A question thus costs as much as the nodes that changed since the last one, and one look-up for each name asked, in
whatever order the scheduler's threads gave them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from podium.placement.views import CLOCK_SKEW, GpuReading, NodeView
from podium_extender.views import Views

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a finding rests on: these very GPUs (telemetry makes a new tuple for any change), and whether they are
    believed.
    """

    gpus: tuple[GpuReading, ...]
    cpu_free: int | None
    heard: bool
    fresh: bool

    def holds(self, node: NodeView, cpu_free: int | None, fresh: bool) -> bool:
        heard = node.reported_at is not None
        return self.gpus is node.gpus and (self.cpu_free, self.heard, self.fresh) == (cpu_free, heard, fresh)


class Findings(Generic[T]):
    """`look(nodes, fresh)` is called once for each state of a node, with all nodes at once that are to be looked at;
    they grow stale after `stale_after` seconds. `cpu`: what is found rests on their free CPUs, too.
    """

    def __init__(
        self, look: Callable[[Sequence[NodeView], Sequence[bool]], Sequence[T]], stale_after: float, cpu: bool = False
    ) -> None:
        self._look = look
        self._stale_after = stale_after
        self._cpu = cpu
        self._found: dict[str, T] = {}
        self._bases: dict[str, _Basis] = {}
        self._turns: list[tuple[float, str]] = []  # a heap: when freshness changes by time alone
        self._turns_at: dict[str, float] = {}
        self._version = -1
        self._asked_at = -math.inf

    def of(self, names: Sequence[str], views: Views, now: float) -> list[T]:
        """One finding a name, in the order given."""
        self._catch_up(views, now)
        try:
            return list(map(self._found.__getitem__, names))
        except KeyError:  # nodes without a GPUNode are not kept: any name may be asked
            strange = [name for name in dict.fromkeys(names) if name not in self._found]
            found = dict(
                zip(strange, self._look([views.get(name) for name in strange], [False] * len(strange)), strict=True)
            )
            return [self._found[name] if name in self._found else found[name] for name in names]

    def _catch_up(self, views: Views, now: float) -> None:
        changed = views.changed_since(self._version)
        if changed is None or now < self._asked_at:  # the clock was set back: nothing that was known of time holds
            self._turns.clear()
            self._turns_at.clear()
            changed = self._found.keys() | views.names()
        due = dict.fromkeys(changed)
        while self._turns and self._turns[0][0] <= now:
            at, name = heapq.heappop(self._turns)
            if self._turns_at.get(name) == at:
                del self._turns_at[name]
                due[name] = None
        nodes = [node for name in due if (node := self._outdated(name, views, now)) is not None]
        if nodes:
            told = self._look(nodes, [self._bases[node.name].fresh for node in nodes])
            self._found.update(zip((node.name for node in nodes), told, strict=True))
        self._version, self._asked_at = views.version, now

    def _outdated(self, name: str, views: Views, now: float) -> NodeView | None:
        """The node, where what was found of it no longer holds; what it will rest on is put down."""
        if not views.known(name):
            self._found.pop(name, None)
            self._bases.pop(name, None)
            return None
        node = views.get(name)
        fresh = not node.stale(now, self._stale_after)
        turn = self._turn(node, fresh, now)
        # a later turn is found when the earlier one comes: a heartbeat, most of all changes, leaves the heap alone
        if turn < self._turns_at.get(name, math.inf):
            self._turns_at[name] = turn
            heapq.heappush(self._turns, (turn, name))
        basis, cpu_free = self._bases.get(name), node.cpu_free if self._cpu else None
        if basis is not None and basis.holds(node, cpu_free, fresh):
            return None
        self._bases[name] = _Basis(node.gpus, cpu_free, node.reported_at is not None, fresh)
        return node

    def _turn(self, node: NodeView, fresh: bool, now: float) -> float:
        """When it grows stale, or the time comes that a clock ahead of ours gave; never, where it is stale for good."""
        heard = node.reported_at
        if heard is None:
            return math.inf
        soonest = math.nextafter(now, math.inf)  # whatever was rounded: a turn never comes twice in one moment
        if fresh:
            return max(heard + self._stale_after, soonest)
        return max(heard - CLOCK_SKEW, soonest) if heard > now else math.inf
