"""A search of a small deterministic script, run by `podium run` in a process of its own.

The script needs only the standard library. Its parameters, given as flags, decide what it does wrong.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DEADLINE = 300.0  # seconds for any condition; a busy machine must not cause failures

SCRIPT = """
import argparse, json, os, signal, subprocess, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--pause", type=float, default=0.02)
parser.add_argument("--child", default="")
parser.add_argument("--wrong", default="")
parser.add_argument("--resume", default="")
parser.add_argument("--hold", default="")  # a file: no trial goes beyond step 2 before it exists
given = parser.parse_args()
stopped = False
def stop(number, frame):
    global stopped
    stopped = True
signal.signal(signal.SIGTERM, signal.SIG_IGN if given.wrong == "deaf" else stop)
if given.child:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=given.child == "session")
    print(json.dumps({"child": child.pid}), flush=True)
if given.wrong == "fail":
    sys.exit("the data is missing")
state = {"step": 0, "total": 0.0}
folder = os.environ.get("PODIUM_CHECKPOINT")
if given.resume:
    state = json.loads((Path(given.resume) / "state.json").read_text())
while state["step"] < given.steps:
    time.sleep(given.pause)
    while state["step"] == 2 and given.hold and not stopped and not os.path.exists(given.hold):
        time.sleep(0.02)
    step = state["step"] + 1
    state = {"step": step, "total": state["total"] + given.x / (step + 1.0)}
    name = "score" if given.wrong != "name" else "other"
    print(json.dumps({"step": step, name: state["total"]}), flush=True)
    if folder:
        (Path(folder) / "aside").write_text(json.dumps(state))
        os.replace(Path(folder) / "aside", Path(folder) / "state.json")
        (Path(folder) / "aside").write_text(json.dumps({"step": step}))
        os.replace(Path(folder) / "aside", Path(folder) / "podium-checkpoint.json")
    if stopped and given.wrong != "deaf":
        sys.exit(143)
"""


class Scene:
    """A folder with `train.py` and `search.yaml`; commands run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_folder = folder / "podium-runs" / "tiny"
        (folder / "train.py").write_text(SCRIPT)

    def write(self, *flags: str, checkpoint: bool = True, **changes: Any) -> None:
        """Write the job; `flags` are added to its command, `changes` replace fields of its spec."""
        command = ["python3", "/app/train.py", *flags, "$(podium.args)"]
        spec: dict[str, Any] = {
            "objective": {"metric": "score", "direction": "maximize"},
            "parameters": [{"name": "x", "min": 0.0, "max": 1.0}],
            "trials": {"max": 4, "parallel": 4, "maxSteps": 6},
            "metrics": {"stepKey": "step"},
            "suspension": {"methods": ["freeze"], "gracePeriodSeconds": 20},
            "template": {"spec": {"containers": [{"name": "main", "image": "not/used", "command": command}]}},
        }
        if checkpoint:
            volume = {"claimName": "not-used"}
            spec["checkpoint"] = {"path": "/ckpt", "volume": volume, "resumeArgs": ["--resume=$(podium.checkpoint)"]}
        manifest = {
            "apiVersion": "podium.dev/v1alpha1",
            "kind": "HyperParamJob",
            "metadata": {"name": "tiny", "namespace": "default"},
            "spec": {name: value for name, value in {**spec, **changes}.items() if value is not None},
        }
        (self.folder / "search.yaml").write_text(json.dumps(manifest))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `podium run search.yaml` with further words."""
        return subprocess.Popen(
            [sys.executable, "-m", "podium_cli.main", "run", "search.yaml", *words],
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        """Run the search to its end and return what was printed; the exit code must be this one."""
        with self.running(*words) as process:
            return ended(process, code)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run the search during the block; afterwards it is killed if it still runs."""
        process = self.start(*words)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=DEADLINE)

    @property
    def hold(self) -> str:
        """Flag of the scripts: no trial goes beyond step 2 before `release`."""
        return f"--hold={self.folder / 'released'}"

    def release(self) -> None:
        """Let the trials that were started with the flag `hold` continue."""
        (self.folder / "released").touch()

    def suspensions(self) -> int:
        """Return how many suspensions are stored."""
        return sum(one["status"]["suspensions"]["count"] for one in self.trials() if "suspensions" in one["status"])

    def trials(self) -> list[dict[str, Any]]:
        """Return the stored trials by number."""
        files = sorted((self.run_folder / "objects").glob("trial-*.json"), key=lambda path: int(path.stem[6:]))
        return [json.loads(file.read_text()) for file in files]

    def job(self) -> dict[str, Any]:
        """Return the stored job."""
        stored: dict[str, Any] = json.loads((self.run_folder / "objects" / "job.json").read_text())
        return stored

    def logs(self) -> list[str]:
        """Return the lines of all logs."""
        return [line for file in (self.run_folder / "logs").glob("*.log") for line in file.read_text().splitlines()]

    def children(self) -> list[int]:
        """Return the pids of the children that the trials have started."""
        return [json.loads(line)["child"] for line in self.logs() if '"child"' in line]


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end of a run and return what was printed; the exit code must be this one."""
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == code, output
    return output


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "the condition did not come to hold"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
