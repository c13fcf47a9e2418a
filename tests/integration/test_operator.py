"""The operator as a process with a real API server; the test acts as kubelet and agent."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from operator_stage import OperatorProcess, Play, Stage, running

from podium_cluster.client import ApiError
from podium_cluster.resources import JOBS, Resource
from podium_core.schema.job import HyperParamJob
from podium_searchers.random import RandomSearcher
from podium_searchers.search import propose, warm_start_results

pytestmark = pytest.mark.integration
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


def job_is(stage: Stage, phase: str) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        return (await stage.status()).get("phase") == phase

    return reached


def phases_are(stage: Stage, phases: dict[str, str]) -> Callable[[], Awaitable[bool]]:
    """Return a condition on all phases.

    The end of a trial may be written one reconciliation after the job's.
    """

    async def reached() -> bool:
        return await stage.phases() == phases

    return reached


async def run_to_end(stage: Stage, *trials: str, value: float = 0.5) -> None:
    """Let each of these trials run, report values and succeed; the trial whose pod is there first runs first."""
    waiting = set(trials)
    while waiting:

        async def running_now() -> list[str]:
            phases = await stage.phases()
            return sorted(name for name in waiting if phases.get(name) == "Running")

        await stage.until(f"one of {', '.join(sorted(waiting))} runs", running_now)
        trial = (await running_now())[0]
        await stage.report(trial, *([0.1] * 9), value + trials.index(trial) / 100)
        await stage.finish(trial)
        waiting.remove(trial)


def test_a_job_from_start_to_end(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("two trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert set(await stage.pods()) == {"sweep-0-0", "sweep-1-0"}, "no more than trials.parallel"
        assert sorted(await stage.run_queue()) == ["sweep-0", "sweep-1"]
        before = (await stage.trials())["sweep-0"]
        assert before["spec"]["number"] == 0
        assert 0.001 <= before["spec"]["parameters"]["lr"] <= 0.1
        await run_to_end(stage, "sweep-0", "sweep-1", "sweep-2")
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        await stage.until("the trials have ended", phases_are(stage, {f"sweep-{n}": "Succeeded" for n in range(3)}))
        status = await stage.status()
        assert (status["reason"], status["done"]) == ("AllTrialsEnded", "3/3")
        trials = await stage.trials()
        assert status["best"]["trial"] == "sweep-2"
        assert status["best"]["value"] == pytest.approx(0.52)
        assert status["best"]["parameters"] == trials["sweep-2"]["spec"]["parameters"]
        assert status["gpuSeconds"]["training"] == pytest.approx(15.0)
        assert {c["type"]: c["status"] for c in status["conditions"]} == {"Accepted": "True", "Complete": "True"}
        for name, trial in trials.items():
            assert trial["status"]["phase"] == "Succeeded"
            assert trial["status"]["pod"] == f"{name}-0"
            assert {"startedAt", "finishedAt", "best"} <= set(trial["status"])
        await stage.wait_for_events(("sweep", "Started"), ("sweep", "NewBest"), ("sweep", "AllTrialsEnded"))

        await stage.edit(trials={"max": 4})
        await stage.until("a raised trials.max starts another trial", lambda: running(stage, "sweep-3"))
        await stage.until("the job runs again", job_is(stage, "Running"))
        assert "finishedAt" not in await stage.status()

    perform(play)


def test_a_killed_operator_creates_nothing_twice(perform: Callable[[Play], None], operator: OperatorProcess) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 6, "parallel": 3, "maxSteps": 10})
        await stage.until("three trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1", "sweep-2"))
        await run_to_end(stage, "sweep-0")
        operator.kill()
        pods, trials = await stage.pods(), await stage.trials()
        operator.start()
        await stage.until("the next trial starts", lambda: running(stage, "sweep-3"))
        later, now = await stage.trials(), await stage.pods()
        for name, trial in trials.items():
            assert later[name]["metadata"]["uid"] == trial["metadata"]["uid"]
            assert later[name]["spec"] == trial["spec"]
        for name, pod in pods.items():
            assert now[name]["metadata"]["uid"] == pod["metadata"]["uid"]
        assert set(now) == {"sweep-0-0", "sweep-1-0", "sweep-2-0", "sweep-3-0"}
        await run_to_end(stage, "sweep-1", "sweep-2", "sweep-3", "sweep-4", "sweep-5")
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        assert len(await stage.pods()) == 6

    perform(play)


def test_an_invalid_job_has_a_reason_and_starts_nothing(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(policy={"name": "hermes", "settings": {"speed": 3}})
        await stage.until("the job is refused", job_is(stage, "Refused"))
        (accepted,) = [c for c in (await stage.status())["conditions"] if c["type"] == "Accepted"]
        assert accepted["status"] == "False"
        assert "policy.settings" in accepted["message"]
        assert await stage.trials() == {}
        await stage.wait_for_events(("sweep", accepted["reason"]))

        await stage.edit(policy={"name": "fifo", "settings": None})
        await stage.until("the corrected job starts", job_is(stage, "Running"))

    perform(play)


def test_a_suspended_job_releases_the_gpu_and_keeps_its_pods(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        pods = {name: pod["metadata"]["uid"] for name, pod in (await stage.pods()).items()}
        await stage.edit(suspend=True)

        async def off() -> bool:
            return await stage.run_queue() == [] and (await stage.status())["phase"] == "Suspended"

        await stage.until("the run queue is empty", off)
        assert {name: pod["metadata"]["uid"] for name, pod in (await stage.pods()).items()} == pods
        await stage.edit(suspend=False)

        async def on() -> bool:
            return len(await stage.run_queue()) == 2

        await stage.until("the trials are in the run queue again", on)

    perform(play)


def test_the_target_ends_the_search(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(objective={"metric": "acc", "direction": "maximize", "target": 0.9})
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        await stage.report("sweep-1", 0.2, 0.95)
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        assert (await stage.status())["reason"] == "TargetReached"
        ends = {"sweep-0": "EarlyStopped", "sweep-1": "Succeeded"}
        await stage.until("each trial has its final phase", phases_are(stage, ends))

        async def gone() -> bool:
            return await stage.pods() == {}

        await stage.until("the pods are gone", gone)
        await stage.wait_for_events(("sweep", "TargetReached"))

    perform(play)


def test_too_many_failures_end_the_job(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 3, "parallel": 2, "maxSteps": 10, "maxFailed": 0, "retries": 0})
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        await stage.finish("sweep-0", code=3)
        await stage.until("the job failed", job_is(stage, "Failed"))
        assert (await stage.status())["reason"] == "TooManyFailedTrials"
        ends = {"sweep-0": "Failed", "sweep-1": "Killed"}
        await stage.until("each trial has its final phase", phases_are(stage, ends))
        assert "exit code 3" in (await stage.trials())["sweep-0"]["status"]["message"]

    perform(play)


def test_a_finished_search_continues_with_raised_limits(perform: Callable[[Play], None]) -> None:
    """First more failures are allowed, then more trials, of which more run at a time."""

    async def play(stage: Stage) -> None:
        limits = {"max": 3, "parallel": 1, "maxSteps": 10, "maxFailed": 0, "retries": 0}
        await stage.submit(trials=limits, search={"algorithm": "tpe", "settings": {"startupTrials": 1}})
        await run_to_end(stage, "sweep-0")
        await stage.until("the second trial runs", lambda: running(stage, "sweep-1"))
        await stage.finish("sweep-1", code=3)
        await stage.until("the job failed", job_is(stage, "Failed"))
        await stage.edit(trials={"maxFailed": 1})
        await run_to_end(stage, "sweep-2", value=0.6)
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        first = {name: trial["spec"] for name, trial in (await stage.trials()).items()}
        ended = (await stage.status())["finishedAt"]

        await stage.edit(trials={"max": 5, "parallel": 2})
        await stage.until("two more trials run", lambda: running(stage, "sweep-3", "sweep-4"))
        await stage.until("the job runs again", job_is(stage, "Running"))
        await run_to_end(stage, "sweep-3", "sweep-4", value=0.7)
        await stage.until("the job has ended again", job_is(stage, "Succeeded"))
        status, trials = await stage.status(), await stage.trials()
        assert (status["done"], status["best"]["trial"]) == ("5/5", "sweep-4")
        assert status["finishedAt"] >= ended
        assert {name: trials[name]["spec"] for name in first} == first, "earlier trials are unchanged"
        drawn = RandomSearcher().propose(HyperParamJob.model_validate(await stage.job()).spec, 3)
        assert trials["sweep-3"]["spec"]["parameters"] != drawn, "tpe learns from the trials before"

    perform(play)


def test_an_edit_that_changes_no_limit_leaves_a_finished_search_finished(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 1, "parallel": 1, "maxSteps": 10})
        await run_to_end(stage, "sweep-0")
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        await stage.edit(ttlSecondsAfterFinished=3600)

        async def observed() -> bool:
            job = await stage.job()
            return bool(job["status"]["observedGeneration"] == job["metadata"]["generation"])

        await stage.until("the operator has seen the edit", observed)
        assert (await stage.status())["phase"] == "Succeeded"
        assert len(await stage.trials()) == 1

    perform(play)


def test_a_search_starts_from_the_results_of_an_earlier_one(perform: Callable[[Play], None]) -> None:
    """It waits until the earlier search has ended, and needs it no more after that."""

    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 3, "parallel": 1, "maxSteps": 10})
        learns = {"algorithm": "tpe", "settings": {"startupTrials": 3}, "warmStart": {"jobs": ["sweep"]}}
        await stage.submit("next", search=learns, trials={"max": 2, "parallel": 1, "maxSteps": 10})

        async def waits() -> bool:
            conditions = (await stage.status("next")).get("conditions", [])
            return any(one["type"] == "Accepted" and one["reason"] == "WarmStartPending" for one in conditions)

        await stage.until("the second job waits", waits)
        await run_to_end(stage, "sweep-0", "sweep-1", "sweep-2")
        await stage.until("the first job has ended", job_is(stage, "Succeeded"))
        await stage.until("the second job runs", lambda: running(stage, "next-0"))
        await stage.wait_for_events(("next", "WarmStarted"))
        warm = (await stage.status("next"))["warmStart"]
        assert (warm["used"], warm["ended"]) == (3, 3)
        assert [one["trial"] for one in warm["trials"]] == ["sweep-0", "sweep-1", "sweep-2"]

        await stage.api.delete(JOBS, "sweep", stage.name)
        await stage.edit("next", trials={"max": 3})  # the operator checks the job again
        await run_to_end(stage, "next-0", "next-1", value=0.6)
        await stage.until("the third trial runs", lambda: running(stage, "next-2"))
        assert (await stage.status("next"))["warmStart"] == warm
        job, trials = HyperParamJob.model_validate(await stage.job("next")), await stage.trials()
        assert trials["next-0"]["spec"]["parameters"] == propose(job.spec, 0, warm_start_results(job))
        assert trials["next-0"]["spec"]["parameters"] != propose(job.spec, 0), "without them it is random"

    perform(play)


def test_a_search_starts_from_results_that_it_lists(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        results = [{"parameters": {"lr": 0.01 + number / 1000}, "value": 0.5 + number / 10} for number in range(3)]
        search = {"algorithm": "tpe", "settings": {"startupTrials": 3}, "warmStart": {"results": results}}
        await stage.submit("next", search=search, trials={"max": 2, "parallel": 1, "maxSteps": 10})
        await stage.until("the job runs", lambda: running(stage, "next-0"))
        await stage.wait_for_events(("next", "WarmStarted"))
        job, trials = HyperParamJob.model_validate(await stage.job("next")), await stage.trials()
        assert job.status.warm_start is not None
        assert [(one.trial, one.value, one.completed) for one in job.status.warm_start.trials] == [
            ("given-0", 0.5, True),
            ("given-1", 0.6, True),
            ("given-2", 0.7, True),
        ]
        assert trials["next-0"]["spec"]["parameters"] == propose(job.spec, 0, warm_start_results(job))
        assert trials["next-0"]["spec"]["parameters"] != propose(job.spec, 0), "without them it is random"
        many = {**search, "warmStart": {"results": results * 34}}
        with pytest.raises(ApiError, match="must have at most 100 items"):
            await stage.submit("many", search=many)

    perform(play)


def test_an_inactive_parameter_reaches_no_trial(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        container = {
            "name": "main",
            "image": "i",
            "command": ["t", "$(podium.args)"],
            "args": ["--m", "$(podium.params.momentum)", "-v"],
            "env": [{"name": "MOMENTUM", "value": "$(podium.params.momentum)"}],
        }
        await stage.submit(
            parameters=[
                {"name": "momentum", "min": 0.0, "max": 0.9, "when": {"parameter": "optimizer", "in": ["sgd"]}},
                {"name": "optimizer", "values": ["sgd", "adam"]},
            ],
            search={"initialTrials": [{"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.5}]},
            template={"spec": {"containers": [container]}},
        )
        await stage.until("two trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        main = {name: pod["spec"]["containers"][0] for name, pod in (await stage.pods()).items()}
        env = {name: {one["name"]: one.get("value") for one in pod["env"]} for name, pod in main.items()}
        assert (main["sweep-0-0"]["command"], main["sweep-0-0"]["args"]) == (["t", "--optimizer=adam"], ["-v"])
        assert env["sweep-0-0"]["PODIUM_PARAMS"] == '{"optimizer": "adam"}'
        assert not {"MOMENTUM", "PODIUM_PARAM_MOMENTUM"} & env["sweep-0-0"].keys()
        assert main["sweep-1-0"]["args"] == ["--m", "0.5", "-v"]
        assert env["sweep-1-0"]["MOMENTUM"] == env["sweep-1-0"]["PODIUM_PARAM_MOMENTUM"] == "0.5"

    perform(play)


def test_a_failed_attempt_is_followed_by_another_after_a_pause(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 1, "parallel": 1, "maxSteps": 10, "retries": 1})
        await stage.until("the trial is on the GPU", lambda: running(stage, "sweep-0"))
        await stage.finish("sweep-0", code=1)

        async def requeued() -> bool:
            return (await stage.phases())["sweep-0"] == "Requeued"

        await stage.until("the trial is requeued", requeued)
        assert set(await stage.pods()) == {"sweep-0-0"}, "the pause of 2 s has not passed"

        async def again() -> bool:
            return "sweep-0-1" in await stage.pods() and await running(stage, "sweep-0")

        await stage.until("the second attempt is on the GPU", again)
        status = (await stage.trials())["sweep-0"]["status"]
        assert (status["attempt"], status["failures"], status["pod"]) == (1, 1, "sweep-0-1")
        await stage.finish("sweep-0", code=1)

        async def failed() -> bool:
            return (await stage.phases())["sweep-0"] == "Failed"

        await stage.until("no retry is left", failed)

    perform(play)


def test_no_more_pods_than_slots(perform: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 5, "parallel": 5, "maxSteps": 10})

        async def shown() -> bool:
            trials = await stage.trials()
            return len(trials) == 5 and trials["sweep-4"].get("status", {}).get("reason") == "NoFreeSlot"

        await stage.until("the others wait", shown)
        assert len(await stage.pods()) == 2

    perform(play, slots=2)


def test_a_model_based_search_proposes_each_trial_late_and_from_the_reported_values(
    perform: Callable[[Play], None],
) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(
            search={"algorithm": "tpe", "settings": {"startupTrials": 2}},
            trials={"max": 6, "parallel": "auto", "maxSteps": 10},
        )
        await stage.until("one trial is on the GPU", lambda: running(stage, "sweep-0"))

        async def made(count: int) -> bool:
            return len(await stage.trials()) == count

        for count in range(2, 6):  # one runs, one waits; there are more slots
            await stage.until(f"there are {count} trials", lambda count=count: made(count))
            await run_to_end(stage, f"sweep-{count - 2}", value=0.1 * count)
        await run_to_end(stage, "sweep-4", "sweep-5")
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        points = {trial["spec"]["number"]: trial["spec"]["parameters"] for trial in (await stage.trials()).values()}
        job = HyperParamJob.model_validate(await stage.job())
        drawn = {number: RandomSearcher().propose(job.spec, number) for number in points}
        assert [points[number] == drawn[number] for number in range(6)] == [True, True, True, False, False, False]

    perform(play)


def test_the_deletion_of_a_job_deletes_its_trials_and_pods(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        before = {trial["metadata"]["uid"] for trial in (await stage.trials()).values()}
        await stage.api.delete(JOBS, "sweep", stage.name)
        await stage.submit()  # at once, under the same name

        async def restarted() -> bool:
            uids = {trial["metadata"]["uid"] for trial in (await stage.trials()).values()}
            return not before & uids and await running(stage, "sweep-0", "sweep-1")

        await stage.until("the new job's trials are on the GPU", restarted)
        await stage.until("the new job runs", job_is(stage, "Running"))
        await stage.api.delete(JOBS, "sweep", stage.name)

        async def gone() -> bool:
            return not await stage.trials() and not await stage.pods() and await stage.run_queue() == []

        await stage.until("nothing is left", gone)

    perform(play)


def test_a_status_of_a_deleted_object_is_not_written_to_its_successor(perform: Callable[[Play], None]) -> None:
    """The operator relies on this when its patches have a resourceVersion.

    The server ignores a UID in a patch.
    """

    async def play(stage: Stage) -> None:
        await stage.submit(suspend=True)
        version = (await stage.job())["metadata"]["resourceVersion"]
        await stage.api.delete(JOBS, "sweep", stage.name)
        await stage.submit(suspend=True)
        about = {"name": "sweep", "namespace": stage.name, "resourceVersion": version}
        with pytest.raises(ApiError) as refused:
            await stage.api.apply_status(JOBS, {"metadata": about, "status": {"phase": "Succeeded"}}, manager="test")
        assert refused.value.conflict
        await stage.until("the job is suspended", job_is(stage, "Suspended"))

    perform(play)


def test_an_invalid_pod_fails_its_trial(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        wrong = {"spec": {"containers": [{"name": "main", "image": "i", "imagePullPolicy": "Sometimes"}]}}
        await stage.submit(template=wrong, trials={"max": 2, "parallel": 2, "maxSteps": 1, "maxFailed": 0})
        await stage.until("the job failed", job_is(stage, "Failed"))

        async def reported() -> bool:
            reasons = {trial.get("status", {}).get("reason") for trial in (await stage.trials()).values()}
            return "PodRefused" in reasons

        await stage.until("a trial has the reason", reported)
        await stage.wait_for_events(("sweep", "PodRefused"))

    perform(play)


def test_a_pod_refused_by_a_quota_is_reported_and_created_later(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        quota: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": stage.name},
            "spec": {"hard": {"pods": "0"}},
        }
        await stage.api.create(QUOTAS, quota, manager="test")
        await stage.submit()

        async def reported() -> bool:
            status = [trial.get("status", {}) for trial in (await stage.trials()).values()]
            return len(status) == 2 and all(one.get("reason") == "PodRefused" for one in status)

        await stage.until("the refusal is reported", reported)
        message = (await stage.trials())["sweep-0"]["status"]["message"]
        assert "quota" in message
        assert await stage.pods() == {}
        await stage.api.delete(QUOTAS, "few", stage.name)
        await stage.until("the trials start", lambda: running(stage, "sweep-0", "sweep-1"))

    perform(play)


def test_a_trial_without_a_gpu_needs_no_agent(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(gpus={"perTrial": 0}, trials={"max": 1, "parallel": 1})

        async def made() -> bool:
            return set(await stage.pods()) == {"sweep-0-0"}

        await stage.until("the pod exists", made)
        pod = (await stage.pods())["sweep-0-0"]
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert "initContainers" not in pod["spec"]
        await stage.finish("sweep-0")
        # there is no kubelet that serves the log, which a condition reports after some attempts
        await stage.until("the job has ended", job_is(stage, "Succeeded"))
        (condition,) = (await stage.trials())["sweep-0"]["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("MetricsUnavailable", "ObjectiveMissing")

    perform(play)


def test_metrics_and_a_clean_end(operator: OperatorProcess) -> None:
    assert "podium_operator_reconcile_seconds_count" in operator.page("/metrics")
    assert "podium_operator_reconcile_errors_total 0.0" in operator.page("/metrics")
    assert operator.page("/healthz") == "ok\n"
    assert operator.terminate() == 0
