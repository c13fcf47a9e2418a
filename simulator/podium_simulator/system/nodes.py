"""Events of whole nodes: they fail and come back, they drain, their agents fall silent.

The engine starts them; `pods` handles the trials on the nodes. While an agent is silent (it hangs, or cannot be
reached), running trials continue, but none is started, suspended or resumed there. No run queue reaches the agent, and
it writes nothing. Pods that are placed there wait at their gates. What the operator sees of pods itself (started,
ended, lost) it sees as usual.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.domain.observe import AGENT_STALE_SECONDS
from podium_core.placement.fit import STALE_AFTER
from podium_simulator.system.event_queue import Queue
from podium_simulator.system.faults import Chance
from podium_simulator.system.pods import Pods
from podium_simulator.system.reports import Reports
from podium_simulator.system.scenario import Drain, Timing
from podium_simulator.system.state import Node, State
from podium_simulator.system.status_writer import Writer
from podium_simulator.system.telemetry import Telemetry


class Nodes:
    def __init__(
        self,
        queue: Queue,
        timing: Timing,
        nodes: Sequence[Node],
        chance: Chance,
        pods: Pods,
        reports: Reports,
        writer: Writer,
        telemetry: Telemetry,
        drains: Sequence[Drain],
    ) -> None:
        self._queue = queue
        self._timing = timing
        self._chance = chance
        self._pods = pods
        self._reports = reports
        self._writer = writer
        self._telemetry = telemetry
        self._drains = drains
        for node in nodes:
            queue.after(chance.node_lives(), self._down, node)
        for node in nodes:
            queue.after(chance.agent_speaks(), self._falls_silent, node)
        by_name = {node.spec.name: node for node in nodes}
        for drain in drains:
            queue.at(drain.at, self._drain, by_name[drain.node])
            queue.at(drain.until, self._drain, by_name[drain.node])

    def _down(self, node: Node) -> None:
        """Stop everything on the node; this is not known before its pods are evicted."""
        self._telemetry.changes(node)
        node.up = False
        self._hear(node)
        for trial in list(node.trials):
            self._pods.stop_dead(trial)
        self._queue.after(self._timing.evict, self._given_up, node)
        self._queue.after(self._chance.node_is_away(self._timing.evict), self._back_up, node)

    def _given_up(self, node: Node) -> None:
        for trial in list(node.trials):
            self._pods.lost(trial, trial.attempt)
        self._reports.node(node)

    def _back_up(self, node: Node) -> None:
        node.up = True
        self._read_orders(node)
        self._writer.back(node)
        self._reports.node(node)
        self._queue.after(self._chance.node_lives(), self._down, node)
        self._pods.retry()

    def _read_orders(self, node: Node) -> None:
        """Start a new agent, which reads the latest run queues."""
        for gpu in node.gpus:
            gpu.order, gpu.known = gpu.view.run_queue, gpu.ordered

    def _falls_silent(self, node: Node) -> None:
        if node.up:  # else it is silent already
            self._telemetry.silent(node)
            node.silent = True
            node.act += 1
            self._queue.after(AGENT_STALE_SECONDS, self._unheard, node, guard=node)
            self._queue.after(STALE_AFTER, self._stale, node, guard=node)
        self._queue.after(self._chance.agent_is_silent(), self._speaks, node)

    def _unheard(self, node: Node) -> None:
        node.unheard = True
        self._reports.node(node)

    def _stale(self, node: Node) -> None:
        node.stale = True

    def _speaks(self, node: Node) -> None:
        if node.silent:
            self._hear(node)
            self._read_orders(node)
            for trial in list(node.trials):
                self._reports.state(trial)
                if trial.state is State.ENDED:
                    self._pods.end_is_read(trial)
            self._writer.back(node)
            self._reports.node(node)
            self._pods.act(node)
        self._queue.after(self._chance.agent_speaks(), self._falls_silent, node)

    def _hear(self, node: Node) -> None:
        """End the agent's silence, if there was one. A node's failure ends it too: a new agent starts with the node."""
        if node.silent:
            node.silent = node.unheard = node.stale = False
            node.act += 1
            self._telemetry.speaks(node)

    def _drain(self, node: Node) -> None:
        """Start or end a drain: the node accepts no trials while any of its drains lasts."""
        now = self._queue.now
        node.draining = any(d.at <= now < d.until for d in self._drains if d.node == node.spec.name)
        self._reports.drains(node)
        if not node.draining:
            self._pods.retry()
