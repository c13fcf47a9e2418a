"""The operator as a process against a real API server: saves, requeues, losses. The test plays kubelet and agent."""

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
        await stage.report("sweep-0", 0.1, 0.2, checkpoint=saved)
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

        async def works() -> bool:
            return (await stage.phases()).get("sweep-0") == "Running"

        await stage.until("it works: who has not begun leaves at once", works)
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

        async def seen() -> bool:
            return bool((await stage.status()).get("best", {}).get("value") == pytest.approx(0.2))

        await stage.until("the operator has seen it once without a loss", seen)
        await stage.report("sweep-0", 0.1, 0.2, lostWork={"count": 1, "steps": 3, "gpuSeconds": 2.5, "recent": [loss]})

        async def told() -> bool:
            lost = (await stage.status()).get("lostWork")
            return lost == {"steps": 3, "gpuSeconds": 2.5} and ("sweep-0", "WorkLost") in await stage.events()

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
        assert not [event for event in await stage.events() if event[1] == "CheckpointsNotRemoved"]

    perform(play)


def test_a_job_that_keeps_its_folders_goes_at_once(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        await stage.claim("runs", "ReadWriteMany")
        await stage.submit(**SAVES | {"checkpoint": SAVES["checkpoint"] | {"retain": True}})
        await stage.until("trials are at the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        assert "finalizers" not in (await stage.job())["metadata"]

    perform(play)
