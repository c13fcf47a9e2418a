"""GPUQueues with the operator as a process and a real API server; the test acts as kubelet and agent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from operator_stage import Play, Stage

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, GPUQUEUES

pytestmark = pytest.mark.integration
WEIGHTS = {"one": 1, "two": 2, "three": 3}
PODIUM = [sys.executable, "-m", "podium_cli.main"]
PATIENCE = 90
DEFAULT_WEIGHT = 1  # of the queue default, which exists without an object


@asynccontextmanager
async def three_queues(stage: Stage) -> AsyncIterator[dict[str, str]]:
    """Create a queue of each weight for the namespace of the stage; yield their names, and delete them at the end."""
    names = {short: f"{short}-{stage.name}" for short in WEIGHTS}
    try:
        for short, name in names.items():
            await write_queue(stage.api, name, weight=WEIGHTS[short], namespaces=[stage.name])
        yield names
    finally:
        for name in names.values():
            await stage.api.delete(GPUQUEUES, name)


async def write_queue(api: Api, name: str, **spec: Any) -> None:
    manifest = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUQueue", "metadata": {"name": name}, "spec": spec}
    await api.create(GPUQUEUES, manifest, manager="test")


async def status_of(stage: Stage, name: str) -> dict[str, Any]:
    return dict((await stage.api.get(GPUQUEUES, name)).get("status", {}))


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    """Return status and reason of a condition; empty if it is not there."""
    found = next((one for one in status.get("conditions", []) if one["type"] == kind), {})
    return found.get("status", ""), found.get("reason", "")


async def submit_to(stage: Stage, queue: str, name: str, **spec: Any) -> None:
    await stage.submit(name, queue=queue, trials={"max": 2, "parallel": 2, "maxSteps": 10}, **spec)


async def output(kubeconfig: Path, command: list[str]) -> str:
    """Return the output of a command; the agent's heartbeats continue meanwhile."""
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def rows_of(kubeconfig: Path) -> list[dict[str, Any]]:
    """Return the rows of `podium get queues`."""
    return list(json.loads(await output(kubeconfig, [*PODIUM, "get", "queues", "-o", "json"]))["items"])


def test_three_queues_share_a_gpu_and_show_what_they_have(
    perform: Callable[..., None], kubeconfig: Path, binary: Callable[[str], Path]
) -> None:
    async def play(stage: Stage) -> None:
        async with three_queues(stage) as names:
            for short, name in names.items():
                await submit_to(stage, name, short)

            async def all_wait() -> bool:
                found = [await status_of(stage, name) for name in names.values()]
                held = [one.get("gpus", {}).get("used") for one in found]
                return sorted(map(str, held)) == ["0", "0", "1"] and sum(one["waiting"] for one in found) == 5

            await stage.until("one queue holds the GPU and five trials wait", all_wait)
            for short, name in names.items():
                await until_shares(stage, names, short)
                status = await status_of(stage, name)
                assert (status["jobs"], status["observedGeneration"]) == (1, 1)
                assert condition(status, "Active") == ("True", "SharesGPUs")
                await stage.until("its job is ready", is_ready(stage, short))
            rows = {row["name"]: row for row in await rows_of(kubeconfig)}
            assert [rows[name]["weight"] for name in names.values()] == [1, 2, 3]
            assert {rows[name]["state"] for name in names.values()} == {"Active"}
            assert sum(rows[name]["used"] for name in names.values()) == 1
            table = await output(kubeconfig, [*PODIUM, "get", "queues"])
            assert table.split()[:4] == ["QUEUE", "WEIGHT", "QUOTA", "USED"]
            assert all(name in table for name in names.values())
            kubectl = [str(binary("kubectl")), "--kubeconfig", str(kubeconfig), "get", "gpuqueues", names["three"]]
            head, row = (await output(kubeconfig, kubectl)).splitlines()
            assert head.split() == ["NAME", "WEIGHT", "QUOTA", "USED", "BORROWED", "DESERVED", "WAITING", "AGE"]
            assert row.split()[:2] == [names["three"], "3"]

            first = await holder(stage, names)

            async def changed() -> bool:
                return await holder(stage, names) not in ("", first)

            await stage.until("the GPU changes queues after a time slice", changed)

            async def counted() -> bool:
                return (await status_of(stage, names[first])).get("gpuSeconds", 0.0) >= 20.0

            await stage.until("its GPU-seconds are stored", counted)

    perform(play, slots=6)


def is_ready(stage: Stage, job: str) -> Callable[[], Awaitable[bool]]:
    """Return whether the job says that its queue may give it GPUs."""

    async def ready() -> bool:
        return condition(await stage.status(job), "QueueReady") == ("True", "SharesGPUs")

    return ready


async def holder(stage: Stage, names: dict[str, str]) -> str:
    """Return the queue whose trial is the first of the run queue; empty if there is none."""
    run_queue = await stage.run_queue()
    return next((short for short in names if run_queue and run_queue[0].startswith(f"{short}-")), "")


async def until_shares(stage: Stage, names: dict[str, str], short: str) -> None:
    """Wait until the status of a queue has its nominal share of all GPUs, and its part of what the three deserve.

    Objects of the tests before this one may still go away, so everything is read again each time.
    """
    seen: dict[str, Any] = {}

    async def there() -> bool:
        gpus = len((await stage.api.list(GPUNODES))["items"])
        weights = [queue["spec"].get("weight", 1) for queue in (await stage.api.list(GPUQUEUES))["items"]]
        nominal = round(gpus * WEIGHTS[short] / (sum(weights) + DEFAULT_WEIGHT), 2)
        shares = {one: (await status_of(stage, name)).get("gpus", {}) for one, name in names.items()}
        seen.update(shares, expected=nominal, nodes=gpus, weights=weights)
        deserved = [share.get("deserved", 0.0) for share in shares.values()]
        part = WEIGHTS[short] / sum(WEIGHTS.values())
        fair = sum(deserved) > 0 and shares[short]["deserved"] == pytest.approx(part * sum(deserved), abs=0.02)
        return fair and shares[short]["nominal"] == nominal

    try:
        await stage.until(f"queue {short} shows its share", there)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{seen}") from error


def test_a_job_says_why_its_queue_gives_it_no_gpu(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        async with three_queues(stage) as names:
            await submit_to(stage, f"missing-{stage.name}", "lost")
            await submit_to(stage, names["one"], "closed")

            async def says(job: str, reason: str) -> bool:
                return condition(await stage.status(job), "QueueReady") == ("False", reason)

            await stage.until("the queue is missing", lambda: says("lost", "QueueNotFound"))
            await stage.until("the job runs", lambda: runs(stage, "closed"))
            await stage.api.patch(GPUQUEUES, names["one"], None, {"spec": {"namespaces": ["other"]}}, manager="test")
            await stage.until("the namespace is forbidden", lambda: says("closed", "QueueForbidden"))
            spec = {"namespaces": [stage.name], "budget": {"gpuHours": 0.0001}}
            await stage.api.patch(GPUQUEUES, names["one"], None, {"spec": spec}, manager="test")
            await stage.until("the budget is spent", lambda: says("closed", "QueueBudgetSpent"))

            async def inactive() -> bool:
                return condition(await status_of(stage, names["one"]), "Active") == ("False", "QueueBudgetSpent")

            await stage.until("the queue says so, too", inactive)

            async def idle() -> bool:
                return await stage.run_queue() == []

            await stage.until("no trial is in the run queue", idle)
            assert not any(name.startswith("lost-") for name in await stage.pods())

    perform(play)


async def runs(stage: Stage, job: str) -> bool:
    return "Running" in [phase for name, phase in (await stage.phases()).items() if name.startswith(f"{job}-")]


def test_a_job_of_higher_priority_takes_the_gpu_of_its_queue(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        async with three_queues(stage) as names:
            await submit_to(stage, names["two"], "calm")
            await stage.until("the first job runs", lambda: runs(stage, "calm"))
            await submit_to(stage, names["two"], "urgent", priority=5)
            await stage.until("the urgent job runs", lambda: runs(stage, "urgent"))

            async def explained() -> bool:
                found = {trial.get("status", {}).get("reason") for trial in (await stage.trials()).values()}
                return not found.isdisjoint({"GPUPreempted", "PriorityTooLow"})

            await stage.until("a trial of the other job names the priority", explained)

    perform(play)


WRONG = [
    ({"weight": 0}, "weight"),
    ({"weight": 0.0001}, "weight must be at least 0.001"),
    ({"gpus": 1, "minimum": 2}, "minimum must not be greater than gpus"),
    ({"borrowing": False}, "without a quota nothing is borrowed"),
    ({"namespaces": ["A B"]}, "namespaces"),
]


@pytest.mark.parametrize(("spec", "message"), WRONG, ids=[row[1][:12] for row in WRONG])
def test_the_api_server_refuses_an_invalid_queue(
    spec: dict[str, Any], message: str, perform: Callable[[Play], None]
) -> None:
    async def play(stage: Stage) -> None:
        with pytest.raises(ApiError, match=message):
            await write_queue(stage.api, f"wrong-{stage.name}", **spec)

    perform(play)
