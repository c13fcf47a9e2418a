"""The agents are killed while the driver copies GPU memory (`cuda-checkpoint`); no work is lost.

The state of the fake driver shows when to kill them. Each copy takes 0.4 s for this purpose.
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
        driver.set_checkpoint_faults("latency_ms=400")
    yield drivers
    for driver in drivers:
        driver.set_checkpoint_faults("all=ok")


def test_agents_killed_during_checkpoints_and_restores_lose_no_work(scene: Scene, slow_copies: Any) -> None:
    memory = {"perTrial": 1, "memory": "64Mi"}
    method = {"methods": ["cuda-checkpoint"]}
    logs = scene.search(JOB, "held", trials=4, gpus=memory, suspension=method)

    def seen(copy: str) -> bool:
        """Return whether such a copy is under way and each node has an agent.

        A new agent starts no copy at once.
        """
        logs.open_new()
        copying = any(copy in copies(driver.read()) for driver in slow_copies)
        return copying and len(scene.site.processes("podium-agent")) == len(NODES)

    for copy in ("checkpoint", "restore"):
        scene.site.until(f"a {copy} of GPU memory", lambda copy=copy: seen(copy), 120, pause=0.02)
        assert scene.kill("podium-agent", "agent") == len(NODES), "one on each node"
    scene.until(logs, "all have started", lambda: min(map(scene.last_step, scene.trials(JOB))) > 0, 120)
    scene.release(JOB)

    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0, "only Podium was killed, so no work is lost"
    assert all(trial["status"]["failures"] == trial["status"]["attempt"] == 0 for trial in scene.trials(JOB))
    used = {one["method"] for trial in scene.trials(JOB) for one in trial["status"]["suspensions"].get("recent", [])}
    assert used == {"cuda-checkpoint"}
    scene.check_no_leaks(JOB)
    scene.finish(JOB)


def copies(seen: Any) -> set[str]:
    """Return the copies under way.

    A process is LOCKED during a checkpoint, and CHECKPOINTED and resident during a restore.
    """
    found = {"checkpoint"} if "LOCKED" in seen.states else set()
    if any(holder.state == "CHECKPOINTED" and holder.resident for holder in seen.holders):
        found.add("restore")
    return found
