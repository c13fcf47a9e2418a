"""Slot reclaim between queues: one that comes late gets its slots, and none goes back and forth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import RUN, P, of, sound

from podium_core.domain.actions import CreatePod, Requeue, WriteRunQueues
from podium_core.domain.gpu_queue import QueueUsage, QueueView
from podium_core.domain.keys import TrialKey
from podium_core.domain.snapshot import Snapshot, TrialView
from podium_core.planning.planner import decide
from podium_core.testing.builders import change_trial, make_gpu, make_job, make_snapshot, make_trial

NO_DEFAULT = QueueView("default", weight=1e-9)
LONG_AGO = -1e5


def searches(
    owners: Sequence[str],
    gpus: int,
    weights: Mapping[str, float],
    *,
    holders: bool = False,
    late: Any = None,
    **fields: Any,
) -> Snapshot:
    """Searches with six trials more than there are slots, each in a queue of its name.

    Slot n is one of GPU n modulo `gpus` and belongs to a trial of the search `owners[n]`; an empty name: it is free.
    With `holders`, the first trial of each GPU runs; the others wait. `late`: fields of the last search.
    """
    trial_fields: dict[str, Any] = {"phase": fields.pop("phase", P.SUSPENDED)}
    trial_fields |= {"pod_since": fields.pop("since", LONG_AGO), "pinned": fields.pop("pinned", False)}
    most = len(owners) + 6
    trials, on_gpu = list[TrialView](), {f"gpu-{gpu}": list[TrialKey]() for gpu in range(gpus)}
    for name in weights:
        slots = [slot for slot, owner in enumerate(owners) if owner == name]
        for number in range(most):
            if number >= len(slots):
                trials.append(make_trial(number, job=name))
                continue
            uuid = f"gpu-{slots[number] % gpus}"
            runs = {"phase": RUN} if holders and slots[number] < gpus else {}
            made = {**trial_fields, **runs, "values": [0.1], "node": "node-a", "gpus": [uuid]}
            trials.append(make_trial(number, job=name, **made))
            on_gpu[uuid].insert(0 if runs else len(on_gpu[uuid]), trials[-1].key)
    wide: dict[str, Any] = {"policy": "fifo", "checkpointable": True, "checkpoint_scope": "anywhere", "parallel": None}
    wide |= {"max_trials": most, **fields}
    jobs = [
        make_job(name, queue=name, **{**wide, **((late or {}) if name == [*weights][-1] else {})}) for name in weights
    ]
    machines = [
        make_gpu(uuid, slots=len(owners) // gpus, product="A", holder=keys[0] if holders else None, trials=keys)
        for uuid, keys in on_gpu.items()
    ]
    queues = [*(QueueView(name, weight) for name, weight in weights.items()), NO_DEFAULT]
    return make_snapshot(jobs=jobs, trials=trials, gpus=machines, queues=queues)


def crowded(weight: float = 1.0, owners: str = "abba", **fields: Any) -> Snapshot:
    """Queues a and b have all slots of two GPUs. Queue c has just got its first search."""
    return searches(owners, 2, {"a": 1.0, "b": 1.0, "c": weight}, holders=True, **fields)


def keys_on(trials: Sequence[TrialView], gpu: int) -> list[TrialKey]:
    return [trial.key for trial in trials if f"gpu-{gpu}" in trial.gpus]


def reclaimed(snapshot: Snapshot) -> list[str]:
    """Return the jobs whose trials release a slot."""
    found = [a for a in of(sound(snapshot), Requeue) if isinstance(a, Requeue)]
    assert {a.reason for a in found} <= {"SlotReclaimed"}, found
    return sorted(a.trial.name.rsplit("-", 1)[0] for a in found)


def changed(snapshot: Snapshot, job: str, trial: str = "", **fields: Any) -> Snapshot:
    """Change one trial of a job, or all."""
    trials = [
        change_trial(t, **fields) if t.job.name == job and trial in ("", t.key.name) else t for t in snapshot.trials
    ]
    return replace(snapshot, trials=tuple(trials))


def without_trials(snapshot: Snapshot, job: str = "c") -> Snapshot:
    """The search has created no trial yet."""
    return replace(snapshot, trials=tuple([t for t in snapshot.trials if t.job.name != job]))


FOUR = searches("abababba", 4, {"a": 1.0, "b": 1.0, "c": 9.0}, holders=True)
ONE = QueueView("c", weight=9.0, gpus=0, borrowing=1)
SPENT = QueueView("b", budget=10.0, usage=QueueUsage(total=10.0))
STRICT = QueueView("c", gpus=0, borrowing=0)
CASES: list[tuple[str, Snapshot, list[str]]] = [
    ("four slots of three queues: the late one gets one", crowded(), ["a"]),
    ("its weight is that of both others: two", crowded(2.0), ["a", "b"]),
    ("what it deserves is a part of a slot: one", crowded(0.1), ["a"]),
    ("the others keep one slot each", crowded(100.0), ["a", "b"]),
    ("six slots: two, one from each", crowded(owners="abbaab"), ["a", "b"]),
    ("one queue has all six: one trial at a time leaves each GPU", crowded(owners="aaaaaa"), ["a", "a"]),
    ("at their gates: they lose nothing", crowded(phase=P.GATED, checkpointable=False), ["a"]),
    ("they would lose their work", crowded(checkpointable=False), []),
    ("they are pinned", crowded(pinned=True), []),
    ("they have just got their slots", crowded(since=990.0), []),
    ("its job is suspended", crowded(late={"suspended": True}), []),
    ("it wants one trial only", crowded(9.0, "abbaab", late={"parallel": 1}), ["a"]),
    ("its trials need two GPUs", crowded(late={"gpus_per_trial": 2}), []),
    ("its trials do not fit the GPUs", crowded(late={"products": ("B",)}), []),
    ("each GPU has one slot, whose trial runs", crowded(owners="ab"), []),
    ("its trials are suspended by their user", changed(crowded(), "c", suspend=True), []),
    ("its retries are not due", changed(crowded(), "c", retry_at=1600.0), []),
    ("its searcher learns: one at a time", without_trials(crowded(100.0, late={"learns": True})), ["a"]),
    ("its slot limit is two", replace(FOUR, queues=(QueueView("a"), QueueView("b"), ONE)), ["a", "b"]),
    ("without a limit, one of each GPU at a time", FOUR, ["a", "a", "b", "b"]),
    ("trials that end free enough slots", changed(crowded(), "a", "a-1", phase=P.SUCCEEDED), []),
    (
        "pods that do not end free none",
        changed(crowded(), "b", "b-1", terminating=True, termination_overdue=True),
        ["a"],
    ),
    ("no queue but a has a budget left", replace(crowded(), queues=(QueueView("a"), SPENT, QueueView("c"))), ["b"]),
    ("a trial suspended by its user goes first", changed(crowded(0.1, "abbaab"), "b", "b-2", suspend=True), ["b"]),
    ("its quota is zero GPUs", replace(crowded(), queues=(QueueView("a"), QueueView("b"), STRICT)), []),
]


@pytest.mark.parametrize(("snapshot", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_which_slots_a_late_queue_gets(snapshot: Snapshot, expected: list[str]) -> None:
    assert reclaimed(snapshot) == expected


def new_pods(snapshot: Snapshot) -> list[str]:
    """Return the job of each pod that the plan creates."""
    return [a.trial.name.split("-")[0] for a in of(sound(snapshot), CreatePod) if isinstance(a, CreatePod)]


def test_the_reason_names_the_queues() -> None:
    action = of(sound(crowded()), Requeue)[0]
    assert action.message == "Queue c has fewer slots by weight than queue a: this trial continues later."


def test_a_slot_that_becomes_free_counts() -> None:
    """While a pod ends, no other one is requeued for the slot. The next pod is one of the late queue."""
    snapshot = crowded()
    victim = next(a.trial for a in of(sound(snapshot), Requeue) if isinstance(a, Requeue))
    ending = [change_trial(t, terminating=True) if t.key == victim else t for t in snapshot.trials]
    assert reclaimed(replace(snapshot, trials=tuple(ending))) == []
    after = crowded(owners="ab a")
    assert new_pods(replace(after, jobs=snapshot.jobs)) == ["c"]
    assert reclaimed(after) == []


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_trial_of_several_gpus_keeps_its_slots_if_its_queue_would_have_fewer_afterwards(gpus: int) -> None:
    """It waits for its turn while queue b has the GPUs. Queue c has none; one slot of eight would be more by weight."""
    trials = [make_trial(0, job="a", phase=P.SUSPENDED, gpus=[f"gpu-{n}" for n in range(gpus)], pod_since=LONG_AGO)]
    trials += [make_trial(n, job="b", phase=RUN, values=[0.1], gpus=[f"gpu-{n}"]) for n in range(gpus)]
    trials += [make_trial(n, job="c") for n in range(gpus)]
    state: dict[str, Any] = {"policy": "fifo", "checkpointable": True, "max_trials": gpus}
    state["checkpoint_scope"] = "anywhere"
    jobs = [make_job(name, queue=name, gpus_per_trial=gpus if name == "a" else 1, **state) for name in "abc"]
    machines = [
        make_gpu(f"gpu-{n}", slots=2, holder=(keys := keys_on(trials, n))[1], holder_since=999.0, trials=keys)
        for n in range(gpus)
    ]
    queues = [QueueView(name) for name in "abc"]
    assert reclaimed(make_snapshot(jobs=jobs, trials=trials, gpus=machines, queues=queues)) == []


def test_gpus_that_suit_no_search_are_looked_at_once() -> None:
    """A plan with 40 searches that fit no victim's GPU takes a fraction of a second, not minutes."""
    owners = ["a", "b"] * 200
    snapshot = searches(owners, 200, {"a": 1.0, "b": 1.0, "c": 1.0}, holders=True, late={"products": ("B",)})
    late = snapshot.jobs[-1]
    more = [replace(late, key=late.key._replace(name=f"c{n}"), uid=f"uid-c{n}") for n in range(40)]
    assert reclaimed(replace(snapshot, jobs=(*snapshot.jobs, *more))) == []


def test_it_is_decided_again_when_a_trial_has_kept_its_slot_for_long_enough() -> None:
    early = crowded(since=600.0 + 5.0)
    assert reclaimed(early) == []
    assert decide(early).plan.wake_at is not None
    assert (decide(early).plan.wake_at or 0.0) <= 1005.0


@given(
    weights=st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0, 10.0]), min_size=2, max_size=5),
    gpus=st.integers(1, 4),
    slots=st.integers(1, 5),
    takes=st.lists(st.integers(0, 4), min_size=20, max_size=20),
)
@settings(max_examples=80, deadline=None)
def test_slots_settle_where_no_queue_has_more_by_weight(
    weights: list[float], gpus: int, slots: int, takes: list[int]
) -> None:
    """From any start, a few plans suffice. Then no slot moves, and a queue has at most one more by weight than another.

    The trial that is next on a GPU keeps its slot, so a queue of one may have more.
    """
    names = dict(zip((f"q{n}" for n in range(len(weights))), weights, strict=True))
    total = gpus * slots
    owners = [[*names][takes[n % 20] % len(names)] for n in range(total)]
    for _ in range(2 * total + 1):
        snapshot = searches(owners, gpus, names)
        moved = [a.trial.name.split("-") for a in of(sound(snapshot), Requeue) if isinstance(a, Requeue)]
        if not moved:
            break
        free = [[slot for slot, owner in enumerate(owners) if owner == name][int(number)] for name, number in moved]
        for slot in free:
            owners[slot] = ""
        for slot, owner in zip(free, new_pods(searches(owners, gpus, names)), strict=True):
            owners[slot] = owner
    else:
        pytest.fail("slots still move")
    claimed = {key.name.split("-")[0] for key in next_on_gpus(searches(owners, gpus, names))}
    for name, weight in names.items():
        for other in names.keys() - claimed:
            assert owners.count(name) / weight >= (owners.count(other) - 1) / names[other], (owners, names)


def next_on_gpus(snapshot: Snapshot) -> list[TrialKey]:
    """Return the trials that are to hold a GPU now."""
    return [entries[0].trial for order in of(sound(snapshot), WriteRunQueues) for _, entries in order.gpus if entries]
