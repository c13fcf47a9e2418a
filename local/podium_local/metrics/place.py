"""Where the metrics of each trial are on this machine: its own file or folder, and its own port. Pure but for checks.

In a cluster each trial has a file system and an address of its own; here the trials share both. A path below
checkpoint.path is in the trial's checkpoint folder. Any other path that the command names is replaced, in the command
and the variables, by one of the trial's own. A port has to be named by its placeholder or variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from podium_core.attempts.environment import METRICS_PORT
from podium_core.attempts.substitution import PORT
from podium_core.schema.job import HyperParamJob
from podium_core.schema.metrics.config import MetricsConfig, metrics_config_of
from podium_core.schema.metrics.rules import PATH_SOURCES
from podium_local.devices import Device
from podium_local.errors import Kind, LocalError

MAX_SCRIPT = 1 << 20  # bytes of a script in which the variable of the port is looked for


@dataclass(frozen=True, slots=True)
class MetricsPlace:
    """Where a job's metrics are.

    `own`: the path of the command that each trial has a file or folder of its own for; empty: there is none.
    `own_port`: each attempt gets a port of its own.
    """

    config: MetricsConfig
    checkpoint: str = ""
    own: str = ""
    own_port: bool = False

    def paths(self, files: Path) -> dict[str, str]:
        """Return what replaces the path of the command; `files`: the trial's folder for it."""
        return {self.own: str(files / PurePosixPath(self.own).name)} if self.own else {}

    def of_trial(self, checkpoints: Path | None, files: Path, port: int | None = None) -> MetricsConfig:
        """Return how to read a trial's metrics, with the path and port that it has here."""
        config = self.config
        if config.source in PATH_SOURCES:
            folders = self.paths(files) | ({} if checkpoints is None else {self.checkpoint: str(checkpoints)})
            for source, target in folders.items():
                if _is_in(config.path, source):
                    path = str(Path(target) / PurePosixPath(config.path).relative_to(source))
                    return config.model_copy(update={"path": path})
        return config if port is None else config.model_copy(update={"port": port})


def metrics_place(job: HyperParamJob) -> MetricsPlace:
    """Return where the metrics of a job's trials are."""
    config, checkpoint = metrics_config_of(job), job.spec.checkpoint
    folder = "" if checkpoint is None else checkpoint.path.rstrip("/")
    main: Mapping[str, Any] = job.spec.template["spec"]["containers"][0]
    own = ""
    if config.source in PATH_SOURCES and not (folder and _is_in(config.path, folder)):
        own = own_path(config.path, list(words_of(main)))
    return MetricsPlace(config, folder, own, config.source == "prometheus" and _names_port(main))


def own_path(path: str, words: Sequence[str]) -> str:
    """Return the path, or its nearest parent, that one of these words names; empty if none does.

    A parent that exists on this machine may hold other things, which the trials must still find there.
    """
    here = PurePosixPath(path)
    for one in (here, *here.parents):
        if one == PurePosixPath("/") or (one != here and Path(one).exists()):
            return ""
        named = re.compile(rf"(^|[=:,\s'\"]){re.escape(str(one))}/?(?=$|[:,\s'\"])")
        if any(named.search(word) for word in words):
            return str(one)
    return ""


def words_of(main: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a container's command, and the values of its variables."""
    yield from map(str, [*(main.get("command") or []), *(main.get("args") or [])])
    yield from (str(one["value"]) for one in main.get("env") or [] if one.get("value") is not None)


def check_own(job: HyperParamJob, devices: Sequence[Device]) -> None:
    """Refuse a path or port that several trials would share: their values would mix.

    Raises LocalError.
    """
    place, config = metrics_place(job), job.spec.metrics
    if config.source in PATH_SOURCES and not place.own and job.spec.trials.max > 1:
        path = place.config.path
        if place.checkpoint and _is_in(path, place.checkpoint):
            return
        option = "--out" if config.source == "file" else "--logdir"
        text = (
            f"spec.metrics.path is {path}, which all trials would write here: name it in the command or in a variable "
            f"of the template (such as {option}={path}), which then gets a path of each trial's own, or give a path "
            "relative to checkpoint.path"
        )
        raise LocalError(Kind.FAILED, "PathShared", text)
    at_once = _at_once(job, devices)
    if config.source == "prometheus" and not place.own_port and at_once > 1:
        text = (
            f"spec.metrics.port is {config.port} for each trial, and up to {at_once} trials have a process on this "
            f"machine at once: let the script serve its page at the port that Podium chooses ({PORT} in command, args "
            f"or env, or the variable {METRICS_PORT}), or write trials.parallel: 1"
        )
        raise LocalError(Kind.FAILED, "PortShared", text)


def _at_once(job: HyperParamJob, devices: Sequence[Device]) -> int:
    """Return how many trials may have a process at once; a suspended one still has its port."""
    trials = job.spec.trials
    slots = sum(device.slots for device in devices) // max(1, job.spec.gpus.per_trial)
    return min(trials.max, slots, trials.parallel if isinstance(trials.parallel, int) else slots)


def _names_port(main: Mapping[str, Any]) -> bool:
    """Return whether the template, or the script that it starts, uses the port that Podium chooses."""
    words = list(words_of(main))
    if any(PORT in word or METRICS_PORT in word for word in words):
        return True
    for word in words:
        with suppress(OSError, ValueError):
            script = Path(str(main.get("workingDir") or "."), word)
            if script.suffix in (".py", ".sh") and script.is_file():
                with script.open("rb") as file:
                    return METRICS_PORT.encode() in file.read(MAX_SCRIPT)
    return False


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
