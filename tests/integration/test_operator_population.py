"""Population-based training with a real API server: children, their pods, and a killed operator."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from operator_stage import OperatorProcess, Play, Stage, now, running

pytestmark = pytest.mark.integration
POPULATION: dict[str, Any] = {
    "search": {"algorithm": "pbt", "seed": 3, "settings": {"population": 4, "interval": 2}},
    "trials": {"max": 6, "parallel": 4, "maxSteps": 10},
    "checkpoint": {
        "path": "/c",
        "volume": {"hostPath": {"path": "/srv"}},
        "resumeArgs": ["--from=$(podium.checkpoint)"],
    },
}


def test_a_child_replaces_the_worst_trial_also_if_the_operator_is_killed(
    perform: Callable[[Play], None], operator: OperatorProcess
) -> None:
    async def play(stage: Stage) -> None:
        await stage.submit(**POPULATION)
        founders = [f"sweep-{number}" for number in range(4)]
        await stage.until("the founders have pods", lambda: running(stage, *founders))
        saved = {"step": 2, "at": now(), "path": "step-2", "node": stage.node}
        for number, name in enumerate(founders):
            await stage.report(name, 0.1, 0.2 + 0.1 * number, checkpoint=saved)

        async def child_exists() -> bool:
            return "sweep-4" in await stage.trials()

        await stage.until("a child exists", child_exists)
        operator.kill()
        operator.start()

        async def replaced() -> bool:
            trial = (await stage.trials())["sweep-0"]["status"]
            return (trial["phase"], trial["reason"]) == ("EarlyStopped", "Replaced")

        await stage.until("the worst trial ended", replaced)
        trials = await stage.trials()
        assert sorted(trials) == [*founders, "sweep-4"]
        assert trials["sweep-4"]["spec"]["parent"] == {
            "name": "sweep-3",
            "uid": trials["sweep-3"]["metadata"]["uid"],
            "generation": 1,
            "step": 2.0,
            "replaces": "sweep-0",
        }
        assert trials["sweep-4"]["spec"]["parameters"] != trials["sweep-3"]["spec"]["parameters"]

        async def child_has_a_pod() -> bool:
            return "sweep-4-0" in await stage.pods()

        await stage.until("the child has a pod", child_has_a_pod)
        spec = (await stage.pods())["sweep-4-0"]["spec"]
        assert [one["name"] for one in spec["initContainers"]] == ["podium-inherit", "podium-gate"]
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert required["nodeSelectorTerms"][0]["matchFields"][0]["values"] == [stage.node]
        assert "--from=/c/step-0-parent" in spec["containers"][0]["command"]

    perform(play)
