"""`podium.tune` and `podium.Client` with a real API server and operator; the test acts as kubelet and agent."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import podium

sys.path.insert(0, str(Path(__file__).parent))

from faulty_relay import FaultyRelay
from operator_stage import Play, Stage, running

pytestmark = pytest.mark.integration
SPACE: dict[str, Any] = {
    "lr": podium.loguniform(1e-4, 1e-1),
    "optimizer": ["sgd", "adam"],
    "momentum": podium.uniform(0.0, 0.9).when("optimizer", "sgd"),
}
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


def train(lr: float, optimizer: str, momentum: float = 0.0) -> None:
    from podium import trial

    trial.report(step=1, acc=lr + momentum)


def start(stage: Stage, kubeconfig: Path, **more: Any) -> podium.Search:
    """Start a search in the stage's namespace, on its GPU."""
    return podium.tune(
        train,
        SPACE,
        metric="acc",
        trials=3,
        max_steps=4,
        where="cluster",
        image="localhost/podium:test",
        spec={"gpus": {"perTrial": 1, "products": [stage.product]}, "policy": {"name": "fifo"}},
        namespace=stage.name,
        kubeconfig=str(kubeconfig),
        **more,
    )


def run_here(container: dict[str, Any]) -> dict[str, Any]:
    """Run the command of a pod's container with its variables; return the line that the function printed."""
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT / "sdk")}
    command = [sys.executable, *container["command"][1:], *container.get("args", [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


async def play_to_end(stage: Stage, search: podium.Search) -> None:
    """Let all trials of the search report four values and succeed."""
    waiting = {f"{search.name}-{number}" for number in range(3)}

    async def running_now() -> list[str]:
        phases = await stage.phases()
        return sorted(name for name in waiting if phases.get(name) == "Running")

    async def one_runs() -> bool:
        return bool(await running_now())

    while waiting:
        await stage.until(f"one of {waiting} runs", one_runs)
        name = (await running_now())[0]
        await stage.report(name, 0.1, 0.2, 0.3, 0.4 + int(name[-1]) / 10)
        await stage.finish(name)
        waiting.remove(name)


def test_a_function_is_tuned_on_the_cluster(perform: Callable[[Play], None], kubeconfig: Path) -> None:
    async def play(stage: Stage) -> None:
        search = await asyncio.to_thread(start, stage, kubeconfig)
        done = asyncio.create_task(asyncio.to_thread(search.wait, PATIENCE, progress=False))
        await play_to_end(stage, search)
        await done
        assert search.phase == "Succeeded"
        assert search.best is not None
        assert search.best.name == "train-2"
        assert search.best.value == pytest.approx(0.6)
        for trial in search.trials:
            assert 1e-4 <= float(trial.parameters["lr"]) <= 1e-1
            assert ("momentum" in trial.parameters) is (trial.parameters["optimizer"] == "sgd")
            assert [point.value for point in trial.curve][:3] == [0.1, 0.2, 0.3]
        assert "train-2" in search._repr_html_()
        client = podium.Client(stage.name, kubeconfig=str(kubeconfig))
        assert client.list() == ["train"]
        assert client.get("train").best == search.best
        with pytest.raises(podium.SearchError, match=r"SearchNotFound.*train"):
            client.get("other")
        (container,) = (await stage.pods())["train-0-0"]["spec"]["containers"]
        first = (await stage.trials())["train-0"]["spec"]["parameters"]
        printed = await asyncio.to_thread(run_here, container)
        assert printed == {"step": 1, "acc": pytest.approx(first["lr"] + first.get("momentum", 0.0))}

    perform(play)


def test_a_search_is_suspended_resumed_and_stopped(perform: Callable[[Play], None], kubeconfig: Path) -> None:
    async def play(stage: Stage) -> None:
        search = await asyncio.to_thread(start, stage, kubeconfig)
        await stage.until("trials are on the GPU", lambda: running(stage, "train-0", "train-1"))
        await asyncio.to_thread(search.suspend)

        async def holds_no_gpu() -> bool:
            return await stage.run_queue() == []

        await stage.until("nothing runs", holds_no_gpu)
        await asyncio.to_thread(search.resume)

        async def holds_a_gpu() -> bool:
            return await stage.run_queue() != []

        await stage.until("a trial is in the run queue", holds_a_gpu)
        await stage.report("train-0", 0.1, 0.7)
        await asyncio.to_thread(search.stop)

        async def ended() -> bool:
            return (await stage.status("train")).get("phase") == "Succeeded"

        await stage.until("the search has ended", ended)
        kept = await asyncio.to_thread(lambda: search.best)
        assert kept is not None
        assert (kept.name, kept.value) == ("train-0", 0.7)

    perform(play)


def test_a_refused_search_says_why(perform: Callable[[Play], None], kubeconfig: Path) -> None:
    async def play(stage: Stage) -> None:
        with pytest.raises(podium.SearchError, match=r"spec\.search\.algorithm"):
            await asyncio.to_thread(start, stage, kubeconfig, algorithm="cmaes-2")
        assert await stage.trials() == {}
        await asyncio.to_thread(start, stage, kubeconfig)
        with pytest.raises(podium.SearchError, match="AlreadyExists"):
            await asyncio.to_thread(start, stage, kubeconfig)

    perform(play)


def test_waiting_outlives_an_api_server_that_is_away(
    perform: Callable[[Play], None], make_relay: Callable[[str], FaultyRelay]
) -> None:
    relay = make_relay("python")

    async def play(stage: Stage) -> None:
        search = await asyncio.to_thread(start, stage, relay.kubeconfig)
        relay.rates = {"refused": 1.0}
        waiting = asyncio.create_task(asyncio.to_thread(search.wait, PATIENCE, progress=False))

        async def refused() -> bool:
            return relay.injected["refused"] >= 3

        await stage.until("the client was refused", refused)
        assert not waiting.done()
        relay.rates = {}
        await play_to_end(stage, search)
        await waiting
        assert search.phase == "Succeeded"

    perform(play)
