"""A cluster as a source: one watch for each kind, however many browsers look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from podium_cluster import clock
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, JOBS, TRIALS, Selection
from podium_cluster.watch import WatchCache
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.sources.account_reader import AccountReader
from podium_dashboard.sources.source import EventList, LogTail
from podium_dashboard.state import Key, Search, State
from podium_dashboard.stored_trial import StoredTrial

FRAME_SECONDS = 0.4  # least time between two states
STALE_SECONDS = 90.0  # without an answer, after which the page warns; bookmarks come once a minute


class ClusterSource:
    """The searches of a namespace or of all, and the GPUs that the account may read."""

    def __init__(self, api: Api, title: str, namespace: str | None) -> None:
        """Prepare the caches; `namespace=None` means all namespaces."""
        self._title = title
        self._jobs = WatchCache(api, Selection(JOBS, namespace), HyperParamJob.model_validate)
        self._trials = WatchCache(api, Selection(TRIALS, namespace), StoredTrial.parse)
        self._nodes = WatchCache(api, Selection(GPUNODES), GPUNode.model_validate)
        self._changed = asyncio.Event()
        self._state = State(ready=False)
        self._reader = AccountReader(api)
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
        return await self._reader.log_tail(trial)

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return the Events of the trial and of its present pod."""
        return await self._reader.events(trial)

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
