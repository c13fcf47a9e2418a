"""What all contenders of `make bench-rivals` share: one training as a process of examples/digits/train.py, and its log.

Standard library alone, since it is imported in the rivals' environment and in Podium's. The clock is CLOCK_MONOTONIC,
which all processes of a machine share; whoever reads a line of a training stamps it and adds it to the log, so the
contenders' own latency counts. The bench reads the log.
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
    """One run of one contender. `space`: the job's parameters as they stand in its YAML; `drawn`: what the random
    searcher proposes for trials 0, 1, ... (the random searches of all contenders try the same).
    """

    python: str  # that runs the training script
    script: str
    job: str
    log: str
    scratch: str
    policy: str  # Podium's
    search: str  # Podium's algorithm
    seed: int
    cores: int
    trials: int
    epochs: int
    work: int
    space: list[dict[str, Any]]
    drawn: list[dict[str, Any]]

    @classmethod
    def read(cls, path: str) -> Setup:
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Training:
    """A trial's process, in a session of its own. `output`: the file descriptor that it writes to."""

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
        """What it has written since: (epoch, value) of each whole line. Waits for a first byte, never for a whole line:
        the process may be stopped in the midst of one. None: it has ended.
        """
        got = os.read(self.output, 65536)
        if not got:
            self._note(event="end", code=self.process.wait())
            return None
        *lines, self._rest = (self._rest + got).split(b"\n")
        found = [(int(seen["epoch"]), float(seen["val_acc"])) for seen in map(json.loads, lines)]
        for epoch, value in found:
            self._note(event="value", epoch=epoch, value=value)
        return found

    def next(self) -> tuple[int, float] | None:
        """The next (epoch, value), waiting for it; None when the process has ended."""
        while not self._waiting:
            found = self.receive()
            if found is None:
                return None
            self._waiting.extend(found)
        return self._waiting.popleft()

    def kill(self) -> None:
        """At once, wherever it is; a stopped process too."""
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
