"""Which trial moves to a less crowded GPU: the rule as a table, and its invariants for any distribution of trials."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import RUN, SLOW, P, of, sound

from podium_core.domain.actions import Action, Migrate, Plan, Requeue
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.rebalancing import MIN_DIFFERENCE, REBALANCING, RebalancingRules
from podium_core.domain.snapshot import Costs, JobView, Snapshot
from podium_core.planning.planner import plan
from podium_core.planning.slots.rebalancing import rebalance
from podium_core.testing.builders import (
    change_gpu,
    change_trial,
    job_key,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
)
from podium_core.testing.toy_cluster import ToyCluster

RULES = RebalancingRules(min_stay=120.0)
SAVES: dict[str, Any] = {"checkpointable": True}
CARRIES: dict[str, Any] = {"migratable": True, "memory": 2**28, "moves_memory": True}
NODE_CARRIES = {"supports_migration": True, "product": "H100"}


def moves(made: Plan) -> list[tuple[str, str, str]]:
    """Return (trial, action, target) of each move."""
    actions = [a for a in (*of(made, Requeue), *of(made, Migrate)) if isinstance(a, Requeue | Migrate)]
    return [(a.trial.name, type(a).__name__, a.target or "") for a in actions if a.reason == REBALANCING]


def crowd(
    *,
    job: dict[str, Any] | None = None,
    mine: dict[str, Any] | None = None,
    other: dict[str, Any] | None = None,
    trial: dict[str, Any] | None = None,
    count: int = 3,
    there: int = 0,
    **about: Any,
) -> Snapshot:
    """`count` trials on gpu-0 of node-a, the first holds it, the others wait; `there` more on gpu-1 of node-b. All have
    done 3 of 1,000 steps of a second. `trial`: of those that wait."""
    shown: dict[str, Any] = {"values": SLOW, "gpu_seconds": 3.0}
    usual = {"node": "node-a", "gpus": ["gpu-0"], **shown}
    first = make_trial(0, phase=RUN, **usual)
    rest = [make_trial(i, **{"phase": P.SUSPENDED, **usual, **(trial or {})}) for i in range(1, count)]
    more = [make_trial(9 - i, phase=RUN, node="node-b", gpus=["gpu-1"], **shown) for i in range(there)]
    ours, theirs = [t.key for t in (first, *rest)], [t.key for t in more]
    gpus = [
        make_gpu(trials=ours, **{"holder": first.key, "holder_since": 999.0, "run_queue": ours, **(mine or {})}),
        make_gpu("gpu-1", trials=theirs, run_queue=theirs, **{"node": "node-b", **(other or {})}),
    ]
    wide = {"max_trials": count + there, "parallel": count + there, "policy": "fifo", "max_steps": 1000.0}
    made = make_job(**{**wide, **SAVES, **(job or {})})
    return make_snapshot(
        **{"jobs": [made], "trials": [first, *rest, *more], "gpus": gpus, "rebalancing": RULES, **about}
    )


def with_one_overdue(node: str) -> Snapshot:
    """A fourth trial, whose pod should have been gone for long from that node."""
    *others, last = crowd(count=4).trials
    gpus = last.gpus if node == "node-a" else ("gpu-9",)
    return replace(
        crowd(), trials=(*others, change_trial(last, terminating=True, termination_overdue=True, node=node, gpus=gpus))
    )


GOES = [("job-1", "Requeue", "node-b")]
ALIVE = [("job-1", "Migrate", "node-b")]
UNBEGUN = {"phase": P.GATED, "values": (), "gpu_seconds": 0.0}
BOUND: dict[str, Any] = {"checkpointable": True, "checkpoint_scope": "node"}
FIXED: dict[str, Any] = {"checkpointable": False}
LIVE: dict[str, Any] = {
    "job": {**FIXED, **CARRIES},
    "mine": {**NODE_CARRIES, "memory_total": 2**30},
    "other": NODE_CARRIES,
}

CASES: list[tuple[str, Snapshot, list[tuple[str, str, str]]]] = [
    ("three and none", crowd(), GOES),
    ("not configured", crowd(rebalancing=None), []),
    ("two and none", crowd(count=2), GOES),
    ("one and none", crowd(count=1), []),
    ("three and one", crowd(there=1), GOES),
    ("three and two", crowd(there=2), []),
    ("an unstarted trial has no work to save", crowd(trial=UNBEGUN, job=FIXED), GOES),
    ("cannot checkpoint", crowd(job=FIXED), []),
    ("checkpoints on its node", crowd(job=BOUND), []),
    (
        "checkpoints on its node, another GPU of it",
        crowd(job=BOUND, other={"node": "node-a"}),
        [("job-1", "Requeue", "node-a")],
    ),
    ("migrated", crowd(**LIVE), ALIVE),
    ("migrated, the other node does not", crowd(**{**LIVE, "other": {"product": "H100"}}), []),
    ("migrated, another product", crowd(**{**LIVE, "other": {**NODE_CARRIES, "product": "A100"}}), []),
    ("migrated, memory not declared", crowd(**{**LIVE, "job": {**FIXED, **CARRIES, "memory": None}}), []),
    ("migrated, soon over", crowd(**{**LIVE, "trial": {"gpu_seconds": 0.01}}), []),
    ("failed a moment ago", crowd(**LIVE, trial={"migration": MigrationPhase.FAILED}), []),
    ("near its end", crowd(job={"max_steps": 90.0}), []),
    ("just far enough from it", crowd(job={"max_steps": 104.0}), GOES),
    ("moves were measured to be dear", crowd(costs=Costs(requeue=300.0)), []),
    ("no trial can say how long it takes", crowd(job={"max_steps": None}), []),
    ("came a moment ago", crowd(trial={"pod_since": 881.0}), []),
    ("came long enough ago", crowd(trial={"pod_since": 880.0}), GOES),
    ("was moved before: stays twice as long", crowd(trial={"pod_since": 880.0, "rebalance_count": 1}), []),
    ("the other node drains", crowd(other={"draining": True}), []),
    ("its own node drains", crowd(mine={"draining": True}, job=FIXED), []),
    ("the other GPU is unhealthy", crowd(other={"health": "Unhealthy"}), []),
    ("the other node's agent is away", crowd(other={"health": "Unknown"}), []),
    ("its own agent is away", crowd(mine={"health": "Unknown"}), []),
    ("the other GPU is an exclusive pod's", crowd(other={"exclusive_pod": "prod/urgent"}), []),
    ("no slot is free there", crowd(other={"slots": 0}), []),
    ("another product is wanted", crowd(job={"products": ("H100",)}, other={"product": "A100"}), []),
    ("reserved to others", crowd(other={"reserved_for": "prod"}), []),
    ("no longer reserved", crowd(other={"reserved_for": ""}), []),
    ("no memory there", crowd(job={"memory": 60}, other={"memory_total": 100, "memory_reserved": 50}), []),
    ("memory there", crowd(job={"memory": 50}, other={"memory_total": 100, "memory_reserved": 50}), GOES),
    (
        "fits beside what is moved off",
        crowd(
            job={"memory": 60, "moves_memory": True},
            other={"memory_total": 100, "memory_reserved": 50, "memory_movable": 50},
        ),
        GOES,
    ),
    ("the node was found to have no room", crowd(full_nodes=[(job_key(), "node-b")]), []),
    ("it had none for another job", crowd(full_nodes=[(job_key("other"), "node-b")]), GOES),
    ("the user suspends those that wait", crowd(trial={"suspend": True}), []),
    ("the job is suspended", crowd(job={"suspended": True}), []),
    ("one of the job starts", crowd(trial={"phase": P.PENDING}), []),
    ("one of the job is moved", crowd(trial={"destination": "node-b"}), []),
    ("one of the job leaves", crowd(trial={"terminating": True}), []),
    ("one of the job left a third node long ago, whose kubelet does not end it", with_one_overdue("node-c"), GOES),
    ("it left this node", with_one_overdue("node-a"), []),
    ("it left the other node", with_one_overdue("node-b"), []),
]


@pytest.mark.parametrize(("snapshot", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_which_trial_moves_where(snapshot: Snapshot, expected: list[tuple[str, str, str]]) -> None:
    assert moves(sound(snapshot)) == expected


def test_the_message_gives_the_numbers_that_decided() -> None:
    (action,) = of(sound(crowd()), Requeue)
    assert isinstance(action, Requeue)
    assert action.message == (
        "Its GPU on node-a has 3 trials, the one on node-b 0; it checkpoints and continues there: about 997 s of "
        "training are "
        "left, the move costs 20 s."
    )


def test_the_plan_is_repeated_when_a_trial_has_remained_long_enough() -> None:
    assert sound(crowd(trial={"pod_since": 990.0})).wake_at == 1110.0


def test_unstarted_trials_move_first_and_then_the_best_waiting_one() -> None:
    snapshot = crowd(count=4)
    ranked = replace(snapshot, jobs=(replace(snapshot.jobs[0], policy="best_so_far"),))
    third = ranked.trials[3]
    better = replace(third, curve=tuple(replace(p, value=p.value + 1) for p in third.curve))
    best = replace(ranked, trials=(*ranked.trials[:3], better))
    assert moves(sound(best)) == [("job-3", "Requeue", "node-b")]
    its_turn = replace(best, gpus=(replace(best.gpus[0], holder_since=0.0), best.gpus[1]))
    assert moves(sound(its_turn)) == [("job-1", "Requeue", "node-b")], "it gets the GPU where it is"
    unbegun = change_trial(third, phase=P.GATED, curve=(), gpu_seconds=0.0)
    assert moves(sound(replace(snapshot, trials=(*snapshot.trials[:3], unbegun)))) == [("job-3", "Requeue", "node-b")]


def test_a_trial_suspended_by_its_user_does_not_move() -> None:
    snapshot = crowd(count=4)
    first, second, *rest = snapshot.trials
    kept = replace(snapshot, trials=(first, change_trial(second, suspend=True), *rest))
    assert moves(sound(kept)) == [("job-2", "Requeue", "node-b")]


@pytest.mark.parametrize("by_job", [False, True])
def test_no_trial_waits_for_one_that_was_suspended_on_its_way(by_job: bool) -> None:
    snapshot = crowd()
    on_its_way = make_trial(9, job="other" if by_job else "job", phase=P.REQUEUED, pod=None, destination="node-b")
    other = make_job("other", max_trials=1, suspended=True)
    there = replace(snapshot, jobs=(*snapshot.jobs, other), trials=(*snapshot.trials, on_its_way))
    kept = replace(there, trials=(*snapshot.trials, change_trial(on_its_way, suspend=True)))
    assert moves(plan(kept)) == GOES
    assert moves(plan(there)) == (GOES if by_job else [])


def test_no_trial_moves_to_a_node_with_an_overdue_pod() -> None:
    snapshot, other = crowd(), make_job("other", max_trials=1)
    in_backoff = make_trial(0, job="other", phase=P.REQUEUED, pod=None, node="node-b", retry_at=2000.0)
    there = replace(snapshot, jobs=(*snapshot.jobs, other), trials=(*snapshot.trials, in_backoff))
    assert moves(plan(there)) == GOES


def test_several_gpus_change_together_and_each_must_be_less_crowded() -> None:
    names = ["a0", "a1"]
    trials = [make_trial(i, phase=P.GATED, node="node-a", gpus=names) for i in range(3)]
    keys = [t.key for t in trials]
    here = [make_gpu(u, trials=keys, holder=keys[0], holder_since=0.0, run_queue=keys) for u in names]
    there = [make_gpu(u, node="node-b") for u in ("b0", "b1")]
    job = make_job(gpus_per_trial=2, max_trials=3, policy="fifo")
    made = make_snapshot(jobs=[job], trials=trials, gpus=[*here, *there], rebalancing=RULES)
    assert moves(sound(made)) == GOES
    single = make_job("one", max_trials=2, policy="fifo")
    more = [make_trial(i, job="one", phase=RUN, node="node-b", gpus=["b1"]) for i in range(2)]
    full = make_gpu("b1", node="node-b", trials=[t.key for t in more])
    crowded = replace(made, jobs=(job, single), trials=(*trials, *more), gpus=(*here, there[0], full))
    assert moves(sound(crowded)) == []


def test_two_jobs_do_not_move_to_one_node_at_once() -> None:
    first, second = crowd(), crowd()
    other = make_job("other", **{**SAVES, "max_trials": 3, "parallel": 3, "policy": "fifo", "max_steps": 1000.0})
    names = {t.key: make_trial(t.number, job="other").key for t in second.trials}
    theirs = [
        change_trial(t, key=names[t.key], job=job_key("other"), gpus=("gpu-2",), node="node-c") for t in second.trials
    ]
    gpu = make_gpu("gpu-2", node="node-c", trials=[t.key for t in theirs], holder=theirs[0].key, holder_since=999.0)
    both = replace(first, jobs=(*first.jobs, other), trials=(*first.trials, *theirs), gpus=(*first.gpus, gpu))
    assert moves(sound(both)) == GOES
    free = make_gpu("gpu-3", node="node-d")
    assert moves(sound(replace(both, gpus=(*both.gpus, free)))) == [*GOES, ("other-1", "Requeue", "node-d")]


@pytest.mark.parametrize("what", [{"terminating": True}, {"node": None, "gpus": (), "phase": P.PENDING}])
def test_no_trial_moves_while_another_is_on_its_way_to_an_unknown_gpu(what: dict[str, Any]) -> None:
    snapshot = crowd()
    stranger = change_trial(make_trial(0, job="other", gpus=["gpu-9"], phase=RUN), **what)
    there = replace(
        snapshot, jobs=(*snapshot.jobs, make_job("other", max_trials=1)), trials=(*snapshot.trials, stranger)
    )
    assert moves(plan(there)) == []
    stays = replace(there, trials=(*snapshot.trials, change_trial(stranger, termination_overdue=True)))
    assert moves(plan(stays)) == (GOES if stranger.terminating else []), "the plan does not wait for a dead kubelet"
    settled = change_trial(stranger, terminating=False, node="node-z", gpus=("gpu-9",), phase=RUN)
    assert moves(plan(replace(there, trials=(*snapshot.trials, settled)))) == GOES


# whatever lies where


@st.composite
def places(draw: st.DrawFn) -> tuple[list[GpuView], dict[int, tuple[JobView, list[list[str]]]]]:
    """GPUs of up to four nodes, and of each of two jobs (of one and of two GPUs a trial) where its trials are."""
    gpus = [make_gpu(f"{node}{i}", node=node, slots=8) for node in "abcd"[: draw(st.integers(1, 4))] for i in range(2)]
    jobs = {}
    for width in (1, 2):
        mine: list[list[str]] = []
        for _ in range(draw(st.integers(0, 5 if width == 1 else 3))):
            node = draw(st.sampled_from(sorted({gpu.node for gpu in gpus})))
            mine.append([f"{node}0", f"{node}1"][:width] if draw(st.booleans()) else [f"{node}1", f"{node}0"][:width])
        job = make_job(f"w{width}", gpus_per_trial=width, max_trials=max(1, len(mine)), parallel=8, policy="fifo")
        jobs[width] = (job, mine)
    return gpus, jobs


def lying(gpus: list[GpuView], jobs: dict[int, tuple[JobView, list[list[str]]]]) -> Snapshot:
    trials = [
        make_trial(number, job=job.key.name, phase=P.GATED, node=mine[0][0], gpus=sorted(mine))
        for job, all_of_it in jobs.values()
        for number, mine in enumerate(all_of_it)
    ]
    return settled(make_snapshot(jobs=[job for job, _ in jobs.values()], trials=trials, gpus=gpus, rebalancing=RULES))


def settled(snapshot: Snapshot) -> Snapshot:
    """The agents report the present trials."""
    here = {g.uuid: [t.key for t in snapshot.trials if g.uuid in t.gpus] for g in snapshot.gpus}
    return replace(
        snapshot,
        gpus=tuple(
            replace(g, trials=tuple(here[g.uuid]), free_slots=g.slots - len(here[g.uuid])) for g in snapshot.gpus
        ),
    )


def loads(snapshot: Snapshot) -> Counter[str]:
    return Counter({g.uuid: 0 for g in snapshot.gpus}) + Counter(u for t in snapshot.trials for u in t.gpus)


def moved(snapshot: Snapshot, actions: list[Action]) -> Snapshot:
    """Each has gone where it was to go, onto the emptiest GPUs there, as the device plugin gives them."""
    trials = {t.key: t for t in snapshot.trials}
    for action in actions:
        assert isinstance(action, Requeue)
        old = trials.pop(action.trial)
        load = Counter(u for t in trials.values() for u in t.gpus)
        there = sorted((load[g.uuid], g.uuid) for g in snapshot.gpus if g.node == action.target)
        chosen = tuple(sorted(uuid for _, uuid in there[: len(old.gpus)]))
        trials[old.key] = change_trial(old, node=action.target, gpus=chosen)
    return settled(replace(snapshot, trials=tuple(trials.values())))


@given(places())
@settings(max_examples=120, deadline=None)
def test_rebalancing_ends_and_never_increases_the_imbalance(
    made: tuple[list[GpuView], dict[int, tuple[JobView, list[list[str]]]]],
) -> None:
    snapshot = lying(*made)
    homes: dict[TrialKey, set[tuple[str, ...]]] = {t.key: {t.gpus} for t in snapshot.trials}
    # each move takes two a GPU or more from the sum of squares
    for _ in range(sum(n * n for n in loads(snapshot).values()) // 2 + 1):
        actions = [a for a in sound(snapshot).actions if isinstance(a, Requeue | Migrate)]
        if not actions:
            break
        assert max(Counter(a.trial.name.partition("-")[0] for a in actions).values()) == 1, "one of a job at a time"
        after = moved(snapshot, list(actions))
        before, now = loads(snapshot), loads(after)
        assert sum(n * n for n in now.values()) <= sum(n * n for n in before.values()) - 2 * len(actions)
        assert max(now.values()) <= max(before.values())
        assert min(now[g.uuid] for g in snapshot.gpus) >= min(before[g.uuid] for g in snapshot.gpus)
        for action in actions:
            where = next(t.gpus for t in after.trials if t.key == action.trial)
            assert where not in homes[action.trial], "it has been there before"
        homes = {t.key: homes[t.key] | {t.gpus} for t in after.trials}
        snapshot = after
    else:
        pytest.fail("it does not end")
    if not made[1][2][1]:  # else the only one that could go may be the holder
        left = [loads(snapshot)[gpu.uuid] for gpu in snapshot.gpus]
        assert max(left) - min(left) < MIN_DIFFERENCE


def test_without_rebalancing_nothing_moves_and_with_it_a_search_ends_sooner() -> None:
    """A node comes late: with rebalancing its GPU is used before the trials of the other one have ended."""

    def run(rules: RebalancingRules | None) -> tuple[float, int]:
        random = Random(5)
        job = make_job(
            max_trials=4,
            parallel=4,
            max_steps=60.0,
            checkpointable=True,
            policy="round_robin",
            settings={"quantum": 1.0},
        )
        late = make_gpu("g1", node="b", slots=4, draining=True)
        world = ToyCluster(
            jobs={job.key: job},
            gpus={"g0": make_gpu("g0", node="a", slots=4), "g1": late},
            value=lambda number, step: step * (1.0 + number) + random.random(),
            steps=60,
            costs=Costs(0.05, 0.05, 1.0),
            rebalancing=rules,
        )
        for tick in range(2000):
            if tick == 20:
                world.gpus["g1"] = change_gpu(world.gpus["g1"], draining=False)
            world.decide()
            world.tick(1.0)
            if world.all_over():
                break
        assert world.all_over()
        assert world.broken == []
        return world.now, sum(reason == REBALANCING for _, _, reason in world.requeues)

    alone, none = run(None)
    levelled, count = run(RebalancingRules(min_stay=5.0))
    assert (none, count) == (0, 2)
    assert levelled < 0.75 * alone, "two GPUs work instead of one"


def test_disabled_rebalancing_reads_nothing() -> None:
    assert rebalance(crowd(rebalancing=None), {}, (), ()).actions == ()
