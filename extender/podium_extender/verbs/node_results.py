"""One result for each node (why it is refused, what it costs), kept until the node's relevant state changes.

A request thus costs one evaluation for each node that changed since the last one, and one look-up for each requested
name. The order of the names does not matter; it varies with the scheduler's threads.
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
class _Inputs:
    """State of a node that a result depends on.

    `gpus` is compared by identity, because the node cache creates a new tuple for every change. `cpu_free` is None if
    the results do not depend on CPUs. `fresh` states whether the data is trusted. A node that was deleted and created
    again has another `place`.
    """

    place: int
    gpus: tuple[GpuReading, ...]
    cpu_free: int | None
    heard: bool
    fresh: bool

    def equal(self, place: int, node: NodeView, cpu_free: int | None, fresh: bool) -> bool:
        rest = place, cpu_free, node.reported_at is not None, fresh
        return self.gpus is node.gpus and (self.place, self.cpu_free, self.heard, self.fresh) == rest


class NodeResults(Generic[T]):
    """Results of one evaluation for all nodes.

    `evaluate(nodes, fresh)` is called once for each state of a node, with all nodes that have to be evaluated at once.
    Data becomes stale after `stale_after` seconds. `number` turns a result into a number to compare. `cpu` states
    whether the results depend on the nodes' free CPUs.
    """

    def __init__(
        self,
        evaluate: Callable[[Sequence[NodeView], Sequence[bool]], Sequence[T]],
        number: Callable[[T], float],
        stale_after: float,
        cpu: bool = False,
    ) -> None:
        self._evaluate = evaluate
        self._number = number
        self._stale_after = stale_after
        self._cpu = cpu
        self._layout = -1
        self._results: dict[int, T] = {}  # by the node's place
        self._numbers = np.empty(0, dtype=np.float64)  # by the node's place
        self._inputs: dict[str, _Inputs] = {}
        self._expiries: list[tuple[float, str]] = []  # a heap: when freshness changes by time alone
        self._expires_at: dict[str, float] = {}
        self._version = -1
        self._updated_at = -math.inf

    def numbers(self, names: Sequence[str], views: Views, now: float) -> NDArray[np.float64]:
        """Return the number of each name's result, in the order given."""
        self.update(views, now)
        places = views.places(names)
        numbers = self._numbers.take(places, mode="clip") if len(self._numbers) else np.full(len(places), math.nan)
        if len(places) and places.min() == UNKNOWN:  # not kept, because a request may contain any name
            unknown = np.flatnonzero(places == UNKNOWN)
            numbers[unknown] = self._numbers_of(self._evaluate_unknown([names[i] for i in unknown.tolist()], views))
        return numbers

    def result(self, name: str, views: Views) -> T:
        """Return the result that the last call of `numbers` used for this node."""
        place = views.place(name)
        return self._evaluate_unknown([name], views)[0] if place == UNKNOWN else self._results[place]

    def _evaluate_unknown(self, names: Sequence[str], views: Views) -> Sequence[T]:
        """Evaluate nodes without a GPUNode."""
        return self._evaluate([views.get(name) for name in names], [False] * len(names))

    def _numbers_of(self, results: Sequence[T]) -> NDArray[np.float64]:
        return np.fromiter(map(self._number, results), np.float64, len(results))

    def update(self, views: Views, now: float) -> None:
        """Evaluate the nodes that changed since the last update."""
        changed = views.changed_since(self._version)
        if self._layout != views.layout:
            self._layout = views.layout
            self._results.clear()
            self._inputs.clear()
            changed = None
        if changed is None or now < self._updated_at:  # the clock was set back, so no known expiry is valid
            self._expiries.clear()
            self._expires_at.clear()
            changed = *views.names(), *self._inputs
        due = dict.fromkeys(changed)
        while self._expiries and self._expiries[0][0] <= now:
            at, name = heapq.heappop(self._expiries)
            if self._expires_at.get(name) == at:
                del self._expires_at[name]
                due[name] = None
        outdated = {name: inputs for name in due if (inputs := self._changed_inputs(name, views, now)) is not None}
        if outdated:
            fresh = [inputs.fresh for inputs in outdated.values()]
            self._store(outdated, self._evaluate([views.get(name) for name in outdated], fresh))
        self._version, self._updated_at = views.version, now

    def _changed_inputs(self, name: str, views: Views, now: float) -> _Inputs | None:
        """Return the inputs of the node's next result, or None if its present result is valid."""
        if not views.known(name):
            self._inputs.pop(name, None)
            return None
        node = views.get(name)
        fresh = not node.stale(now, self._stale_after)
        expiry = self._expiry(node, fresh, now)
        # A later expiry is computed when the earlier one is reached. Most changes are heartbeats, which thus do not
        # change the heap.
        if expiry < self._expires_at.get(name, math.inf):
            self._expires_at[name] = expiry
            heapq.heappush(self._expiries, (expiry, name))
        inputs, place, cpu_free = self._inputs.get(name), views.place(name), node.cpu_free if self._cpu else None
        if inputs is not None and inputs.equal(place, node, cpu_free, fresh):
            return None
        return _Inputs(place, node.gpus, cpu_free, heard=node.reported_at is not None, fresh=fresh)

    def _store(self, inputs: Mapping[str, _Inputs], results: Sequence[T]) -> None:
        places = [one.place for one in inputs.values()]
        last = max(places)
        if last >= len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.full(max(64, last + 1), math.nan)])
        self._inputs.update(inputs)
        self._results.update(zip(places, results, strict=True))
        self._numbers[places] = self._numbers_of(results)

    def _expiry(self, node: NodeView, fresh: bool, now: float) -> float:
        """Return when the freshness changes without an event; infinity if it does not.

        Fresh data becomes stale. Data with a time in the future (a wrong clock) becomes fresh at that time.
        """
        heard = node.reported_at
        if heard is None:
            return math.inf
        soonest = math.nextafter(now, math.inf)  # strictly later, so that rounding cannot repeat an expiry
        if fresh:
            return max(heard + self._stale_after, soonest)
        return max(heard - CLOCK_SKEW, soonest) if heard > now else math.inf
