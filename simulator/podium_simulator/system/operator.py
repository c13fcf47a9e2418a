"""Operator of a simulated system: the real `plan` on what the API holds, and its actions executed.

The counterpart of `podium_operator.reconciler`, with its debounce, its lag and its measured costs. The engine calls it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType

from podium_core.curves.best_value import best_point, reached
from podium_core.domain.actions import (
    Action,
    CreatePod,
    CreateTrial,
    DeletePod,
    EndJob,
    EndTrial,
    Migrate,
    Requeue,
    WriteRunQueues,
)
from podium_core.domain.gpu_view import RunQueueView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, Point, Snapshot, TrialOrigin, TrialView
from podium_core.domain.switch_costs import mean_costs
from podium_core.planning.invariants import violations
from podium_core.planning.planner import decide
from podium_core.planning.queues.queue_ledger import QueueLedger, with_usage
from podium_core.planning.ranking import policy_of
from podium_core.planning.slots.promised_slots import promises
from podium_simulator.system.agent import together_with
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.scenario import PlannerRules, SimJob, Timing, TrialProgress
from podium_simulator.system.migration import Migrations
from podium_simulator.system.pods import Pods
from podium_simulator.system.reports import Reports
from podium_simulator.system.results.outcome import Decision
from podium_simulator.system.stages import PHASES, PodStage
from podium_simulator.system.state import Gpu, Job, Node, Trial
from podium_simulator.system.status_writer import StatusWriter
from podium_simulator.system.trial_state import Training
from podium_simulator.traces.trace import RecordedTrial

SHORTEST_SLEEP = 0.05


class Operator:
    """Simulated operator.

    `checked`: check every plan against the invariants, for tests; violations are in `broken`.
    """

    version = 0  # version of the next cycle

    def __init__(
        self,
        queue: EventQueue,
        timing: Timing,
        nodes: Sequence[Node],
        rules: PlannerRules,
        checked: bool,
    ) -> None:
        self._queue = queue
        self._timing = timing
        self._nodes = {node.spec.name: node for node in nodes}
        self._gpus: dict[str, Gpu] = {gpu.uuid: gpu for node in nodes for gpu in node.gpus}
        self._rebalancing = rules.rebalancing
        self._queues = rules.queues
        self._ledger = QueueLedger()
        self._checked = checked
        self._epochs: dict[str, int] = {}
        self._due: float | None = None
        self._migrations = Migrations(queue, timing, self._nodes)
        self._pods: Pods
        self._reports: Reports
        self._writer: StatusWriter
        self._cost, self._known = Costs(), (0, 0)  # and the counts of measurements behind it
        self.jobs: dict[JobKey, Job] = {}
        self.trials: dict[TrialKey, Trial] = {}
        self._by_key: list[Trial] = []  # the same, sorted: the planner's sort is then cheap
        self.decisions: list[Decision] = []
        self.broken: list[str] = []
        self.plans = 0
        self.ended = 0  # number of ended jobs

    def connect(self, pods: Pods, reports: Reports, writer: StatusWriter) -> None:
        self._pods, self._reports, self._writer = pods, reports, writer
        self._migrations.connect(pods)

    def add_job(self, job: SimJob) -> None:
        self.jobs[job.key] = Job(job, job.view, policy_of(job.view))
        for progress in job.progress:
            self._restore_trial(self.jobs[job.key], progress)
        self.changed()

    def changed(self) -> None:
        """Schedule a cycle for a watched change; a burst of changes shares one."""
        self._wake(self._queue.now + self._timing.debounce)

    def progress(self, trials: Collection[Trial]) -> None:
        """Schedule a cycle for trials that progressed; other news may come first (`Timing.progress`)."""
        waits = min([self._may_wait(job, trials) for job in {trial.job for trial in trials}], default=0.0)
        self._wake(self._queue.now + max(self._timing.debounce, waits))

    def _may_wait(self, mine: Job, trials: Iterable[Trial]) -> float:
        """Return the seconds that news of a job's progress may wait: 0 where it may end or move something."""
        job, policy = mine.view, mine.policy
        if not job.abilities.suspendable or job.limits.budget_gpu_seconds is not None or self._rebalancing is not None:
            return 0.0
        if policy.cuts or (job.target is not None and any(_at_target(t, job.target) for t in trials if t.job is mine)):
            return 0.0
        return self._timing.progress * policy.time_slice(self._costs())

    def _wake(self, at: float) -> None:
        if self._due is None or at < self._due:
            self._due = at
            self.version += 1
            self._queue.at(at, self._reconcile, guard=self)

    def _reconcile(self) -> None:
        self._due = None
        self.plans += 1
        snapshot = self._snapshot()
        if self._migrations:
            if self._migrations.advance(promises(snapshot).broken):
                self.changed()  # it sees its own writes
            snapshot = self._snapshot()
        decision = decide(snapshot)
        decided, self._ledger = decision.plan, self._ledger.record(snapshot.now, decision.shares)
        if self._checked:
            self.broken += violations(snapshot, decided)
        actions = [action for action in decided.actions if not self._held_back(action)]
        for action in actions:
            self._execute(action)
        if any(not isinstance(action, WriteRunQueues) for action in actions):
            self.changed()  # it sees its own writes
        wake = min(self._queue.now + self._timing.cycle, self._migrations.wake_at())
        if decided.wake_at is not None:
            wake = min(wake, decided.wake_at)
        if wake < float("inf"):
            self._wake(max(wake, self._queue.now + SHORTEST_SLEEP))

    def _held_back(self, action: Action) -> bool:
        return isinstance(action, CreatePod) and self._migrations.holds_back_pod(self.trials[action.trial])

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            now=self._queue.now,
            jobs=tuple([job.view for job in self.jobs.values()]),
            trials=tuple([trial.view for trial in self._by_key]),
            gpus=tuple([gpu.view for gpu in self._gpus.values()]),
            costs=self._costs(),
            epochs=MappingProxyType(dict(self._epochs)),
            rebalancing=self._rebalancing,
            queues=with_usage(self._queues, self._ledger.usage_at(self._queue.now)),
        )

    def _costs(self) -> Costs:
        """Return the means of what was measured; the defaults until something is."""
        facts = (self._writer.measured, len(self._pods.requeues))
        if facts != self._known:
            self._known, self._cost = facts, self._mean_costs()
        return self._cost

    def _mean_costs(self) -> Costs:
        requeues = self._pods.requeues
        requeue = sum(requeues) / len(requeues) if requeues else None
        return mean_costs([trial.written_status.totals for trial in self.trials.values()], requeue)

    def _execute(self, action: object) -> None:
        match action:
            case CreateTrial(job, number):
                self._create_trial(self.jobs[job], number)
            case CreatePod(key, attempt):
                trial = self.trials[key]
                self._pods.create(trial, attempt)
                if trial.starts_from_image:
                    self._reports.migrated(trial)
                else:
                    self._reports.pod_changed(trial, TrialPhase.PENDING)
            case Requeue(key):
                trial = self.trials[key]
                self._pods.request_end(trial)
                self._reports.pod_changed(trial, trial.view.phase)
            case Migrate(key):
                self._migrations.start(self.trials[key], action)
            case DeletePod(key):
                trial = self.trials[key]
                self._pods.delete(trial)
                self._reports.pod_changed(trial, trial.view.phase)
            case EndTrial(key, phase):
                trial = self.trials[key]
                trial.ended = self._queue.now
                self._reports.pod_changed(trial, phase)
            case EndJob(key, succeeded, reason):
                ended = self.jobs[key]
                ended.view = replace(ended.view, state=replace(ended.view.state, finished=True))
                ended.ended, ended.succeeded, ended.reason = self._queue.now, succeeded, reason
                self.ended += 1
            case WriteRunQueues():
                self._write_run_queues(action)

    def _create_trial(self, job: Job, number: int) -> Trial:
        namespace, name = job.view.key.namespace, f"{job.view.key.name}-{number}"
        key = TrialKey(namespace, name, f"{job.view.uid}-{number}")
        curve = job.spec.curves[number % len(job.spec.curves)]
        origin = TrialOrigin(self._queue.now, tuple(curve.hparams.items()))
        view = TrialView(key, job.view.key, number, origin, TrialPhase.PENDING)
        trial = self.trials[key] = Trial(key, job, number, view, Training(curve, steps_of(curve)))
        insort(self._by_key, trial, key=attrgetter("key"))
        return trial

    def _restore_trial(self, job: Job, progress: TrialProgress) -> None:
        """Create a trial that exists already, in its present state."""
        trial = self._create_trial(job, progress.number)
        training = trial.training
        known = zip(training.steps, training.curve.values, progress.values, strict=False)
        training.points = [Point(step, value, time) for step, value, time in known]
        training.evaluations, training.trained = len(training.points), progress.trained
        trial.gpu_time.seconds = progress.gpu_seconds
        if training.trained > 0.0:
            training.checkpoint_seconds = training.trained
        trial.written_status = trial.record(self._queue.now)
        if progress.ended is not None:
            trial.ended = self._queue.now
            trial.publish(progress.ended)
        elif progress.gpus:
            self._restore_pod(trial, tuple([self._gpus[uuid] for uuid in progress.gpus]), holds=progress.holds)
        else:
            trial.publish(TrialPhase.REQUEUED if training.trained > 0.0 else TrialPhase.PENDING)

    def _restore_pod(self, trial: Trial, gpus: tuple[Gpu, ...], *, holds: bool) -> None:
        """Put the pod of a trial that exists already on its GPUs: it trains, is suspended, or waits at its gate."""
        started, pod = trial.training.trained > 0.0, trial.pod
        pod.bind(gpus)
        pod.created = self._queue.now
        for node in pod.nodes:
            node.trials.append(trial)
        if started or holds:
            self._writer.start(trial)
        if started and not holds:
            trial.switches.suspended(trial.job.spec.method.suspend)
        stage = PodStage.RUNNING if holds else PodStage.SUSPENDED if started else PodStage.GATED
        self._pods.restore(trial, stage)
        trial.publish(PHASES[stage])

    def _write_run_queues(self, action: WriteRunQueues) -> None:
        self._epochs[action.node] = action.epoch
        run_queues: dict[str, tuple[TrialKey, ...]] = {}
        for uuid, places in action.gpus:
            keys, gpu = tuple([place.trial for place in places]), self._gpus[uuid]
            on_hold = frozenset([place.trial for place in places if place.on_hold])
            old, new = gpu.view.run_queue, RunQueueView(keys, on_hold=on_hold)
            first = next((place for place in places if not place.on_hold), None)
            if first is not None and first.trial != next(iter(old.startable), None):
                number = self.trials[first.trial].number
                self.decisions.append(Decision(self._queue.now, uuid, first.trial, number, first.reason))
            gpu.view = replace(gpu.view, run_queue=new)
            gpu.newest_epoch, gpu.preempts = action.epoch, uuid in action.preempting
            run_queues[uuid] = new.startable
        self._queue.after(
            self._timing.order, self._run_queue_arrived, self._nodes[action.node], action.epoch, run_queues
        )

    def _run_queue_arrived(self, node: Node, epoch: int, run_queues: dict[str, tuple[TrialKey, ...]]) -> None:
        if not node.up or node.silent:
            return  # it reads what is written when it is back
        for gpu in node.gpus:
            gpu.run_queue, gpu.agent_epoch = run_queues[gpu.uuid], epoch
        for one in together_with(node):
            self._pods.run_agent(one)


def steps_of(curve: RecordedTrial) -> tuple[float, ...]:
    """Return the recorded steps; a curve without steps counts seconds of training."""
    return curve.steps or curve.seconds


def _at_target(trial: Trial, target: float) -> bool:
    """Return whether the trial's values reach the target, so that its job may end."""
    maximize = trial.job.view.maximize
    best = best_point(trial.view.curve, maximize)
    return best is not None and reached(best.value, target, maximize)
