"""A job with several objectives in the operator: the planner's view, the status, conditions, and a warm start."""

from __future__ import annotations

import math
from typing import Any

from operator_builders import make_cluster_state, make_job, make_trial, moment

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Snapshot
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import MAX_WARM_START_TRIALS
from podium_core.schema.trial import HyperParamTrial
from podium_operator.act.actuator import trial_results
from podium_operator.jobs.warm_start import EarlierSearch, warm_start
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.report.job_status import JobReport, job_status
from podium_searchers.search import warm_start_results

PAIR = [{"metric": "acc", "direction": "maximize"}, {"metric": "podium.dev/gpu-seconds", "direction": "minimize"}]
SEVERAL: dict[str, Any] = {"objective": None, "objectives": PAIR, "policy": {"name": "pareto"}}
STEPS: dict[str, Any] = {"trials": {"max": 9, "parallel": 2, "maxSteps": 10}}


def job(name: str = "sweep", **changes: Any) -> HyperParamJob:
    return make_job(name, **{**SEVERAL, **STEPS, **changes})


def curve(last: float, value: float) -> dict[str, Any]:
    points = [{"step": last / 2, "value": 0.99, "time": 1.0}, {"step": last, "value": value, "time": 2.0}]
    return {"curve": {"points": points}, "lastStep": last, "lastValue": value}


DONE = make_trial(0, phase="Succeeded", gpuSeconds=30.0, **curve(10.0, 0.8))
HALF = make_trial(1, phase="Suspended", pod="sweep-1-0", gpuSeconds=10.0, **curve(5.0, 0.7))
WORSE = make_trial(2, phase="Succeeded", gpuSeconds=40.0, **curve(10.0, 0.75))
FAILED = make_trial(3, phase="Failed", gpuSeconds=1.0, **curve(10.0, 0.95))
NEW = make_trial(4)
ALL = (DONE, HALF, WORSE, FAILED, NEW)


def snapshot(search: HyperParamJob) -> Snapshot:
    there = make_cluster_state(search, *ALL)
    return build_snapshot(there, observe(there))


def test_the_planner_sees_the_directions_and_the_values_at_the_last_step() -> None:
    seen = snapshot(job())
    assert seen.jobs[0].directions == (True, False)
    values = {trial.number: trial.result.objective_values for trial in seen.trials}
    assert values[0] == (0.8, 30.0)
    assert values[2] == (0.75, 40.0)
    assert all(map(math.isnan, values[3]))
    assert all(map(math.isnan, values[4]))


def test_a_job_with_one_objective_has_neither() -> None:
    seen = snapshot(make_job())
    assert seen.jobs[0].directions == ()
    assert {trial.result.objective_values for trial in seen.trials} == {()}


def test_the_status_holds_the_front_and_no_best_trial() -> None:
    search = job()
    observations = observe(make_cluster_state(search, *ALL))
    status = job_status(search, ALL, observations, JobReport(9), 100.0)
    assert "best" not in status
    assert {one["trial"]: one["values"] for one in status["paretoFront"]} == {
        "sweep-0": [0.8, 30.0],
        "sweep-1": [0.7, 20.0],
    }
    alone = make_job()
    plain = job_status(alone, ALL, observe(make_cluster_state(alone, *ALL)), JobReport(9), 100.0)
    assert "paretoFront" not in plain
    assert "best" in plain


def test_the_searcher_gets_the_values() -> None:
    results = trial_results(job(), ALL)
    assert [one.values for one in results[:3]] == [(0.8, 30.0), (0.7, 20.0), (0.75, 40.0)]
    assert {one.values for one in trial_results(make_job(), ALL)} == {()}


def earlier(number: int, value: float, seconds: float) -> HyperParamTrial:
    status = {"phase": "Succeeded", "finishedAt": moment(number), "gpuSeconds": seconds, "lastStep": 10.0}
    return HyperParamTrial.model_validate(
        {
            "metadata": {"name": f"old-{number}", "namespace": "lab", "uid": f"old-{number}"},
            "spec": {"job": "old", "number": number, "parameters": {"lr": 0.01}},
            "status": status | {"lastValue": value, "best": {"value": value, "step": 10.0}},
        }
    )


LEARNS = {"algorithm": "tpe", "warmStart": {"jobs": ["old"]}}
OLD_ENDED = {"phase": "Succeeded", "observedGeneration": 1}


def test_a_warm_start_takes_the_values_of_all_objectives() -> None:
    old = job("old", status=OLD_ENDED)
    status = warm_start(job("new", search=LEARNS), [EarlierSearch("old", old, [earlier(0, 0.8, 12.0)])]).status
    assert [one["values"] for one in status["trials"]] == [[0.8, 12.0]]
    stored = job("new", search=LEARNS, status={"warmStart": status})
    assert [(one.number, one.values, one.completed) for one in warm_start_results(stored)] == [(-1, (0.8, 12.0), True)]


def test_of_many_earlier_trials_the_front_is_kept() -> None:
    front = [earlier(number, 0.5 + number / 1000, 10.0 + number) for number in range(20)]
    others = [earlier(number, 0.1, 1000.0 + number) for number in range(20, 300)]
    old = job("old", status=OLD_ENDED)
    status = warm_start(job("new", search=LEARNS), [EarlierSearch("old", old, [*front, *others])]).status
    kept = {one["trial"] for one in status["trials"]}
    assert len(kept) == MAX_WARM_START_TRIALS
    assert {one.metadata.name for one in front} <= kept


def test_other_objectives_are_refused() -> None:
    old = make_job("old", status=OLD_ENDED)
    obstacle = warm_start(job("new", search=LEARNS), [EarlierSearch("old", old)]).obstacle
    assert obstacle is not None
    assert obstacle.code == "WarmStartObjectiveDiffers"
    assert "but this job maximize acc, minimize podium.dev/gpu-seconds" in obstacle.message


def test_every_phase_but_the_failed_ones_counts() -> None:
    counted = {phase for phase in TrialPhase if phase not in (TrialPhase.FAILED, TrialPhase.KILLED)}
    for phase in TrialPhase:
        trial = make_trial(0, phase=phase.value, gpuSeconds=30.0, **curve(10.0, 0.8))
        (result,) = trial_results(job(), [trial])
        assert all(map(math.isfinite, result.values)) is (phase in counted)
