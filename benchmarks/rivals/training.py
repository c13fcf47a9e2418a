"""What all contenders of bench-rivals share: one training as a process of the task's script, and its log.

This module uses only the standard library, because the rivals' environment imports it too. The clock is
CLOCK_MONOTONIC, which all processes of a machine share. The process that reads a line of a training adds it to the log
with its time, so a contender's own latency counts. The benchmark reads the log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Setup:
    """One run of one contender.

    `python`: runs the training script; `policy`: Podium's; `search`: the search algorithm. `space`: the job's
    parameters as in its YAML; `drawn`: the points of trials 0, 1, ... of the random search, the same for all
    contenders.
    """

    python: str
    script: str
    job: str
    log: str
    scratch: str
    policy: str
    search: str
    seed: int
    cores: int
    trials: int
    epochs: int
    work: int
    space: list[dict[str, Any]]
    drawn: list[dict[str, Any]]

    @classmethod
    def read(cls, path: str) -> Setup:
        """Read a setup that `write` wrote."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        """Write the setup as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Training:
    """A trial's process in a session of its own. `output`: the file descriptor to which it writes."""

    def __init__(self, setup: Setup, name: str, parameters: Mapping[str, object]) -> None:
        self._log, self.name = setup.log, name
        self._rest, self._waiting = b"", deque[tuple[int, float]]()
        flags = [f"--{key}={value}" for key, value in parameters.items()]
        command = [setup.python, setup.script, f"--epochs={setup.epochs}", f"--work={setup.work}", *flags]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._note(event="start", parameters=dict(parameters))
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, bufsize=0, start_new_session=True, env=environment
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()

    def receive(self) -> list[tuple[int, float]] | None:
        """Return (epoch, value) of each whole line that it has written since; None when it has ended.

        It waits for a first byte, never for a whole line: the process may be stopped in the middle of one.
        """
        got = os.read(self.output, 65536)
        if not got:
            self._note(event="end", code=self.process.wait())
            return None
        *lines, self._rest = (self._rest + got).split(b"\n")
        values = [(int(seen["epoch"]), float(seen["val_acc"])) for seen in map(json.loads, lines)]
        for epoch, value in values:
            self._note(event="value", epoch=epoch, value=value)
        return values

    def next(self) -> tuple[int, float] | None:
        """Wait for the next (epoch, value) and return it; None when the process has ended."""
        while not self._waiting:
            values = self.receive()
            if values is None:
                return None
            self._waiting.extend(values)
        return self._waiting.popleft()

    def kill(self) -> None:
        """Kill the process at once, even if it is stopped."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self._note(event="cut", code=self.process.wait())
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _note(self, **what: object) -> None:
        line = json.dumps({"time": time.monotonic(), "trial": self.name, **what}) + "\n"
        file = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())  # one write: lines of several processes do not mix
        finally:
            os.close(file)
