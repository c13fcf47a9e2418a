"""Toy cluster for property tests of the planner.

Pods appear, holders train, agents follow the run queues (late, if asked to), and requeued trials save a checkpoint and
end. It is not the simulator: switches cost nothing and ticks are fixed. The test provides times and random choices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from podium_core.domain.actions import (
    Action,
    CreatePod,
    CreateTrial,
    DeletePod,
    EndJob,
    EndTrial,
    Plan,
    Requeue,
    WriteRunQueues,
)
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL, TrialPhase, check
from podium_core.domain.pod_view import PodView, WorkerView
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import Costs, JobView, Point, Snapshot, TrialOrigin, TrialView
from podium_core.planning.invariants import violations
from podium_core.planning.planner import plan
from podium_core.testing.builders import trial_key

Value = Callable[[int, int], float]  # trial number, step -> metric


@dataclass(slots=True)
class ToyCluster:
    """State of the toy cluster. `value` is each trial's curve; one step takes `step_seconds` on its GPUs."""

    jobs: dict[JobKey, JobView]
    gpus: dict[str, GpuView]
    value: Value
    steps: int = 6
    step_seconds: float = 1.0
    now: float = 0.0
    costs: Costs = field(default_factory=lambda: Costs(0.05, 0.05))
    trials: dict[TrialKey, TrialView] = field(default_factory=dict)
    rebalancing: RebalancingRules | None = None
    epochs: dict[str, int] = field(default_factory=dict)
    outcome: dict[JobKey, bool] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)  # names in the order in which the trials ended
    broken: list[str] = field(default_factory=list)
    switches: int = 0
    requeues: list[tuple[float, TrialKey, str]] = field(default_factory=list)  # time, trial, reason

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now=self.now,
            jobs=tuple(self.jobs.values()),
            trials=tuple(self.trials.values()),
            gpus=tuple(self.gpus.values()),
            costs=self.costs,
            epochs=dict(self.epochs),
            rebalancing=self.rebalancing,
        )

    def decide(self) -> Plan:
        """Run one cycle of the operator: plan, check the invariants, apply the actions."""
        before = self.snapshot()
        made = plan(before)
        self.broken += violations(before, made)
        for action in made.actions:
            self._apply(action)
        return made

    def tick(self, seconds: float) -> None:
        """Place pods, switch GPUs as the run queues say, and let the holders train."""
        self.now += seconds
        for key, trial in sorted(self.trials.items()):
            if trial.terminating:
                self.disrupt(key)  # it has saved a checkpoint
        for key in sorted(self.trials):
            self._place(key)
        self._hand_over()
        for key in sorted(self.trials):
            trial = self.trials[key]
            if self._at_work(trial):
                self._train(trial, seconds)
            elif trial.phase is TrialPhase.RUNNING:
                self._become(replace(trial, phase=TrialPhase.SUSPENDED))

    def disrupt(self, key: TrialKey) -> None:
        """Remove the trial's pod; the trial continues later from where it was."""
        trial = self.trials[key]
        if trial.pod is not None and trial.phase not in FINAL:
            self._become(replace(trial, pod=None, phase=TrialPhase.REQUEUED))

    def all_over(self) -> bool:
        return all(job.state.finished for job in self.jobs.values())

    def _apply(self, action: Action) -> None:
        if isinstance(action, CreateTrial):
            key = trial_key(f"{action.job.name}-{action.number}")
            self.trials[key] = TrialView(key, action.job, action.number, TrialOrigin(self.now), TrialPhase.PENDING)
        elif isinstance(action, CreatePod):
            trial, name = self.trials[action.trial], f"{action.trial.name}-{action.attempt}"
            pod, attempts = PodView(name, since=self.now), replace(trial.attempts, number=action.attempt)
            self._become(replace(trial, phase=TrialPhase.PENDING, pod=pod, attempts=attempts))
        elif isinstance(action, Requeue):
            self.requeues.append((self.now, action.trial, action.reason))
            self._end_soon(self.trials[action.trial])
        elif isinstance(action, DeletePod):
            self._become(replace(self.trials[action.trial], pod=None))
        elif isinstance(action, EndTrial):
            self._become(replace(self.trials[action.trial], phase=action.phase))
        elif isinstance(action, EndJob):
            job = self.jobs[action.job]
            self.jobs[action.job] = replace(job, state=replace(job.state, finished=True))
            self.outcome[action.job] = action.succeeded
        elif isinstance(action, WriteRunQueues):
            self.epochs[action.node] = action.epoch
            for uuid, entries in action.gpus:
                gpu = self.gpus[uuid]
                held = frozenset(entry.trial for entry in entries if entry.on_hold)
                queue = replace(gpu.run_queue, trials=tuple(entry.trial for entry in entries), on_hold=held)
                self.gpus[uuid] = replace(gpu, run_queue=queue)

    def _become(self, trial: TrialView) -> None:
        old = self.trials[trial.key]
        if trial.phase != old.phase:
            check(old.phase, trial.phase)
            if trial.phase in FINAL:
                self.finished.append(trial.key.name)
        self.trials[trial.key] = trial

    def _end_soon(self, trial: TrialView) -> None:
        if trial.pod is not None:
            self._become(replace(trial, pod=replace(trial.pod, terminating=True)))

    def _place(self, key: TrialKey) -> None:
        """Act as the scheduler: the least loaded GPUs with enough free slots, of one node for each worker."""
        trial = self.trials[key]
        needs = self.jobs[trial.job].gpus
        if trial.pod is None or trial.gpus or trial.phase in FINAL or needs.per_trial == 0:
            return
        load = {u: sum(u in t.gpus for t in self.trials.values()) for u in self.gpus}
        workers: list[WorkerView] = []
        for node in sorted({g.node for g in self.gpus.values()}, key=lambda n: (self._node_load(n, load), n)):
            here = [(u, g) for u, g in self.gpus.items() if g.node == node and g.health == "Healthy"]
            free = [u for u, g in here if load[u] < g.slots and not g.availability.draining]
            if len(free) >= needs.per_worker and len(workers) < needs.workers:
                chosen = tuple(sorted(sorted(free, key=lambda u: (load[u], u))[: needs.per_worker]))
                workers.append(WorkerView(len(workers), f"{trial.pod.name}-w{len(workers)}", node, chosen))
        if len(workers) == needs.workers:
            gpus = tuple(uuid for worker in workers for uuid in worker.gpus)
            views = tuple(workers) if needs.workers > 1 else ()
            pod = replace(trial.pod, node=workers[0].node, gpus=gpus, workers=views)
            self._become(replace(trial, phase=TrialPhase.GATED, pod=pod))

    def _node_load(self, node: str, load: dict[str, int]) -> float:
        mine = [load[u] / g.slots for u, g in self.gpus.items() if g.node == node]
        return sum(mine) / len(mine)

    def _hand_over(self) -> None:
        """Act as the agents: a trial that is first on all of its GPUs holds them.

        A holder that cannot be suspended keeps its GPU until it ends.
        """
        kept = {uuid: gpu.holder for uuid, gpu in self.gpus.items() if self._stays(gpu)}
        for uuid, gpu in self.gpus.items():
            here = tuple(k for k, t in sorted(self.trials.items()) if uuid in t.gpus)
            first = self._first(uuid)
            mine = self.trials[first].gpus if first is not None else ()
            if any(self._first(u) != first or kept.get(u, first) != first for u in mine):
                first = None
            first = kept.get(uuid, first)
            if first != gpu.holder:
                self.switches += gpu.holder in here
                gpu = replace(gpu, holder=first, holder_since=self.now)
            self.gpus[uuid] = replace(gpu, trials=here, free_slots=gpu.slots - len(here))

    def _stays(self, gpu: GpuView) -> bool:
        trial = self.trials.get(gpu.holder) if gpu.holder is not None else None
        return trial is not None and gpu.uuid in trial.gpus and not self.jobs[trial.job].abilities.suspendable

    def _first(self, uuid: str) -> TrialKey | None:
        queue = self.gpus[uuid].run_queue
        return next((k for k in queue.trials if k not in queue.on_hold and uuid in self.trials[k].gpus), None)

    def _at_work(self, trial: TrialView) -> bool:
        if trial.phase in FINAL or trial.pod is None:
            return False
        if self.jobs[trial.job].gpus.per_trial == 0:
            return True
        return bool(trial.gpus) and all(self.gpus[u].holder == trial.key for u in trial.gpus)

    def _train(self, trial: TrialView, seconds: float) -> None:
        width = self.jobs[trial.job].gpus.per_trial
        used = trial.usage.gpu_seconds + seconds * max(1, width)
        done = min(self.steps, int(used / max(1, width) / self.step_seconds + 1e-9))
        seen = len(trial.curve)
        points = [Point(float(s), self.value(trial.number, s), self.now) for s in range(seen + 1, done + 1)]
        over = done >= self.steps
        self._become(
            replace(
                trial,
                phase=TrialPhase.SUCCEEDED if over else TrialPhase.RUNNING,
                curve=(*trial.curve, *points),
                usage=replace(trial.usage, gpu_seconds=used),
                pod=None if over else trial.pod,
            )
        )
