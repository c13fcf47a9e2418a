"""A node comes back: a trial that waits on the crowded one goes there by its own save, and no step is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, CROWDED, EMPTY = "levelling", "node-1", "node-2"
Scene = Any


@pytest.fixture
def levels(scene: Scene) -> Iterator[Scene]:
    scene.site.level(True)
    yield scene
    scene.site.kubectl("uncordon", EMPTY)
    scene.site.level(False)


def test_a_trial_goes_to_the_node_that_is_free_and_loses_nothing(levels: Scene) -> None:
    scene = levels
    scene.site.until("every node takes pods", scene.nodes_take_pods, 120)
    scene.site.kubectl("cordon", EMPTY)
    # they end long before maxSteps: so what is left is worth a move at any speed of the machine
    witness = scene.search(JOB, "held", trials=3, steps=100_000, cordoned=True)
    scene.until(witness, "steps", lambda: begun(scene), 120)
    assert {trial["status"]["node"] for trial in scene.trials(JOB)} == {CROWDED}
    assert not any("rebalanced" in trial["status"] for trial in scene.trials(JOB)), "nobody goes to a cordoned node"
    # not each one's first, if a kubelet rejected a pod
    attempts = {trial["metadata"]["name"]: trial["status"].get("attempt", 0) for trial in scene.trials(JOB)}

    scene.site.kubectl("uncordon", EMPTY)
    moved = scene.until(witness, "a trial works on the other node", lambda: at_work_there(scene), 120)
    scene.let_go(JOB)
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0
    name = moved["metadata"]["name"]
    told = moved["status"]["rebalanced"]
    assert (told["sourceNode"], told["targetNode"], told["attempt"], told["count"]) == (
        CROWDED,
        EMPTY,
        attempts[name] + 1,
        1,
    )
    assert len(witness.printed(name)) == 2, "it went on from its save"
    why = [event["message"] for event in events(scene) if event["involvedObject"]["name"] == name]
    assert why[0].startswith(f"Its GPU on {CROWDED} has 3 trials, the one on {EMPTY} 0; it saves and goes on there"), (
        why
    )
    scene.nothing_leaks(JOB)
    scene.finish(JOB)


def begun(scene: Scene) -> bool:
    trials = scene.trials(JOB)
    return len(trials) == 3 and all(scene.last_step(trial) >= 3 and trial["status"].get("node") for trial in trials)


def at_work_there(scene: Scene) -> dict[str, Any] | None:
    """The agent writes of saves and steps, the operator of phase, node and move."""
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
