"""Processes of trials: start one, and end it together with all that it started. `stopping` suspends it.

A trial's process leads a session of its own. It ends with the runner: the kernel sends it SIGKILL (PR_SET_PDEATHSIG),
and the guardian kills its descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from podium_local.processes import process_tree

PR_SET_PDEATHSIG = 1
SIGNAL_EXIT_CODE = 128  # plus the number of the signal that ended a process, as a shell reports it
NOT_EXECUTED = 127
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Launch:
    """What to execute: the words of the command, the whole environment, and the folder to start in."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str


class Guardian:
    """The process that kills the trials after this one. See `guardian`.

    `folder`: the folder of the run, which marks its processes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: set[int] = set()
        self._process = self._started()

    @property
    def pipe(self) -> int:
        """Return the descriptor to which trials report themselves; a guardian that was killed is replaced."""
        if self._process.poll() is not None:
            self._stdin(self._process).close()
            self._process = self._started()
            for pid in self._running:
                self._report(b"+%d\n" % pid)
        return self._stdin(self._process).fileno()

    @property
    def pid(self) -> int:
        """Return the pid of the process."""
        return self._process.pid

    def add(self, pid: int) -> None:
        """Note a process that reported itself."""
        self._running.add(pid)

    def forget(self, pid: int) -> None:
        """Note that a trial's process has ended, so that its number may belong to another process."""
        self._running.discard(pid)
        self._report(b"-%d\n" % pid)

    def close(self) -> None:
        """End the guardian, which kills what still runs."""
        with suppress(OSError):
            self._stdin(self._process).close()
        self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-S", "-m", "podium_local.processes.guardian", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # Ctrl-C at the terminal is for the runner
        )

    def _report(self, text: bytes) -> None:
        pipe = self._stdin(self._process)
        if pipe.closed:  # the run is over
            return
        with suppress(OSError):
            os.write(pipe.fileno(), text)

    def _stdin(self, process: subprocess.Popen[bytes]) -> IO[bytes]:
        assert process.stdin is not None
        return process.stdin


class TrialProcess:
    """A running process of a trial; `output` is the file to which it and its descendants write."""

    def __init__(self, launch: Launch, output: Path, guardian: Guardian) -> None:
        """Start the process. Raises OSError if the command cannot be executed."""
        self._guardian = guardian
        self._code: int | None = None
        self._mark = launch.environment.get(process_tree.ATTEMPT_VARIABLE, "")
        with output.open("ab", buffering=0) as file:
            self._process = subprocess.Popen(
                list(launch.command),
                cwd=launch.folder,
                env=dict(launch.environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_bind_to(os.getpid(), guardian.pipe),
            )
        self.pid = self._process.pid
        guardian.add(self.pid)
        self.started = time.monotonic()
        self.ended = os.pidfd_open(self.pid)  # becomes readable when the process ends

    def exit_code(self) -> int | None:
        """Return the exit code as a shell reports it; None while the process runs.

        Descendants that outlive the process are killed: their trial has ended.
        """
        if self._code is not None:
            return self._code
        # the process stays a zombie until `poll`, so its number cannot belong to another one yet
        if not _has_ended(self.pid):
            return None
        process_tree.kill(self.pid)
        if self._mark:  # workers in sessions of their own are not descendants after their parent's end
            process_tree.kill_with_variable(process_tree.ATTEMPT_VARIABLE, self._mark)
        code = self._process.wait()
        self._guardian.forget(self.pid)
        os.close(self.ended)
        self._code = SIGNAL_EXIT_CODE - code if code < 0 else code
        return self._code

    def handles_sigterm(self) -> bool:
        """Return whether the process has a handler for SIGTERM."""
        return process_tree.handles(self.pid, signal.SIGTERM)

    def terminate(self) -> None:
        """Send SIGTERM to the first process only, as Kubernetes does."""
        process_tree.send(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the trial."""
        process_tree.kill(self.pid)
        self.exit_code()


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, without collecting it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _bind_to(runner: int, guardian: int) -> Callable[[], None]:
    """Return what a new process does between fork and exec, to end with the runner."""

    def bind() -> None:
        if _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != runner:
            os._exit(NOT_EXECUTED)  # the runner ended before the kernel knew what to do then
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # the guardian may have been killed a moment ago
        with suppress(OSError):
            os.write(guardian, b"+%d\n" % os.getpid())
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    return bind
