"""Trials of several workers on nodes whose agents follow the run queues late, each on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

import pytest

from podium_core.attempts.local_scheduler import Admit, QueueEntry, Resume, RunQueues, Suspend, Wait, decide
from podium_core.attempts.local_trial import OCCUPYING, Gate, LocalPod, LocalTrial, Termination
from podium_core.domain.actions import CreatePod, CreateTrial, EndJob, EndTrial, Requeue, WriteRunQueues
from podium_core.domain.gpu_view import GpuView, RunQueueView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.pod_view import PodView, WorkerView
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialOrigin, TrialUsage, TrialView
from podium_core.planning.invariants import violations
from podium_core.planning.planner import plan
from podium_core.schema.gpunode import SlotState
from podium_core.testing.builders import make_curve, make_job, trial_key

TICK = 0.1
# longest delays in seconds: an agent reads run queues, suspends, resumes or starts a trial, and reports; a gate
# connects; a pod is placed or deleted; a pod without a node is stuck
READ, ACT, REPORT, GATE, POD, STUCK = 0.6, 0.8, 0.4, 3.0, 1.0, 5.0
# An agent reads that a trial gets its GPU, the holder finishes its start, and is suspended; and all of it once more, if
# the trial loses its GPUs meanwhile.
SKEW = 2 * (READ + 2 * ACT) + 2 * TICK
STEPS = 6  # of one second
PHASES = {
    SlotState.GATED: TrialPhase.GATED,
    SlotState.STARTING: TrialPhase.RUNNING,
    SlotState.RUNNING: TrialPhase.RUNNING,
    SlotState.SUSPENDING: TrialPhase.SUSPENDING,
    SlotState.SUSPENDED: TrialPhase.SUSPENDED,
    SlotState.RESUMING: TrialPhase.RESUMING,
}
ARRIVES = {
    SlotState.STARTING: SlotState.RUNNING,
    SlotState.RESUMING: SlotState.RUNNING,
    SlotState.SUSPENDING: SlotState.SUSPENDED,
}


@dataclass
class Worker:
    """The pod of one worker."""

    uid: str
    rank: int
    created: float
    placed_at: float
    gate_at: float = 0.0
    node: str | None = None
    gpus: tuple[str, ...] = ()
    state: SlotState = SlotState.GATED
    state_at: float = 0.0  # when an act is over
    gone_at: float | None = None  # when its processes are gone, once it is deleted


@dataclass
class Trial:
    key: TrialKey
    job: JobView
    number: int
    attempt: int = -1
    phase: TrialPhase | None = None  # a final one, or Requeued
    steps: float = 0.0
    workers: list[Worker] = field(default_factory=list)
    half_since: float | None = None  # since when some of its workers have a GPU and others have none


@dataclass
class Agent:
    """The agent of a node; it reads and reports at random times. `reported`: state and gate by uid of a worker."""

    node: str
    queues: RunQueues = field(default_factory=RunQueues)
    settled: dict[str, int] = field(default_factory=dict)
    read_at: float = 0.0
    report_at: float = 0.0
    reported: dict[str, tuple[SlotState, bool]] = field(default_factory=dict)
    reported_settled: dict[str, int] = field(default_factory=dict)
    reported_epoch: int = 0


class Nodes:
    """Nodes with agents, a scheduler that places one pod at a time, and the operator."""

    def __init__(self, gpus: dict[str, list[str]], slots: int, jobs: list[JobView], random: Random) -> None:
        self.random, self.slots = random, slots
        self.node_of = {uuid: node for node, mine in gpus.items() for uuid in mine}
        self.agents = {node: Agent(node) for node in gpus}
        self.jobs = {job.key: job for job in jobs}
        self.trials: dict[TrialKey, Trial] = {}
        self.written: dict[str, WriteRunQueues] = {}
        self.holders: dict[str, tuple[TrialKey, float]] = {}
        self.now, self.decide_at = 0.0, 0.0
        self.switches, self.requeues, self.longest_half = 0, list[str](), 0.0
        self._uids = count()

    def soon(self, longest: float) -> float:
        return self.now + self.random.uniform(0.0, longest)

    def tick(self) -> None:
        self.now += TICK
        self._place()
        for agent in self.agents.values():
            self._act(agent)
        for trial in self.trials.values():
            self._train(trial)
        if self.now >= self.decide_at:
            self._decide()
            self.decide_at = self.soon(0.3)
        self._check()

    def over(self) -> bool:
        return all(job.state.finished for job in self.jobs.values())

    def on(self, uuid: str) -> Iterator[tuple[Trial, Worker]]:
        yield from ((t, w) for t in self.trials.values() for w in t.workers if uuid in w.gpus)

    # -- the cluster

    def _place(self) -> None:
        waiting = [
            (t, w) for t in self.trials.values() for w in t.workers if w.node is None and w.placed_at <= self.now
        ]
        self.random.shuffle(waiting)
        for trial, worker in waiting:
            if worker.gone_at is not None:
                continue
            taken, need = {one.node for one in trial.workers}, trial.job.gpus.per_worker
            for node in self.random.sample(sorted(self.agents), len(self.agents)):
                free = [u for u in self.node_of if self.node_of[u] == node and len(list(self.on(u))) < self.slots]
                if node not in taken and len(free) >= need:
                    worker.node, worker.gpus = node, tuple(sorted(self.random.sample(free, need)))
                    worker.gate_at = self.soon(GATE)
                    break

    def _train(self, trial: Trial) -> None:
        if trial.workers and all(w.state is SlotState.RUNNING and w.gone_at is None for w in trial.workers):
            trial.steps += TICK
            if trial.steps >= STEPS and len(trial.workers) == trial.job.gpus.workers:
                trial.phase = TrialPhase.SUCCEEDED
                self._delete(trial)
        trial.workers = [w for w in trial.workers if w.gone_at is None or w.gone_at > self.now]

    def _delete(self, trial: Trial) -> None:
        for worker in trial.workers:
            worker.gone_at = worker.gone_at or self.soon(POD)

    # -- the agents

    def _act(self, agent: Agent) -> None:
        mine = [(t, w) for t in self.trials.values() for w in t.workers if w.node == agent.node]
        for _, worker in mine:
            if worker.state in ARRIVES and worker.state_at <= self.now:
                worker.state = ARRIVES[worker.state]
        if self.now >= agent.read_at and agent.node in self.written:
            write = self.written[agent.node]
            entries = {
                uuid: tuple(QueueEntry(e.trial, e.reason, e.message, e.on_hold) for e in queue)
                for uuid, queue in write.gpus
            }
            agent.queues, agent.read_at = RunQueues(write.epoch, entries), self.soon(READ)
        actions = decide(agent.queues, [self._local(t, w) for t, w in mine], self.now)
        by_uid = {w.uid: w for _, w in mine}
        busy = {uuid for w in by_uid.values() if w.state in ARRIVES for uuid in w.gpus}
        for action in actions:
            worker = by_uid[action.trial.pod.uid]
            if not isinstance(action, Wait) or action.reason == "SwitchInProgress":
                busy.update(worker.gpus)
            if isinstance(action, Suspend):
                worker.state, worker.state_at = SlotState.SUSPENDING, self.soon(ACT)
            elif isinstance(action, Admit | Resume):
                starts = isinstance(action, Admit)
                worker.state = SlotState.STARTING if starts else SlotState.RESUMING
                worker.state_at = self.soon(ACT)
                self.switches += 1
        agent.settled |= {
            u: agent.queues.epoch for u, node in self.node_of.items() if node == agent.node and u not in busy
        }
        if self.now >= agent.report_at:
            agent.report_at = self.soon(REPORT)
            agent.reported = {w.uid: (w.state, w.gate_at <= self.now) for _, w in mine}
            agent.reported_settled, agent.reported_epoch = dict(agent.settled), agent.queues.epoch

    def _local(self, trial: Trial, worker: Worker) -> LocalTrial:
        connected = Gate.WAITING if worker.gate_at <= self.now else Gate.ABSENT
        return LocalTrial(
            trial.key,
            LocalPod(worker.uid, worker.uid, trial.attempt),
            worker.gpus,
            worker.state,
            0.0,
            gate=connected if worker.state is SlotState.GATED else Gate.PASSED,
            termination=Termination(deleting=worker.gone_at is not None),
        )

    # -- the operator

    def _decide(self) -> None:
        snapshot = self.snapshot()
        made = plan(snapshot)
        assert violations(snapshot, made) == ()
        for action in made.actions:
            if isinstance(action, CreateTrial):
                key = trial_key(f"{action.job.name}-{action.number}")
                self.trials[key] = Trial(key, self.jobs[action.job], action.number)
            elif isinstance(action, CreatePod):
                trial = self.trials[action.trial]
                trial.attempt, trial.phase = action.attempt, None
                ranks = range(trial.job.gpus.workers)
                trial.workers = [Worker(f"pod-{next(self._uids)}", r, self.now, self.soon(POD)) for r in ranks]
            elif isinstance(action, Requeue):
                self.requeues.append(action.reason)
                self.trials[action.trial].phase = TrialPhase.REQUEUED
                self._delete(self.trials[action.trial])
            elif isinstance(action, EndTrial):
                self.trials[action.trial].phase = action.phase
            elif isinstance(action, EndJob):
                job = self.jobs[action.job]
                self.jobs[action.job] = replace(job, state=replace(job.state, finished=True))
            elif isinstance(action, WriteRunQueues):
                self.written[action.node] = action

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now=self.now,
            jobs=tuple(self.jobs.values()),
            trials=tuple(map(self._view, self.trials.values())),
            gpus=tuple(map(self._gpu, self.node_of)),
            costs=Costs(0.05, 0.05),
            epochs={node: write.epoch for node, write in self.written.items()},
        )

    def _reported(self, worker: Worker) -> tuple[SlotState, bool] | None:
        return None if worker.node is None else self.agents[worker.node].reported.get(worker.uid)

    def _view(self, trial: Trial) -> TrialView:
        reports = [self._reported(worker) for worker in trial.workers]
        views = tuple(
            WorkerView(w.rank, w.uid, w.node, w.gpus if report else ())
            for w, report in zip(trial.workers, reports, strict=True)
        )
        placed = len(views) == trial.job.gpus.workers and all(view.gpus for view in views)
        phase = trial.phase or TrialPhase.PENDING
        if (
            placed
            and trial.phase is None
            and all(r is not None and (r[1] or r[0] is not SlotState.GATED) for r in reports)
        ):
            phase = PHASES[next(r[0] for r in reports if r is not None)]
        pod = None
        if trial.workers:
            pod = PodView(
                views[0].name,
                views[0].node,
                tuple(uuid for view in views for uuid in view.gpus) if placed else (),
                since=trial.workers[0].created,
                terminating=any(w.gone_at is not None for w in trial.workers),
                stuck=any(w.node is None and self.now - w.created > STUCK for w in trial.workers),
                workers=views if trial.job.gpus.workers > 1 else (),
            )
        if trial.phase is TrialPhase.REQUEUED and pod is not None:
            phase = TrialPhase.PENDING
        return TrialView(
            trial.key,
            trial.job.key,
            trial.number,
            TrialOrigin(0.0),
            phase,
            curve=make_curve([0.5] * int(trial.steps)),
            usage=TrialUsage(trial.steps * trial.job.gpus.per_trial),
            pod=None if trial.phase in FINAL else pod,
            ended_pod=pod if trial.phase in FINAL else None,
        )

    def _gpu(self, uuid: str) -> GpuView:
        node = self.node_of[uuid]
        agent = self.agents[node]
        here = [(t.key, agent.reported[w.uid][0]) for t, w in self.on(uuid) if w.uid in agent.reported]
        holder = next((key for key, state in here if state in OCCUPYING), None)
        if holder is None:
            self.holders.pop(uuid, None)
        elif uuid not in self.holders or self.holders[uuid][0] != holder:
            self.holders[uuid] = (holder, self.now)
        write = self.written.get(node)
        epoch, entries = (write.epoch, dict(write.gpus)[uuid]) if write else (0, ())
        return GpuView(
            node,
            uuid,
            "Healthy",
            self.slots,
            self.slots - len(here),
            holder=holder,
            holder_since=self.holders[uuid][1] if holder else None,
            trials=tuple(key for key, _ in here),
            run_queue=RunQueueView(
                tuple(e.trial for e in entries),
                in_effect=agent.reported_settled.get(uuid, 0) == epoch,
                no_preemption=agent.reported_epoch == epoch and not (write and uuid in write.preempting),
                on_hold=frozenset(e.trial for e in entries if e.on_hold),
            ),
        )

    # -- what must always hold

    def _check(self) -> None:
        for uuid in self.node_of:
            assert sum(w.state in OCCUPYING for _, w in self.on(uuid)) <= 1, f"two trials run on {uuid}"
        for trial in self.trials.values():
            occupying = [w.state in OCCUPYING for w in trial.workers if w.gone_at is None]
            half = any(occupying) and not all(occupying)
            trial.half_since = (trial.half_since or self.now) if half else None
            self.longest_half = max(self.longest_half, self.now - (trial.half_since or self.now))
            assert self.longest_half <= SKEW, f"{trial.key.name} runs with a part of its workers"


def nodes(seed: int) -> Nodes:
    """Two or three nodes with more trials of one, two or three workers than GPUs."""
    random = Random(seed)
    gpus = {f"n{n}": [f"n{n}-{g}" for g in range(random.choice([1, 1, 2]))] for n in range(random.randint(2, 3))}
    jobs = []
    for number in range(random.randint(2, 3)):
        workers = random.choice([1, 2, len(gpus)]) if number else 2
        each = random.randint(1, min(map(len, gpus.values())))
        jobs.append(
            make_job(
                f"job{number}",
                policy="round_robin",
                settings={"quantum": 1.0},
                created=float(number),
                max_trials=random.randint(4, 5),
                parallel=3,
                max_steps=float(STEPS),
                gpus_per_trial=workers * each,
                workers=workers,
            )
        )
    return Nodes(gpus, random.randint(3, 4), jobs, random)


@pytest.mark.parametrize("seed", range(14))  # more than 200 switches together
def test_trials_of_several_workers_all_end_after_many_switches(seed: int) -> None:
    """`Nodes` checks at each moment that no GPU has two trials, and that no trial runs in parts for long."""
    cluster = nodes(seed)
    while not cluster.over():
        cluster.tick()
        assert cluster.now < 400, {t.key.name: round(t.steps, 1) for t in cluster.trials.values()}
    assert all(trial.phase is TrialPhase.SUCCEEDED for trial in cluster.trials.values())
    assert set(cluster.requeues) <= {"WorkerStuck"}
    assert cluster.switches >= 15


def test_trials_that_hold_the_slots_of_each_other_release_them() -> None:
    """Each of two trials has a slot on one of two nodes, and there is no other slot."""
    jobs = [
        make_job(f"job{n}", policy="fifo", max_trials=1, gpus_per_trial=2, workers=2, max_steps=3.0) for n in (0, 1)
    ]
    cluster = Nodes({"n0": ["n0-0"], "n1": ["n1-0"]}, 1, jobs, Random(0))
    for number, (job, node) in enumerate(zip(jobs, cluster.agents, strict=True)):
        trial = Trial(trial_key(f"job{number}-0"), job, 0, attempt=0)
        trial.workers = [Worker(f"{node}-{rank}", rank, 0.0, 0.0) for rank in (0, 1)]
        trial.workers[0].node, trial.workers[0].gpus = node, (f"{node}-0",)
        cluster.trials[trial.key] = trial
    while not cluster.over():
        cluster.tick()
        assert cluster.now < 100
    assert set(cluster.requeues) == {"WorkerStuck"}
    assert {trial.phase for trial in cluster.trials.values()} == {TrialPhase.SUCCEEDED}
