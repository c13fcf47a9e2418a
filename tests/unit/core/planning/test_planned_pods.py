"""Which trials and pods the planner creates, one rule per test: slots, limits, GPUs that fit, back-off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import RUN, P, created, numbers, orders, sound, why

from podium_core.domain.actions import CreatePod
from podium_core.domain.gpu_view import GpuView
from podium_core.planning.invariants import violations
from podium_core.planning.planner import plan
from podium_core.testing.builders import (
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
)


def test_an_empty_cluster_gets_trials_but_no_pod() -> None:
    made = sound(make_snapshot(jobs=[make_job(max_trials=5, parallel=3)]))
    assert numbers(made) == [0, 1, 2]
    assert created(made) == []


@pytest.mark.parametrize(
    ("parallel", "shares", "trials", "expected"),
    [(8, 4, 8, 4), (3, 4, 3, 3), (None, 4, 8, 4), (8, 0, 8, 0)],
)
def test_at_most_as_many_pods_as_slots_and_parallel(
    parallel: int | None, shares: int, trials: int, expected: int
) -> None:
    job = make_job(parallel=parallel)
    snapshot = make_snapshot(jobs=[job], trials=[make_trial(i) for i in range(trials)], gpus=[make_gpu(slots=shares)])
    made = sound(snapshot)
    assert created(made) == [f"job-{i}" for i in range(expected)]
    if expected < trials:
        assert why(made, f"job-{trials - 1}") in ("NoFreeSlot", "ParallelLimitReached")


@pytest.mark.parametrize("width", [1, 2])
def test_the_message_names_gpus_without_slots_for_trials(width: int) -> None:
    gpus = [make_gpu(slots=0), make_gpu("gpu-1", slots=0)]
    made = sound(make_snapshot(jobs=[make_job(gpus_per_trial=width)], trials=[make_trial(0)], gpus=gpus))
    message = next(place.message for place in made.ranks if place.trial.name == "job-0")
    assert message.endswith("None of 2 fitting GPUs has a slot for trials: other pods have them all.")


def test_auto_creates_trials_only_for_slots() -> None:
    snapshot = make_snapshot(jobs=[make_job(parallel=None)], gpus=[make_gpu(slots=2), make_gpu("gpu-1", slots=1)])
    assert numbers(sound(snapshot)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("opened", "unopened", "holders", "made"),
    [
        (0, 0, 0, 10),  # one for each GPU that no trial runs on, two in reserve
        (0, 8, 0, 2),  # each has its GPU as good as taken
        (8, 0, 8, 2),
        (8, 1, 8, 1),
        (8, 2, 8, 0),
        (20, 0, 8, 2),  # suspended ones are opened as well
        (8, 2, 4, 0),  # the four that are free are for those that are suspended there
    ],
)
def test_a_learning_searcher_creates_trials_late(opened: int, unopened: int, holders: int, made: int) -> None:
    uuids = [f"gpu-{index}" for index in range(8)]
    old = [
        make_trial(i, gpus=[uuids[i % 8]], phase=RUN if i < holders else P.SUSPENDED, values=[0.5])
        for i in range(opened)
    ]
    new = [make_trial(opened + i, gpus=[uuids[i % 8]], phase=P.GATED) for i in range(unopened)]
    gpus = [
        make_gpu(uuid, slots=16, holder=old[i].key if i < holders else None, trials=[t.key for t in old[i::8]])
        for i, uuid in enumerate(uuids)
    ]
    for learns in (True, False):
        job = make_job(parallel=None, max_trials=64, learns=learns)
        plan = sound(make_snapshot(jobs=[job], trials=[*old, *new], gpus=gpus))
        room = made if learns else 64 - len(old) - len(new)
        assert len(numbers(plan)) == room


def test_a_suspended_trial_does_not_stop_a_learning_search() -> None:
    kept = make_trial(0, gpus=["gpu-0"], phase=P.GATED, suspend=True)
    gpu = make_gpu(slots=4, trials=[kept.key])
    assert numbers(sound(make_snapshot(jobs=[make_job(learns=True)], trials=[kept], gpus=[gpu]))) == [1, 2]


@pytest.mark.parametrize("policy", ["fifo", "envelope", "asha", "hyperband", "median_stop", "pop"])
def test_a_trial_that_waits_on_a_busy_gpu_leaves_no_gpu_idle(policy: str) -> None:
    """The fourth GPU has just become free, and the reserve is at the gate of the first."""
    uuids = [f"gpu-{index}" for index in range(4)]
    at_work = [
        make_trial(i, gpus=[uuids[i]], phase=RUN, values=[0.5], gpu_seconds=1) for i in range(3)
    ]  # below all rungs
    over, reserve = make_trial(3, phase=P.SUCCEEDED, values=[0.5] * 100), make_trial(4, gpus=uuids[:1], phase=P.GATED)
    there = {"gpu-0": [at_work[0].key, reserve.key], "gpu-1": [at_work[1].key], "gpu-2": [at_work[2].key], "gpu-3": []}
    gpus = [
        make_gpu(uuid, holder=next(iter(keys), None), holder_since=1000.0, trials=keys, run_queue=keys)
        for uuid, keys in there.items()
    ]
    job = make_job(parallel=None, learns=True, policy=policy)
    snapshot = make_snapshot(jobs=[job], trials=[*at_work, over, reserve], gpus=gpus)
    assert numbers(sound(snapshot)) == [5]
    comes = make_trial(5, pod="job-5-0")
    assert numbers(sound(replace(snapshot, trials=(*snapshot.trials, comes)))) == []


@pytest.mark.parametrize(
    "change", [{"health": "Unknown"}, {"exclusive_pod": "urgent"}, {"slots": 0}, {"node": "node-b"}]
)
def test_a_learning_searcher_creates_no_trial_for_an_unusable_gpu(change: dict[str, Any]) -> None:
    """Not now, or not two of its own node, as a trial with two GPUs needs."""
    old, reserve = (
        make_trial(0, gpus=["gpu-0", "gpu-1"], phase=RUN, values=[0.5]),
        make_trial(1, gpus=["gpu-0", "gpu-1"], phase=P.GATED),
    )
    there = {"holder": old.key, "holder_since": 990.0, "trials": [old.key, reserve.key], "run_queue": [old.key]}
    free = [make_gpu("gpu-2"), make_gpu("gpu-3", **change)]
    job = make_job(parallel=None, learns=True, policy="fifo", gpus_per_trial=2)
    gpus = [make_gpu("gpu-0", **there), make_gpu("gpu-1", **there), *free]
    assert numbers(plan(make_snapshot(jobs=[job], trials=[old, reserve], gpus=gpus))) == []


def test_two_jobs_get_equally_many_slots_and_the_younger_the_next_free_ones() -> None:
    jobs = [make_job("a", created=1.0), make_job("b", created=2.0)]
    trials = [make_trial(i, job=name) for name in ("a", "b") for i in range(8)]
    even = sound(make_snapshot(jobs=jobs, trials=trials, gpus=[make_gpu(slots=5)]))
    assert created(even) == ["a-0", "a-1", "a-2", "b-0", "b-1"]
    held = [make_trial(i, job="a", gpus=["gpu-0"], phase=RUN) for i in range(4)]
    late = sound(make_snapshot(jobs=jobs, trials=[*held, *trials[4:]], gpus=[make_gpu(slots=6)]))
    assert created(late) == ["b-0", "b-1"]


def test_a_job_near_its_end_does_not_keep_slots() -> None:
    jobs = [make_job("a", created=1.0, max_trials=3), make_job("b", created=2.0)]
    over = [make_trial(i, job="a", phase=P.SUCCEEDED) for i in range(2)]
    rest = [make_trial(2, job="a"), *(make_trial(i, job="b") for i in range(8))]
    made = sound(make_snapshot(jobs=jobs, trials=[*over, *rest], gpus=[make_gpu(slots=4)]))
    assert created(made) == ["a-2", "b-0", "b-1", "b-2"]


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (make_gpu(health="Unhealthy"), "NoFittingGPU"),
        (make_gpu(product="A100"), "NoFittingGPU"),
        (make_gpu(product="H100", memory_total=10), "NoFittingGPU"),
        (make_gpu(product="H100", memory_total=90), None),
        (make_gpu(), None),
    ],
)
def test_no_pod_for_gpus_that_cannot_take_it(gpu: GpuView, reason: str | None) -> None:
    job = make_job(products=("H100",), memory=80)
    made = sound(make_snapshot(jobs=[job], trials=[make_trial(0)], gpus=[gpu]))
    assert bool(created(made)) is (reason is None)
    if reason:
        assert why(made, "job-0") == reason


def test_a_trial_with_two_gpus_needs_two_on_one_node() -> None:
    job, trials = make_job(gpus_per_trial=2), [make_trial(i) for i in range(8)]
    apart = [make_gpu("g0", node="a"), make_gpu("g1", node="b")]
    together = [make_gpu("g0", node="a"), make_gpu("g1", node="a")]
    assert created(sound(make_snapshot(jobs=[job], trials=trials, gpus=apart))) == []
    assert len(created(sound(make_snapshot(jobs=[job], trials=trials, gpus=together)))) == 4


@pytest.mark.parametrize(
    ("free", "pods"), [((4, 4), 4), ((0, 4), 0), ((1, 4), 1), ((2, 2, 2), 3), ((1, 1, 4), 2), ((0, 0), 0)]
)
def test_a_trial_with_two_gpus_needs_a_free_slot_on_each(free: tuple[int, ...], pods: int) -> None:
    """Two slots of one GPU would be refused by the device plugin, again and again."""
    gpus = [make_gpu(f"g{i}", slots=shares) for i, shares in enumerate(free)]
    trials = [make_trial(i) for i in range(8)]
    assert len(created(sound(make_snapshot(jobs=[make_job(gpus_per_trial=2)], trials=trials, gpus=gpus)))) == pods


def test_a_trial_of_several_gpus_finds_slots_though_trials_of_one_take_each_that_becomes_free() -> None:
    jobs = [make_job("narrow", created=1.0), make_job("wide", created=2.0, gpus_per_trial=2)]
    waiting = [make_trial(9, job="narrow"), make_trial(0, job="wide")]

    def pods(*running: int) -> list[str]:
        """Return the pods that are created while these numbers of trials run on GPUs of four slots."""
        names = [f"g{i}" for i in range(len(running))]
        there = [
            make_trial(10 * i + j, job="narrow", gpus=[name], phase=RUN)
            for i, (name, count) in enumerate(zip(names, running, strict=True), start=1)
            for j in range(count)
        ]
        gpus = [make_gpu(name, slots=4) for name in names]
        return created(sound(make_snapshot(jobs=jobs, trials=[*there, *waiting], gpus=gpus)))

    assert pods(4, 4) == []
    assert pods(3, 4) == [], "the first slot is kept"
    assert pods(3, 3) == ["wide-0"], "until there are two"
    assert pods(2, 4) == ["narrow-9"], "one slot of each GPU is enough"


@pytest.mark.parametrize(
    ("change", "slots"),
    [
        ({"gpus_per_trial": 3}, 4),  # no node has three
        ({"gpus_per_trial": 2, "products": ("H100",)}, 4),
        ({"gpus_per_trial": 2}, 1),  # the GPU would be idle
        ({"gpus_per_trial": 2, "suspended": True}, 4),
    ],
)
def test_no_slot_is_kept_in_vain(change: dict[str, Any], slots: int) -> None:
    jobs = [make_job("narrow", created=1.0), make_job("wide", created=2.0, **change)]
    there = [make_trial(i, job="narrow", gpus=["g1"], phase=RUN) for i in range(slots)]
    gpus = [make_gpu("g0", slots=slots, product="A100"), make_gpu("g1", slots=slots, product="A100")]
    waiting = [make_trial(10 + i, job="narrow") for i in range(slots)]
    made = created(sound(make_snapshot(jobs=jobs, trials=[*there, *waiting, make_trial(0, job="wide")], gpus=gpus)))
    assert len(made) == slots


def test_slots_are_kept_for_the_first_trial_of_a_job_only_and_the_others_say_so() -> None:
    jobs = [make_job("narrow", created=1.0), make_job("wide", created=2.0, gpus_per_trial=2)]
    gpus = [make_gpu("g0", slots=4), make_gpu("g1", slots=4)]
    there = [make_trial(i, job="narrow", gpus=["g0" if i < 3 else "g1"], phase=RUN) for i in range(7)]
    waiting = [make_trial(9, job="narrow"), make_trial(0, job="wide")]
    kept = sound(make_snapshot(jobs=jobs, trials=[*there, *waiting], gpus=gpus))
    assert created(kept) == []
    (said,) = [rank.message for rank in kept.ranks if rank.trial.name == "narrow-9"]
    assert "/wide, whose trials need several at once" in said
    first = make_trial(1, job="wide", gpus=["g0", "g1"], phase=RUN)
    made = created(sound(make_snapshot(jobs=jobs, trials=[*there[:2], *there[4:], first, *waiting], gpus=gpus)))
    assert made == ["narrow-9"], "wide has the fewest pods and comes first, but has its first trial"


def test_no_slot_is_kept_for_a_search_whose_trials_may_not_start_now() -> None:
    jobs = [make_job("narrow", created=1.0), make_job("wide", created=2.0, gpus_per_trial=2, max_trials=1)]
    gpus = [make_gpu("g0", slots=4), make_gpu("g1", slots=4)]
    there = [make_trial(i, job="narrow", gpus=["g0" if i < 3 else "g1"], phase=RUN) for i in range(7)]
    for change in ({"suspend": True}, {"retry_at": 2000.0}):
        waiting = [make_trial(9, job="narrow"), change_trial(make_trial(0, job="wide"), **change)]
        assert created(sound(make_snapshot(jobs=jobs, trials=[*there, *waiting], gpus=gpus))) == ["narrow-9"]


def test_slots_are_kept_on_nodes_that_could_take_the_trial_only() -> None:
    jobs = [make_job("narrow", created=1.0, parallel=None), make_job("wide", created=2.0, gpus_per_trial=2)]
    gpus = [make_gpu("g0", node="a", slots=4), make_gpu("g1", node="a", slots=4), make_gpu("g2", node="b", slots=4)]
    there = [make_trial(i, job="narrow", gpus=[f"g{i // 4}"], phase=RUN) for i in range(11)]
    waiting = [make_trial(19, job="narrow"), make_trial(0, job="wide")]
    assert created(sound(make_snapshot(jobs=jobs, trials=[*there, *waiting], gpus=gpus))) == ["narrow-19"]


def test_a_job_whose_pods_cannot_start_blocks_no_other_job() -> None:
    jobs = [make_job("bad", created=1.0, parallel=None), make_job("good", created=2.0, parallel=None)]
    unplaced = [make_trial(i, job="bad", pod=f"bad-{i}-0") for i in range(4)]
    rest = [make_trial(4, job="bad"), *(make_trial(i, job="good") for i in range(4))]
    gpus = [make_gpu(slots=4)]
    assert created(sound(make_snapshot(jobs=jobs, trials=[*unplaced, *rest], gpus=gpus))) == []
    stuck = [change_trial(trial, stuck=True) for trial in unplaced]
    made = sound(make_snapshot(jobs=jobs, trials=[*stuck, *rest], gpus=gpus))
    assert created(made) == [f"good-{i}" for i in range(4)]
    assert why(made, "bad-4") == "PodsStuck"


def test_a_cpu_only_job_needs_no_gpu() -> None:
    made = sound(
        make_snapshot(jobs=[make_job(gpus_per_trial=0, policy="fifo")], trials=[make_trial(i) for i in range(8)])
    )
    assert len(created(made)) == 8
    assert orders(made) == {}


def test_backoff_then_the_next_attempt_before_new_trials() -> None:
    requeued = make_trial(3, phase=P.REQUEUED, attempt=1, failures=1, retry_at=1005.0)
    snapshot = make_snapshot(jobs=[make_job()], trials=[requeued, make_trial(0)], gpus=[make_gpu(slots=1)])
    early = sound(snapshot)
    assert created(early) == ["job-0"]
    assert why(early, "job-3") == "BackOff"
    assert early.wake_at == 1005.0
    later = sound(replace(snapshot, now=1005.0))
    assert [(a.trial.name, a.attempt) for a in later.actions if isinstance(a, CreatePod)] == [("job-3", 2)]


@pytest.mark.parametrize("change", [{"suspended": True}, {"accepted": False}, {"finished": True}])
def test_nothing_starts_for_a_job_that_may_not(change: dict[str, bool]) -> None:
    job = make_job(**change)  # type: ignore[arg-type]
    made = sound(make_snapshot(jobs=[job], trials=[make_trial(0)], gpus=[make_gpu()]))
    assert created(made) == numbers(made) == []


def test_pods_that_wait_for_one_product_leave_the_slots_of_another() -> None:
    """Two slots of an H100 are free; three pods of another job are on their way to an A100."""
    waiting = [make_trial(i, job="a", phase=P.GATED, pod=f"a-{i}-0") for i in range(3)]
    mine = [make_trial(i, job="b", phase=P.PENDING, pod=None) for i in range(3)]
    jobs = [make_job("a", products=("A100",), max_trials=3), make_job("b", products=("H100",), max_trials=3)]
    gpus = [make_gpu("g0", product="A100", slots=3), make_gpu("g1", product="H100", slots=2)]
    made = sound(make_snapshot(jobs=jobs, trials=[*waiting, *mine], gpus=gpus))
    assert created(made) == ["b-0", "b-1"]


@pytest.mark.parametrize(("shared", "expected"), [(1, ["b-0"]), (2, ["b-0"]), (3, [])])
def test_pods_that_may_go_to_either_product_take_at_most_the_slots_they_can(shared: int, expected: list[str]) -> None:
    """Three slots of an H100 are free; each pod of the job that takes any product may fill one of them."""
    waiting = [make_trial(i, job="a", phase=P.GATED, pod=f"a-{i}-0") for i in range(shared)]
    mine = [make_trial(0, job="b", phase=P.PENDING, pod=None)]
    jobs = [make_job("a", max_trials=shared), make_job("b", products=("H100",), max_trials=1)]
    gpus = [make_gpu("g0", product="A100", slots=8), make_gpu("g1", product="H100", slots=3)]
    made = sound(make_snapshot(jobs=jobs, trials=[*waiting, *mine], gpus=gpus))
    assert created(made) == expected


def test_the_invariant_counts_the_pods_of_all_jobs_that_can_go_nowhere_else() -> None:
    waiting = [make_trial(i, job="a", phase=P.GATED, pod=f"a-{i}-0") for i in range(2)]
    mine = make_trial(0, job="b", phase=P.PENDING, pod=None)
    jobs = [make_job("a", products=("H100",), max_trials=2), make_job("b", max_trials=1)]
    snapshot = make_snapshot(jobs=jobs, trials=[*waiting, mine], gpus=[make_gpu("g0", product="H100", slots=2)])
    made = sound(snapshot)
    assert created(made) == []
    wrong = replace(made, actions=(*made.actions, CreatePod(mine.key, 0, "SlotAvailable", "")))
    assert "b: 2 slots are awaited, 1 requested, 2 that fit are free" in violations(snapshot, wrong)
