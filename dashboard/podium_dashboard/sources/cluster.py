"""A cluster as a source: one watch for each kind, however many browsers look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, JOBS, PODS, TRIALS, Selection
from podium_cluster.watch import WatchCache
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.sources.source import TAIL_BYTES, TAIL_LINES, EventList, LogTail
from podium_dashboard.sources.trial_events import read_events
from podium_dashboard.state import Key, Search, State
from podium_dashboard.stored_trial import StoredTrial

FRAME_SECONDS = 0.4  # least time between two states
STALE_SECONDS = 90.0  # without an answer, after which the page warns; bookmarks come once a minute
LOG_SECONDS = 5.0  # of one request for a log
LOG_AGE_SECONDS = 2.0  # for which an answer is used again
EVENTS_AGE_SECONDS = 5.0
MAX_LOGS = 32  # answers that are kept, of logs and of Events each


class ClusterSource:
    """The searches of a namespace or of all, and the GPUs that the account may read."""

    def __init__(self, api: Api, title: str, namespace: str | None) -> None:
        """Prepare the caches; `namespace=None` means all namespaces."""
        self._api = api
        self._title = title
        self._jobs = WatchCache(api, Selection(JOBS, namespace), HyperParamJob.model_validate)
        self._trials = WatchCache(api, Selection(TRIALS, namespace), StoredTrial.parse)
        self._nodes = WatchCache(api, Selection(GPUNODES), GPUNode.model_validate)
        self._changed = asyncio.Event()
        self._state = State(ready=False)
        self._logs: dict[str, tuple[float, LogTail]] = {}
        self._events: dict[str, tuple[float, EventList]] = {}
        self._of_job: dict[Key, dict[str, StoredTrial]] = {}
        self._ordered: dict[Key, tuple[StoredTrial, ...]] = {}  # those of jobs without a change since the last state
        self._trials.follow(self._sort_in)
        for cache in (self._jobs, self._trials, self._nodes):
            cache.subscribe(self._changed.set)

    @property
    def title(self) -> str:
        """Return the name of the cluster."""
        return self._title

    def state(self) -> State:
        """Return the newest state."""
        return self._state

    def now(self) -> datetime:
        """Return the time of the API server."""
        return datetime.fromtimestamp(clock.now(), UTC)

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for cache in (self._jobs, self._trials, self._nodes):
                tasks.create_task(cache.run())
            while True:
                with suppress(TimeoutError):  # a problem of the connection has no event
                    await asyncio.wait_for(self._changed.wait(), 5.0)
                self._changed.clear()
                state = self._assemble()
                if state != self._state:
                    self._state = state
                    changed()
                await asyncio.sleep(FRAME_SECONDS)

    async def log_tail(self, trial: HyperParamTrial) -> LogTail:
        """Return the end of the log of the trial's present pod."""
        key = f"{trial.metadata.uid}/{trial.status.pod}"
        known = self._logs.get(key)
        if known is not None and time.monotonic() - known[0] < LOG_AGE_SECONDS:
            return known[1]
        fresh = await self._read_log(trial)
        self._logs.pop(key, None)
        self._logs[key] = (time.monotonic(), fresh)
        while len(self._logs) > MAX_LOGS:
            del self._logs[next(iter(self._logs))]
        return fresh

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return the Events of the trial and of its present pod."""
        key = f"{trial.metadata.uid}/{trial.status.pod}"
        known = self._events.get(key)
        if known is not None and time.monotonic() - known[0] < EVENTS_AGE_SECONDS:
            return known[1]
        fresh = await read_events(self._api, trial)
        self._events.pop(key, None)
        self._events[key] = (time.monotonic(), fresh)
        while len(self._events) > MAX_LOGS:
            del self._events[next(iter(self._events))]
        return fresh

    async def _read_log(self, trial: HyperParamTrial) -> LogTail:
        if not trial.status.pod:
            return LogTail(note="The trial has no pod.")
        namespace = trial.metadata.namespace
        content = bytearray()
        try:
            pod = await self._api.get(PODS, trial.status.pod, namespace)
            query = {"tailLines": str(TAIL_LINES), "container": str(pod["spec"]["containers"][0]["name"])}
            chunks = self._api.log_chunks(trial.status.pod, namespace, query, seconds=LOG_SECONDS)
            async with aclosing(chunks):
                async for chunk in chunks:
                    content += chunk
                    del content[:-TAIL_BYTES]
        except ApiError as error:
            return LogTail(note=f"The log cannot be read: {error.message}")
        return LogTail.of(bytes(content), complete=len(content) < TAIL_BYTES)

    def _sort_in(self, key: Key, before: StoredTrial | None, after: StoredTrial | None) -> None:
        """Put a changed trial to those of its job."""
        namespace, name = key
        for one in filter(None, (before, after)):
            self._ordered.pop((namespace, one.job), None)
        if before is not None:
            mine = self._of_job[namespace, before.job]
            del mine[name]
            if not mine:
                del self._of_job[namespace, before.job]
        if after is not None:
            self._of_job.setdefault((namespace, after.job), {})[name] = after

    def _assemble(self) -> State:
        if not (self._jobs.synced and self._trials.synced):
            return State(ready=False, problems=tuple(self._problems()))
        nodes, before = tuple(self._nodes.values()), self._state.nodes
        nodes = before if nodes == before else nodes  # pages compare identities
        searches = []
        for job in self._jobs.values():
            key = (job.metadata.namespace, job.metadata.name)
            if key not in self._ordered:
                own = self._of_job.get(key, {}).values()
                self._ordered[key] = tuple(sorted(own, key=lambda trial: trial.number))
            searches.append(Search(job, self._ordered[key], nodes))
        return State.of(tuple(searches), nodes, problems=tuple(self._problems()))

    def _problems(self) -> list[str]:
        found = []
        for cache, what in ((self._jobs, "searches"), (self._trials, "trials"), (self._nodes, "GPUs")):
            refusal = cache.refusal(0.0)
            if refusal is not None:
                found.append(f"The cluster refuses to show {what}: {refusal.message}")
            elif cache.age() > STALE_SECONDS:
                found.append(f"No answer of the cluster about {what} for more than {STALE_SECONDS:.0f} s.")
        return found
