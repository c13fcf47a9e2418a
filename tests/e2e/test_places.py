"""A search with more trials than the GPUs have shares: whoever waits gives its place, and loses nothing by it."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB = "places"
Scene = Any


def test_who_waits_at_a_rung_gives_its_place_and_goes_on_from_its_save(scene: Scene) -> None:
    """Ten trials, eight places: nobody is promoted at the first rung (of step 6) before all ten have come there."""
    policy = {"name": "asha", "settings": {"eta": 10, "rungs": 1}}
    witness = scene.search(JOB, trials=10, seconds=0.3, policy=policy)

    def opened() -> bool:
        return all(scene.last_step(trial) >= 6 for trial in scene.trials(JOB)) and len(scene.trials(JOB)) == 10

    scene.until(witness, "every trial has come to the rung", opened, 180)
    gave = {name for name, text in requeues(scene) if text.startswith("SlotReclaimed:")}
    assert len(gave) >= 2, f"two had no place: {requeues(scene)}"
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"

    trials = {trial["metadata"]["name"]: trial["status"] for trial in scene.trials(JOB)}
    ended = {name: (status["phase"], status["reason"]) for name, status in trials.items()}
    assert [phase for phase, _ in ended.values()].count("Succeeded") >= 1, f"the one that was promoted: {ended}"
    assert "SlotNeeded" not in [reason for _, reason in ended.values()], f"nobody is ended for a place: {ended}"
    assert all(status.get("lostWork", {}).get("steps", 0) == 0 for status in trials.values()), trials
    for name in trials:
        steps = [step for points in witness.printed(name).values() for step, _ in points]
        assert steps == list(range(1, steps[-1] + 1)), f"{name} printed every step once: {steps}"
    scene.nothing_leaks(JOB)
    scene.finish(JOB)


def requeues(scene: Scene) -> list[tuple[str, str]]:
    """What the Events say of every pod that was sent away."""
    found = scene.site.objects("events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=TrialRequeued")
    return [
        (event["involvedObject"]["name"], event["message"])
        for event in found
        if event["involvedObject"]["name"].startswith(JOB)
    ]
