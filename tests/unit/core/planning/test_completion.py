"""Ends in the planner: which trials and jobs have ended, what is left behind, and how long the rest takes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from plans import FAST, RUN, SLOW, P, created, holding, numbers, on_gpu, orders, sound

from podium_core.domain.actions import DeletePod, EndJob, EndTrial, Plan
from podium_core.domain.phase import TrialPhase
from podium_core.planning.eta import estimate
from podium_core.testing.builders import change_job, change_trial, make_gpu, make_job, make_snapshot, make_trial


def ends(made: Plan) -> dict[str, tuple[TrialPhase, str]]:
    return {a.trial.name: (a.phase, a.reason) for a in made.actions if isinstance(a, EndTrial)}


def job_end(made: Plan) -> tuple[bool, str] | None:
    return next(((a.succeeded, a.reason) for a in made.actions if isinstance(a, EndJob)), None)


def test_target_reached_ends_the_job_and_frees_the_rest() -> None:
    job = make_job(target=0.9)
    trials = [*on_gpu(SLOW, FAST), make_trial(2), make_trial(3, phase=P.SUCCEEDED, values=SLOW)]
    made = sound(make_snapshot(jobs=[job], trials=trials, gpus=[make_gpu()]))
    assert ends(made) == {
        "job-0": (P.EARLY_STOPPED, "TargetReachedByRival"),
        "job-1": (P.SUCCEEDED, "TargetReached"),
        "job-2": (P.EARLY_STOPPED, "TargetReachedByRival"),
    }
    assert [a.trial.name for a in made.actions if isinstance(a, DeletePod)] == ["job-0", "job-1"]
    assert job_end(made) == (True, "TargetReached")
    assert numbers(made) == created(made) == []


WORST = sys.float_info.max  # what stands for NaN in a curve


@pytest.mark.parametrize(
    ("maximize", "target", "curves", "winner"),
    [
        (False, 0.5, [[0.9, 0.6], [0.8, 0.5]], 1),  # as good is good enough
        (False, 0.5, [[0.9, 0.4, 0.7], [0.8, 0.6]], 0),  # also where it went up again
        (False, 0.5, [[0.9, 0.6], [0.8, 0.55]], None),
        (False, 0.5, [[-WORST], [WORST]], None),
        (False, -1.0, [[0.1], [-1.5]], 1),
        (True, 0.5, [[0.4], [WORST]], None),
        (True, 0.5, [[0.55], [0.6]], 1),  # the best of several
        (True, 0.5, [[0.5], [0.5]], 0),
        (True, 0.0, [[-0.1], []], None),
    ],
)
def test_which_trial_reaches_the_target(
    maximize: bool, target: float, curves: list[list[float]], winner: int | None
) -> None:
    job = make_job(target=target, maximize=maximize)
    made = sound(make_snapshot(jobs=[job], trials=on_gpu(*curves), gpus=[make_gpu()]))
    reached = [name for name, end in ends(made).items() if end == (P.SUCCEEDED, "TargetReached")]
    assert reached == ([] if winner is None else [f"job-{winner}"])
    assert (job_end(made) == (True, "TargetReached")) is (winner is not None)


@pytest.mark.parametrize(
    ("phases", "max_trials", "expected"),
    [
        ([P.SUCCEEDED, P.FAILED, P.SUCCEEDED], 3, (True, "AllTrialsEnded")),
        ([P.SUCCEEDED, P.FAILED], 3, None),
        ([P.SUCCEEDED, P.RUNNING, P.SUCCEEDED], 3, None),
        ([P.FAILED, P.FAILED, P.KILLED], 3, (False, "NoTrialSucceeded")),
        ([P.FAILED] * 4 + [P.RUNNING], 9, (False, "TooManyFailedTrials")),
    ],
)
def test_when_a_job_is_over(phases: list[TrialPhase], max_trials: int, expected: tuple[bool, str] | None) -> None:
    trials = [make_trial(i, phase=phase) for i, phase in enumerate(phases)]
    made = sound(make_snapshot(jobs=[make_job(max_trials=max_trials, max_failed=3)], trials=trials, gpus=[make_gpu()]))
    assert job_end(made) == expected
    if expected == (False, "TooManyFailedTrials"):
        assert ends(made) == {"job-4": (P.KILLED, "JobFailed")}


@pytest.mark.parametrize(
    ("phase", "max_trials", "sentence"),
    [
        (P.SUCCEEDED, 1, "The only trial ended: 1 succeeded, 0 stopped early, 0 failed."),
        (P.FAILED, 2, "1 trial failed; trials.maxFailed allows 0. The first: job-0."),
    ],
)
def test_the_message_for_a_single_trial(phase: TrialPhase, max_trials: int, sentence: str) -> None:
    mine = make_job(max_trials=max_trials, max_failed=0)
    made = sound(make_snapshot(jobs=[mine], trials=[make_trial(0, phase=phase)]))
    assert [action.message for action in made.actions if isinstance(action, EndJob)] == [sentence]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"budget_gpu_seconds": 5.0}, "BudgetSpent"), ({"deadline": 1000.0}, "DeadlinePassed")],
)
def test_budgets(change: dict[str, float], reason: str) -> None:
    job = make_job(**change)  # type: ignore[arg-type]
    made = sound(make_snapshot(jobs=[job], trials=on_gpu(SLOW, FAST), gpus=[make_gpu()]))
    assert job_end(made) == (True, reason)
    assert set(ends(made).values()) == {(P.EARLY_STOPPED, reason)}


def test_a_trial_stopped_by_its_owner() -> None:
    trials = on_gpu(FAST, SLOW)
    trials[0] = change_trial(trials[0], stopped=True)
    made = sound(holding(trials))
    assert ends(made) == {"job-0": (P.EARLY_STOPPED, "StoppedByUser")}
    assert orders(made) == {"gpu-0": ["job-1"]}
    kinds = [type(a) for a in made.actions]
    assert kinds.index(DeletePod) < kinds.index(EndTrial), "else a crash in between leaves a pod that no trial stops"


def test_max_steps_ends_no_trial() -> None:
    done = on_gpu([0.1 * i for i in range(10)])
    made = sound(make_snapshot(jobs=[make_job(max_steps=10)], trials=done, gpus=[make_gpu()]))
    assert ends(made) == {}


def test_pods_left_by_a_dead_planner_are_deleted() -> None:
    job = make_job(finished=True)
    trials = [
        make_trial(0, phase=P.EARLY_STOPPED, pod="job-0-0"),
        make_trial(1, phase=RUN, pod="job-1-0"),
        make_trial(2, phase=P.SUCCEEDED, pod="job-2-0"),
        make_trial(3, phase=P.SUCCEEDED),
    ]
    made = sound(make_snapshot(jobs=[job], trials=trials))
    assert [a.trial.name for a in made.actions if isinstance(a, DeletePod)] == ["job-0", "job-2", "job-1"]
    assert ends(made) == {"job-1": (P.KILLED, "JobFinished")}
    assert job_end(made) is None


# time left


def test_eta() -> None:
    job = make_job(max_trials=4, parallel=4, max_steps=10)
    started = make_trial(0, values=[0.1] * 5, gpus=["gpu-0"], gpu_seconds=10.0)
    snapshot = make_snapshot(jobs=[job], trials=[started], gpus=[make_gpu(), make_gpu("gpu-1")])
    assert estimate(job, snapshot).seconds == pytest.approx((10 + 3 * 20) / 2)
    assert estimate(job, replace(snapshot, trials=())).seconds is None
    assert estimate(job, replace(snapshot, gpus=())).seconds is None
    assert estimate(change_job(job, finished=True), snapshot).seconds == 0.0
    endless = replace(job, max_steps=None)
    over = make_trial(1, phase=P.SUCCEEDED, gpu_seconds=30.0)
    assert estimate(endless, replace(snapshot, trials=(started, over))).seconds == pytest.approx((20 + 2 * 30) / 2)
