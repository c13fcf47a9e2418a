"""Statuses of trials and jobs as the operator writes them."""

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import (
    NOW,
    accepted,
    ended,
    make_cluster_state,
    make_job,
    make_node,
    make_pod,
    make_trial,
    moment,
)

from podium_core.curves.prediction.final_value import Forecast
from podium_core.domain.actions import EndJob, EndTrial, TrialRank
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.planning.eta import Eta
from podium_core.schema.job import HyperParamJob
from podium_operator.observe.cluster_state import trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.trial_state import TrialState
from podium_operator.report.job_status import JobReport, job_status
from podium_operator.report.trial_status import TrialReport, trial_status

KEY = TrialKey("lab", "sweep-0", "uid-sweep-0")
RANKING = TrialRank(KEY, 2, "Rank", "Second of two.")
RUNNING = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
POINTS = {"points": [{"step": 1, "value": 0.3, "time": NOW}, {"step": 2, "value": 0.7, "time": NOW}]}


def shown(
    status: dict[str, Any],
    pod: dict[str, Any] | None = None,
    *,
    agent: str | None = None,
    ranking: TrialRank | None = RANKING,
    end: EndTrial | None = None,
    job: HyperParamJob | None = None,
    predicted: Forecast | None = None,
) -> dict[str, Any]:
    trial, owner = make_trial(**status), job or make_job()
    objects: list[Any] = [owner, trial, make_node(trials={"sweep-0": agent} if agent else {})]
    if pod is not None:
        objects.append(make_pod(**pod))
    observation = observe(make_cluster_state(*objects))[trial_key(trial)]
    return trial_status(trial, owner, observation, TrialReport(ranking, end, predicted), NOW)


def test_the_condition_that_gpu_memory_was_exceeded_is_kept() -> None:
    failed = {**ended(1), "terminated": {**ended(1)["terminated"], "message": "CUDA out of memory: 9 bytes"}}
    pod = {"phase": "Failed", "node": "node-1", "gate": ended(0), "main": failed}
    status = shown({"phase": "Running", "pod": "sweep-0-0"}, pod)
    (condition,) = status["conditions"]
    assert (status["reason"], condition["type"], condition["status"]) == (
        "GPUMemoryExceeded",
        "GPUMemoryExceeded",
        "True",
    )
    assert "'CUDA out of memory: 9 bytes'" in condition["message"]
    later = shown({"phase": "Requeued", "attempt": 1, "conditions": [condition]}, {"attempt": 1})
    assert later["conditions"] == [condition]


def test_a_running_trial_shows_its_rank_and_gpu() -> None:
    status = shown({"phase": "Gated", "pod": "sweep-0-0", "curve": POINTS}, RUNNING, agent="Running")
    assert status == {
        "phase": "Running",
        "reason": "Rank",
        "message": "Second of two.",
        "rank": 2,
        "attempt": 0,
        "failures": 0,
        "pod": "sweep-0-0",
        "node": "node-1",
        "nodes": ["node-1"],
        "gpus": ["GPU-1"],
        "startedAt": moment(),
        "best": {"step": 2.0, "value": 0.7},
    }


def test_the_nodes_of_earlier_pods_may_still_write() -> None:
    """The agent of the old node reports the end of its pod, perhaps after the next pod has a node."""
    earlier = ["node-2", "node-1", "node-3", "node-4"]
    assert shown({"nodes": earlier}, RUNNING)["nodes"] == ["node-1", "node-2", "node-3", "node-4"]
    assert shown({"nodes": ["a", "b", "c", "d"]}, RUNNING)["nodes"] == ["node-1", "a", "b", "c"]
    assert shown({"nodes": earlier, "phase": "Succeeded"}, {"node": None})["nodes"] == earlier


def test_the_problem_of_a_pod_is_reported_before_its_rank() -> None:
    missing = {"gate": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    status = shown({"pod": "sweep-0-0"}, missing, agent="Gated")
    assert (status["phase"], status["reason"]) == ("Pending", "ImagePullBackOff")
    assert "no such image" in status["message"]


def test_a_container_that_cannot_be_created_is_reported_before_the_rank() -> None:
    broken = {"gate": ended(0), "main": {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}}
    status = shown({"phase": "Gated", "pod": "sweep-0-0"}, broken, agent="Starting")
    assert status["reason"] == "CreateContainerConfigError"
    assert "no secret" in status["message"]


def test_the_reason_of_a_requeue_is_reported_once_then_what_the_trial_waits_for() -> None:
    failed = {"phase": "Failed", "gate": ended(0), "main": ended(3)}
    first = shown({"phase": "Running", "pod": "sweep-0-0"}, failed)
    assert (first["phase"], first["reason"], first["failures"]) == ("Requeued", "ProcessFailed", 1)
    waiting = TrialRank(KEY, 2, "BackOff", "waits")
    assert shown({"phase": "Requeued", "failures": 1}, failed, ranking=waiting)["reason"] == "BackOff"


def test_a_finished_trial_keeps_its_node_gpus_and_rank() -> None:
    stored = {
        "phase": "Succeeded",
        "reason": "Completed",
        "message": "done",
        "rank": 3,
        "pod": "sweep-0-0",
        "node": "n",
        "gpus": ["g"],
        "startedAt": moment(-60),
        "finishedAt": moment(-5),
        "curve": POINTS,
    }
    status = shown(stored, None, ranking=None)
    assert {key: status[key] for key in stored if key != "curve"} == {k: v for k, v in stored.items() if k != "curve"}


def test_an_end_by_the_planner() -> None:
    end = EndTrial(KEY, TrialPhase.EARLY_STOPPED, "StoppedByUser", "stopped")
    status = shown({"phase": "Running", "pod": "sweep-0-0"}, RUNNING, end=end)
    assert (status["phase"], status["reason"], status["finishedAt"]) == ("EarlyStopped", "StoppedByUser", moment())


def test_a_trial_ends_when_its_process_ended() -> None:
    done = {"phase": "Succeeded", "gate": ended(0), "main": ended(0, after=-60)}
    status = shown({"phase": "Running", "pod": "sweep-0-0", "curve": POINTS}, done)
    assert (status["phase"], status["finishedAt"]) == ("Succeeded", moment(-60))
    assert "conditions" not in status


def test_a_trial_without_its_metric_gets_a_condition() -> None:
    done = {"phase": "Succeeded", "gate": ended(0), "main": ended(0, after=-60)}
    (condition,) = shown({"phase": "Running", "pod": "sweep-0-0"}, done)["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "MetricsUnavailable",
        "True",
        "ObjectiveMissing",
    )
    assert "'acc'" in condition["message"]


@pytest.mark.parametrize(
    ("printed", "missing"),
    [((), "'loss', 'f1'"), (("f1",), "'loss'"), (("f1", "loss"), None), (("x",), "'loss', 'f1'")],
)
def test_a_trial_without_an_additional_metric_gets_a_condition(printed: tuple[str, ...], missing: str | None) -> None:
    done = {"phase": "Succeeded", "gate": ended(0), "main": ended(0, after=-60)}
    job = make_job(objective={"metric": "acc", "direction": "maximize", "additionalMetrics": ["loss", "f1"]})
    recorded = [{"metric": name, "step": 1, "latest": "nan"} for name in printed]
    stored = {"phase": "Running", "pod": "sweep-0-0", "curve": POINTS, "additionalMetrics": recorded}
    found = shown(stored, done, job=job).get("conditions", [])
    assert [condition["reason"] for condition in found] == ([] if missing is None else ["MetricsMissing"])
    assert all(f"never printed {missing} (format json)" in condition["message"] for condition in found)


def test_a_running_trial_whose_log_yields_no_value_gets_a_condition() -> None:
    unread = {"lines": 40, "reason": "acc is not followed by = or :", "last": ["acc 0.5", "done"]}
    stored = {"phase": "Running", "pod": "sweep-0-0", "unreadLog": unread}
    (condition,) = shown(stored, RUNNING)["conditions"]
    assert (condition["type"], condition["reason"]) == ("MetricsUnavailable", "NoValueRead")
    assert (
        "No value of 'acc' was read from 40 lines (format json): acc is not followed by = or :." in condition["message"]
    )
    assert condition["message"].endswith("The last lines are:\n  acc 0.5\n  done")
    since = condition | {"lastTransitionTime": moment(-50)}
    assert shown(stored | {"conditions": [since]}, RUNNING)["conditions"] == [since], "the time is that of the change"
    (condition,) = shown(stored | {"curve": POINTS}, RUNNING)["conditions"]
    assert condition["message"].startswith("No value of 'acc' was read after step "), "the source has failed since"


def test_the_end_waits_for_values_that_are_still_being_read() -> None:
    just_now = {"phase": "Succeeded", "gate": ended(0), "main": ended(0, after=-1)}
    assert shown({"phase": "Running", "pod": "sweep-0-0"}, just_now)["phase"] == "Running"
    complete = {"phase": "Running", "pod": "sweep-0-0", "lastStep": 10}
    assert shown(complete, just_now)["phase"] == "Succeeded", "maxSteps was reported: nothing to wait for"


def test_a_trial_without_gpu_is_not_ranked() -> None:
    status = shown(
        {"phase": "Pending", "pod": "sweep-0-0"},
        {"gated": False, "phase": "Running", "main": {"running": {}}},
        ranking=TrialRank(KEY, 1, "NoGPUAssigned", "no slot"),
        job=make_job(gpus={"perTrial": 0}),
    )
    assert (status["phase"], status["reason"]) == ("Running", "NotRanked")
    assert "rank" not in status


def of_job(job: HyperParamJob, *trials: TrialState, size: int = 3, **how: Any) -> dict[str, Any]:
    observations = observe(make_cluster_state(job, *trials))
    return job_status(job, trials, observations, JobReport(size, **how), NOW)


def test_a_prediction_is_shown_until_the_trial_has_ended() -> None:
    said = Forecast(0.8, 0.75, 0.9, 0.8)
    running = shown({"phase": "Running", "pod": "sweep-0-0", "curve": POINTS}, RUNNING, agent="Running", predicted=said)
    assert running["predicted"] == {"value": 0.8, "low": 0.75, "high": 0.9}
    over = EndTrial(KEY, TrialPhase.EARLY_STOPPED, "StoppedByPolicy", "It was given up.")
    assert "predicted" not in shown({"phase": "Running", "curve": POINTS}, end=over, predicted=said)


def test_counts_best_and_figures_of_a_job() -> None:
    first = make_trial(0, phase="Succeeded", curve=POINTS, gpuSeconds=1800, parameters={"lr": 0.1})
    second = make_trial(1, phase="Failed", suspensions={"count": 2, "suspendSeconds": 0.5, "resumeSeconds": 0.25})
    third = make_trial(2)
    status = of_job(make_job(), first, second, third)
    assert status["trials"] == {"created": 3, "pending": 1, "running": 0, "suspended": 0, "succeeded": 1, "failed": 1}
    assert (status["phase"], status["done"], status["suspensions"], status["gpuHours"]) == ("Running", "2/3", 2, 0.5)
    assert status["gpuSeconds"] == {"training": 1800, "switching": 0.75}
    assert status["best"] == {"trial": "sweep-0", "value": 0.7, "step": 2.0, "parameters": {"lr": 0.1}}
    assert status["observedGeneration"] == 1


def test_a_job_that_is_left_out_has_a_condition_until_it_ends() -> None:
    why = "policy slaq could not rank its trials"
    recorded = of_job(make_job(), make_trial(0), left_out=why)["conditions"]
    assert {one["type"]: (one["status"], one["reason"]) for one in recorded}["Ranked"] == ("False", "PolicyFailed")
    assert recorded[-1]["message"].startswith(f"{why}: the job is left unchanged")
    over = of_job(
        make_job(status={"phase": "Succeeded", "reason": "AllTrialsEnded", "observedGeneration": 1}), left_out=why
    )
    assert [one["type"] for one in over["conditions"]] == ["Complete"]


def test_lost_work_of_ended_pods_is_summed() -> None:
    lost = [{"count": 1, "steps": 3, "gpuSeconds": 4.5}, {"count": 2, "steps": 2.5, "gpuSeconds": 1}]
    trials = [make_trial(number, lostWork=one) for number, one in enumerate(lost)]
    assert of_job(make_job(), *trials, make_trial(2))["lostWork"] == {"steps": 5.5, "gpuSeconds": 5.5}


def test_the_first_of_equally_good_trials_is_the_best() -> None:
    trials = [make_trial(number, phase="Succeeded", curve=POINTS) for number in (2, 0, 1)]
    assert of_job(make_job(), *trials)["best"]["trial"] == "sweep-0"


def test_a_minimising_job_takes_the_lowest() -> None:
    job = make_job(objective={"metric": "loss", "direction": "minimize"})
    assert of_job(job, make_trial(0, curve=POINTS))["best"]["value"] == 0.3


PHASES: list[tuple[str, dict[str, Any], list[TrialState], str, str]] = [
    ("new", {"status": {"conditions": []}}, [], "Pending", "ValidationPending"),
    ("refused", {"status": {"conditions": [accepted("False")]}}, [], "Refused", "InvalidFilter"),
    ("its volume is missing", {"status": {"conditions": [accepted("Unknown")]}}, [], "Pending", "InvalidFilter"),
    ("no trial yet", {}, [], "Pending", "WaitingForGPU"),
    ("waits for a GPU", {}, [make_trial()], "Pending", "WaitingForGPU"),
    ("some ended", {}, [make_trial(phase="Succeeded"), make_trial(1)], "Running", "TrialsRunning"),
    ("suspended", {"suspend": True}, [make_trial()], "Suspended", "SuspendedByUser"),
    ("over", {"status": {"phase": "Failed", "reason": "JobWas", "observedGeneration": 1}}, [], "Failed", "JobWas"),
    ("edited after its end", {"status": {"conditions": [accepted()], "phase": "Succeeded", "observedGeneration": 1},
                              "generation": 2}, [make_trial(phase="Succeeded")], "Running", "TrialsRunning"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "trials", "phase", "reason"), [p[1:] for p in PHASES], ids=[p[0] for p in PHASES])
def test_phase_of_a_job(how: dict[str, Any], trials: list[TrialState], phase: str, reason: str) -> None:
    status = of_job(make_job(**how), *trials)
    assert (status["phase"], status["reason"]) == (phase, reason)


def test_the_end_of_a_job() -> None:
    end = EndJob(JobKey("lab", "sweep"), True, "TargetReached", "reached")
    status = of_job(make_job(), make_trial(phase="Succeeded"), end=end)
    assert (status["phase"], status["reason"], status["finishedAt"]) == ("Succeeded", "TargetReached", moment())
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Complete", "True", "TargetReached")


def test_a_condition_keeps_its_transition_time() -> None:
    before = {"type": "Complete", "status": "False", "reason": "x", "lastTransitionTime": moment(-100)}
    job = make_job(status={"conditions": [accepted(), before]})
    assert of_job(job)["conditions"][0]["lastTransitionTime"] == moment(-100)


def test_the_eta_is_rounded_so_that_it_rarely_changes() -> None:
    trials = [make_trial(phase="Succeeded"), make_trial(1)]
    etas = {of_job(make_job(), *trials, eta=Eta(seconds, ""))["eta"] for seconds in (41.0, 44.0, 49.9)}
    assert etas == {moment(50)}


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2.5e11, True), (2.6e11, False), (6e12, False), (float("inf"), False), (None, False)]
)
def test_no_eta_beyond_the_calendar(seconds: float | None, shown: bool) -> None:
    """maxSteps 1e9 for "no limit" would be the year 192158."""
    trials = [make_trial(phase="Succeeded"), make_trial(1)]
    assert ("eta" in of_job(make_job(), *trials, eta=Eta(seconds, ""))) is shown
