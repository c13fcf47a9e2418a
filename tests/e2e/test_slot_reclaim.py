"""A search with more trials than slots: waiting trials release their slots and lose no work."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB = "reclaim"
Scene = Any


def test_a_trial_that_waits_at_a_rung_releases_its_slot_and_continues_from_its_checkpoint(scene: Scene) -> None:
    """Ten trials and eight slots: promotion at the first rung (step 6) needs all ten trials."""
    policy = {"name": "asha", "settings": {"eta": 10, "rungs": 1}}
    logs = scene.search(JOB, trials=10, seconds=0.3, policy=policy)

    def reached() -> bool:
        return all(scene.last_step(trial) >= 6 for trial in scene.trials(JOB)) and len(scene.trials(JOB)) == 10

    scene.until(logs, "every trial has reached the rung", reached, 180)
    released = {name for name, text in requeues(scene) if text.startswith("SlotReclaimed:")}
    assert len(released) >= 2, f"two trials had no slot: {requeues(scene)}"
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"

    trials = {trial["metadata"]["name"]: trial["status"] for trial in scene.trials(JOB)}
    ended = {name: (status["phase"], status["reason"]) for name, status in trials.items()}
    assert [phase for phase, _ in ended.values()].count("Succeeded") >= 1, f"the promoted trial: {ended}"
    assert "SlotNeeded" not in [reason for _, reason in ended.values()], f"no trial is ended to free a slot: {ended}"
    assert all(status.get("lostWork", {}).get("steps", 0) == 0 for status in trials.values()), trials
    for name in trials:
        steps = [step for points in logs.printed(name).values() for step, _ in points]
        assert steps == list(range(1, steps[-1] + 1)), f"{name} printed every step once: {steps}"
    scene.check_no_leaks(JOB)
    scene.finish(JOB)


def requeues(scene: Scene) -> list[tuple[str, str]]:
    """Return (trial, message) of all events of requeues."""
    found = scene.site.objects("events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=TrialRequeued")
    return [
        (event["involvedObject"]["name"], event["message"])
        for event in found
        if event["involvedObject"]["name"].startswith(JOB)
    ]
