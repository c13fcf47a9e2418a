"""Properties for any snapshot and any event: the plan is sound, at most one trial holds a GPU, and everything ends."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium_core.domain.actions import CreatePod, WriteRunQueues
from podium_core.domain.gpu_queue import QueueUsage, QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.pod_view import WorkerView
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.planning.invariants import violations
from podium_core.planning.planner import plan
from podium_core.policies.registry import NAMES
from podium_core.testing.builders import (
    change_gpu,
    change_job,
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
    trial_key,
)
from podium_core.testing.toy_cluster import ToyCluster

GPUS = [("g0", "a"), ("g1", "a"), ("g2", "b"), ("g3", "b")]
VALUES = st.one_of(st.floats(0, 1), st.sampled_from([math.nan, math.inf, 1e308]))
JOBS = ["a", "b", "c"]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Anything that types allow, also what should not happen: stale holders, orders of ghosts, pods over the slots."""
    jobs: list[JobView] = []
    trials: list[TrialView] = []
    for name in JOBS[: draw(st.integers(0, 3))]:
        width = draw(st.sampled_from([0, 1, 1, 2, 2]))
        workers = draw(st.sampled_from([1, 2])) if width == 2 else 1
        jobs.append(
            make_job(
                name,
                policy=draw(st.sampled_from([*NAMES, "nonsense"])),
                created=draw(st.floats(0, 10)),
                maximize=draw(st.booleans()),
                target=draw(st.sampled_from([None, None, 0.5])),
                max_trials=draw(st.integers(1, 8)),
                parallel=draw(st.sampled_from([None, 1, 4])),
                learns=draw(st.booleans()),
                max_failed=draw(st.integers(0, 3)),
                gpus_per_trial=width,
                workers=workers,
                products=draw(st.sampled_from([(), (), ("A100",), ("H100",), ("A100", "L4")])),
                accepted=draw(st.booleans()),
                suspended=draw(st.sampled_from([False, False, True])),
                finished=draw(st.sampled_from([False, False, False, True])),
                deadline=draw(st.sampled_from([None, None, 999.0, 1001.0])),
                suspendable=draw(st.sampled_from([True, True, False])),
                checkpointable=draw(st.booleans()),
                checkpoint_scope=draw(st.sampled_from(["nowhere", "node", "anywhere"])),
            )
        )
        for number in range(draw(st.integers(0, 6))):
            node = draw(st.sampled_from(["a", "b"]))
            mine = [uuid for uuid, where in GPUS if where == node]
            gpus = draw(st.sampled_from([[], mine[:width], mine[-width:] if width else []]))
            views: tuple[WorkerView, ...] = ()
            if workers > 1:
                node, gpus = "a", draw(st.sampled_from([[], ["g0", "g2"], ["g1", "g2"]]))
                views = (WorkerView(0, "w0", "a", (draw(st.sampled_from(["g0", "g1"])),)), WorkerView(1, "w1"))
                if gpus:
                    views = (WorkerView(0, "w0", "a", tuple(gpus[:1])), WorkerView(1, "w1", "b", tuple(gpus[1:])))
            trials.append(
                make_trial(
                    number,
                    job=name,
                    phase=draw(st.sampled_from(TrialPhase)),
                    values=draw(st.lists(VALUES, max_size=4)),
                    gpus=gpus,
                    workers=views,
                    pod=draw(st.sampled_from(["auto", "auto", None])),
                    gpu_seconds=draw(st.floats(0, 100)),
                    retry_at=draw(st.sampled_from([0.0, 1001.0])),
                    suspend=draw(st.sampled_from([False, False, True])),
                    pinned=draw(st.sampled_from([False, False, True])),
                    stopped=draw(st.sampled_from([False, False, False, True])),
                    stuck=draw(st.sampled_from([False, False, True])),
                    node=node if gpus else None,
                    terminating=draw(st.sampled_from([False, False, False, True])),
                    pod_since=draw(st.floats(900, 1000)),
                    checkpoint_step=draw(st.sampled_from([None, 3.0])),
                )
            )
    keys = [*(t.key for t in trials), trial_key("ghost-0")]
    gpus: list[GpuView] = []
    for uuid, node in GPUS[: draw(st.integers(0, 4))]:
        holder = draw(st.sampled_from([None, *keys]))
        gpus.append(
            make_gpu(
                uuid,
                node=node,
                product=draw(st.sampled_from(["A100", "H100", "L4"])),
                slots=draw(st.integers(0, 4)),
                health=draw(st.sampled_from(["Healthy", "Healthy", "Unknown", "Unhealthy"])),
                holder=holder,
                holder_since=None if holder is None else draw(st.floats(900, 1000)),
                run_queue=draw(st.lists(st.sampled_from(keys), unique=True, max_size=5)),
                on_hold=draw(st.lists(st.sampled_from(keys), max_size=2)),
                in_effect=draw(st.booleans()),
                no_preemption=draw(st.booleans()),
                draining=draw(st.sampled_from([False, False, False, True])),
            )
        )
    costs = draw(st.sampled_from([Costs(), Costs(0.0, 0.0), Costs(30.0, 30.0)]))
    rules = draw(st.sampled_from([None, RebalancingRules(min_stay=1.0)]))
    return make_snapshot(jobs=jobs, trials=trials, gpus=gpus, costs=costs, epochs={"a": 3}, rebalancing=rules)


def test_more_pods_than_slots_on_one_gpu_leave_the_slots_of_another_free() -> None:
    old = [make_trial(number, job="a", phase=TrialPhase.GATED, gpus=["g0"], node="a") for number in range(3)]
    new = make_trial(3, job="a", phase=TrialPhase.PENDING, pod=None)
    snapshot = make_snapshot(
        jobs=[make_job("a", max_trials=4)],
        trials=[*old, new],
        gpus=[make_gpu("g0", node="a", slots=0), make_gpu("g1", node="a", slots=1)],
    )
    made = plan(snapshot)
    assert [action.trial for action in made.actions if isinstance(action, CreatePod)] == [new.key]
    assert violations(snapshot, made) == ()
    second = replace(made, actions=(*made.actions, CreatePod(old[0].key, 1, "SlotAvailable", "")))
    assert "2 requested, 1 that fit are free" in " ".join(violations(snapshot, second))


def carried_out(snapshot: Snapshot) -> Snapshot:
    """The snapshot after its orders were written, with nothing else changed."""
    gpus, epochs = {g.uuid: g for g in snapshot.gpus}, dict(snapshot.epochs)
    for action in plan(snapshot).actions:
        if isinstance(action, WriteRunQueues):
            epochs[action.node] = action.epoch
            for uuid, places in action.gpus:
                order = tuple(p.trial for p in places)
                preempts = uuid in action.preempting
                gpus[uuid] = change_gpu(gpus[uuid], run_queue=order, in_effect=False, no_preemption=not preempts)
                gpus[uuid] = change_gpu(gpus[uuid], on_hold=[p.trial for p in places if p.on_hold])
    return replace(snapshot, gpus=tuple(gpus.values()), epochs=epochs)


@given(snapshots())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_plan_is_sound(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    assert violations(snapshot, made) == ()
    assert repr(plan(snapshot)) == repr(made)
    turned = replace(
        snapshot,
        jobs=tuple(reversed(snapshot.jobs)),
        trials=tuple(reversed(snapshot.trials)),
        gpus=tuple(reversed(snapshot.gpus)),
    )
    assert repr(plan(turned)) == repr(made), "the order of watch caches must not matter"


@st.composite
def queued(draw: st.DrawFn) -> Snapshot:
    """Any snapshot, whose jobs have priorities in queues with any quotas, or name a missing one."""
    snapshot = draw(snapshots())
    jobs = [
        change_job(
            job, queue=draw(st.sampled_from(["", "q1", "q2", "missing"])), priority=draw(st.sampled_from([0, 0, 1, -1]))
        )
        for job in snapshot.jobs
    ]
    queues = [
        QueueView(
            name,
            weight=draw(st.floats(0.1, 9)),
            gpus=draw(st.sampled_from([None, 0, 1, 2])),
            borrowing=draw(st.sampled_from([None, 0, 1])),
            namespaces=draw(st.sampled_from([None, frozenset({"lab"}), frozenset[str]()])),
            usage=QueueUsage(draw(st.floats(0, 900)), draw(st.floats(0, 900))),
        )
        for name in ("q1", "q2")
    ]
    return replace(snapshot, jobs=tuple(jobs), queues=tuple(queues))


@given(queued())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_plan_with_queues_is_sound(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    assert violations(snapshot, made) == ()
    assert repr(plan(snapshot)) == repr(made)
    turned = replace(snapshot, jobs=tuple(reversed(snapshot.jobs)), queues=tuple(reversed(snapshot.queues)))
    assert repr(plan(turned)) == repr(made), "the order of the input does not matter"
    unqueued = replace(snapshot, queues=())
    assert violations(unqueued, plan(unqueued)) == ()


@given(snapshots())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_unchanged_run_queue_is_not_written_again(snapshot: Snapshot) -> None:
    again = [a for a in plan(carried_out(snapshot)).actions if isinstance(a, WriteRunQueues)]
    assert again == []


def build(
    policy: str, seed: int, *, jobs: int = 1, width: int = 1, steps: int = 6, freezes: bool = True
) -> tuple[ToyCluster, Random]:
    random = Random(seed)
    slopes = [random.random() for _ in range(64)]
    options = {"quantum": 1.0} if policy == "round_robin" else {}
    made = [
        make_job(
            JOBS[i],
            policy=policy,
            settings=options,
            created=float(i),
            max_trials=random.randint(1, 9),
            parallel=random.choice([None, 2, 6]),
            learns=random.random() < 0.5,
            max_steps=float(steps),
            gpus_per_trial=width,
            workers=random.choice([1, width]),
            suspendable=freezes,
            checkpointable=not freezes,
        )
        for i in range(jobs)
    ]
    shares = random.randint(1, 4)
    cluster = ToyCluster(
        {job.key: job for job in made},
        {uuid: make_gpu(uuid, node=node, slots=shares) for uuid, node in GPUS},
        lambda number, step: 1.0 - 1.0 / (1.0 + step * slopes[number]),
        steps=steps,
    )
    return cluster, random


def one_holder_each(cluster: ToyCluster) -> None:
    for trial in cluster.trials.values():
        held = [uuid for uuid, gpu in cluster.gpus.items() if gpu.holder == trial.key]
        over = trial.phase in FINAL  # its GPUs are handed on at the next tick
        assert over or not held or sorted(held) == sorted(trial.gpus), "a trial holds all of its GPUs or none"


@pytest.mark.parametrize("policy", NAMES)
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 3), width=st.sampled_from([1, 1, 2]), freezes=st.booleans())
@settings(max_examples=12, deadline=None)
def test_everything_ends_whatever_happens(policy: str, seed: int, jobs: int, width: int, freezes: bool) -> None:
    cluster, random = build(policy, seed, jobs=jobs, width=width, freezes=freezes)
    for _ in range(4000):
        if cluster.all_over():
            break
        if random.random() > 0.2:  # now and then the operator is away
            cluster.decide()
        assert cluster.broken == []
        cluster.tick(random.choice([0.1, 0.5, 2.0]))
        one_holder_each(cluster)
        if cluster.trials and cluster.now < 60:
            meddle(cluster, random)
        elif cluster.now >= 60:
            for key, trial in cluster.trials.items():
                cluster.trials[key] = change_trial(trial, suspend=False)
            for name, job in cluster.jobs.items():
                cluster.jobs[name] = change_job(job, suspended=False)
    assert cluster.all_over(), f"not over after {cluster.now:.0f} s"
    for job in cluster.jobs.values():
        mine = [t for t in cluster.trials.values() if t.job == job.key]
        assert len(mine) == job.limits.max_trials
        assert all(t.phase in FINAL and t.pod is None for t in mine)
        assert all([p.step for p in t.curve] == list(range(1, len(t.curve) + 1)) for t in mine), "no step lost or twice"


def meddle(cluster: ToyCluster, random: Random) -> None:
    """Users and the cluster do what they do."""
    key = random.choice(sorted(cluster.trials))
    trial = cluster.trials[key]
    dice = random.random()
    if dice < 0.04:
        cluster.disrupt(key)
    elif dice < 0.08:
        cluster.trials[key] = change_trial(trial, suspend=not trial.intent.suspend)
    elif dice < 0.12:
        cluster.trials[key] = change_trial(trial, pinned=not trial.intent.pinned)
    elif dice < 0.13:
        cluster.trials[key] = change_trial(trial, stopped=True)
    elif dice < 0.15:
        job = cluster.jobs[trial.job]
        cluster.jobs[trial.job] = change_job(job, suspended=not job.state.suspended)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_fifo_starts_and_ends_in_order_on_one_gpu(seed: int) -> None:
    cluster, _ = build("fifo", seed)
    cluster.gpus = {"g0": cluster.gpus["g0"]}
    while not cluster.all_over():
        cluster.decide()
        cluster.tick(0.5)
    assert cluster.switches == 0
    assert cluster.finished == [f"a-{i}" for i in range(len(cluster.finished))]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_round_robin_starves_no_trial(seed: int) -> None:
    """A new trial on a GPU has had a time slice before any other trial there could have had two."""
    cluster, _ = build("round_robin", seed, steps=12)
    since: dict[TrialKey, float] = {}
    for _ in range(2000):
        if cluster.all_over():
            break
        cluster.decide()
        cluster.tick(0.25)
        for uuid in cluster.gpus:
            here = [t for t in cluster.trials.values() if uuid in t.gpus and t.phase not in FINAL]
            for trial in here:
                waited = cluster.now - since.setdefault(trial.key, cluster.now)
                assert trial.usage.gpu_seconds > 0.0 or waited <= 3.0 * len(here), f"{trial.key.name} waits for ever"
    assert cluster.all_over()


def test_hermes_finishes_the_best_trial_before_fifo_does() -> None:
    """Twelve trials, two GPUs, the best one is the last of the first eight: the case that the project is for."""
    times = {}
    for policy in ("fifo", "hermes"):
        job = make_job(policy=policy, max_trials=12, parallel=8, max_steps=30)
        gpus = {uuid: make_gpu(uuid, node=node) for uuid, node in (("g0", "a"), ("g1", "b"))}
        slopes = [0.2, 0.3, 0.1, 0.4, 0.3, 0.2, 0.5, 2.0, 0.2, 0.1, 0.3, 0.4]
        cluster = ToyCluster({job.key: job}, gpus, lambda n, s, k=slopes: 1 - 1 / (1 + s * k[n]), steps=30)  # type: ignore[misc]
        while "job-7" not in cluster.finished:
            cluster.decide()
            cluster.tick(0.25)
        times[policy] = cluster.now
    assert times["hermes"] < times["fifo"] / 1.5
