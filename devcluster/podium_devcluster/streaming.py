"""Run a long program, show its last line as it goes, keep all of it in a log file. Used by builds."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from podium_devcluster.progress import Step
from podium_devcluster.shell import CommandError


def run_logged(
    argv: Sequence[str],
    *,
    log: Path,
    step: Step,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """The program and its children are ended when it runs past `timeout` or we are interrupted."""
    log.parent.mkdir(parents=True, exist_ok=True)
    last = ""
    try:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", bufsize=1, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise CommandError(argv, "was not found", "") from error
    ended, expired = threading.Event(), threading.Event()

    def heartbeat() -> None:
        waited = 0.0
        while not ended.wait(1.0):
            waited += 1.0
            step.detail(last or "started")
            if waited >= timeout:
                expired.set()
                _end(process)

    pulse = threading.Thread(target=heartbeat, daemon=True)
    pulse.start()
    try:
        with log.open("a") as file:
            print(f"$ {' '.join(argv)}", file=file, flush=True)
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                last = line.strip() or last
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        ended.set()
        pulse.join()
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    if expired.is_set():
        raise CommandError(argv, f"did not end within {timeout:g} s (log: {log})", tail)
    if code:
        raise CommandError(argv, f"failed with exit status {code} (log: {log})", tail)


def _end(process: subprocess.Popen[str]) -> None:
    """The whole process group: compilers and package managers have children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
