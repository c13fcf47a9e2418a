"""A search on this machine: a process of `podium run`, and the folder in which it keeps everything."""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from podium_api.backend import Objects
from podium_api.errors import SearchError
from podium_core.schema.job_status import FINISHED
from podium_core.schema.trial import HyperParamTrial
from podium_local.errors import LocalError
from podium_local.log_follower import last_text
from podium_local.store import StoredRun, read_job

JOB_FILE, OUTPUT = "search.json", "podium-run.log"
STOP_SECONDS = 60.0  # the trials' time to write checkpoints, after which they are killed
MAX_LOG_BYTES = 1 << 20
STOPPED = (130, -signal.SIGINT)  # exit status of a run that was stopped, also while it started, and can continue


class LocalRun:
    """One search in one folder; the process of `podium run` works on it while this object has it started."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        """`options`: further options of `podium run`."""
        self.folder = folder
        self._stored = StoredRun(folder)
        self.place = str(folder)
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, manifest: dict[str, Any]) -> None:
        """Start a new search, or continue the one in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / JOB_FILE).write_text(json.dumps(manifest, indent=2))
        atexit.register(self._stop_at_exit)
        self.resume()

    def read(self) -> Objects:
        """Return the job and its trials as the runner stored them last."""
        process = self._process
        status = None if process is None else process.poll()
        running = process is not None and status is None
        try:
            # a runner that was stopped while it started has stored no job yet
            job = self._stored.job() or read_job(self.folder / JOB_FILE)
            trials = tuple(self._stored.trials())
        except LocalError as error:
            raise SearchError(error.reason, error.message) from error
        if job is None:
            raise SearchError("NotStarted", f"no search is stored in {self.folder}; start one with podium.tune")
        if status not in (None, 0, *STOPPED) and job.status.phase not in FINISHED:
            raise SearchError("RunFailed", f"`podium run` ended with status {status}.{self._said()}")
        return Objects(job, trials, running)

    def log(self, trial: HyperParamTrial, lines: int) -> str:
        """Return the last lines of the trial's last attempt."""
        cursor = trial.status.log_cursor
        if cursor is None or not cursor.file:
            return ""
        return _last_lines(self._stored.logs / Path(cursor.file).name, lines)

    def suspend(self) -> None:
        """Stop the runner: trials that can write checkpoints do so, then all end."""
        self.stop()

    def resume(self) -> None:
        """Start the runner, if it does not run; it continues from what is stored."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-m", "podium_cli.main", "run", str(self.folder / JOB_FILE), "--lines"]
        with (self.folder / OUTPUT).open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--folder", str(self.folder), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for the caller, which stops the search
            )

    def stop(self) -> None:
        """Stop the runner and wait for its end."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):  # the second one kills the trials
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
                return

    def _stop_at_exit(self) -> None:
        if self._process is not None and self._process.poll() is None:
            print(f"podium: stopping the search in {self.folder}; the same call continues it", file=sys.stderr)
            self.stop()

    def _said(self) -> str:
        text = _last_lines(self.folder / OUTPUT, 8)
        return f" Its last lines:\n{text}" if text else ""


def _last_lines(path: Path, lines: int) -> str:
    """Return the last lines of a file, from at most its last MiB."""
    return "\n".join(deque(last_text(path, MAX_LOG_BYTES).splitlines(), maxlen=lines))
