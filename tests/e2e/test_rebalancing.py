"""Rebalancing: a trial moves from a crowded node to a free one by its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, CROWDED, EMPTY = "rebalancing", "node-1", "node-2"
Scene = Any


@pytest.fixture
def rebalanced_scene(scene: Scene) -> Iterator[Scene]:
    scene.site.set_rebalancing(True)
    yield scene
    scene.site.kubectl("uncordon", EMPTY)
    scene.site.set_rebalancing(False)


def test_a_trial_moves_to_the_free_node_and_loses_no_work(rebalanced_scene: Scene) -> None:
    scene = rebalanced_scene
    scene.site.until("every node accepts pods", scene.nodes_accept_pods, 120)
    scene.site.kubectl("cordon", EMPTY)
    # maxSteps is far away, so a move is worth its cost at any speed of the machine
    logs = scene.search(JOB, "held", trials=3, steps=100_000, cordoned=True)
    scene.until(logs, "steps", lambda: all_have_steps(scene), 120)
    assert {trial["status"]["node"] for trial in scene.trials(JOB)} == {CROWDED}
    assert not any("rebalanced" in trial["status"] for trial in scene.trials(JOB)), "no trial moves to a cordoned node"
    # a trial may have had several attempts, if a kubelet rejected a pod
    attempts = {trial["metadata"]["name"]: trial["status"].get("attempt", 0) for trial in scene.trials(JOB)}

    scene.site.kubectl("uncordon", EMPTY)
    moved = scene.until(logs, "a trial runs on the other node", lambda: moved_trial(scene), 120)
    scene.release(JOB)
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0
    name = moved["metadata"]["name"]
    move = moved["status"]["rebalanced"]
    assert (move["sourceNode"], move["targetNode"], move["attempt"], move["count"]) == (
        CROWDED,
        EMPTY,
        attempts[name] + 1,
        1,
    )
    assert len(logs.printed(name)) == 2, "the second attempt continued from the checkpoint"
    messages = [event["message"] for event in events(scene) if event["involvedObject"]["name"] == name]
    assert messages[0].startswith(
        f"Its GPU on {CROWDED} has 3 trials, the one on {EMPTY} 0; it checkpoints and continues there"
    ), messages
    scene.check_no_leaks(JOB)
    scene.finish(JOB)


def all_have_steps(scene: Scene) -> bool:
    trials = scene.trials(JOB)
    return len(trials) == 3 and all(scene.last_step(trial) >= 3 and trial["status"].get("node") for trial in trials)


def moved_trial(scene: Scene) -> dict[str, Any] | None:
    """Return the trial that runs on the free node, once the operator has written phase, node and move."""
    for trial in scene.trials(JOB):
        status: dict[str, Any] = trial["status"]
        if status.get("node") == EMPTY and status["phase"] == "Running" and status.get("rebalanced"):
            found: dict[str, Any] = trial
            return found
    return None


def events(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene.site.objects(
        "events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=WorkAtRisk"
    )
    return found
