"""What the planner does with trials that their policy stops or pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import P, of, orders, sound, why

from podium_core.domain.actions import CreateTrial, DeletePod, EndTrial, Plan
from podium_core.domain.phase import TrialPhase
from podium_core.domain.population import Lineage, Population
from podium_core.domain.snapshot import Scalar, Snapshot
from podium_core.planning.early_stopping import PLACING_SECONDS
from podium_core.testing.builders import change_trial, make_gpu, make_job, make_snapshot, make_trial

AT_RUNG = [[0.1, 0.2], [0.1, 0.8], [0.1, 0.4], [0.1, 0.6]]  # two points: the only rung of a search of four steps
ONE_VALUE = [[0.2], [0.8], [0.4], [0.6]]
HALVING: dict[str, Scalar] = {"eta": 2, "rungs": 1}


def search(
    curves: list[list[float]],
    *,
    policy: str = "asha",
    settings: dict[str, Scalar] | None = None,
    max_trials: int = 4,
    phase: TrialPhase = P.SUSPENDED,
    suspendable: bool = True,
    health: str = "Healthy",
    gpus_per_trial: int = 1,
) -> Snapshot:
    """All trials on one GPU, which has a slot for each of them and no more."""
    job = make_job(
        policy=policy,
        settings={**HALVING, **(settings or {})} if policy == "asha" else settings,
        max_steps=4.0,
        max_trials=max_trials,
        parallel=len(curves),
        suspendable=suspendable,
        checkpointable=not suspendable,
        gpus_per_trial=gpus_per_trial,
    )
    places = ["gpu-0"] if gpus_per_trial else []
    trials = [
        make_trial(i, values=c, phase=phase if c else P.GATED, gpus=places, gpu_seconds=len(c))
        for i, c in enumerate(curves)
    ]
    gpu = make_gpu(slots=len(curves), trials=[t.key for t in trials], health=health)
    return make_snapshot(jobs=[job], trials=trials, gpus=[gpu])


def ended(made: Plan) -> dict[str, str]:
    found = {a.trial.name: a.reason for a in of(made, EndTrial) if isinstance(a, EndTrial)}
    assert all(a.phase is P.EARLY_STOPPED for a in of(made, EndTrial) if isinstance(a, EndTrial))
    assert {a.trial.name for a in of(made, DeletePod) if isinstance(a, DeletePod)} == set(found)
    return found


def test_a_trial_that_is_not_promoted_gets_no_gpu() -> None:
    made = sound(search(AT_RUNG))
    assert orders(made) == {"gpu-0": ["job-1", "job-3"]}
    assert (why(made, "job-0"), why(made, "job-2")) == ("PausedByPolicy", "PausedByPolicy")
    assert ended(made) == {}


def test_the_next_trial_runs_while_others_are_paused() -> None:
    """One at the rung is too few for a promotion: it waits although the GPU is idle; the new trial takes it."""
    made = sound(search([[0.1, 0.9], []]))
    assert orders(made) == {"gpu-0": ["job-1"]}


def test_on_cut_stop_ends_the_trial() -> None:
    """The first of those at the rung was the best when it came."""
    made = sound(search(AT_RUNG, settings={"onCut": "stop"}))
    assert ended(made) == {"job-2": "StoppedByPolicy"}
    assert orders(made) == {"gpu-0": ["job-1", "job-3", "job-0"]}


TO_THE_END: list[tuple[str, dict[str, Scalar], dict[str, str]]] = [
    ("asha", {"onCut": "stop"}, {"job-5": "StoppedByPolicy"}),
    ("asha", {"onCut": "suspend"}, {"job-5": "PolicyDone"}),
    ("median_stop", {"onCut": "stop"}, {"job-5": "StoppedByPolicy"}),
    ("median_stop", {"onCut": "suspend"}, {"job-5": "PolicyDone"}),
    ("pop", {"onCut": "stop"}, {"job-5": "StoppedByPolicy"}),
    ("pop", {"onCut": "suspend"}, {"job-5": "PolicyDone"}),
]


@pytest.mark.parametrize(("policy", "settings", "before"), TO_THE_END, ids=str)
def test_a_fully_trained_trial_is_not_stopped_while_it_saves_its_model(
    policy: str, settings: dict[str, Scalar], before: dict[str, str]
) -> None:
    """The last of six, behind all others: a step before maxSteps it is cut, and no more once it has done them."""
    job = make_job(policy=policy, settings=settings, max_steps=20.0, max_trials=6, parallel=6)
    good = [[0.5 + 0.3 * (1 - 0.8**i) - 0.01 * k for i in range(1, 21)] for k in range(5)]
    over = [make_trial(k, phase=P.SUCCEEDED, values=c, gpu_seconds=20.0, finished_at=500.0) for k, c in enumerate(good)]
    for steps, expected in ((19, before), (20, {})):
        values = [0.2 + 0.02 * i for i in range(1, steps + 1)]
        last = make_trial(5, phase=P.RUNNING, values=values, gpus=["gpu-0"], gpu_seconds=float(steps))
        made = sound(make_snapshot(jobs=[job], trials=[*over, last], gpus=[make_gpu(trials=[last.key])]))
        assert ended(made) == expected
    assert orders(made) == {"gpu-0": ["job-5"]}


def test_a_pin_takes_precedence_over_the_policy() -> None:
    for on_cut in ("suspend", "stop"):
        snapshot = search(AT_RUNG, settings={"onCut": on_cut})
        pinned = [change_trial(t, pinned=t.number == 0) for t in snapshot.trials]
        made = sound(replace(snapshot, trials=tuple(pinned)))
        assert orders(made)["gpu-0"][0] == "job-0"
        assert "job-0" not in ended(made)


LATE = [
    # with eta 5 the rung lies at step 0.8, with eta 4 at 1: all four stand on it, and four are too few for one in five
    ("all are created: the best continues to the end", {"eta": 5}, 4, "Healthy", {}),
    ("a trial is still to come", {"eta": 5}, 5, "Healthy", {"job-0": "SlotNeeded"}),
    ("on an unhealthy GPU nothing is won by it", {"eta": 5}, 5, "Unhealthy", {}),
    ("someone is wanted", {"eta": 4}, 4, "Healthy", {}),
]


@pytest.mark.parametrize(
    ("settings", "max_trials", "health", "expected"), [row[1:] for row in LATE], ids=[row[0] for row in LATE]
)
def test_a_paused_trial_can_end(
    settings: dict[str, Scalar], max_trials: int, health: str, expected: dict[str, str]
) -> None:
    made = sound(search(ONE_VALUE, settings=settings, max_trials=max_trials, health=health))
    assert ended(made) == expected
    assert of(made, CreateTrial) == []


def test_all_paused_trials_end_if_the_policy_selects_none() -> None:
    snapshot = search(ONE_VALUE, settings={"eta": 6}, max_trials=5)
    whole = make_trial(4, values=[0.3] * 4, phase=P.SUCCEEDED, gpu_seconds=4.0)
    made = sound(replace(snapshot, trials=(*snapshot.trials, whole)))
    assert ended(made) == dict.fromkeys([f"job-{i}" for i in range(4)], "PolicyDone")


def test_one_slot_at_a_time_is_freed() -> None:
    """The trial that was ended still has its pod: its slot is not free yet, and no second one ends for it."""
    snapshot = search(ONE_VALUE, settings={"eta": 5}, max_trials=5)
    trials = [replace(t, phase=P.EARLY_STOPPED) if t.number == 0 else t for t in snapshot.trials]
    made = sound(replace(snapshot, trials=tuple(trials)))
    assert of(made, EndTrial) == []


HOMELESS = [
    ("nothing is known of why", {"stuck": True}, None, {}, None),
    ("others have its capacity", {"stuck": True, "waits_for_capacity": True}, None, {"job-0": "SlotNeeded"}, None),
    ("a slot was left a moment ago", {"stuck": True, "waits_for_capacity": True}, -10.0, {}, PLACING_SECONDS - 10.0),
    ("it did not help", {"stuck": True, "waits_for_capacity": True}, -PLACING_SECONDS, {"job-0": "SlotNeeded"}, None),
]


@pytest.mark.parametrize(
    ("pod", "left", "expected", "wake"), [row[1:] for row in HOMELESS], ids=[row[0] for row in HOMELESS]
)
def test_a_paused_trial_ends_for_a_pod_without_a_node(
    pod: dict[str, bool], left: float | None, expected: dict[str, str], wake: float | None
) -> None:
    """Shares are free, but not the memory, or the CPUs: no trial would ever work again."""
    snapshot = search(ONE_VALUE, settings={"eta": 6}, max_trials=6)
    new = make_trial(4, pod="job-4-0", **pod)
    if left is not None:
        left += snapshot.now
    before = make_trial(5, values=[0.1], phase=P.EARLY_STOPPED, gpu_seconds=1.0, finished_at=left)
    trials = (*snapshot.trials, new, *([before] if left is not None else []))
    made = sound(replace(snapshot, trials=trials))
    assert ended(made) == expected
    assert made.wake_at == (None if wake is None else snapshot.now + wake)


def test_a_trial_that_cannot_be_suspended_runs_until_another_needs_its_gpu() -> None:
    snapshot = search([[0.1, 0.2]], settings={"eta": 2}, phase=P.RUNNING, suspendable=False)
    assert orders(sound(snapshot)) == {"gpu-0": ["job-0"]}


def test_no_trial_is_paused_without_gpus() -> None:
    made = sound(search(AT_RUNG, phase=P.RUNNING, gpus_per_trial=0))
    assert ended(made) == {}
    assert {why(made, f"job-{i}") for i in range(4)} == {"NoGPUAssigned"}


def test_paused_members_do_not_end_while_a_founder_is_to_come() -> None:
    """A child has ended and four of five founders exist: one of them ends so that the fifth gets its slot."""
    snapshot = search(ONE_VALUE, settings={"eta": 6}, max_trials=12)
    job = replace(snapshot.jobs[0], population=Population(5, 1.0, 0.5))
    child = make_trial(5, values=[0.3] * 4, phase=P.SUCCEEDED, lineage=Lineage("job-1", "uid-job-1", 1, 1.0, "job-9"))
    made = sound(replace(snapshot, jobs=(job,), trials=(*snapshot.trials, child)))
    assert ended(made) == {"job-0": "SlotNeeded"}
