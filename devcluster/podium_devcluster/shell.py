"""Run programs with a time limit. A failure names the command and shows the end of its output."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from podium_devcluster.progress import Step

TAIL_LINES = 15


class CommandError(RuntimeError):
    """A program failed, is not installed or exceeded its time limit."""

    def __init__(self, argv: Sequence[str], why: str, output: str) -> None:
        self.argv, self.why, self.output = tuple(argv), why, output
        shown = " ".join(argv)
        shown = shown if len(shown) <= 300 else shown[:297] + "..."
        end = "\n".join(output.strip().splitlines()[-TAIL_LINES:])
        super().__init__(f"`{shown}` {why}" + (f":\n{end}" if end else ""))


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
) -> str:
    """Run a program and return its standard output. With check=False a failure returns the output so far."""
    try:
        done = subprocess.run(
            argv, input=stdin, env=env, cwd=cwd, timeout=timeout, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError as error:
        raise CommandError(argv, "was not found", "") from error
    except subprocess.TimeoutExpired as error:
        printed = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else (error.stderr or "")
        raise CommandError(argv, f"did not end within {timeout:g} s", printed) from error
    if check and done.returncode:
        raise CommandError(argv, f"failed with exit status {done.returncode}", done.stderr or done.stdout)
    return done.stdout


def succeeds(argv: Sequence[str], timeout: float = 10.0) -> bool:
    """Return whether the program exists and ends in time with exit status 0."""
    try:
        run(argv, timeout=timeout)
    except CommandError:
        return False
    return True


def run_logged(
    argv: Sequence[str],
    *,
    log: Path,
    step: Step,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a long program, show its last line in `step` and append its whole output to `log`.

    The log also gets the time that it took, as a measurement for typical durations. The program and its children are
    killed when `timeout` seconds have passed or the caller is interrupted.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    last, cpu = "", _child_cpu_seconds()
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
            step.detail(last)
            if waited >= timeout:
                expired.set()
                _kill_group(process)

    pulse = threading.Thread(target=heartbeat, daemon=True)
    pulse.start()
    try:
        assert process.stdout is not None
        with log.open("a") as file, process.stdout:
            print(f"$ {' '.join(argv)}", file=file, flush=True)
            for line in process.stdout:
                file.write(line)
                last = line.strip() or last
            code = process.wait()
            spent = _child_cpu_seconds() - cpu
            print(f"# {step.seconds:.1f} s, {spent:.1f} s of CPU time", file=file)
    except BaseException:
        _kill_group(process)
        raise
    finally:
        ended.set()
        pulse.join()
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES - 1 : -1])
    if expired.is_set():
        raise CommandError(argv, f"did not end within {timeout:g} s (log: {log})", tail)
    if code:
        raise CommandError(argv, f"failed with exit status {code} (log: {log})", tail)


def _child_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill the whole process group: compilers and package managers have children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
