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
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import FINISHED
from podium_core.schema.trial import HyperParamTrial
from podium_local.errors import LocalError
from podium_local.processes.log_follower import last_text
from podium_local.store import StoredRun, read_job
from podium_local.stored_search import IMMUTABLE, discard

JOB_FILE, OUTPUT = "search.json", "podium-run.log"
STOP_SECONDS = 60.0  # the trials' time to write checkpoints, after which they are killed
MAX_LOG_BYTES = 1 << 20
STOPPED = (130, -signal.SIGINT)  # exit status of a run that was stopped, also while it started, and can continue
# the processes of `podium run` that this Python started, by folder: a notebook often runs the same cell again, and
# every handle of a folder then has the same process
_PROCESSES: dict[Path, subprocess.Popen[bytes]] = {}


class LocalRun:
    """One search in one folder; a process of `podium run` works on it while it is started."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        """`options`: further options of `podium run`."""
        self.folder = folder
        self._stored = StoredRun(folder)
        self.place = str(folder)
        self._options = options

    def start(self, manifest: dict[str, Any], *, restart: bool = False) -> None:
        """Start a new search, or continue the one in the folder.

        `restart`: remove the one in the folder first.
        """
        if restart:
            self.stop()
            try:
                discard(self.folder)
            except LocalError as error:
                raise SearchError(error.reason, error.message) from error
        elif (self.folder / JOB_FILE).is_file():
            self._refuse_changes(manifest)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / JOB_FILE).write_text(json.dumps(manifest, indent=2))
        self.resume()

    def read(self) -> Objects:
        """Return the job and its trials as the runner stored them last."""
        process = _PROCESSES.get(self._stored.path)
        status = None if process is None else process.poll()
        running = process is not None and status is None
        job, trials = self._read_stored()
        if status not in (None, 0, *STOPPED) and job.status.phase not in FINISHED:
            raise SearchError("RunFailed", f"`podium run` ended with status {status}.{self._said()}")
        return Objects(job, trials, running)

    def _read_stored(self) -> tuple[HyperParamJob, tuple[HyperParamTrial, ...]]:
        try:
            # a runner that was stopped while it started has stored no job yet
            job = self._stored.job() or read_job(self.folder / JOB_FILE)
            trials = tuple(self._stored.trials())
        except LocalError as error:
            raise SearchError(error.reason, error.message) from error
        if job is None:
            raise SearchError("NotStarted", f"no search is stored in {self.folder}; start one with podium.tune")
        return job, trials

    def log(self, trial: HyperParamTrial, lines: int) -> str:
        """Return the last lines of the trial's last attempt."""
        pod = trial.status.pod
        return "" if pod is None else _last_lines(self._stored.logs / f"{pod}.log", lines)

    def suspend(self) -> None:
        """Stop the runner: trials that can write checkpoints do so, then all end."""
        self.stop()

    def resume(self) -> None:
        """Start the runner, if it does not run; it continues from what is stored."""
        if self._runs:
            return
        command = [sys.executable, "-m", "podium_cli.main", "run", str(self.folder / JOB_FILE), "--lines"]
        with (self.folder / OUTPUT).open("ab") as output:
            _PROCESSES[self._stored.path] = subprocess.Popen(
                [*command, "--folder", str(self.folder), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for the caller, which stops the search
            )
        atexit.register(self._stop_at_exit)

    def stop(self) -> None:
        """Stop the runner and wait for its end."""
        if not self._runs:
            return
        process = _PROCESSES[self._stored.path]
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):  # the second one kills the trials
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
                return

    @property
    def _runs(self) -> bool:
        process = _PROCESSES.get(self._stored.path)
        return process is not None and process.poll() is None

    def _refuse_changes(self, manifest: dict[str, Any]) -> None:
        """Refuse a call that would show the results of another function or search space. Raises SearchError."""
        try:
            before = json.loads((self.folder / JOB_FILE).read_bytes())["spec"]
        except (OSError, ValueError, KeyError, TypeError):
            return  # the runner compares the job itself with the stored one
        job, trials = self._read_stored()
        begun = any(trial.status.curve.points for trial in trials) or job.status.phase in FINISHED
        fields = (*IMMUTABLE, "template") if begun and not self._runs else manifest["spec"]
        changed = [name for name in fields if manifest["spec"].get(name) != before.get(name)]
        if changed and (begun or self._runs):
            running = "still runs" if self._runs else "has results"
            named = ", ".join("the function or command" if name == "template" else name for name in changed)
            raise SearchError(
                "JobChanged",
                f"the search in {self.folder} {running}, and this call differs from it in {named}; restart=True "
                "removes those results, and another name= or folder= keeps both",
            )

    def _stop_at_exit(self) -> None:
        if self._runs:
            print(f"podium: stopping the search in {self.folder}; the same call continues it", file=sys.stderr)
            self.stop()

    def _said(self) -> str:
        text = _last_lines(self.folder / OUTPUT, 8)
        return f" Its last lines:\n{text}" if text else ""


def _last_lines(path: Path, lines: int) -> str:
    """Return the last lines of a file, from at most its last MiB."""
    return "\n".join(deque(last_text(path, MAX_LOG_BYTES).splitlines(), maxlen=lines))
