"""Whose slot is reclaimed for which trial, if GPUs have fewer slots than a search has trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import RUN, P, created, numbers, of, sound
from simulated import curve, job

from podium_core.domain.actions import EndTrial, Plan, Requeue
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.slots.slot_reclaim import MIN_STAY_REQUEUES
from podium_core.testing.builders import (
    change_gpu,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
)
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import NodeSpec, Scenario

REQUEUE = 20.0  # seconds, until something is measured
LONG_AGO = 1000.0 - MIN_STAY_REQUEUES * REQUEUE
SEARCH: dict[str, Any] = {"policy": "round_robin", "parallel": None, "max_trials": 5, "checkpointable": True}
OPENED: dict[str, Any] = {"values": [0.1, 0.2, 0.3], "gpu_seconds": 30.0}


def full(
    phases: tuple[TrialPhase, TrialPhase] = (P.SUSPENDED, P.GATED),
    *,
    slots: int = 3,
    since: float = LONG_AGO,
    costs: Any = None,
    waiting: dict[str, Any] | None = None,
    given: dict[str, Any] | None = None,
    **more: Any,
) -> Snapshot:
    """One GPU with three slots: trial 0 runs, 1 and 2 wait there; 3 and 4 have no slot. The two without (and `given`
    for 3) are those that trained least, which round_robin puts first.
    """
    held = make_trial(0, gpus=["gpu-0"], phase=RUN, **OPENED)
    there = [
        make_trial(n, gpus=["gpu-0"], phase=phase, pod_since=since, **{**OPENED, **(waiting or {})})
        for n, phase in zip((1, 2), phases, strict=True)
    ]
    without = [make_trial(3, **(given or {})), make_trial(4)]
    trials = [held, *there, *without]
    keys = [trial.key for trial in trials[:3]]
    gpu = make_gpu(holder=held.key, holder_since=999.0, trials=keys, run_queue=keys, slots=slots)
    return make_snapshot(jobs=[make_job(**{**SEARCH, **more})], trials=trials, gpus=[gpu])


def requeues_of(made: Plan) -> list[tuple[str, str]]:
    return [(a.trial.name, a.reason) for a in of(made, Requeue) if isinstance(a, Requeue)]


GIVES = [("job-2", "SlotReclaimed")]  # the last by rank
CASES: list[tuple[str, Snapshot, list[tuple[str, str]]]] = [
    ("the last by rank that has not started", full(), GIVES),
    ("the last by rank that is suspended", full((P.GATED, P.SUSPENDED)), GIVES),
    ("one that runs keeps its slot", full((P.SUSPENDED, P.RESUMING)), [("job-1", "SlotReclaimed")]),
    ("a free slot goes first", full(slots=4), []),
    ("cannot checkpoint", full(checkpointable=False), []),
    ("checkpoints where no other node finds it", full(checkpoint_scope="node"), []),
    ("pinned", full(waiting={"pinned": True}), []),
    ("is terminating", full(waiting={"terminating": True}), []),
    ("came there a moment ago", full(since=999.0), []),
    ("at its gate, not for long", full((P.GATED, P.GATED), since=1000.0 - REQUEUE), GIVES),
    ("suspended, not for long", full((P.SUSPENDED, P.SUSPENDED), since=1000.0 - REQUEUE), []),
    ("fifo wants no trial before those that came", full(policy="fifo"), []),
    ("the next trial is suspended by its user", full(given={"suspend": True}), GIVES),
    ("no more than `parallel`", full(parallel=3), []),
]


@pytest.mark.parametrize(("snapshot", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_whose_slot_is_reclaimed(snapshot: Snapshot, expected: list[tuple[str, str]]) -> None:
    assert requeues_of(sound(snapshot)) == expected


def test_the_plan_is_repeated_when_a_slot_has_been_kept_long_enough() -> None:
    assert sound(full((P.SUSPENDED, P.SUSPENDED), since=990.0)).wake_at == 990.0 + MIN_STAY_REQUEUES * REQUEUE


def test_a_free_slot_goes_to_the_next_trial_by_rank() -> None:
    """Not to the retry that left it, which elsewhere goes first."""
    snapshot = full()
    gave = make_trial(2, phase=P.REQUEUED, attempt=0, **OPENED)
    trials = [gave if trial.number == 2 else trial for trial in snapshot.trials]
    gpu = snapshot.gpus[0]
    gpu = replace(change_gpu(gpu, trials=gpu.trials[:2], run_queue=gpu.run_queue.trials[:2]), free_slots=1)
    left = replace(snapshot, trials=tuple(trials), gpus=(gpu,))
    assert created(sound(left)) == ["job-3"]
    frozen_only = replace(left, jobs=(make_job(**{**SEARCH, "checkpointable": False}),))
    assert created(sound(frozen_only)) == ["job-2"]


@pytest.mark.parametrize(("saves", "made"), [(True, [0, 1, 2, 3]), (False, [0, 1])])
def test_trials_without_a_slot_are_created(saves: bool, made: list[int]) -> None:
    """`parallel: auto`: as many again as there are slots."""
    snapshot = make_snapshot(jobs=[make_job(**{**SEARCH, "checkpointable": saves})], gpus=[make_gpu(slots=2)])
    assert numbers(sound(snapshot)) == made


def searched(
    policy: str, *, checkpointable: bool, checkpoint_scope: Any = None, suspendable: bool = True, **settings: Any
) -> Any:
    """Eight trials on one GPU with two slots; the third is the best one."""
    curves = [curve(*[0.1 * n + 0.01 * k for k in range(1, 9)], gap=60.0) for n in (4, 3, 8, 1, 7, 2, 6, 5)]
    mine = job(
        *curves,
        policy=policy,
        settings=settings,
        checkpointable=checkpointable,
        checkpoint_scope=checkpoint_scope or ("anywhere" if checkpointable else "nowhere"),
        suspendable=suspendable,
    )
    return simulate(Scenario((NodeSpec("a", 1, 2),), (mine,)), checked=True)


@pytest.mark.parametrize("freezes", [True, False])
def test_all_trials_of_a_search_train_in_two_slots(freezes: bool) -> None:
    outcome = searched("round_robin", checkpointable=True, suspendable=freezes)
    assert outcome.broken == ()
    opened = sorted(t.started for t in outcome.trials)
    first_end = min(t.ended for t in outcome.trials)
    assert opened[-1] < first_end, "all were opened before the first one ended"
    assert all(t.phase is P.SUCCEEDED for t in outcome.trials)
    alone = searched("round_robin", checkpointable=False)
    assert sorted(t.started for t in alone.trials)[2] > min(t.ended for t in alone.trials), "two at a time"


@pytest.mark.parametrize(
    ("two", "expected"),
    [
        ({}, ["SlotReclaimed"]),
        ({"terminating": True}, []),
        ({"terminating": True, "termination_overdue": True}, ["SlotNeeded"]),
    ],
    ids=["all wait", "one is terminating", "one should be gone for long"],
)
def test_if_all_trials_wait_at_a_rung_one_slot_is_reclaimed_and_no_trial_ends(
    two: dict[str, Any], expected: list[str]
) -> None:
    """Two have no slot. No trial is promoted before all five are there. Beside one that never goes no trial can
    checkpoint."""
    came: dict[str, Any] = {"gpus": ["gpu-0"], "phase": P.SUSPENDED, "values": [0.1] * 20, "gpu_seconds": 20.0}
    trials = [make_trial(0, **came), make_trial(1, **came), make_trial(2, **came, **two), make_trial(3), make_trial(4)]
    keys = [trial.key for trial in trials[:3]]
    asha = make_job(policy="asha", settings={"eta": 5, "rungs": 1}, max_trials=5, parallel=None, checkpointable=True)
    gpu = make_gpu(trials=keys, run_queue=keys, slots=3)
    made = sound(make_snapshot(jobs=[asha], trials=trials, gpus=[gpu]))
    assert [a.reason for a in made.actions if isinstance(a, Requeue | EndTrial)] == expected


def test_asha_ends_no_trial_for_a_slot() -> None:
    """A waiting trial at a rung gives its slot and stays in the search; without checkpoints it must end, or work to
    its end."""
    outcome = searched("asha", checkpointable=True, suspendable=False, eta=2)
    assert outcome.broken == ()
    assert next(t.phase for t in outcome.trials if t.number == 2) is P.SUCCEEDED
    alone = searched("asha", checkpointable=True, checkpoint_scope="node", suspendable=False, eta=2)
    used, used_alone = (sum(t.gpu_seconds for t in found.trials) for found in (outcome, alone))
    assert used < 0.6 * used_alone
