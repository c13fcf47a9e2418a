"""What a job takes from earlier searches (`search.warmStart`), and why it waits or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from operator_builders import make_job, moment

from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import MAX_WARM_START_TRIALS
from podium_core.schema.trial import HyperParamTrial
from podium_operator.jobs.acceptance import condition
from podium_operator.jobs.warm_start import EarlierSearch, WarmStart, warm_start
from podium_searchers.search import propose, warm_start_results

LEARNS = {"algorithm": "tpe", "warmStart": {"jobs": ["old"]}}


def new_job(**spec: Any) -> HyperParamJob:
    return make_job("new", search=LEARNS, **spec)


def old_job(phase: str = "Succeeded", **spec: Any) -> HyperParamJob:
    return make_job("old", status={"phase": phase, "observedGeneration": 1}, **spec)


def trial(number: int, value: float | None = 0.5, phase: str = "Succeeded", **parameters: Any) -> HyperParamTrial:
    status: dict[str, Any] = {"phase": phase, "lastStep": 10.0, "finishedAt": moment(number)}
    if value is not None:
        status["best"] = {"value": value, "step": 9.0}
    return HyperParamTrial.model_validate(
        {
            "metadata": {"name": f"old-{number}", "namespace": "lab", "uid": f"old-{number}"},
            "spec": {"job": "old", "number": number, "parameters": parameters or {"lr": 0.01}},
            "status": status,
        }
    )


def taken(trials: Sequence[HyperParamTrial], job: HyperParamJob | None = None) -> WarmStart:
    return warm_start(job or new_job(), [EarlierSearch("old", old_job(), trials)])


def test_ended_trials_of_the_space_are_used() -> None:
    trials = [
        trial(0, 0.7, lr=0.02),
        trial(1, 0.6, "EarlyStopped", lr=0.03),
        trial(2, 0.9, "Failed", lr=0.04),
        trial(3, None, lr=0.05),
        trial(4, 0.8, lr=0.5),
        trial(5, 0.8, lr=0.01, momentum=0.9),
    ]
    status = taken(trials).status
    assert (status["used"], status["ended"]) == (2, 4)
    assert [(one["trial"], one["value"], one["completed"]) for one in status["trials"]] == [
        ("old-0", 0.7, True),
        ("old-1", 0.6, False),
    ]
    assert "2 of 4 ended trials of old are used" in status["message"]
    assert "old-4: lr must be a number from 0.001 to 0.1" in status["message"]


def test_of_many_trials_the_best_and_the_latest_are_kept() -> None:
    trials = [trial(number, 1.0 - number / 1000, lr=0.001 + number / 10_000) for number in range(300)]
    status = taken(trials).status
    assert status["used"] == len(status["trials"]) == MAX_WARM_START_TRIALS
    half = MAX_WARM_START_TRIALS // 2
    assert [one["trial"] for one in status["trials"]] == [f"old-{n}" for n in [*range(half), *range(300 - half, 300)]]
    assert "at most 100" in status["message"]


@pytest.mark.parametrize(
    ("earlier", "status", "reason", "word"),
    [
        (EarlierSearch("old", None), "Unknown", "WarmStartPending", "does not exist"),
        (EarlierSearch("old", old_job("Running")), "Unknown", "WarmStartPending", "has not ended"),
        (EarlierSearch("new", old_job()), "False", "WarmStartFromItself", "this job itself"),
        (
            EarlierSearch("old", old_job(objective={"metric": "loss", "direction": "minimize"})),
            "False",
            "WarmStartObjectiveDiffers",
            "minimize loss",
        ),
    ],
    ids=["missing", "running", "itself", "other objective"],
)
def test_a_job_that_cannot_start_says_why(earlier: EarlierSearch, status: str, reason: str, word: str) -> None:
    job = new_job()
    found = condition(
        {"metadata": {"name": "new", "namespace": "lab"}, "spec": job.spec.model_dump(by_alias=True, mode="json")},
        moment(),
        None,
        warm_start(job, [earlier]),
    )
    assert (found["status"], found["reason"]) == (status, reason)
    assert word in found["message"]
    assert "spec.search.warmStart.jobs" in found["message"]


def test_an_accepted_job_says_what_it_uses() -> None:
    job = new_job()
    manifest = {
        "metadata": {"name": "new", "namespace": "lab"},
        "spec": job.spec.model_dump(by_alias=True, mode="json", exclude_none=True),
    }
    found = condition(manifest, moment(), None, taken([trial(0)]))
    assert found["status"] == "True", found["message"]
    assert "1 of 1 ended trials of old are used" in found["message"]


def test_results_that_the_job_lists_come_before_those_of_jobs() -> None:
    listed = [
        {"parameters": {"lr": 0.02}, "value": 0.4, "step": 10},
        {"parameters": {"lr": 0.03}, "value": 0.3, "step": 4, "completed": False},
        {"parameters": {"lr": 7.0}, "value": 0.9},
    ]
    job = make_job("new", search={"algorithm": "tpe", "warmStart": {"results": listed}})
    alone = warm_start(job, []).status
    assert [(one["trial"], one["value"], one["step"], one["completed"]) for one in alone["trials"]] == [
        ("given-0", 0.4, 10.0, True),
        ("given-1", 0.3, 4.0, False),
    ]
    assert "2 of 3 results that the job lists are used. 1 lie outside this search space (given-2" in alone["message"]
    job = make_job("new", search={"algorithm": "tpe", "warmStart": {"jobs": ["old"], "results": listed}})
    both = taken([trial(0)], job).status
    assert [one["trial"] for one in both["trials"]] == ["given-0", "given-1", "old-0"]
    assert "3 of 4 results that the job lists and ended trials of old are used" in both["message"]


def test_the_first_proposal_depends_on_what_was_stored() -> None:
    trials = [trial(number, -abs(number - 20) / 20, lr=0.001 * 1.1**number) for number in range(40)]
    stored = {"warmStart": taken(trials).status}
    job = make_job("new", status=stored, search=LEARNS, trials={"max": 20, "maxSteps": 10})
    results = warm_start_results(job)
    assert [one.number for one in results] == list(range(-40, 0))
    best = 0.001 * 1.1**20
    drawn = [float((propose(job.spec, number, results) or {})["lr"]) for number in range(10)]
    plain = [float((propose(job.spec, number) or {})["lr"]) for number in range(10)]
    assert sum(best / 3 < lr < best * 3 for lr in drawn) > sum(best / 3 < lr < best * 3 for lr in plain)
