"""Plans for trials of several workers: entries on hold, pods for nodes of their own, and slots that are released."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import RUN, P, created, of, orders, sound, why

from podium_core.domain.actions import Plan, Requeue, WriteRunQueues
from podium_core.domain.fitting import trials_that_fit
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.phase import TrialPhase
from podium_core.domain.pod_view import WorkerView
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import GpuNeeds, JobView, Snapshot, TrialView
from podium_core.planning.invariants import violations
from podium_core.testing.builders import (
    change_gpu,
    change_job,
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
)

WIDE = make_job("wide", gpus_per_trial=2, workers=2, max_trials=1, policy="fifo", created=0.0)
ONE = make_job("one", max_trials=1, policy="fifo", created=1.0)


def wide(number: int = 0, phase: TrialPhase = P.GATED, gpus: tuple[str, ...] = ("a0", "b0"), **more: Any) -> TrialView:
    """A trial with a worker on each of these GPUs, or with the first worker only."""
    placed = [WorkerView(rank, f"w{rank}", uuid[0], (uuid,)) for rank, uuid in enumerate(gpus)]
    workers = (*placed, WorkerView(1, "w1")) if len(placed) == 1 else tuple(placed)
    whole = gpus if len(placed) == 2 else ()
    return make_trial(number, job="wide", phase=phase, pod="w0", node="a", gpus=whole, workers=workers, **more)


def cluster(*trials: TrialView, jobs: tuple[JobView, ...] = (WIDE, ONE), **gpus: dict[str, Any]) -> Snapshot:
    """One GPU on each of two nodes."""
    made = []
    for uuid in ("a0", "b0"):
        here = [t.key for t in trials if t.pod is not None and uuid in t.pod.slots]
        made.append(make_gpu(uuid, node=uuid[0], trials=here, **gpus.get(uuid, {})))
    return make_snapshot(jobs=jobs, trials=trials, gpus=made)


def on_hold(made: Plan) -> dict[str, list[str]]:
    """uuid -> names of trials on hold."""
    writes = [a for a in of(made, WriteRunQueues) if isinstance(a, WriteRunQueues)]
    return {uuid: [e.trial.name for e in entries if e.on_hold] for write in writes for uuid, entries in write.gpus}


SINGLE = make_trial(0, job="one", gpus=["b0"], node="b", phase=RUN)
HELD = {"holder": SINGLE.key, "holder_since": 999.0, "run_queue": [SINGLE.key], "in_effect": True}


def test_a_trial_takes_the_free_gpus_of_all_of_its_nodes() -> None:
    made = sound(cluster(wide()))
    assert orders(made) == {"a0": ["wide-0"], "b0": ["wide-0"]}
    assert on_hold(made) == {"a0": [], "b0": []}


def test_a_trial_is_on_hold_on_a_free_gpu_while_another_of_its_gpus_is_held() -> None:
    made = sound(cluster(wide(), SINGLE, b0=HELD))
    assert orders(made) == {"a0": ["wide-0"], "b0": ["one-0", "wide-0"]}
    assert on_hold(made) == {"a0": ["wide-0"], "b0": ["wide-0"]}


def test_a_trial_that_loses_one_of_its_gpus_is_on_hold_on_all() -> None:
    running = wide(phase=RUN)
    mine = {"holder": running.key, "holder_since": 100.0, "run_queue": [running.key], "in_effect": True}
    pinned = change_trial(SINGLE, phase=P.GATED, pinned=True)
    made = sound(cluster(running, pinned, a0=mine, b0=mine))
    assert orders(made) == {"a0": ["wide-0"], "b0": ["one-0", "wide-0"]}
    assert on_hold(made) == {"a0": ["wide-0"], "b0": ["wide-0"]}, "the queue of a0 is written, too: only onHold changed"


def test_a_run_queue_is_written_when_only_on_hold_changes() -> None:
    before = {"run_queue": [wide().key], "on_hold": [wide().key]}
    made = sound(cluster(wide(), a0=before, b0=before))
    assert on_hold(made) == {"a0": [], "b0": []}
    after = {"run_queue": [wide().key]}
    assert of(sound(cluster(wide(), a0=after, b0=after)), WriteRunQueues) == []


def test_the_trial_behind_an_entry_on_hold_is_the_holder() -> None:
    """The agent has not admitted it yet, and both trials are at their gates."""
    waiting = change_trial(SINGLE, phase=P.GATED)
    held = {"run_queue": [wide().key, SINGLE.key], "on_hold": [wide().key]}
    made = sound(cluster(wide(), waiting, a0={**held, "run_queue": [wide().key]}, b0=held))
    assert orders(made)["b0"] == ["one-0", "wide-0"]
    assert why(made, "one-0") == "GPURetained"


@pytest.mark.parametrize(
    ("trial", "gpus", "reason"),
    [
        (wide(phase=P.PENDING), {}, "WorkersNotReady"),
        (wide(), {"b0": {"exclusive_pod": "prod/urgent"}}, "WorkersNotReady"),
        (wide(gpus=("a0", "c0")), {}, "WorkersNotReady"),
        (wide(phase=P.PENDING, gpus=("a0",)), {}, "NoGPUAssigned"),
    ],
    ids=["at its gate with one worker only", "an exclusive pod has a GPU", "a GPU is gone", "a worker without a slot"],
)
def test_no_worker_gets_a_gpu_while_another_cannot_run(trial: TrialView, gpus: dict[str, Any], reason: str) -> None:
    stale = {"run_queue": [trial.key]}
    made = sound(cluster(trial, **{"a0": stale, **gpus}))
    assert orders(made)["a0"] == []
    assert why(made, "wide-0") == reason


@pytest.mark.parametrize(
    ("first", "last", "next_holder"),
    [
        (80.0, 1.0, "wide-0"),
        (80.0, 60.0, "one-0"),
        (50.0, None, "wide-0"),
        (80.0, None, "one-0"),
    ],
    ids=["has just got its last GPU", "had both for long", "waits for its last GPU", "waits for it for long"],
)
def test_the_time_slice_of_a_trial_begins_with_its_last_gpu(first: float, last: float | None, next_holder: str) -> None:
    """The rival's job holds no GPU, so it gets one after a time slice of 30 s."""
    running = wide(phase=RUN)
    rival = make_trial(0, job="one", gpus=["a0"], node="a", phase=P.GATED)
    held: dict[str, Any] = {"holder": running.key, "run_queue": [running.key], "in_effect": True}
    a0, b0 = {**held, "holder_since": 1000.0 - first}, {**held, "holder_since": 1000.0 - (last or 0.0)}
    if last is None:
        b0 = {**held, "holder": None}
    assert orders(sound(cluster(running, rival, a0=a0, b0=b0)))["a0"][0] == next_holder


@pytest.mark.parametrize(
    ("needs", "nodes", "trials"),
    [
        (GpuNeeds(1), [[2, 1], [1]], 4),
        (GpuNeeds(2), [[2, 1], [1]], 1),
        (GpuNeeds(2, workers=2), [[2, 1], [1]], 1),
        (GpuNeeds(2, workers=2), [[4, 4]], 0),
        (GpuNeeds(2, workers=2), [[2], [1], [1]], 2),
        (GpuNeeds(4, workers=2), [[1, 1], [1], [1, 1]], 1),
        (GpuNeeds(3, workers=3), [[3], [3]], 0),
        (GpuNeeds(3, workers=3), [[3], [3], [2], [1]], 3),
        (GpuNeeds(2, workers=2), [], 0),
    ],
)
def test_each_worker_needs_a_node_of_its_own(needs: GpuNeeds, nodes: list[list[int]], trials: int) -> None:
    assert trials_that_fit(needs, nodes) == trials


def empty(*slots: int) -> list[GpuView]:
    return [make_gpu(f"g{node}", node=f"n{node}", slots=count) for node, count in enumerate(slots)]


@pytest.mark.parametrize(("slots", "pods"), [((4,), 0), ((4, 4), 4), ((4, 1), 1), ((2, 1, 1), 2)])
def test_at_most_as_many_trials_get_pods_as_find_nodes(slots: tuple[int, ...], pods: int) -> None:
    trials = [make_trial(number, job="wide") for number in range(6)]
    job = change_job(WIDE, max_trials=6, parallel=6)
    made = sound(make_snapshot(jobs=[job], trials=trials, gpus=empty(*slots)))
    assert len(created(made)) == pods
    text = next(rank.message for rank in made.ranks if rank.trial.name == "wide-5")
    assert f"No 2 nodes have free slots on 1 GPU each, of {len(slots)} GPUs that fit." in text


@pytest.mark.parametrize(
    ("gpus", "pods"),
    [((), [1, 2]), (("a0",), [0, 1]), (("a0", "b0"), [1, 2])],
    ids=["no worker has a slot yet", "one has", "both have"],
)
def test_the_slots_of_all_workers_count(gpus: tuple[str, ...], pods: list[int]) -> None:
    """With two slots on each node there is room for one trial more, with three for two.

    While a worker waits for its node, the slots of both nodes count as if it could take any of them.
    """
    first = wide(phase=P.GATED if len(gpus) == 2 else P.PENDING, gpus=gpus)
    if not gpus:
        first = change_trial(first, workers=(WorkerView(0, "w0"), WorkerView(1, "w1")), node=None)
    job = change_job(WIDE, max_trials=4, parallel=4)
    others = [make_trial(number, job="wide") for number in (1, 2)]
    snapshot = cluster(first, *others, jobs=(job,), a0={"slots": 2}, b0={"slots": 2})
    more = replace(snapshot, gpus=tuple(change_gpu(gpu, slots=3) for gpu in snapshot.gpus))
    assert [len(created(sound(one))) for one in (snapshot, more)] == pods


def stuck(gpus: tuple[str, ...] = ("a0",), job: JobView = WIDE, phase: TrialPhase = P.PENDING) -> Snapshot:
    trial = wide(phase=phase, gpus=gpus, stuck=True)
    if not gpus:
        trial = change_trial(trial, workers=(WorkerView(0, "w0"), WorkerView(1, "w1")), node=None)
    return cluster(trial, jobs=(job,))


@pytest.mark.parametrize(
    ("snapshot", "requeued"),
    [
        (stuck(), True),
        (stuck(phase=RUN, job=change_job(WIDE, checkpointable=True)), True),
        (stuck(phase=RUN), False),
        (stuck(()), False),
        (stuck(("a0", "b0")), False),
    ],
    ids=["one has a slot", "started, and checkpoints", "started", "none has a slot", "all have slots"],
)
def test_a_trial_releases_its_slots_when_a_worker_finds_none(snapshot: Snapshot, requeued: bool) -> None:
    found = [(a.trial.name, a.reason) for a in of(sound(snapshot), Requeue) if isinstance(a, Requeue)]
    assert found == ([("wide-0", "WorkerStuck")] if requeued else [])


def test_a_draining_node_requeues_a_trial_whose_last_worker_is_there() -> None:
    snapshot = cluster(wide(), b0={"draining": True})
    assert [(a.trial.name, a.reason) for a in of(sound(snapshot), Requeue) if isinstance(a, Requeue)] == [
        ("wide-0", "NodeDraining")
    ]


def test_a_trial_of_several_workers_keeps_its_slots() -> None:
    """Neither rebalancing nor a better trial of its job takes them: a trial of one pod moves in the same place."""
    gpus = [make_gpu(uuid, node=uuid[0], slots=4) for uuid in ("a0", "b0", "c0", "d0")]
    rules = RebalancingRules(min_stay=0.0)
    crowd = [wide(number, P.GATED, pod_since=0.0) for number in range(4)]
    job = change_job(WIDE, max_trials=4, parallel=4, checkpointable=True, checkpoint_scope="anywhere")
    assert not job.reclaims_slots
    snapshot = make_snapshot(jobs=[job], trials=crowd, gpus=gpus, rebalancing=rules)
    assert of(sound(snapshot), Requeue) == []
    single = change_job(job, workers=1, gpus_per_trial=1)
    alone = [change_trial(trial, gpus=["a0"], workers=()) for trial in crowd]
    moved = of(sound(replace(snapshot, jobs=(single,), trials=tuple(alone))), Requeue)
    assert [action.reason for action in moved] == ["Rebalancing"]


def test_the_invariants_see_a_trial_that_holds_a_part_of_its_gpus() -> None:
    snapshot = cluster(wide(), SINGLE, b0=HELD)
    made = sound(snapshot)

    def released(uuid: str) -> Plan:
        actions = []
        for action in made.actions:
            if isinstance(action, WriteRunQueues):
                gpus = [
                    (one, tuple(replace(e, on_hold=e.on_hold and one != uuid) for e in entries))
                    for one, entries in action.gpus
                ]
                action = replace(action, gpus=tuple(gpus))
            actions.append(action)
        return replace(made, actions=tuple(actions))

    assert "on hold on some of its GPUs only" in " ".join(violations(snapshot, released("a0")))
    both = replace(released("a0"), actions=tuple(a for a in released("a0").actions if not isinstance(a, Requeue)))
    assert violations(snapshot, both) != ()
