"""The agent's one loop from facts to acts: look, decide, carry out. Woken by every change, or by a short tick.

What it saw last is `view`, which the reporter writes to the API. It never waits for the API server or the kubelet: with
either away it goes on with the last order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from podium_agent.metrics import Metrics
from podium_agent.observe.observer import Observer
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.trials import LocalTrial
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.executor import Executor
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.local_scheduler import Action, QueueEntry, RunQueues, Wait, decide, newer
from podium_agent.settings import AgentSettings
from podium_cluster.watch import WatchCache
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.gpunode import GPUNode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """How things stood after the last decision. `unsettled`: GPUs on which something is still to change; `taken`: those
    that an urgent pod has for itself, with its name; `leased`: those that a placeholder pod holds, with its name, None:
    all are Podium's own.
    """

    run_queues: RunQueues = field(default_factory=RunQueues)
    trials: tuple[LocalTrial, ...] = ()
    unsettled: frozenset[str] = frozenset()
    exclusive_pods: Mapping[str, str] = field(default_factory=dict)
    reserved: Mapping[str, str] | None = None


def run_queues_of(node: GPUNode) -> RunQueues:
    """The operator's order as the arbiter takes it."""
    gpus = {
        gpu.uuid: tuple(
            QueueEntry(TrialKey(entry.namespace, entry.trial, entry.uid), entry.reason, entry.message)
            for entry in gpu.run_queue
        )
        for gpu in node.spec.gpus
    }
    return RunQueues(node.spec.epoch, gpus, node.spec.released)


class NodeReconciler:
    """`listen` is called after every look; `open_book` makes the book of a pod that is seen for the first time.

    `taken` tells which GPUs urgent pods have for themselves, `leased` which are leased.
    """

    def __init__(
        self,
        settings: AgentSettings,
        pods: WatchCache[TrialPod],
        nodes: WatchCache[GPUNode],
        metrics: Metrics,
        open_trial_record: Callable[[TrialPod], TrialRecord],
        exclusive_pods: Callable[[], Mapping[str, str]] = dict,
        reserved: Callable[[], Mapping[str, str] | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._nodes = nodes
        self._metrics = metrics
        self._open_trial_record = open_trial_record
        self._exclusive_pods = exclusive_pods
        self._reserved = reserved
        self._event = asyncio.Event()
        self._listeners: list[Callable[[View], None]] = []
        self._node_uid = ""
        self._run_queues_changed_at: float | None = None
        self.trial_records: dict[str, TrialRecord] = {}
        self.view = View()
        self.last_cycle = time.monotonic()
        self.running = False  # its loop has begun
        self.observed = asyncio.Event()  # once: `view` is what was seen, not the emptiness of a start
        pods.subscribe(self.wake)
        nodes.subscribe(self.wake)

    def wake(self) -> None:
        self._event.set()

    def subscribe(self, listener: Callable[[View], None]) -> None:
        self._listeners.append(listener)

    def trial_record_of(self, pod_uid: str) -> TrialRecord | None:
        return self.trial_records.get(pod_uid)

    async def run(self, observer: Observer, executor: Executor, gates: Gates) -> None:
        await self._pods.wait_synced()
        await self._nodes.wait_synced()
        self._hint(observer)
        self.last_cycle, self.running = time.monotonic(), True
        await self._settle(gates)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.tick_seconds):
                    await self._event.wait()
            self._event.clear()
            self.reconcile(observer, executor)
            self.last_cycle = time.monotonic()

    def _hint(self, observer: Observer) -> None:
        """Which pods the last agent saw, and where."""
        node = self._nodes.get("", self._settings.node_name)
        seen: dict[str, Hint] = {}
        for gpu in () if node is None else node.status.gpus:
            for one in gpu.trials:
                key = TrialKey(one.namespace, one.trial, one.uid)
                known = seen.get(one.pod_uid, Hint(key, one.pod, ()))
                seen[one.pod_uid] = replace(known, gpus=tuple(sorted({*known.gpus, gpu.uuid})))
        observer.hint(seen)

    async def _settle(self, gates: Gates) -> None:
        """After a start, give waiting gates a moment to connect: until then they look as if let through."""
        end = time.monotonic() + self._settings.settle_seconds
        while time.monotonic() < end and any(
            pod.gate_running and not gates.waiting(pod.uid) for pod in self._pods.values()
        ):
            self.last_cycle = time.monotonic()
            await asyncio.sleep(0.05)

    def reconcile(self, observer: Observer, executor: Executor) -> None:
        now = time.time()
        run_queues, exclusive_pods, reserved = self._run_queues(), self._exclusive_pods(), self._reserved()
        trials = observer.observe(self._pods.values(), now)
        self._update_trial_records(observer, now)
        actions = decide(replace(run_queues, exclusive_pods=exclusive_pods, reserved=reserved), trials, now)
        acted = executor.execute(actions)
        self.view = View(run_queues, trials, _unsettled(actions, observer), exclusive_pods, reserved)
        self.observed.set()
        if acted:
            self._event.set()  # what was begun has changed the facts
        elif not self.view.unsettled and self._run_queues_changed_at is not None:
            seconds = time.monotonic() - self._run_queues_changed_at
            self._run_queues_changed_at = None
            self._metrics.effect.observe(seconds)
            log.info("epoch %d is in effect after %.1f ms", run_queues.epoch, seconds * 1000)
        for listener in self._listeners:
            listener(self.view)

    def _run_queues(self) -> RunQueues:
        before = self.view.run_queues
        node = self._nodes.get("", self._settings.node_name)
        if node is None:
            return before
        if node.metadata.uid != self._node_uid:
            # the object was made anew: its epochs begin anew as well
            self._node_uid = node.metadata.uid
            before = RunQueues()
        run_queues = newer(before, run_queues_of(node))
        if run_queues != self.view.run_queues:
            self._run_queues_changed_at = time.monotonic()
            self._metrics.epoch.set(run_queues.epoch)
            log.info("following epoch %d%s", run_queues.epoch, " (released)" if run_queues.released else "")
        return run_queues

    def _update_trial_records(self, observer: Observer, now: float) -> None:
        present = set()
        for record in observer.records():
            uid = record.pod.uid
            present.add(uid)
            trial_record = self.trial_records.get(uid)
            if trial_record is None:
                if record.absent:
                    continue  # its status cannot be written any more, or by whoever goes on with the trial
                trial_record = self.trial_records[uid] = self._open_trial_record(record.pod)
            trial_record.pod, trial_record.ending = record.pod, record.kill_at(now) is not None
            if record.started and not trial_record.started:
                trial_record.started, trial_record.gate_report = True, record.gate_report
                trial_record.urgent.set()
            if trial_record.main is None and record.pod.main in record.containers:
                trial_record.main = record.containers[record.pod.main]
                trial_record.urgent.set()
            if trial_record.memory_shortage != record.memory_shortage:
                trial_record.memory_shortage = record.memory_shortage
                trial_record.urgent.set()
            if record.pod.gated or record.ended:
                trial_record.follow(record.state, record.gpus, now)
            if record.ended and record.over_since is not None and not trial_record.closed:
                trial_record.closed = True
                trial_record.urgent.set()
        for record in observer.removed:
            if record.pod.uid not in self.trial_records:
                # its agent died before it did: until its hold is closed, the next attempt is not begun
                trial_record = self.trial_records[record.pod.uid] = self._open_trial_record(record.pod)
                trial_record.started = trial_record.orphaned = True
        for uid in self.trial_records.keys() - present:
            trial_record = self.trial_records.pop(uid)
            trial_record.follow(None, trial_record.gpus, now)
            trial_record.closed = True
            trial_record.urgent.set()


def _unsettled(actions: tuple[Action, ...], observer: Observer) -> frozenset[str]:
    """GPUs on which a step was begun or an act is under way."""
    gpus = {uuid for action in actions if not isinstance(action, Wait) for uuid in action.trial.gpus}
    gpus |= {uuid for record in observer.records() if record.acting != "Nothing" for uuid in record.gpus}
    gpus |= {
        uuid
        for action in actions
        if isinstance(action, Wait) and action.reason == "SwitchInProgress"
        for uuid in action.trial.gpus
    }
    return frozenset(gpus)
