"""Priorities of jobs: which of them hold the GPUs of a queue, get slots, and lose reclaimed slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from plans import RUN, P, of, sound, why

from podium_core.domain.actions import CreateTrial, Plan, Requeue, WriteRunQueues
from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.planner import decide
from podium_core.planning.slots.slot_reclaim import MIN_STAY_REQUEUES
from podium_core.testing.builders import change_gpu, change_job, make_gpu, make_job, make_snapshot, make_trial

A, B = QueueView("a"), QueueView("b")
LONG_AGO = 1000.0 - MIN_STAY_REQUEUES * 20.0


def trial(job: str, number: int, gpu: int, phase: P = P.GATED, **more: Any) -> TrialView:
    return make_trial(number, job=job, gpus=[f"gpu-{gpu}"], phase=phase, node="node-a", **more)


def gpus_of(trials: Sequence[TrialView], count: int, since: float = 900.0, slots: int = 4) -> list[GpuView]:
    """GPUs whose running trial is the holder, and first in the run queue."""
    made = []
    for number in range(count):
        mine = sorted((t for t in trials if f"gpu-{number}" in t.gpus), key=lambda t: t.phase is not RUN)
        keys = [t.key for t in mine]
        holder = keys[0] if mine and mine[0].phase is RUN else None
        since_when = since if holder else None
        made.append(
            make_gpu(f"gpu-{number}", slots=slots, holder=holder, holder_since=since_when, trials=keys, run_queue=keys)
        )
    return made


def snapshot_of(
    jobs: Sequence[JobView], trials: Sequence[TrialView], gpus: int = 2, queues: Sequence[QueueView] = (), **more: Any
) -> Snapshot:
    return make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, gpus, **more), queues=queues)


def two_jobs(low: int, high: int, since: float = 900.0, queue: str = "") -> Snapshot:
    """Two GPUs that job low holds, with a trial of job high on each."""
    trials = [trial("low", i, i, RUN) for i in range(2)] + [trial("high", i, i) for i in range(2)]
    jobs = [
        make_job("low", policy="fifo", priority=low, queue=queue),
        make_job("high", policy="fifo", priority=high, queue=queue),
    ]
    return snapshot_of(jobs, trials, queues=[A] if queue else [], since=since)


def order_of(snapshot: Snapshot) -> list[list[str]]:
    """Names of the trials in each run queue."""
    run_queues = {gpu.uuid: [key.name for key in gpu.run_queue.trials] for gpu in snapshot.gpus}
    for action in of(sound(snapshot), WriteRunQueues):
        assert isinstance(action, WriteRunQueues)
        run_queues |= {uuid: [entry.trial.name for entry in entries] for uuid, entries in action.gpus}
    return [run_queues[uuid] for uuid in sorted(run_queues)]


def holders(snapshot: Snapshot) -> list[str]:
    return [names[0] for names in order_of(snapshot)]


@pytest.mark.parametrize("queue", ["", "a"])
def test_a_job_of_higher_priority_takes_all_gpus_after_one_time_slice(queue: str) -> None:
    early, late = two_jobs(0, 1, since=990.0, queue=queue), two_jobs(0, 1, since=969.0, queue=queue)
    assert holders(early) == ["low-0", "low-1"]
    assert decide(early).plan.wake_at == 1020.0, "when the time slice of 30 s is over"
    assert holders(late) == ["high-0", "high-1"]
    made = sound(late)
    assert (why(made, "high-0"), why(made, "low-0")) == ("HigherPriority", "GPUPreempted")


@pytest.mark.parametrize("queue", ["", "a"])
def test_a_job_of_lower_priority_never_takes_a_gpu_back(queue: str) -> None:
    snapshot = two_jobs(-1, -2, queue=queue)
    assert holders(snapshot) == ["low-0", "low-1"]
    assert why(sound(snapshot), "high-0") == "PriorityTooLow"


def test_equal_priorities_share_as_before() -> None:
    assert order_of(two_jobs(5, 5)) == order_of(two_jobs(0, 0))


def test_a_pinned_trial_comes_before_a_higher_priority() -> None:
    snapshot = two_jobs(0, 1)
    pinned = [replace(t, intent=replace(t.intent, pinned=t.key.name == "low-0")) for t in snapshot.trials]
    assert holders(replace(snapshot, trials=tuple(pinned))) == ["low-0", "high-1"]


def test_a_priority_counts_in_its_own_queue_only() -> None:
    snapshot = two_jobs(0, 1000, queue="a")
    jobs = tuple(change_job(job, queue="b") if job.key.name == "high" else job for job in snapshot.jobs)
    with_priority = replace(snapshot, jobs=jobs, queues=(A, B))
    equal = replace(with_priority, jobs=tuple(change_job(job, priority=0) for job in jobs))
    assert order_of(with_priority) == order_of(equal)
    assert {why(sound(with_priority), trial.key.name) for trial in snapshot.trials}.isdisjoint(
        {"PriorityTooLow", "HigherPriority"}
    )
    assert sorted(name.split("-")[0] for name in holders(with_priority)) == ["high", "low"]


def test_waiting_trials_follow_by_priority_within_the_positions_of_their_queue() -> None:
    """Job other of queue b keeps its positions in the run queue; those of queue a change places."""
    trials = [trial("other", 0, 0, RUN), trial("low", 0, 0), trial("other", 1, 0), trial("high", 0, 0)]
    jobs = [
        make_job("other", policy="fifo", queue="b", created=1.0),
        make_job("low", policy="fifo", queue="a", created=2.0),
        make_job("high", policy="fifo", queue="a", created=3.0),
    ]
    snapshot = snapshot_of(jobs, trials, 1, [A, B], since=999.0)
    before = order_of(snapshot)[0]
    assert before.index("low-0") < before.index("high-0")
    ranked = [change_job(job, priority=7) if job.key.name == "high" else job for job in jobs]
    after = order_of(replace(snapshot, jobs=tuple(ranked)))[0]
    swap = {"low-0": "high-0", "high-0": "low-0"}
    assert after == [swap.get(name, name) for name in before]


def test_a_job_of_higher_priority_gets_a_slot_of_each_gpu_first() -> None:
    """Two GPUs with four slots: two for the first job, two for the second, the rest for the first again."""
    jobs = [
        make_job(name, policy="fifo", priority=priority, parallel=None, max_trials=40)
        for name, priority in (("low", 0), ("high", 1))
    ]
    assert new_trials(sound(snapshot_of(jobs, []))) == {"high": 6, "low": 2}
    scarce = snapshot_of(jobs, [], slots=1)
    assert new_trials(sound(scarce)) == {"high": 2}
    queued = [change_job(job, queue="a") for job in jobs]
    lonely = QueueView("default", weight=1e-9)
    assert new_trials(sound(snapshot_of(queued, [], queues=[A, lonely], slots=1))) == {"high": 2}


def new_trials(made: Plan) -> dict[str, int]:
    """Return the number of new trials of each job."""
    found: dict[str, int] = {}
    for action in of(made, CreateTrial):
        assert isinstance(action, CreateTrial)
        found[action.job.name] = found.get(action.job.name, 0) + 1
    return found


def crowded(since: float = LONG_AGO, *, product: str = "", high: dict[str, Any] | None = None, **low: Any) -> Snapshot:
    """One GPU with two slots, both of job low; job high has just been created."""
    trials = [
        trial("low", 0, 0, RUN, values=[0.1]),
        trial(
            "low", 1, 0, low.pop("phase", P.SUSPENDED), values=[0.1], pod_since=since, pinned=low.pop("pinned", False)
        ),
    ]
    wide = {"parallel": None, "max_trials": 40, "policy": "fifo"}
    jobs = [
        make_job("low", **{**wide, "checkpointable": True, **low}),
        make_job("high", **{**wide, "priority": 1, **(high or {})}),
    ]
    made = snapshot_of(jobs, trials, 1, slots=2)
    return replace(made, gpus=tuple(change_gpu(gpu, product=product) for gpu in made.gpus))


def requeued(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(a.trial.name, a.reason) for a in of(sound(snapshot), Requeue) if isinstance(a, Requeue)]


GIVES = [("low-1", "SlotReclaimed")]
CASES: list[tuple[str, Snapshot, list[tuple[str, str]]]] = [
    ("a suspended trial that checkpoints", crowded(), GIVES),
    ("one at its gate, which loses nothing", crowded(phase=P.GATED, checkpointable=False), GIVES),
    ("suspended, not for long", crowded(since=900.0), []),
    ("at its gate, not for long", crowded(since=990.0, phase=P.GATED), []),
    ("it would lose its work", crowded(checkpointable=False), []),
    ("it is pinned", crowded(pinned=True), []),
    ("it runs", crowded(phase=RUN), []),
    ("equal priorities", crowded(priority=1), []),
    ("the other job has the higher priority", crowded(priority=2), []),
    ("the job wants no trial", crowded(high={"suspended": True}), []),
    ("its trials need two GPUs", crowded(high={"gpus_per_trial": 2}), []),
    ("its trials do not fit the GPU", crowded(product="A", high={"products": ("B",)}), []),
]


@pytest.mark.parametrize(("snapshot", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_which_slot_a_job_of_higher_priority_gets(snapshot: Snapshot, expected: list[tuple[str, str]]) -> None:
    assert requeued(snapshot) == expected


def test_a_priority_takes_no_slot_from_another_queue() -> None:
    snapshot = crowded()
    same = tuple(change_job(job, queue="a") for job in snapshot.jobs)
    assert requeued(replace(snapshot, jobs=same, queues=(A,))) == GIVES
    other = (change_job(snapshot.jobs[0], queue="b"), same[1])
    has_its_share = (*snapshot.trials, trial("high", 0, 0, P.GATED))
    full = snapshot_of(other, has_its_share, 1, slots=3)
    assert requeued(replace(full, queues=(A, replace(B, weight=2.0)))) == []


def test_a_reclaimed_slot_is_not_reclaimed_twice() -> None:
    """The pod that ends already frees the slot that the job needs."""
    snapshot = crowded()
    ending = trial("low", 1, 0, P.SUSPENDED, values=[0.1], pod_since=LONG_AGO, terminating=True)
    third = trial("low", 2, 0, P.SUSPENDED, values=[0.1], pod_since=LONG_AGO)
    trials = [snapshot.trials[0], ending, third]
    assert requeued(snapshot_of(snapshot.jobs, trials, 1, slots=3)) == []
    assert requeued(snapshot_of(snapshot.jobs, [snapshot.trials[0], third], 1, slots=3)) == [], "a free slot goes first"


def test_a_slot_that_is_kept_for_now_is_reclaimed_later() -> None:
    assert decide(crowded(since=LONG_AGO + 5.0)).plan.wake_at == 1005.0
