"""A folder as a source: a run of `podium run`, several of them, or objects that kubectl saved."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial, pod_name
from podium_dashboard.sources.object_files import SUFFIXES, ObjectFiles
from podium_dashboard.sources.source import TAIL_BYTES, EventList, LogTail
from podium_dashboard.state import Key, Search, State
from podium_dashboard.stored_trial import StoredTrial
from podium_local.store import JOB, LOCK, OBJECTS, StoredRun

POLL_SECONDS = 0.4
MAX_RUNS = 200


class FolderError(Exception):
    """The folder cannot be shown."""


class FolderSource:
    """The searches in a folder. Files that change are read again."""

    def __init__(self, folder: Path) -> None:
        """Read the folder. Raises FolderError if there is nothing to show."""
        if not folder.is_dir():
            raise FolderError(f"{folder} is not a folder; name a folder of `podium run`, such as podium-runs/NAME")
        self._folder = folder
        self._runs: dict[Path, ObjectFiles] = {}
        self._live: dict[Path, bool] = {}
        self._state = State()
        self._refresh()
        if not self._state.searches and not self._state.problems:
            raise FolderError(f"{folder} holds no search; name a folder of `podium run`, or of saved objects")

    @property
    def title(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def state(self) -> State:
        """Return the newest state."""
        return self._state

    def now(self) -> datetime:
        """Return the time of this machine, which ran the search."""
        return datetime.now(UTC)

    async def run(self, changed: Callable[[], None]) -> None:
        """Look for changed files until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await asyncio.to_thread(self._refresh):
                changed()

    async def log_tail(self, trial: HyperParamTrial) -> LogTail:
        """Return the end of the log file of the trial's present attempt."""
        return await asyncio.to_thread(self._tail, trial)

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return that there are none: Kubernetes has Events, a folder has not."""
        return EventList()

    def _refresh(self) -> bool:
        """Read what has changed; return whether the state is a new one."""
        found = list(_runs_of(self._folder))[:MAX_RUNS]
        changed = self._runs.keys() != set(found)
        self._runs = {path: self._runs.get(path) or ObjectFiles(_objects_of(path)) for path in found}
        for run in self._runs.values():
            changed |= run.refresh()
        live = {path: _is_running(path) for path in found}
        changed |= live != self._live
        self._live = live
        if changed:
            self._state = self._assemble()
        return changed

    def _assemble(self) -> State:
        searches: dict[Key, Search] = {}
        nodes: dict[str, GPUNode] = {}
        problems: list[str] = []
        for run in sorted(self._runs.values(), key=lambda one: one.changed_at):  # the newest of equal names remains
            own = list(run.objects)
            machines = tuple(one for one in own if isinstance(one, GPUNode))
            trials: dict[Key, list[StoredTrial]] = {}
            for one in own:
                if isinstance(one, StoredTrial):
                    trials.setdefault((one.namespace, one.job), []).append(one)
            nodes |= {one.metadata.name: one for one in machines}
            problems += run.problems
            for job in own:
                if isinstance(job, HyperParamJob):
                    key = (job.metadata.namespace, job.metadata.name)
                    if key in searches:
                        problems.append(f"Several searches are named {key[1]}; only the newest is shown.")
                    mine = sorted(trials.get(key, ()), key=lambda one: one.number)
                    fresh = Search(job, tuple(mine), machines, local=run.folder.name == OBJECTS)
                    before = self._state.by_key.get(key)
                    searches[key] = before if before == fresh else fresh  # pages compare identities
        return State.of(
            tuple(searches.values()),
            tuple(nodes[name] for name in sorted(nodes)),
            stopped=None if any(self._live.values()) else _latest(searches.values()),
            problems=tuple(problems[:5]),
        )

    def _tail(self, trial: HyperParamTrial) -> LogTail:
        name = f"{pod_name(trial.metadata.name, trial.status.attempt)}.log"
        if "/" in name or "\0" in name:
            return LogTail(note="The name of the trial is not that of a file.")
        for path, run in self._runs.items():
            if run.holds(trial.metadata.namespace, trial.metadata.name):
                logs = StoredRun(path).logs
                return _read_tail(logs / name) if logs.is_dir() else LogTail(note="The folder has no logs.")
        return LogTail(note="The folder has no log of this trial.")


def _latest(searches: Iterable[Search]) -> datetime:
    """Return the latest time in the objects. Without a runner, no duration may grow from then on."""
    moments: list[datetime | None] = [datetime.fromtimestamp(0, UTC)]
    for search in searches:
        status = search.job.status
        moments += [search.job.metadata.creation_timestamp, status.started_at, status.finished_at]
        moments += [node.status.updated_at for node in search.nodes]
        moments.append(datetime.fromtimestamp(max((one.newest for one in search.trials), default=0.0), UTC))
    return max(moment for moment in moments if moment is not None)


def _read_tail(path: Path) -> LogTail:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - TAIL_BYTES)
            file.seek(begin)
            return LogTail.of(file.read(TAIL_BYTES), complete=begin == 0)
    except FileNotFoundError:
        return LogTail(note="The trial has printed nothing yet.")
    except OSError as error:
        return LogTail(note=f"The log cannot be read: {error.strerror}.")


def _runs_of(folder: Path) -> Iterable[Path]:
    """Yield the folders that hold objects: the folder itself, or those in it."""
    if (folder / OBJECTS / JOB).is_file() or any(one.suffix in SUFFIXES for one in folder.iterdir()):
        yield folder
        return
    for inner in sorted(folder.iterdir()):
        if (inner / OBJECTS / JOB).is_file():
            yield inner


def _objects_of(path: Path) -> Path:
    return path / OBJECTS if (path / OBJECTS / JOB).is_file() else path


def _is_running(path: Path) -> bool:
    """Return whether a runner holds the lock of the run."""
    try:
        with (path / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file unlocks it at once
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
