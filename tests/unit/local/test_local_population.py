"""Population-based training by `podium run`: children continue exactly where their parents had saved."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import Any

import pytest
from local_scene import Scene, wait_until

STEPS = 12
SCRIPT = """
import argparse, json, time
from podium import trial
given = trial.params({"x": 0.0, "pause": 0.25})
trial.stopping()
state, found = {"step": 0, "total": 0.0}, trial.load()
if found is not None:
    state = json.loads((found.path / "state.json").read_text())
while state["step"] < STEPS:
    time.sleep(given["pause"])
    step = state["step"] + 1
    state = {"step": step, "total": state["total"] + given["x"] / (step + 1.0)}
    trial.save(step, lambda folder: (folder / "state.json").write_text(json.dumps(state)))
    trial.report(step=step, score=state["total"])
    if trial.stopping():
        raise SystemExit(trial.STOPPED)
"""
SEARCH = {"algorithm": "pbt", "seed": 3, "settings": {"population": 4, "interval": 3}}
LIMITS = {"max": 9, "parallel": 4, "maxSteps": STEPS}


def write(scene: Scene, *flags: str, **changes: Any) -> None:
    (scene.folder / "train.py").write_text(SCRIPT.replace("STEPS", str(STEPS)))
    policy = {"name": "round_robin", "settings": {"quantum": 0.25}}
    scene.write(*flags, **({"search": SEARCH, "trials": LIMITS, "policy": policy} | changes))


def printed(scene: Scene, name: str) -> list[tuple[int, float]]:
    """Return what a trial printed, over all attempts."""
    files = sorted(
        (scene.run_folder / "logs").glob(f"{name}-*.log"), key=lambda file: int(file.stem.rpartition("-")[2])
    )
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.startswith("{")]
    return [(line["step"], line["score"]) for line in lines]


def check_lineage(scene: Scene) -> list[dict[str, Any]]:
    """Check that each child continues from its parent's state and replaced a worse trial; return the children."""
    trials = {one["metadata"]["name"]: one for one in scene.trials()}
    children = [one for one in trials.values() if "parent" in one["spec"]]
    for one in children:
        parent = one["spec"]["parent"]
        lines = printed(scene, one["metadata"]["name"])
        if not lines:  # the runner was killed before the copy, and the parent was complete when it was made
            assert one["status"]["checkpoint"]["step"] == STEPS
            continue
        step, score = lines[0]
        before = dict(printed(scene, parent["name"]))
        assert step - 1 >= parent["step"] == 3 * (parent["step"] // 3)
        assert score == before[step - 1] + one["spec"]["parameters"]["x"] / (step + 1.0), "the parent's state"
        assert one["status"]["curve"]["points"][0]["step"] == step
        assert one["status"]["lostWork"]["steps"] == 0.0
        assert before[parent["step"]] > dict(printed(scene, parent["replaces"]))[parent["step"]]
        origin = trials[parent["name"]]
        assert parent["uid"] == origin["metadata"]["uid"]
        assert parent["generation"] == origin["spec"].get("parent", {"generation": 0})["generation"] + 1
        x, inherited = one["spec"]["parameters"]["x"], origin["spec"]["parameters"]["x"]
        assert x != inherited
        gone = trials[parent["replaces"]]["status"]
        assert (gone["phase"], gone["reason"]) == ("EarlyStopped", "Replaced")
    assert max(Counter(one["spec"]["parent"]["replaces"] for one in children).values(), default=0) == 1
    ended = [name for name, one in trials.items() if one["status"]["reason"] == "Replaced"]
    assert sorted(ended) == sorted(one["spec"]["parent"]["replaces"] for one in children)
    assert len(trials) <= LIMITS["max"]
    assert {one["status"]["phase"] for one in trials.values()} == {"Succeeded", "EarlyStopped"}
    return children


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param({"gpus": {"perTrial": 0}, "suspension": None}, id="all at once"),
        pytest.param(
            {"search": SEARCH | {"settings": {"population": 4, "interval": 3, "quantile": 0.5}}}, id="in turn"
        ),
        pytest.param({"policy": None}, id="the default policy"),
    ],
)
def test_children_continue_from_their_parents(scene: Scene, devices: dict[str, Any]) -> None:
    write(scene, "--pause=0.5", **devices)
    output = scene.run("--cpus", "2")
    children = check_lineage(scene)
    assert children
    assert scene.job()["status"]["phase"] == "Succeeded", output


def test_a_killed_runner_continues_with_the_same_lineage(scene: Scene) -> None:
    write(scene)
    with scene.running("--cpus", "2") as process:
        wait_until(lambda: any("parent" in one["spec"] for one in scene.trials()))
        process.send_signal(signal.SIGKILL)
        process.wait()
    stored = {one["metadata"]["name"]: one["spec"] for one in scene.trials()}
    scene.run("--cpus", "2")
    after = {one["metadata"]["name"]: one["spec"] for one in scene.trials()}
    assert {name: after[name] for name in stored} == stored
    check_lineage(scene)
