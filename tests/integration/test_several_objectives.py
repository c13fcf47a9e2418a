"""A job with two objectives, one of them the measured GPU-seconds, with a real API server and operator."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

import podium

sys.path.insert(0, str(Path(__file__).parent))

from operator_stage import Play, Stage, running

pytestmark = pytest.mark.integration
OBJECTIVES = [{"metric": "acc", "direction": "maximize"}, {"metric": "podium.dev/gpu-seconds", "direction": "minimize"}]


async def until_front(stage: Stage, *front: tuple[str, float, list[float]]) -> None:
    """Wait until the job's status has this Pareto front."""
    expected = [{"trial": trial, "step": step, "values": values} for trial, step, values in front]

    async def reached() -> bool:
        return bool((await stage.status()).get("paretoFront") == expected)

    await stage.until(f"the front is {expected}", reached)


async def running_one(stage: Stage, names: Collection[str]) -> str:
    """Wait until one of these trials runs, and return its name."""

    async def present() -> list[str]:
        phases = await stage.phases()
        return sorted(name for name in names if phases.get(name) == "Running")

    async def reached() -> bool:
        return bool(await present())

    await stage.until(f"one of {', '.join(sorted(names))} runs", reached)
    return (await present())[0]


async def end_one(stage: Stage, results: dict[str, tuple[float, float]]) -> None:
    """Let the trial that runs report its accuracy and GPU-seconds of all ten steps, and succeed."""
    trial = await running_one(stage, results)
    accuracy, seconds = results.pop(trial)
    await stage.report(trial, *([0.1] * 9), accuracy, gpuSeconds=seconds)
    await stage.finish(trial)


def train(lr: float) -> None:
    from podium import trial

    trial.report(step=1, acc=lr)


def test_a_job_with_two_objectives_from_start_to_end(perform: Callable[[Play], None]) -> None:
    async def play(stage: Stage) -> None:
        spec: dict[str, Any] = {"objective": None, "objectives": OBJECTIVES, "policy": {"name": "pareto"}}
        await stage.submit(**spec)
        await stage.until("two trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        first = await running_one(stage, ("sweep-0", "sweep-1"))
        await stage.report(first, 0.2, 0.4, 0.5, 0.6, 0.7, gpuSeconds=6.0)
        await until_front(stage, (first, 5.0, [0.7, 12.0]))

        results = {"sweep-0": (0.9, 20.0), "sweep-1": (0.8, 10.0), "sweep-2": (0.7, 15.0)}
        while results:
            await end_one(stage, results)

        async def ended() -> bool:
            return (await stage.status()).get("phase") == "Succeeded"

        await stage.until("the job has ended", ended)
        await until_front(stage, ("sweep-0", 10.0, [0.9, 20.0]), ("sweep-1", 10.0, [0.8, 10.0]))
        status = await stage.status()
        assert "best" not in status, "no trial is the best in both objectives"
        assert {c["type"]: c["status"] for c in status["conditions"]} == {"Accepted": "True", "Complete": "True"}

    perform(play)


def test_a_search_with_two_objectives_from_python(perform: Callable[[Play], None], kubeconfig: Path) -> None:
    def start(stage: Stage) -> podium.Search:
        return podium.tune(
            train,
            {"lr": podium.uniform(0.1, 1.0)},
            metric=["acc", podium.GPU_SECONDS],
            mode=["max", "min"],
            trials=3,
            max_steps=10,
            where="cluster",
            name="sweep",
            image="localhost/podium:test",
            spec={"gpus": {"perTrial": 1, "products": [stage.product]}},
            namespace=stage.name,
            kubeconfig=str(kubeconfig),
        )

    async def play(stage: Stage) -> None:
        search = await asyncio.to_thread(start, stage)
        done = asyncio.create_task(asyncio.to_thread(search.wait, 120.0, progress=False))
        results = {"sweep-0": (0.9, 20.0), "sweep-1": (0.8, 10.0), "sweep-2": (0.7, 15.0)}
        while results:
            await end_one(stage, results)
        await done
        await until_front(stage, ("sweep-0", 10.0, [0.9, 20.0]), ("sweep-1", 10.0, [0.8, 10.0]))
        front = await asyncio.to_thread(search.pareto_front)
        assert [(one.name, dict(one.values)) for one in front] == [
            ("sweep-0", {"acc": 0.9, "podium.dev/gpu-seconds": 20.0}),
            ("sweep-1", {"acc": 0.8, "podium.dev/gpu-seconds": 10.0}),
        ]
        with pytest.raises(podium.SearchError, match="SeveralObjectives"):
            search.best  # noqa: B018 -- reads it

    perform(play)
