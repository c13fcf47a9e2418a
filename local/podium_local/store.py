"""Folder of a run: its objects as JSON, the logs and the checkpoints of its trials. One runner at a time writes it.

The objects are those of a cluster (HyperParamJob, HyperParamTrial, GPUNode), so that every command that reads objects
from files reads a run. Each file is replaced in one atomic step.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from podium_core.schema.base import API_VERSION, StatusModel
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_local.errors import Kind, LocalError

MAX_OBJECT_BYTES = 16 << 20
LOCK, OBJECTS, LOGS, CHECKPOINTS, FILES = "lock", "objects", "logs", "checkpoints", "files"
GPU_STATE = "gpu-state"
JOB, MACHINE, TRIAL = "job.json", "machine.json", "trial-"
_TRIAL_FILE = re.compile(r"trial-(\d{1,9})\.json", re.ASCII)


class StoredRun:
    """The stored files of one run, for reading.

    A runner may write them meanwhile: each file is replaced in one step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def objects(self) -> Path:
        """Return the folder of the objects."""
        return self.path / OBJECTS

    @property
    def logs(self) -> Path:
        """Return the folder of the logs."""
        return self.path / LOGS

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def files(self) -> Path:
        """Return the folder of the files that trials write beside their checkpoints."""
        return self.path / FILES

    @property
    def gpu_state(self) -> Path:
        """Return the folder of the notes on GPU memory that is in host memory."""
        return self.path / GPU_STATE

    def job(self) -> HyperParamJob | None:
        """Return the stored job; None in a new folder."""
        return read_job(self.objects / JOB)

    def written_at(self) -> float:
        """Return when the runner wrote its job, which it does every second; 0.0 in a new folder."""
        with suppress(OSError):
            return (self.objects / JOB).stat().st_mtime
        return 0.0

    def trials(self) -> Iterator[HyperParamTrial]:
        """Yield the stored trials by number."""
        names = [_TRIAL_FILE.fullmatch(path.name) for path in self.objects.glob(f"{TRIAL}*.json")]
        for number in sorted(int(name[1]) for name in names if name is not None):
            trial = self.trial(number)
            if trial is not None:
                yield trial

    def trial(self, number: int) -> HyperParamTrial | None:
        """Return one stored trial; None without its file."""
        path = self._trial_path(number)
        payload = _read(path)
        return None if payload is None else _parse(HyperParamTrial, payload, path)

    def _trial_path(self, number: int) -> Path:
        return self.objects / f"{TRIAL}{number}.json"


class RunFolder(StoredRun):
    """The folder of one run, locked while it is open, so that one runner writes it."""

    def __init__(self, path: Path) -> None:
        """Create the folder if it is missing, and lock it. Raises LocalError if another runner has it."""
        super().__init__(path)
        try:
            for folder in (self.path, self.objects, self.logs, self.checkpoints, self.files):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            text = f"{error.filename}: {error.strerror}; name another folder with --folder"
            raise LocalError(Kind.FAILED, "FolderUnusable", text) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            text = f"{path} is in use by process {holder}: wait for it, or name another folder with --folder"
            raise LocalError(Kind.FAILED, "FolderInUse", text) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)

    def write_job(self, job: HyperParamJob, *, durable: bool) -> None:
        """Store the job; `durable`: it must survive a loss of power from now on."""
        self._write(self.objects / JOB, job, durable=durable)

    def write_trial(self, trial: HyperParamTrial, *, durable: bool) -> None:
        """Store a trial; `durable`: it must survive a loss of power from now on."""
        self._write(self._trial_path(trial.spec.number), trial, durable=durable)

    def write_machine(self, node: GPUNode) -> None:
        """Store the devices of this machine."""
        self._write(self.objects / MACHINE, node, durable=False)

    def _write(self, path: Path, model: StatusModel, *, durable: bool) -> None:
        kind = type(model).__name__
        body = {
            "apiVersion": API_VERSION,
            "kind": kind,
            **model.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        aside = path.with_suffix(".new")
        try:
            with aside.open("w", encoding="utf-8") as file:
                json.dump(body, file)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            aside.replace(path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            text = f"{path}: {error.strerror}; free space there, then run the same command again"
            raise LocalError(Kind.FAILED, "StateNotWritten", text) from error


Model = TypeVar("Model", HyperParamJob, HyperParamTrial)


def read_job(path: Path) -> HyperParamJob | None:
    """Return the job of a file; None without the file. Raises LocalError."""
    payload = _read(path)
    return None if payload is None else _parse(HyperParamJob, payload, path)


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        if path.stat().st_size > MAX_OBJECT_BYTES:
            text = f"{path} is larger than {MAX_OBJECT_BYTES} bytes: it is not of Podium; remove it"
            raise LocalError(Kind.FAILED, "StateUnreadable", text)
        payload = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LocalError(Kind.FAILED, "StateUnreadable", f"{path}: {error}; remove the file or the folder") from error
    return payload if isinstance(payload, dict) else {}


def _parse(model: type[Model], payload: Mapping[str, Any], path: Path) -> Model:
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        text = f"{path}: {field}: {first['msg']}; remove the folder, or use the version of podium that wrote it"
        raise LocalError(Kind.FAILED, "StateUnreadable", text) from error
