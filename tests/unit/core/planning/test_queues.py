"""Queues in plans: which trials get a GPU, which may not, which pods are created, and what is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import RUN, P, created, numbers, orders, sound, why

from podium_core.domain.gpu_queue import QueueShare, QueueUsage, QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.completion import close
from podium_core.planning.planner import decide
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.slots.pod_quota import pod_quotas
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

A, B = QueueView("a"), QueueView("b")


def trial(job: str, number: int, gpu: int, phase: P = P.GATED) -> TrialView:
    return make_trial(number, job=job, gpus=[f"gpu-{gpu}"], phase=phase, node="node-a")


def gpus_of(trials: list[TrialView], count: int, since: float = 900.0, slots: int = 4) -> list[GpuView]:
    """GPUs whose running trial is the holder, and first in the run queue."""
    made = []
    for number in range(count):
        mine = [t for t in trials if f"gpu-{number}" in t.gpus]
        mine.sort(key=lambda t: t.phase is not RUN)
        keys = [t.key for t in mine]
        holder = keys[0] if mine and mine[0].phase is RUN else None
        made.append(
            make_gpu(
                f"gpu-{number}",
                slots=slots,
                holder=holder,
                holder_since=since if holder else None,
                trials=keys,
                run_queue=keys,
            )
        )
    return made


def two_queues(since: float = 900.0, a: QueueView = A, b: QueueView = B) -> Snapshot:
    """Two GPUs that queue a holds, with a trial of queue b on each."""
    trials = [trial("left", i, i, RUN) for i in range(2)] + [trial("right", i, i) for i in range(2)]
    jobs = [make_job("left", policy="fifo", queue="a"), make_job("right", policy="fifo", queue="b")]
    return make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 2, since), queues=[a, b])


def holders(snapshot: Snapshot) -> list[str]:
    """Names of the trials that are to hold the GPUs; an empty one for an idle GPU."""
    made = sound(snapshot)
    queues = {g.uuid: [k.name for k in g.run_queue.trials] for g in snapshot.gpus} | orders(made)
    return [(queues[uuid] or [""])[0] for uuid in sorted(queues)]


def share(snapshot: Snapshot, name: str) -> QueueShare:
    return next(one for one in decide(snapshot).shares if one.queue == name)


def test_a_queue_takes_what_it_deserves_after_one_time_slice() -> None:
    early, late = two_queues(since=990.0), two_queues(since=969.0)
    assert holders(early) == ["left-0", "left-1"]
    assert decide(early).plan.wake_at == 1020.0, "when the time slice of 30 s is over"
    assert sorted(holders(late)) == ["left-1", "right-0"]
    assert why(sound(late), "right-0") == "QueueShare"
    assert why(sound(late), "right-1") == "WaitingForHolder"


def test_a_queue_passes_a_gpu_on_where_only_it_has_slots_on_both() -> None:
    """Queue c has a slot on the GPU of b only, which has what it deserves; b takes a GPU of a, which has too many."""
    trials = [trial("left", i, i, RUN) for i in range(2)] + [trial("right", 0, 2, RUN), trial("right", 1, 1)]
    trials.append(trial("new", 0, 2))
    jobs = [make_job(job, policy="fifo", queue=queue) for job, queue in (("left", "a"), ("right", "b"), ("new", "c"))]
    queues = [A, B, QueueView("c")]
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 3), queues=queues)
    assert holders(snapshot) == ["left-0", "right-1", "new-0"]
    early = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 3, since=999.0), queues=queues)
    assert holders(early) == ["left-0", "left-1", "right-0"], "no time slice is over"
    no_way = [t for t in trials if t.key.name != "right-1"]
    stuck = make_snapshot(jobs=jobs, trials=no_way, gpus=gpus_of(no_way, 3), queues=queues)
    assert holders(stuck) == ["left-0", "left-1", "right-0"], "b could take no other GPU"


def test_a_queue_takes_the_gpu_of_one_with_too_many_if_it_has_a_slot_there() -> None:
    """One switch, not two: c has slots on all GPUs."""
    trials = [trial("left", i, i, RUN) for i in range(2)] + [trial("right", 0, 2, RUN)]
    trials += [trial("right", 1, 1), *(trial("new", i, 2 - i) for i in range(3))]
    jobs = [make_job(job, policy="fifo", queue=queue) for job, queue in (("left", "a"), ("right", "b"), ("new", "c"))]
    queues = [A, B, QueueView("c")]
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 3), queues=queues)
    assert holders(snapshot) == ["left-0", "new-1", "right-0"]
    waits = [replace(gpu, holder_since=999.0) if gpu.uuid != "gpu-2" else gpu for gpu in gpus_of(trials, 3)]
    kept = make_snapshot(jobs=jobs, trials=trials, gpus=waits, queues=queues)
    assert holders(kept) == ["left-0", "left-1", "right-0"], "b could take no GPU of a before its time slice is over"


def test_the_past_decides_who_gets_the_odd_gpu() -> None:
    behind = replace(B, usage=QueueUsage(deserved=600.0, used=0.0))
    assert sorted(holders(two_queues(b=behind))) == ["right-0", "right-1"]
    ahead = replace(B, usage=QueueUsage(deserved=0.0, used=600.0))
    assert sorted(holders(two_queues(b=ahead))) == ["left-0", "left-1"]


def test_a_pin_counts_in_its_own_queue_only() -> None:
    snapshot = two_queues(since=990.0)
    pinned = [replace(t, intent=replace(t.intent, pinned=t.job.name == "right")) for t in snapshot.trials]
    assert holders(replace(snapshot, trials=tuple(pinned))) == ["left-0", "left-1"]


def test_a_queue_without_borrowing_leaves_a_gpu_idle_rather_than_exceed_its_quota() -> None:
    trials = [trial("left", i, i, RUN) for i in range(2)] + [trial("left", 2, 1)]
    jobs = [make_job("left", policy="fifo", queue="a")]
    strict = replace(A, gpus=1, borrowing=0)
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 2), queues=[strict])
    made = sound(snapshot)
    assert orders(made)["gpu-1"] == []
    assert (why(made, "left-1"), why(made, "left-2")) == ("QueueQuotaReached", "QueueQuotaReached")
    assert holders(replace(snapshot, queues=(replace(strict, borrowing=None),))) == ["left-0", "left-1"]
    lent = share(replace(snapshot, queues=(replace(strict, borrowing=1),)), "a")
    assert (lent.held, lent.borrowed, lent.waiting, lent.deserved, lent.nominal) == (2, 1, 1, 2.0, 1.0)


def test_a_holder_that_cannot_be_preempted_keeps_its_gpu() -> None:
    snapshot = two_queues()
    stiff = [replace(j, abilities=replace(j.abilities, suspendable=False)) for j in snapshot.jobs]
    assert holders(replace(snapshot, jobs=tuple(stiff))) == ["left-0", "left-1"]


def test_a_holder_that_cannot_be_preempted_keeps_its_gpu_when_the_quota_is_lowered() -> None:
    spent = replace(A, budget=10.0, usage=QueueUsage(total=20.0))
    for queue in (spent, replace(A, gpus=0, borrowing=0)):
        snapshot = two_queues(a=queue)
        stiff = [replace(j, abilities=replace(j.abilities, suspendable=False)) for j in snapshot.jobs]
        assert holders(replace(snapshot, jobs=tuple(stiff))) == ["left-0", "left-1"]
        assert holders(snapshot) == ["right-0", "right-1"], "one that can be suspended gives its GPU up"


def test_a_trial_of_all_gpus_gets_them_from_queues_that_hold_what_they_deserve() -> None:
    """A queue that deserves one GPU of four, but whose trial needs all of them, gets them in turn."""
    uuids = [f"gpu-{number}" for number in range(4)]
    wide = make_trial(0, job="wide", gpus=uuids, phase=P.GATED, node="node-a")
    trials = [*(trial(f"job-{n % 3}", n, n, RUN) for n in range(4)), wide]
    jobs = [make_job(f"job-{n}", policy="fifo", queue=f"q{n}") for n in range(3)]
    jobs.append(make_job("wide", policy="fifo", queue="wide", gpus_per_trial=4))
    lag, ahead = QueueUsage(deserved=120.0), QueueUsage(used=40.0)
    queues = [QueueView("wide", usage=lag), *(QueueView(f"q{n}", usage=ahead) for n in range(3))]
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 4), queues=queues)
    assert share(snapshot, "wide").deserved == 1.0
    assert holders(snapshot) == ["wide-0"] * 4
    early = replace(snapshot, queues=(QueueView("wide"), *snapshot.queues[1:]))
    assert "wide-0" not in holders(early)


def test_trials_that_are_suspended_by_their_user_do_not_wait() -> None:
    snapshot = two_queues(since=990.0)
    assert share(snapshot, "b").waiting == 2
    jobs = [replace(j, state=replace(j.state, suspended=j.key.name == "right")) for j in snapshot.jobs]
    assert share(replace(snapshot, jobs=tuple(jobs)), "b").waiting == 0
    trials = [replace(t, intent=replace(t.intent, suspend=t.key.name == "right-0")) for t in snapshot.trials]
    assert share(replace(snapshot, trials=tuple(trials)), "b").waiting == 1


def test_a_spent_budget_does_not_stop_a_job_without_gpus() -> None:
    spent = replace(A, budget=10.0, usage=QueueUsage(total=20.0))
    jobs = [make_job(f"job-{gpus}", queue="a", gpus_per_trial=gpus) for gpus in (0, 1)]
    rules = QueueRules.of(make_snapshot(jobs=jobs, trials=[], gpus=[], queues=[spent]))
    assert rules is not None
    assert {key.name: one.reason for key, one in rules.obstacles.items()} == {"job-1": "QueueBudgetSpent"}


OBSTACLES = [
    (
        {"queue": "gone"},
        "QueueNotFound",
        "spec.queue: GPUQueue gone does not exist; create it, or name one of: a, default.",
    ),
    ({"queue": "a"}, "QueueForbidden", "namespace lab may not use GPUQueue a; its spec.namespaces: team-1, team-2."),
    (
        {"queue": "", "gpus_per_trial": 3},
        "QueueQuotaTooSmall",
        "gpus.perTrial is 3, but GPUQueue default may hold 2 GPUs",
    ),
]


@pytest.mark.parametrize(("fields", "reason", "text"), OBSTACLES)
def test_a_job_that_can_get_no_gpu_says_which_field_is_why(fields: dict[str, object], reason: str, text: str) -> None:
    queues = [replace(A, namespaces=frozenset({"team-1", "team-2"})), QueueView("default", gpus=2, borrowing=0)]
    job = make_job("left", policy="fifo", parallel=None, **fields)  # type: ignore[arg-type]
    waiting = make_trial(0, job="left")
    snapshot = make_snapshot(jobs=[job], trials=[waiting], gpus=[make_gpu(f"gpu-{i}") for i in range(4)], queues=queues)
    made = sound(snapshot)
    assert (created(made), numbers(made), why(made, "left-0")) == ([], [], reason)
    rules = QueueRules.of(snapshot)
    assert rules is not None
    assert text in rules.obstacles[job.key].message


def test_a_spent_budget_takes_the_gpus_back() -> None:
    spent = replace(A, budget=7200.0, usage=QueueUsage(total=7200.0))
    trials = [trial("left", 0, 0, RUN)]
    jobs = [make_job("left", policy="fifo", queue="a")]
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 1), queues=[spent])
    assert holders(snapshot) == [""]
    rules = QueueRules.of(snapshot)
    assert rules is not None
    assert "GPUQueue a has used 2.0 GPU-hours of its spec.budget.gpuHours 2" in rules.obstacles[jobs[0].key].message


def test_started_trials_of_a_deleted_queue_continue_while_no_queue_wants_the_gpu() -> None:
    snapshot = two_queues()
    assert sorted(holders(replace(snapshot, queues=(B,)))) == ["right-0", "right-1"]
    alone = replace(snapshot, trials=snapshot.trials[:2], jobs=snapshot.jobs[:1], queues=(B,))
    assert holders(alone) == ["left-0", "left-1"]
    assert created(sound(alone)) == []


def test_with_reserved_gpus_the_name_of_a_local_queue_of_kueue_is_the_default_queue() -> None:
    job = make_job("left", queue="kueue")
    rules = QueueRules.of(replace(make_snapshot(jobs=[job], queues=[A]), reserves_gpus=True))
    assert rules is not None
    assert (rules.queue_of, rules.obstacles) == ({job.key: "default"}, {})


def test_a_queue_leaves_slots_for_the_others() -> None:
    """Four GPUs with four slots: each of two queues may have eight, and four if its quota is one GPU."""
    jobs = [make_job("left", policy="fifo", queue="a", parallel=None, max_trials=40)]
    snapshot = make_snapshot(jobs=jobs, gpus=[make_gpu(f"gpu-{i}") for i in range(4)], queues=[A, replace(B, gpus=2)])
    without_default = replace(snapshot, queues=(*snapshot.queues, QueueView("default", weight=1e-9)))
    assert len(numbers(sound(without_default))) == 8
    strict = (replace(A, gpus=1, borrowing=0), B, QueueView("default", weight=1e-9))
    assert len(numbers(sound(replace(snapshot, queues=strict)))) == 4


def test_slots_go_to_the_queue_with_the_fewest_by_weight() -> None:
    jobs = [
        make_job(name, policy="fifo", queue=queue, parallel=None, max_trials=40)
        for name, queue in (("one", "a"), ("two", "a"), ("three", "b"))
    ]
    queues = [A, replace(B, weight=3.0), QueueView("default", weight=1e-9)]
    snapshot = make_snapshot(jobs=jobs, gpus=[make_gpu(f"gpu-{i}") for i in range(4)], queues=queues)
    made = sound(snapshot)
    by_job = {
        name: sum(a.job == JobKey("lab", name) for a in made.actions if hasattr(a, "number"))
        for name in ("one", "two", "three")
    }
    assert by_job == {"one": 2, "two": 2, "three": 12}


def test_without_a_queue_there_are_no_shares() -> None:
    snapshot = replace(two_queues(), queues=())
    assert decide(snapshot).shares == ()
    assert QueueRules.of(snapshot) is None


def of_namespace(view: JobView, namespace: str) -> JobView:
    return replace(view, key=view.key._replace(namespace=namespace))


def test_the_namespaces_of_a_queue_share_it_as_equals_whatever_the_number_of_their_jobs() -> None:
    """Three searches of one namespace hold a GPU each, and so does the only one of another."""
    shop = JobKey("shop", "job-3")
    trials = [trial(f"job-{n}", 0, n, RUN) for n in range(4)] + [trial("job-3", 1, 0)]
    trials = [
        replace(t, job=shop, key=t.key._replace(namespace="shop")) if t.job.name == "job-3" else t for t in trials
    ]
    jobs = [make_job(f"job-{n}", policy="fifo", queue="a") for n in range(4)]
    jobs[3] = of_namespace(jobs[3], "shop")
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=gpus_of(trials, 4), queues=[A])
    assert holders(snapshot) == ["job-3-1", "job-1-0", "job-2-0", "job-3-0"]
    taken = next(rank.message for rank in decide(snapshot).plan.ranks if rank.trial.name == "job-3-1")
    assert "namespace lab holds 3 GPUs, namespace shop holds 1" in taken
    alone = replace(snapshot, queues=())
    assert holders(alone) == ["job-0-0", "job-1-0", "job-2-0", "job-3-0"], "without queues, all searches are equals"


def test_the_namespaces_of_a_queue_get_equal_parts_of_its_slots() -> None:
    jobs = [make_job(f"job-{n}", queue="a", max_trials=9, parallel=9) for n in range(4)]
    jobs[3] = of_namespace(jobs[3], "shop")
    snapshot = make_snapshot(jobs=jobs, trials=[], gpus=gpus_of([], 3), queues=[A])
    quotas = pod_quotas(snapshot, close(snapshot), rules=QueueRules.of(snapshot))
    assert [quotas[job.key].pods for job in jobs] == [1, 1, 1, 3], "six of twelve slots are the queue's"
