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
from podium_simulator.system.channels import Channels
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.faults import RandomFaults
from podium_simulator.system.inputs.scenario import Scenario
from podium_simulator.system.pods import Pods
from podium_simulator.system.stages import PodStage
from podium_simulator.system.state import Node


class NodeEvents:
    def __init__(
        self,
        queue: EventQueue,
        scenario: Scenario,
        nodes: Sequence[Node],
        chance: RandomFaults,
        pods: Pods,
        channels: Channels,
    ) -> None:
        self._queue = queue
        self._timing = scenario.timing
        self._drains = scenario.drains
        self._chance = chance
        self._pods = pods
        self._reports = channels.reports
        self._writer = channels.writer
        self._telemetry = channels.telemetry
        for node in nodes:
            queue.after(chance.node_lifetime(), self._fail, node)
        for node in nodes:
            queue.after(chance.seconds_until_silence(), self._fall_silent, node)
        by_name = {node.spec.name: node for node in nodes}
        for drain in scenario.drains:
            queue.at(drain.at, self._drain, by_name[drain.node])
            queue.at(drain.until, self._drain, by_name[drain.node])

    def _fail(self, node: Node) -> None:
        """Stop everything on the node; this is not known before its pods are evicted."""
        self._telemetry.record_change(node)
        node.up = False
        self._end_silence(node)
        for trial in list(node.trials):
            self._pods.stop_with_node(trial)
        self._queue.after(self._timing.evict, self._evict, node)
        self._queue.after(self._chance.node_downtime(self._timing.evict), self._recover, node)

    def _evict(self, node: Node) -> None:
        for trial in list(node.trials):
            self._pods.lost(trial, trial.attempts.number)
        self._reports.node_changed(node)

    def _recover(self, node: Node) -> None:
        node.up = True
        self._read_run_queues(node)
        self._writer.catch_up(node)
        self._reports.node_changed(node)
        self._queue.after(self._chance.node_lifetime(), self._fail, node)
        self._pods.retry()

    def _read_run_queues(self, node: Node) -> None:
        """Start a new agent, which reads the latest run queues."""
        for gpu in node.gpus:
            gpu.run_queue, gpu.agent_epoch = gpu.view.run_queue.startable, gpu.newest_epoch

    def _fall_silent(self, node: Node) -> None:
        if node.up:  # else it is silent already
            self._telemetry.falls_silent(node)
            node.silent = True
            node.version += 1
            self._queue.after(AGENT_STALE_SECONDS, self._unheard, node, guard=node)
            self._queue.after(STALE_AFTER, self._stale, node, guard=node)
        self._queue.after(self._chance.silence_duration(), self._be_heard, node)

    def _unheard(self, node: Node) -> None:
        node.unheard = True
        self._reports.node_changed(node)

    def _stale(self, node: Node) -> None:
        node.stale = True

    def _be_heard(self, node: Node) -> None:
        if node.silent:
            self._end_silence(node)
            self._read_run_queues(node)
            for trial in list(node.trials):
                self._reports.state_changed(trial)
                if trial.pod.stage is PodStage.ENDED:
                    self._pods.end_reported(trial)
            self._writer.catch_up(node)
            self._reports.node_changed(node)
            self._pods.run_agent(node)
        self._queue.after(self._chance.seconds_until_silence(), self._fall_silent, node)

    def _end_silence(self, node: Node) -> None:
        """End the agent's silence, if there was one.

        A node's failure ends it too: a new agent starts with the node.
        """
        if node.silent:
            node.silent = node.unheard = node.stale = False
            node.version += 1
            self._telemetry.heard_again(node)

    def _drain(self, node: Node) -> None:
        """Start or end a drain: the node accepts no trials while any of its drains lasts."""
        now = self._queue.now
        node.draining = any(d.at <= now < d.until for d in self._drains if d.node == node.spec.name)
        self._reports.drain_changed(node)
        if not node.draining:
            self._pods.retry()
