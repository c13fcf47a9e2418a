"""The agent's one loop: observe, decide, act. Every change wakes it, as does a short tick.

Without an answer of the kernel (no free file descriptor, an I/O error) it decides nothing: the node stays as it is, and
the next pass tries again. The liveness probe fails if that lasts.

Its latest observation is `view`, which the node reporter writes to the API. It never waits for the API server or the
kubelet: without them it continues with the last run queues.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from podium_agent.metrics import Metrics, error_code
from podium_agent.observe.observer import Observer
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.executor import Executor
from podium_agent.schedule.gate import Gates
from podium_agent.settings import AgentSettings
from podium_cluster import clock
from podium_cluster.watch import WatchCache
from podium_core.attempts.local_scheduler import Action, QueueEntry, RunQueues, Wait, decide, newer
from podium_core.attempts.local_trial import LocalTrial
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import GPUNode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """State of the node after the last decision.

    `unsettled`: GPUs on which a change is still under way. `exclusive_pods`: the exclusive pod of each GPU that has
    one. `reserved`: the reservation pod of each GPU that has one; None: all GPUs are Podium's.
    """

    run_queues: RunQueues = field(default_factory=RunQueues)
    trials: tuple[LocalTrial, ...] = ()
    unsettled: frozenset[str] = frozenset()
    exclusive_pods: Mapping[str, str] = field(default_factory=dict)
    reserved: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class GpuClaims:
    """Claims on this node's GPUs beside the run queues, by GPU.

    `exclusive_pods` returns the exclusive pods, `reserved` the reservation pods; None: all GPUs are Podium's.
    """

    exclusive_pods: Callable[[], Mapping[str, str]] = dict
    reserved: Callable[[], Mapping[str, str] | None] = lambda: None


NO_CLAIMS = GpuClaims()


def run_queues_of(node: GPUNode) -> RunQueues:
    """Return the operator's run queues as the local scheduler takes them."""
    gpus = {
        gpu.uuid: tuple(
            QueueEntry(
                TrialKey(entry.namespace, entry.trial, entry.uid), entry.reason, entry.message, entry.on_hold is True
            )
            for entry in gpu.run_queue
        )
        for gpu in node.spec.gpus
    }
    return RunQueues(node.spec.epoch, gpus, node.spec.released)


class NodeReconciler:
    """The agent's loop; `open_trial_record` makes the record of a pod that is seen for the first time."""

    def __init__(
        self,
        settings: AgentSettings,
        pods: WatchCache[TrialPod],
        nodes: WatchCache[GPUNode],
        metrics: Metrics,
        open_trial_record: Callable[[TrialPod], TrialRecord],
        claims: GpuClaims = NO_CLAIMS,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._nodes = nodes
        self._metrics = metrics
        self._open_trial_record = open_trial_record
        self._claims = claims
        self._event = asyncio.Event()
        self._listeners: list[Callable[[View], None]] = []
        self._node_uid = ""
        self._run_queues_changed_at: float | None = None
        self.trial_records: dict[str, TrialRecord] = {}
        self.view = View()
        self.last_cycle = time.monotonic()
        self.running = False  # its loop has started
        self._trouble = ""  # why the last pass failed
        self.observed = asyncio.Event()  # set once: `view` is an observation, not the initial empty one
        pods.subscribe(self.wake)
        nodes.subscribe(self.wake)

    def wake(self) -> None:
        """Run the loop soon."""
        self._event.set()

    def subscribe(self, listener: Callable[[View], None]) -> None:
        """Call `listener` with the view after every pass of the loop."""
        self._listeners.append(listener)

    def trial_record_of(self, pod_uid: str) -> TrialRecord | None:
        """Return the record of the trial with this pod."""
        return self.trial_records.get(pod_uid)

    async def run(self, observer: Observer, executor: Executor, gates: Gates) -> None:
        """Run the loop once the watches are synced."""
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
            self._try_to_reconcile(observer, executor)

    def _try_to_reconcile(self, observer: Observer, executor: Executor) -> None:
        try:
            self.reconcile(observer, executor)
        except OSError as error:
            self._metrics.failures.labels("reconcile", error_code(error)).inc()
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("the node is left as it is, because the kernel does not answer: %s", error)
            return
        if self._trouble:
            self._trouble = ""
            log.info("the kernel answers again")
        self.last_cycle = time.monotonic()

    def _hint(self, observer: Observer) -> None:
        """Pass on which pods the previous agent saw, and on which GPUs."""
        node = self._nodes.get("", self._settings.node_name)
        seen: dict[str, Hint] = {}
        for gpu in () if node is None else node.status.gpus:
            for one in gpu.trials:
                key = TrialKey(one.namespace, one.trial, one.uid)
                known = seen.get(one.pod_uid, Hint(key, one.pod, ()))
                seen[one.pod_uid] = replace(known, gpus=tuple(sorted({*known.gpus, gpu.uuid})))
        observer.hint(seen)

    async def _settle(self, gates: Gates) -> None:
        """Give waiting gates a moment to connect after a start: until then they look as if they had been passed."""
        end = time.monotonic() + self._settings.settle_seconds
        while time.monotonic() < end and any(
            pod.gate.running and not gates.waiting(pod.uid) for pod in self._pods.values()
        ):
            self.last_cycle = time.monotonic()
            await asyncio.sleep(0.05)

    def reconcile(self, observer: Observer, executor: Executor) -> None:
        """Make one pass: observe, decide, start the actions, publish the view."""
        now = clock.now()
        run_queues = self._run_queues()
        exclusive_pods, reserved = self._claims.exclusive_pods(), self._claims.reserved()
        trials = observer.observe(self._pods.values(), now)
        self._update_trial_records(observer, now)
        actions = decide(replace(run_queues, exclusive_pods=exclusive_pods, reserved=reserved), trials, now)
        acted = executor.execute(actions)
        self.view = View(run_queues, trials, _unsettled(actions, observer), exclusive_pods, reserved)
        self.observed.set()
        if acted:
            self._event.set()  # the actions have changed the facts
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
            # the object was created again: its epochs start again as well
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
                if record.end.absent:
                    continue  # its status cannot be written any more, or belongs to the pod that continues the trial
                trial_record = self.trial_records[uid] = self._open_trial_record(record.pod)
            life = trial_record.life
            trial_record.pod, life.ending = record.pod, record.kill_at(now) is not None
            if record.started and not life.started:
                life.started, life.gate_report = True, record.gate_report
                trial_record.urgent.set()
            if trial_record.main is None and record.pod.containers.main in record.processes.containers:
                trial_record.main = record.processes.containers[record.pod.containers.main]
                trial_record.urgent.set()
            if trial_record.memory_shortage != record.memory.shortage:
                trial_record.memory_shortage = record.memory.shortage
                trial_record.urgent.set()
            if record.pod.gate.present or record.end.ended:
                trial_record.follow(record.state, record.gpus, now)
            if record.end.ended and record.end.over_since is not None and not life.closed:
                if not life.started:
                    # a kubelet that denied it after a reboot shows no container: if it has an allocation, close that
                    life.started = life.orphaned = True
                life.closed = True
                trial_record.urgent.set()
        for record in observer.removed:
            if record.pod.uid not in self.trial_records:
                # its agent died first: the next attempt only starts once its allocation is closed
                trial_record = self.trial_records[record.pod.uid] = self._open_trial_record(record.pod)
                trial_record.life.started = trial_record.life.orphaned = True
        for uid in self.trial_records.keys() - present:
            trial_record = self.trial_records.pop(uid)
            trial_record.follow(None, trial_record.gpus, now)
            trial_record.life.closed = True
            trial_record.urgent.set()


def _unsettled(actions: tuple[Action, ...], observer: Observer) -> frozenset[str]:
    """Return the GPUs on which an action was started or an act is under way."""
    gpus = {uuid for action in actions if not isinstance(action, Wait) for uuid in action.trial.gpus}
    gpus |= {uuid for record in observer.records() if record.act.current != "Nothing" for uuid in record.gpus}
    gpus |= {
        uuid
        for action in actions
        if isinstance(action, Wait) and action.reason == "SwitchInProgress"
        for uuid in action.trial.gpus
    }
    return frozenset(gpus)
