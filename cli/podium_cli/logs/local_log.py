"""Read the log of a trial of `podium run` from its files, and follow it across its attempts."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from podium_cli.exit_codes import CliError, Exit
from podium_cli.logs.log_options import LogOptions, Note, Write
from podium_cli.logs.steps import first_attempt, state
from podium_core.domain.phase import is_final
from podium_core.schema.trial import HyperParamTrial, pod_name
from podium_local.errors import LocalError
from podium_local.store import LOCK, OBJECTS, StoredRun

POLL_SECONDS = 0.3
CHUNK = 1 << 16


def show_local_log(folder: Path, name: str, options: LogOptions, write: Write, note: Note) -> None:
    """Show the log of the trial `name`. `folder` is that of a run, or that of its objects."""
    run = StoredRun(folder.parent if folder.name == OBJECTS else folder)
    trial = _trial(run, name)
    attempt = first_attempt(trial, options.attempt)
    path = run.logs / f"{pod_name(name, attempt)}.log"
    if not path.is_file() and not (options.follow and not is_final(trial.status.phase)):
        message = f"{state(trial)}; {path} does not exist, so attempt {attempt} has printed nothing"
        raise CliError(Exit.NOT_FOUND, "LogNotReady", message)
    offset = 0 if options.tail is None else start_of_tail(path, options.tail)
    while True:
        # the state is older than the bytes, so a trial that has ended prints no more after them
        trial, running = _trial(run, name, trial.spec.number), _is_running(run)
        for chunk in _chunks(path, offset):
            write(chunk)
            offset += len(chunk)
        if not options.follow:
            return
        later = trial.status.attempt > attempt
        if later and options.attempt is None:
            attempt, offset = trial.status.attempt, 0
            path = run.logs / f"{pod_name(name, attempt)}.log"
            note(f"attempt {attempt} of {name}")
            continue
        if later or is_final(trial.status.phase):
            return
        if not running:
            note(f"{state(trial)}; `podium run` does not run, so nothing follows; run it again to continue the search")
            return
        time.sleep(POLL_SECONDS)


def start_of_tail(path: Path, lines: int) -> int:
    """Return the offset at which the last lines of a file begin."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        at = end = file.seek(0, os.SEEK_END)
        wanted = lines + 1  # the line break before them
        while at > 0:
            begin = max(0, at - CHUNK)
            file.seek(begin)
            block = file.read(at - begin)
            if at == end and not block.endswith(b"\n"):
                wanted -= 1  # the last line has no line break
            while wanted > 0 and (place := block.rfind(b"\n")) >= 0:
                wanted -= 1
                if wanted == 0:
                    return begin + place + 1
                block = block[:place]
            if wanted <= 0:
                return end
            at = begin
    return 0


def _chunks(path: Path, offset: int) -> Iterator[bytes]:
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK):
            yield chunk


def _trial(run: StoredRun, name: str, number: int | None = None) -> HyperParamTrial:
    """Return the trial of this name. `number`: its number once it is known, so that only its file is read."""
    try:
        for trial in run.trials() if number is None else (run.trial(number),):
            if trial is not None and trial.metadata.name == name:
                return trial
    except LocalError as error:
        raise CliError(Exit.FAILED, error.reason, error.message) from error
    message = f"there is no trial {name} in {run.path}; name a trial and the folder of a run, such as podium-runs/NAME"
    raise CliError(Exit.NOT_FOUND, "HyperParamTrialNotFound", message)


def _is_running(run: StoredRun) -> bool:
    """Return whether a runner holds the lock of the run."""
    try:
        with (run.path / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file unlocks it at once
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
