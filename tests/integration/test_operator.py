"""The operator as a process against a real API server; the test plays kubelet and agent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from operator_stage import OperatorProcess, Stage, now

from podium_cluster.client import ApiError, connect
from podium_cluster.resources import EVENTS, GPUNODES, JOBS, NAMESPACES, NODES, PODS, Resource
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
COUNT = itertools.count()
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
Play = Callable[[Stage], Awaitable[None]]


@pytest.fixture(scope="module")
def operator(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    async def prepare() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podium-system"}}
            with contextlib.suppress(ApiError):  # it is there already
                await api.create(NAMESPACES, namespace, manager="test")

    asyncio.run(prepare())
    process = OperatorProcess(kubeconfig, tmp_path_factory.mktemp("operator") / "log")
    process.start()
    yield process
    process.close()


@pytest.fixture
def perform(kubeconfig: Path, operator: OperatorProcess) -> Callable[[Play], None]:
    """Runs a test's part on a stage of its own."""

    def run(play: Play, shares: int = 4) -> None:
        async def main() -> None:
            name = f"op-{os.getpid()}-{next(COUNT)}"
            async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api, Stage(api, name, shares) as stage:
                await play(stage)

        asyncio.run(main())

    return run


async def running(stage: Stage, *trials: str) -> bool:
    phases = await stage.phases()
    return all(phases.get(trial) in ("Running", "Gated", "Suspended") for trial in trials)


def job_is(stage: Stage, phase: str) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        return (await stage.status()).get("phase") == phase

    return reached


def phases_are(stage: Stage, phases: dict[str, str]) -> Callable[[], Awaitable[bool]]:
    """A trial whose agent wrote meanwhile gets its end one cycle after the job."""

    async def reached() -> bool:
        return await stage.phases() == phases

    return reached


async def through(stage: Stage, *trials: str, value: float = 0.5) -> None:
    """Each of these trials gets its turn, reports and ends well."""
    for number, trial in enumerate(trials):

        async def at_work(name: str = trial) -> bool:
            return (await stage.phases()).get(name) == "Running"

        await stage.until(f"{trial} runs", at_work)
        await stage.report(trial, *([0.1] * 9), value + number / 100)
        await stage.finish(trial)


def test_a_job_from_start_to_end(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("two trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert set(await stage.pods()) == {"sweep-0-0", "sweep-1-0"}, "no more than trials.parallel"
        assert sorted(await stage.order()) == ["sweep-0", "sweep-1"]
        before = (await stage.trials())["sweep-0"]
        assert before["spec"]["number"] == 0
        assert 0.001 <= before["spec"]["parameters"]["lr"] <= 0.1
        await through(stage, "sweep-0", "sweep-1", "sweep-2")
        await stage.until("the job is over", job_is(stage, "Succeeded"))
        await stage.until("so are the trials", phases_are(stage, {f"sweep-{n}": "Succeeded" for n in range(3)}))
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
        await stage.told(("sweep", "Started"), ("sweep", "NewBest"), ("sweep", "AllTrialsEnded"))

        await stage.edit(trials={"max": 4})
        await stage.until("a raised trials.max goes on", lambda: running(stage, "sweep-3"))
        await stage.until("the job runs again", job_is(stage, "Running"))
        assert "finishedAt" not in await stage.status()

    perform(play)


def test_a_killed_operator_does_nothing_twice(perform: Callable[[Play], None], operator: OperatorProcess) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 6, "parallel": 3, "maxSteps": 10})
        await stage.until("three trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1", "sweep-2"))
        await through(stage, "sweep-0")
        operator.kill()
        pods, trials = await stage.pods(), await stage.trials()
        operator.start()
        await stage.until("the next one comes", lambda: running(stage, "sweep-3"))
        later, now = await stage.trials(), await stage.pods()
        for name, trial in trials.items():
            assert later[name]["metadata"]["uid"] == trial["metadata"]["uid"]
            assert later[name]["spec"] == trial["spec"]
        for name, pod in pods.items():
            assert now[name]["metadata"]["uid"] == pod["metadata"]["uid"]
        assert set(now) == {"sweep-0-0", "sweep-1-0", "sweep-2-0", "sweep-3-0"}
        await through(stage, "sweep-1", "sweep-2", "sweep-3", "sweep-4", "sweep-5")
        await stage.until("the job is over", job_is(stage, "Succeeded"))
        assert len(await stage.pods()) == 6

    perform(play)


def test_a_wrong_job_says_why_and_starts_nothing(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(queue="research", policy={"name": "hermes", "settings": {"speed": 3}})
        await stage.until("the job is refused", job_is(stage, "Refused"))
        (accepted,) = [c for c in (await stage.status())["conditions"] if c["type"] == "Accepted"]
        assert accepted["status"] == "False"
        assert "policy.settings" in accepted["message"]
        assert "queue" in accepted["message"], "all refusals at once"
        assert await stage.trials() == {}
        await stage.told(("sweep", accepted["reason"]))

        await stage.edit(queue=None, policy={"name": "fifo", "settings": None})
        await stage.until("the mended job starts", job_is(stage, "Running"))

    perform(play)


def test_suspend_gives_the_gpu_back_and_keeps_the_pods(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        pods = {name: pod["metadata"]["uid"] for name, pod in (await stage.pods()).items()}
        await stage.edit(suspend=True)

        async def off() -> bool:
            return await stage.order() == [] and (await stage.status())["phase"] == "Suspended"

        await stage.until("nobody is in the order", off)
        assert {name: pod["metadata"]["uid"] for name, pod in (await stage.pods()).items()} == pods
        await stage.edit(suspend=False)

        async def on() -> bool:
            return len(await stage.order()) == 2

        await stage.until("they are back", on)

    perform(play)


def test_the_target_ends_the_search(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(objective={"metric": "acc", "direction": "maximize", "target": 0.9})
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        await stage.report("sweep-1", 0.2, 0.95)
        await stage.until("the job is over", job_is(stage, "Succeeded"))
        assert (await stage.status())["reason"] == "TargetReached"
        ends = {"sweep-0": "EarlyStopped", "sweep-1": "Succeeded"}
        await stage.until("each trial says how it ended", phases_are(stage, ends))

        async def gone() -> bool:
            return await stage.pods() == {}

        await stage.until("the pods are gone", gone)
        await stage.told(("sweep", "TargetReached"))

    perform(play)


def test_too_many_failures_end_the_job(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 3, "parallel": 2, "maxSteps": 10, "maxFailed": 0, "retries": 0})
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        await stage.finish("sweep-0", code=3)
        await stage.until("the job failed", job_is(stage, "Failed"))
        assert (await stage.status())["reason"] == "TooManyFailedTrials"
        ends = {"sweep-0": "Failed", "sweep-1": "Killed"}
        await stage.until("each trial says how it ended", phases_are(stage, ends))
        assert "exit code 3" in (await stage.trials())["sweep-0"]["status"]["message"]

    perform(play)


def test_a_failed_attempt_is_followed_by_another_after_a_pause(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 1, "parallel": 1, "maxSteps": 10, "retries": 1})
        await stage.until("it is at the GPU", lambda: running(stage, "sweep-0"))
        await stage.finish("sweep-0", code=1)

        async def requeued() -> bool:
            return (await stage.phases())["sweep-0"] == "Requeued"

        await stage.until("it waits", requeued)
        assert set(await stage.pods()) == {"sweep-0-0"}, "the pause of 2 s has not passed"

        async def again() -> bool:
            return "sweep-0-1" in await stage.pods() and await running(stage, "sweep-0")

        await stage.until("the second attempt is at the GPU", again)
        status = (await stage.trials())["sweep-0"]["status"]
        assert (status["attempt"], status["failures"], status["pod"]) == (1, 1, "sweep-0-1")
        await stage.finish("sweep-0", code=1)

        async def failed() -> bool:
            return (await stage.phases())["sweep-0"] == "Failed"

        await stage.until("retries are spent", failed)

    perform(play)


def test_no_more_pods_than_shares(perform: Callable[..., None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(trials={"max": 5, "parallel": 5, "maxSteps": 10})

        async def shown() -> bool:
            trials = await stage.trials()
            return len(trials) == 5 and trials["sweep-4"].get("status", {}).get("reason") == "NoFreeShare"

        await stage.until("the others wait", shown)
        assert len(await stage.pods()) == 2

    perform(play, shares=2)


def test_a_deleted_job_takes_everything_with_it(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        before = {trial["metadata"]["uid"] for trial in (await stage.trials()).values()}
        await stage.api.delete(JOBS, "sweep", stage.name)
        await stage.submit()  # at once, under the same name

        async def anew() -> bool:
            uids = {trial["metadata"]["uid"] for trial in (await stage.trials()).values()}
            return not before & uids and await running(stage, "sweep-0", "sweep-1")

        await stage.until("the new job's trials are at the GPU", anew)
        await stage.until("the new job runs", job_is(stage, "Running"))
        await stage.api.delete(JOBS, "sweep", stage.name)

        async def gone() -> bool:
            return not await stage.trials() and not await stage.pods() and await stage.order() == []

        await stage.until("nothing is left", gone)

    perform(play)


def test_a_status_of_an_object_that_is_gone_does_not_land_on_its_successor(perform: Callable[[Play], None]) -> None:
    """What the operator relies on when it names the version in its patches: the server ignores a uid there."""

    async def play(stage: Stage) -> None:
        await stage.submit(suspend=True)
        version = (await stage.job())["metadata"]["resourceVersion"]
        await stage.api.delete(JOBS, "sweep", stage.name)
        await stage.submit(suspend=True)
        about = {"name": "sweep", "namespace": stage.name, "resourceVersion": version}
        with pytest.raises(ApiError) as refused:
            await stage.api.apply_status(JOBS, {"metadata": about, "status": {"phase": "Succeeded"}}, manager="test")
        assert refused.value.conflict
        await stage.until("the job says that it is suspended", job_is(stage, "Suspended"))

    perform(play)


def test_a_pod_that_the_server_calls_invalid_fails_its_trial(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        wrong = {"spec": {"containers": [{"name": "main", "image": "i", "imagePullPolicy": "Sometimes"}]}}
        await stage.submit(template=wrong, trials={"max": 2, "parallel": 2, "maxSteps": 1, "maxFailed": 0})
        await stage.until("the job failed", job_is(stage, "Failed"))

        async def told() -> bool:
            reasons = {trial.get("status", {}).get("reason") for trial in (await stage.trials()).values()}
            return "PodRefused" in reasons

        await stage.until("a trial says so", told)
        await stage.told(("sweep", "PodRefused"))

    perform(play)


def test_a_pod_that_a_quota_refuses_is_told_and_tried_again(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        quota: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": stage.name},
            "spec": {"hard": {"pods": "0"}},
        }
        await stage.api.create(QUOTAS, quota, manager="test")
        await stage.submit()

        async def told() -> bool:
            status = [trial.get("status", {}) for trial in (await stage.trials()).values()]
            return len(status) == 2 and all(one.get("reason") == "PodRefused" for one in status)

        await stage.until("the refusal is told", told)
        message = (await stage.trials())["sweep-0"]["status"]["message"]
        assert "quota" in message
        assert await stage.pods() == {}
        await stage.api.delete(QUOTAS, "few", stage.name)
        await stage.until("they start after all", lambda: running(stage, "sweep-0", "sweep-1"))

    perform(play)


def test_a_trial_without_gpu_needs_no_agent(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(gpus={"perTrial": 0}, trials={"max": 1, "parallel": 1})

        async def made() -> bool:
            return set(await stage.pods()) == {"sweep-0-0"}

        await stage.until("the pod is there", made)
        pod = (await stage.pods())["sweep-0-0"]
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert "initContainers" not in pod["spec"]
        await stage.finish("sweep-0")
        # there is no kubelet that could give its log: after some tries that is said
        await stage.until("the job is over", job_is(stage, "Succeeded"))
        (condition,) = (await stage.trials())["sweep-0"]["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("MetricsUnavailable", "NoValues")

    perform(play)


SAVES: dict[str, Any] = {
    "suspension": {"methods": ["app-checkpoint"]},
    "checkpoint": {"path": "/c", "volume": {"claimName": "runs"}, "resumeArgs": ["--from=$(podium.checkpoint)"]},
}


def test_saves_need_a_volume_that_every_node_can_write(perform: Callable[[Play], None]) -> None:
    async def accepted(stage: Stage) -> tuple[str, str]:
        found = [c for c in (await stage.status()).get("conditions", []) if c["type"] == "Accepted"]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    async def play(stage: Stage) -> None:
        def says(status: str, reason: str) -> Callable[[], Awaitable[bool]]:
            async def said() -> bool:
                return await accepted(stage) == (status, reason)

            return said

        await stage.submit(**SAVES)
        await stage.until("the claim is waited for", says("Unknown", "VolumeNotFound"))
        assert await stage.trials() == {}
        await stage.claim("runs", "ReadWriteMany")
        await stage.until("it is there", says("True", "Valid"))
        await stage.until("the search begins", lambda: running(stage, "sweep-0"))

        await stage.claim("single", "ReadWriteOnce")
        volume = {"path": "/c", "volume": {"claimName": "single"}}
        await stage.submit("other", **SAVES | {"checkpoint": volume})

        async def refused() -> bool:
            return (await stage.status("other")).get("reason") == "VolumeNotShared"

        await stage.until("a claim of one node is refused", refused)

    perform(play)


def test_a_drained_node_empties_and_trials_go_on_from_their_saves(
    perform: Callable[[Play], None], kubeconfig: Path
) -> None:
    """With one node they go on there, once it is let in again."""

    async def podium(*arguments: str) -> tuple[int, str]:
        line = [sys.executable, "-m", "podium_cli.main", *arguments, "--kubeconfig", str(kubeconfig)]
        done = await asyncio.create_subprocess_exec(
            *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await done.communicate()
        return done.returncode or 0, out.decode()

    async def play(stage: Stage) -> None:
        await stage.api.create(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": stage.node}}, manager="t"
        )
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**SAVES)
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        saved = {"step": 2, "at": now(), "path": "step-2", "node": stage.node, "gpuSeconds": 5.0}
        await stage.report("sweep-0", 0.1, 0.2, saved=saved)
        code, said = await podium("drain", stage.node, "--wait", "0")
        assert code == 0, said
        assert (await stage.api.get(NODES, stage.node))["spec"]["unschedulable"] is True

        async def gone() -> bool:
            return await stage.pods() == {} and set((await stage.phases()).values()) == {"Requeued"}

        await stage.until("nobody is there", gone)
        await stage.told(("sweep-0", "TrialRequeued"), ("sweep-1", "TrialRequeued"))
        code, said = await podium("drain", stage.node)
        assert code == 0, said
        assert "no trial is left" in said
        assert await stage.pods() == {}, "no pod is made for a node that drains"

        code, said = await podium("drain", stage.node, "--undo")
        assert code == 0, said
        await stage.until("they are back", lambda: running(stage, "sweep-0", "sweep-1"))
        pod = (await stage.pods())["sweep-0-1"]
        (main,) = pod["spec"]["containers"]
        assert {"name": "PODIUM_RESUME", "value": "/c/step-2"} in main["env"]
        assert main["command"][-1] == "--from=/c/step-2"
        other = (await stage.pods())["sweep-1-1"]["spec"]["containers"][0]
        assert "PODIUM_RESUME" not in {entry["name"] for entry in other["env"]}, "it had not saved yet"
        node = await stage.api.get(GPUNODES, stage.node)
        assert node["spec"]["draining"] is False
        await stage.api.delete(NODES, stage.node)

    perform(play)


def test_the_reason_for_a_requeue_is_on_the_pod_and_in_the_trial(perform: Callable[[Play], None]) -> None:
    """A finalizer keeps the pod in sight, as a kubelet that lets it save does."""

    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**SAVES, trials={"max": 1, "parallel": 1, "maxSteps": 10})
        await stage.until("it is at the GPU", lambda: running(stage, "sweep-0"))
        keep = {"metadata": {"finalizers": ["test/kept"]}}
        await stage.api.patch(PODS, "sweep-0-0", stage.name, keep, manager="test")
        drains = {"metadata": {"name": stage.node}, "spec": {"draining": True}}
        await stage.api.apply(GPUNODES, drains, manager="podium-cli-drain")

        async def told() -> bool:
            status = (await stage.trials())["sweep-0"]["status"]
            return (status["phase"], status["reason"]) == ("Running", "NodeDraining")

        await stage.until("it is told to go", told)

        async def goes() -> bool:
            return "deletionTimestamp" in (await stage.pods())["sweep-0-0"]["metadata"]

        await stage.until("its pod is deleted", goes)
        pod = (await stage.pods())["sweep-0-0"]
        assert pod["metadata"]["annotations"]["podium.dev/requeue"] == "NodeDraining"
        await stage.api.patch(PODS, "sweep-0-0", stage.name, {"metadata": {"finalizers": None}}, manager="test")

        async def requeued() -> bool:
            return (await stage.phases())["sweep-0"] == "Requeued"

        await stage.until("it is gone", requeued)
        await stage.told(("sweep-0", "TrialRequeued"))
        items = (await stage.api.list(EVENTS, stage.name))["items"]
        (event,) = [event for event in items if event["reason"] == "TrialRequeued"]
        assert (event["type"], event["message"].partition(":")[0]) == ("Normal", "NodeDraining")

    perform(play)


def test_losses_are_told_and_summed(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        loss = {"attempt": 1, "at": now(), "step": 5, "resumedFrom": 2, "steps": 3, "gpuSeconds": 2.5}
        await stage.report("sweep-0", 0.1, 0.2)
        await asyncio.sleep(1)  # the operator has seen it once without a loss
        await stage.report("sweep-0", 0.1, 0.2, losses={"count": 1, "steps": 3, "gpuSeconds": 2.5, "recent": [loss]})

        async def told() -> bool:
            lost = (await stage.status()).get("lost")
            return lost == {"steps": 3, "gpuSeconds": 2.5} and ("sweep-0", "StepsLost") in await stage.events()

        await stage.until("it is told", told)

    perform(play)


def test_a_deleted_job_takes_its_folders_with_it(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**SAVES)
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert (await stage.job())["metadata"]["finalizers"] == ["podium.dev/checkpoints"]
        await stage.api.delete(JOBS, "sweep", stage.name)

        async def cleans() -> bool:
            pods = await stage.pods()
            return await stage.trials() == {} and [name[:14] for name in pods] == ["sweep-cleanup-"]

        await stage.until("its trials are gone at once", cleans, play=False)
        assert "deletionTimestamp" in (await stage.job())["metadata"]
        status = {"status": {"phase": "Succeeded"}}
        (pod,) = await stage.pods()
        await stage.api.patch(PODS, pod, stage.name, status, manager="kubelet", subresource="status")

        async def gone() -> bool:
            return not (await stage.api.list(JOBS, stage.name))["items"]

        await stage.until("and then the job", gone, play=False)
        assert not [event for event in await stage.events() if event[1] == "CheckpointsLeft"]

    perform(play)


def test_a_job_that_keeps_its_folders_goes_at_once(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**SAVES | {"checkpoint": SAVES["checkpoint"] | {"retain": True}})
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert "finalizers" not in (await stage.job())["metadata"]

    perform(play)


def test_metrics_and_a_clean_end(operator: OperatorProcess) -> None:
    assert "podium_operator_cycle_seconds_count" in operator.page("/metrics")
    assert "podium_operator_cycle_errors_total 0.0" in operator.page("/metrics")
    assert operator.page("/healthz") == "ok\n"
    assert operator.terminate() == 0
