"""The operator as a process with a real API server: checkpoints, requeues and lost work."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from operator_stage import Play, Stage, now, running

from podium_cluster.resources import EVENTS, GPUNODES, JOBS, NODES, PODS

pytestmark = pytest.mark.integration
WITH_CHECKPOINTS: dict[str, Any] = {
    "suspension": {"methods": ["app-checkpoint"]},
    "checkpoint": {"path": "/c", "volume": {"claimName": "runs"}, "resumeArgs": ["--from=$(podium.checkpoint)"]},
}


def test_checkpoints_need_a_volume_that_every_node_can_write(perform: Callable[[Play], None]) -> None:
    async def accepted(stage: Stage) -> tuple[str, str]:
        found = [c for c in (await stage.status()).get("conditions", []) if c["type"] == "Accepted"]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    async def play(stage: Stage) -> None:
        def is_accepted(status: str, reason: str) -> Callable[[], Awaitable[bool]]:
            async def reached() -> bool:
                return await accepted(stage) == (status, reason)

            return reached

        await stage.submit(**WITH_CHECKPOINTS)
        await stage.until("the job waits for the claim", is_accepted("Unknown", "VolumeNotFound"))
        assert await stage.trials() == {}
        await stage.claim("runs", "ReadWriteMany")
        await stage.until("the job is valid", is_accepted("True", "Valid"))
        await stage.until("the search starts", lambda: running(stage, "sweep-0"))

        await stage.claim("single", "ReadWriteOnce")
        volume = {"path": "/c", "volume": {"claimName": "single"}}
        await stage.submit("other", **WITH_CHECKPOINTS | {"checkpoint": volume})

        async def refused() -> bool:
            return (await stage.status("other")).get("reason") == "VolumeNotShared"

        await stage.until("a claim for a single node is refused", refused)

    perform(play)


def test_trials_of_a_drained_node_continue_from_their_checkpoints(
    perform: Callable[[Play], None], kubeconfig: Path
) -> None:
    """With a single node they continue there after the drain is undone."""

    async def podium(*arguments: str) -> tuple[int, str]:
        line = [sys.executable, "-m", "podium_cli.main", *arguments, "--kubeconfig", str(kubeconfig)]
        done = await asyncio.create_subprocess_exec(
            *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await done.communicate()
        return done.returncode or 0, out.decode()

    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**WITH_CHECKPOINTS)
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        saved = {"step": 2, "at": now(), "path": "step-2", "node": stage.node, "gpuSeconds": 5.0}
        await stage.report("sweep-0", 0.1, 0.2, checkpoint=saved)
        code, output = await podium("drain", stage.node, "--wait", "0")
        assert code == 0, output
        assert (await stage.api.get(NODES, stage.node))["spec"]["unschedulable"] is True

        async def gone() -> bool:
            return await stage.pods() == {} and set((await stage.phases()).values()) == {"Requeued"}

        await stage.until("no pod is left", gone)
        await stage.wait_for_events(("sweep-0", "TrialRequeued"), ("sweep-1", "TrialRequeued"))
        code, output = await podium("drain", stage.node)
        assert code == 0, output
        assert "no trial remains" in output
        assert await stage.pods() == {}, "no pod is created for a draining node"

        code, output = await podium("drain", stage.node, "--undo")
        assert code == 0, output
        await stage.until("the trials are on the GPU again", lambda: running(stage, "sweep-0", "sweep-1"))
        pod = (await stage.pods())["sweep-0-1"]
        (main,) = pod["spec"]["containers"]
        assert {"name": "PODIUM_RESUME", "value": "/c/step-2"} in main["env"]
        assert main["command"][-1] == "--from=/c/step-2"
        other = (await stage.pods())["sweep-1-1"]["spec"]["containers"][0]
        assert "PODIUM_RESUME" not in {entry["name"] for entry in other["env"]}, "it had no checkpoint yet"
        node = await stage.api.get(GPUNODES, stage.node)
        assert node["spec"]["draining"] is False
        await stage.api.delete(NODES, stage.node)

    perform(play)


def test_the_reason_for_a_requeue_is_in_the_pod_and_the_trial(perform: Callable[[Play], None]) -> None:
    """A finalizer keeps the pod, as a kubelet does during the grace period."""

    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**WITH_CHECKPOINTS, trials={"max": 1, "parallel": 1, "maxSteps": 10})

        async def runs() -> bool:
            return (await stage.phases()).get("sweep-0") == "Running"

        await stage.until("the trial runs: a pod that has not started would be deleted at once", runs)
        keep = {"metadata": {"finalizers": ["test/kept"]}}
        await stage.api.patch(PODS, "sweep-0-0", stage.name, keep, manager="test")
        drains = {"metadata": {"name": stage.node}, "spec": {"draining": True}}
        await stage.api.apply(GPUNODES, drains, manager="podium-cli-drain")

        async def reported() -> bool:
            status = (await stage.trials())["sweep-0"]["status"]
            return (status["phase"], status["reason"]) == ("Running", "NodeDraining")

        await stage.until("the trial has the reason", reported)

        async def deleted() -> bool:
            return "deletionTimestamp" in (await stage.pods())["sweep-0-0"]["metadata"]

        await stage.until("its pod is deleted", deleted)
        pod = (await stage.pods())["sweep-0-0"]
        assert pod["metadata"]["annotations"]["podium.dev/requeue"] == "NodeDraining"
        await stage.api.patch(PODS, "sweep-0-0", stage.name, {"metadata": {"finalizers": None}}, manager="test")

        async def requeued() -> bool:
            return (await stage.phases())["sweep-0"] == "Requeued"

        await stage.until("the trial is requeued", requeued)
        await stage.wait_for_events(("sweep-0", "TrialRequeued"))
        items = (await stage.api.list(EVENTS, stage.name))["items"]
        (event,) = [event for event in items if event["reason"] == "TrialRequeued"]
        assert (event["type"], event["message"].partition(":")[0]) == ("Normal", "NodeDraining")

    perform(play)


def test_lost_work_is_reported_and_summed(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit()
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        loss = {"attempt": 1, "at": now(), "step": 5, "resumedFrom": 2, "steps": 3, "gpuSeconds": 2.5}
        await stage.report("sweep-0", 0.1, 0.2)

        async def seen() -> bool:
            return bool((await stage.status()).get("best", {}).get("value") == pytest.approx(0.2))

        await stage.until("the operator has read the trial without lost work", seen)
        await stage.report("sweep-0", 0.1, 0.2, lostWork={"count": 1, "steps": 3, "gpuSeconds": 2.5, "recent": [loss]})

        async def reported() -> bool:
            lost = (await stage.status()).get("lostWork")
            return lost == {"steps": 3, "gpuSeconds": 2.5} and ("sweep-0", "WorkLost") in await stage.events()

        await stage.until("the lost work is reported", reported)

    perform(play)


def test_the_deletion_of_a_job_deletes_its_checkpoint_folders(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**WITH_CHECKPOINTS)
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert (await stage.job())["metadata"]["finalizers"] == ["podium.dev/checkpoints"]
        await stage.api.delete(JOBS, "sweep", stage.name)

        async def cleaning_up() -> bool:
            pods = await stage.pods()
            return await stage.trials() == {} and [name[:14] for name in pods] == ["sweep-cleanup-"]

        await stage.until("its trials are gone and the cleanup runs", cleaning_up)
        assert "deletionTimestamp" in (await stage.job())["metadata"]
        status = {"status": {"phase": "Succeeded"}}
        (pod,) = await stage.pods()
        await stage.api.patch(PODS, pod, stage.name, status, manager="kubelet", subresource="status")

        async def gone() -> bool:
            return not (await stage.api.list(JOBS, stage.name))["items"]

        await stage.until("the job is gone", gone, play=False)
        assert not [event for event in await stage.events() if event[1] == "CheckpointsNotRemoved"]

    perform(play)


def test_a_job_that_retains_its_folders_is_deleted_at_once(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**WITH_CHECKPOINTS | {"checkpoint": WITH_CHECKPOINTS["checkpoint"] | {"retain": True}})
        await stage.until("trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert "finalizers" not in (await stage.job())["metadata"]

    perform(play)
