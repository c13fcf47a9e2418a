"""The agents die while the driver moves the memory of trials out of a GPU and back (`cuda-checkpoint`): no trial loses
anything. When to kill them is seen in the fake driver's own state; each copy takes 0.4 s for it.
"""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, NODES = "moving", ("node-1", "node-2")
Scene = Any


@pytest.fixture
def slow_copies(scene: Scene) -> Any:
    drivers = [scene.site.driver(node) for node in NODES]
    for driver in drivers:
        driver.checkpoints("latency_ms=400")
    yield drivers
    for driver in drivers:
        driver.checkpoints("all=ok")


def test_the_agents_die_while_memory_is_moved(scene: Scene, slow_copies: Any) -> None:
    memory = {"perTrial": 1, "memory": "64Mi"}
    method = {"methods": ["cuda-checkpoint"]}
    witness = scene.search(JOB, "held", trials=4, gpus=memory, suspension=method)

    def seen(standing: str) -> bool:
        """While an agent is on each node: one that has only just been started moves nothing yet, so that no move is
        missed by waiting for it here.
        """
        witness.look()
        moved = any(standing in standings(driver.look()) for driver in slow_copies)
        return moved and len(scene.site.processes("podium-agent")) == len(NODES)

    for standing in ("on the way out", "on the way back"):
        scene.site.until(f"memory is {standing}", lambda standing=standing: seen(standing), 120, pause=0.02)
        assert scene.kill("podium-agent", "agent") == len(NODES), "one on each node"
    scene.until(witness, "all have begun", lambda: min(map(scene.last_step, scene.trials(JOB))) > 0, 120)
    scene.let_go(JOB)

    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0, "who dies is Podium: no trial loses anything"
    assert all(trial["status"]["failures"] == trial["status"]["attempt"] == 0 for trial in scene.trials(JOB))
    used = {one["method"] for trial in scene.trials(JOB) for one in trial["status"]["suspensions"].get("recent", [])}
    assert used == {"cuda-checkpoint"}
    scene.nothing_leaks(JOB)
    scene.finish(JOB)


def standings(seen: Any) -> set[str]:
    """A copy out is under way while the process is LOCKED; one back, while it is CHECKPOINTED and has its memory."""
    found = {"on the way out"} if "LOCKED" in seen.states else set()
    if any(holder.state == "CHECKPOINTED" and holder.resident for holder in seen.holders):
        found.add("on the way back")
    return found
