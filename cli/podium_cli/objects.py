"""Parser that turns API objects, from files or from the API server, into a JobSnapshot."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from podium_cli.exit_codes import CliError, Exit
from podium_core.conversion.sources import tool_of
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.gpuqueue import GPUQueue
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import ManifestError, flattened, parse_manifests
from podium_core.schema.trial import HyperParamTrial
from podium_core.tables.text_file import refuse_devices
from podium_views.job_snapshot import JobSnapshot, of_job

Payload = Mapping[str, Any]
STDIN = Path("-")
RUN_OBJECTS = "objects"  # folder of the objects in the folder of a run (`podium_local.store`)


def snapshot_of(payloads: Iterable[Payload], name: str | None, namespace: str | None, now: datetime) -> JobSnapshot:
    """Return a snapshot of the job with that name, or of the only job if no name is given."""
    flat = list(flattened(payloads))
    jobs = [parse_job(one) for one in flat if one.get("kind") == "HyperParamJob"]
    wanted = [job for job in jobs if name in (None, job.metadata.name)]
    wanted = [job for job in wanted if namespace in (None, job.metadata.namespace)]
    if not wanted:
        known = ", ".join(sorted(f"{job.metadata.namespace}/{job.metadata.name}" for job in jobs)) or "none"
        raise CliError(
            Exit.NOT_FOUND, "JobNotFound", f"no HyperParamJob {name or ''!r} among the objects; they hold: {known}"
        )
    if len(wanted) > 1:
        known = ", ".join(sorted(f"{job.metadata.namespace}/{job.metadata.name}" for job in wanted))
        raise CliError(Exit.USAGE, "JobAmbiguous", f"several jobs match: {known}; name one, with --namespace if needed")
    trials = [parse_trial(one) for one in flat if one.get("kind") == "HyperParamTrial"]
    nodes = [parse_node(one) for one in flat if one.get("kind") == "GPUNode"]
    return JobSnapshot(wanted[0], of_job(wanted[0], trials), tuple(nodes), now)


def read_folder(folder: Path) -> list[Payload]:
    """Return every object in the YAML and JSON files of a folder. It may be a folder of `podium run`."""
    return [payload for path in files_of_objects(folder) for payload in read_file(path)]


def read_searches(folder: Path) -> list[Payload]:
    """Return the jobs of a folder of saved objects.

    It may be a folder of `podium run`, or one that holds several of them.
    """
    runs = sorted(folder.glob(f"*/{RUN_OBJECTS}/job.json")) if folder.is_dir() else []
    payloads = [payload for run in runs for payload in read_file(run)] if runs else read_folder(folder)
    return [one for one in flattened(payloads) if one.get("kind") == "HyperParamJob"]


def files_of_objects(folder: Path) -> list[Path]:
    """Return the YAML and JSON files of a folder, or of the objects in a folder of `podium run`."""
    if not folder.is_dir():
        raise CliError(
            Exit.NOT_FOUND, "FolderNotFound", f"{folder} is not a folder; name a folder of YAML or JSON files"
        )
    if (folder / RUN_OBJECTS / "job.json").is_file():
        folder = folder / RUN_OBJECTS
    return sorted(path for path in folder.iterdir() if path.suffix in {".yaml", ".yml", ".json"})


def read_jobs(path: Path) -> list[Payload]:
    """Return the HyperParamJobs of a file; see `read_objects`."""
    return read_objects(path, ("HyperParamJob",))


def read_objects(path: Path, kinds: Collection[str]) -> list[Payload]:
    """Return the objects of these kinds in a file.

    A search of another tool is refused. Other objects are ignored.
    """
    payloads = read_file(path)
    for payload in payloads:
        tool = tool_of(payload)
        if tool is not None:
            message = f"{path} holds {tool}, not a HyperParamJob: convert it with `podium convert {path}`"
            raise CliError(Exit.FAILED, "ConversionRequired", message)
    return [payload for payload in payloads if payload.get("kind") in kinds]


def read_file(path: Path, largest: int | None = None) -> list[Payload]:
    """Return all objects of a file, parsed as kubectl does; `-` is the standard input.

    `largest`: characters that the file may have.
    """
    try:
        refuse_devices(path)
        size = -1 if largest is None else largest + 1
        if path == STDIN:
            text = sys.stdin.read(size)
        else:
            with path.open(encoding="utf-8-sig") as file:
                text = file.read(size)
        if largest is not None and len(text) > largest:
            message = f"{path}: more than {largest} characters; split the file"
            raise CliError(Exit.FAILED, "FileTooLarge", message)
        return list(parse_manifests(text, str(path)))
    except OSError as error:
        raise CliError(
            Exit.NOT_FOUND, "FileUnreadable", f"{path}: {error.strerror}; name a file of YAML or JSON"
        ) from error
    except ManifestError as error:
        raise CliError(Exit.FAILED, "FileMalformed", str(error)) from error
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start}); save it as YAML or JSON"
        raise CliError(Exit.FAILED, "FileMalformed", message) from error


def name_of(payload: Payload) -> str:
    """Return the name of an object; empty if it has none, or no valid metadata."""
    metadata = payload.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def saved_at(payloads: Iterable[Payload]) -> datetime:
    """Return the latest time in the objects, because files are read long after they were saved."""
    moments = [moment for payload in flattened(payloads) for moment in _moments(payload.get("status") or {})]
    return max(moments, default=datetime.now(UTC))


def parse_job(payload: Payload) -> HyperParamJob:
    """Return the job, or raise CliError with the first field that is wrong."""
    try:
        return HyperParamJob.model_validate(payload)
    except ValidationError as error:
        raise _unreadable(payload, error) from error


def parse_trial(payload: Payload) -> HyperParamTrial:
    """Return the trial, or raise CliError with the first field that is wrong."""
    try:
        return HyperParamTrial.model_validate(payload)
    except ValidationError as error:
        raise _unreadable(payload, error) from error


def parse_node(payload: Payload) -> GPUNode:
    """Return the GPUNode, or raise CliError with the first field that is wrong."""
    try:
        return GPUNode.model_validate(payload)
    except ValidationError as error:
        raise _unreadable(payload, error) from error


def parse_queue(payload: Payload) -> GPUQueue:
    """Return the GPUQueue, or raise CliError with the first field that is wrong."""
    try:
        return GPUQueue.model_validate(payload)
    except ValidationError as error:
        raise _unreadable(payload, error) from error


def _unreadable(payload: Payload, error: ValidationError) -> CliError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    name = name_of(payload) or "without a name"
    message = f"{payload.get('kind')} {name}: {field}: {first['msg']}; does this podium have the cluster's version?"
    return CliError(Exit.CLUSTER, "ObjectUnreadable", message)


def _moments(value: Any) -> Iterator[datetime]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key != "eta":  # the only time in the future
                yield from _moments(one)
    elif isinstance(value, list):
        for one in value:
            yield from _moments(one)
    elif isinstance(value, datetime):  # YAML reads timestamps itself
        yield value if value.tzinfo else value.replace(tzinfo=UTC)
    elif isinstance(value, str) and value[:4].isdigit() and value.endswith("Z") and "T" in value:
        try:
            yield datetime.fromisoformat(value)
        except ValueError:
            return
