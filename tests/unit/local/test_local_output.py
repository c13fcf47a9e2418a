"""Output of `podium run` that fails: trials still get SIGTERM and write checkpoints, and the exit code is never 0."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest
from local_scene import DEADLINE, Scene, wait_until

COMMAND = [sys.executable, "-m", "podium_cli.main", "run", "search.yaml", "--cpus", "1"]


def values(scene: Scene) -> int:
    return sum('"score"' in line for line in scene.logs())


def assert_stopped_gracefully(scene: Scene) -> None:
    stored = [one["status"] for one in scene.trials()]
    assert {one["phase"] for one in stored} <= {"Requeued", "Succeeded"}
    assert [one["checkpoint"]["step"] for one in stored if "checkpoint" in one]
    assert [one["lostWork"]["steps"] for one in stored if "lostWork" in one] in ([], [0.0] * len(stored))
    assert scene.job()["status"]["phase"] == "Running"


@pytest.mark.parametrize("terminal", ["", "1"])
def test_a_reader_that_goes_stops_the_run_gracefully(scene: Scene, terminal: str) -> None:
    """As `podium run search.yaml | head -1`; FORCE_COLOR makes the command draw its table into the pipe."""
    scene.write("--pause=0.2")
    environment: dict[str, Any] = {**os.environ, "COLUMNS": "200"} | ({"FORCE_COLOR": "1"} if terminal else {})
    process = subprocess.Popen(COMMAND, cwd=scene.folder, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        wait_until(lambda: values(scene) >= 2)
        process.stdout.close()
        assert process.wait(DEADLINE) == 130
    finally:
        process.kill()
        process.wait()
    assert_stopped_gracefully(scene)


def test_a_terminal_that_was_closed_stops_the_run_gracefully(scene: Scene) -> None:
    scene.write("--pause=0.2")
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        os.chdir(scene.folder)
        os.execv(COMMAND[0], COMMAND)
    assert os.read(master, 1)
    wait_until(lambda: values(scene) >= 2)
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert_stopped_gracefully(scene)


def test_nohup_lets_a_run_outlive_its_terminal(scene: Scene) -> None:
    scene.write("--pause=0.1")
    process = subprocess.Popen(
        COMMAND,
        cwd=scene.folder,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    try:
        wait_until(lambda: values(scene) >= 2)
        process.send_signal(signal.SIGHUP)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
    assert {one["status"]["phase"] for one in scene.trials()} == {"Succeeded"}


def test_a_checkpoint_folder_that_cannot_be_created_fails_the_trial(scene: Scene) -> None:
    scene.write(trials={"max": 1, "maxSteps": 6, "retries": 0, "maxFailed": 0})
    (scene.run_folder / "checkpoints").mkdir(parents=True)
    (scene.run_folder / "checkpoints" / "tiny-0").write_text("in the way")
    output = scene.run(code=1)
    assert "could not be created" in output
    assert "Traceback" not in output


def test_warnings_that_apply_here_are_printed_once_before_the_start(scene: Scene) -> None:
    """Those of `podium validate`, without those about pods and nodes."""
    one = [{"name": "x", "values": [0.5]}]
    suspension = {"methods": ["cuda-checkpoint"]}
    scene.write(parameters=one, suspension=suspension, gpus={"memory": "1Gi"}, trials={"max": 1, "maxSteps": 2})
    shown = scene.run().splitlines()
    warnings = [line for line in shown if line.startswith("warning: ")]
    text = "parameter x has one value, so no trial differs by it: list more, or remove it"
    assert warnings == [f"warning: SingleValue: spec.parameters[0].values: {text}"]
    started = next(number for number, line in enumerate(shown) if "Running" in line)
    assert shown.index(warnings[0]) < started
    validated = [sys.executable, "-m", "podium_cli.main", "validate", "search.yaml"]
    output = subprocess.run(validated, cwd=scene.folder, capture_output=True, text=True, check=True).stdout
    assert "warning: SingleValue: " in output
    assert "warning: NodesWithoutMethod: " in output
