"""What the pages show at one moment: searches with their trials, and GPUs. A source makes it, the pages read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import ENDED
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.stored_trial import StoredTrial
from podium_views.job_snapshot import JobSnapshot

Key = tuple[str, str]  # namespace and name of a job


@dataclass(frozen=True, slots=True)
class Search:
    """One search: its job, its trials by number, and the GPUs that it may use.

    `local`: it is one of `podium run`.
    """

    job: HyperParamJob
    trials: tuple[StoredTrial, ...]
    nodes: tuple[GPUNode, ...]
    local: bool = False

    @property
    def key(self) -> Key:
        """Return namespace and name of the job."""
        return self.job.metadata.namespace, self.job.metadata.name

    @property
    def ended(self) -> bool:
        """Return whether the job has reached a final phase."""
        return self.job.status.phase in ENDED

    @property
    def done(self) -> int:
        """Return the number of trials that have ended."""
        return sum(trial.ended for trial in self.trials)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a source knows.

    `stopped`: time at which the source ended to change; None while it lives. `problems` are sentences for the reader.
    `partial`: there are searches that are not shown, because the caller may not list them.
    """

    searches: tuple[Search, ...] = ()
    nodes: tuple[GPUNode, ...] = ()
    stopped: datetime | None = None
    problems: tuple[str, ...] = ()
    ready: bool = True
    partial: bool = False
    by_key: dict[Key, Search] = field(default_factory=dict, compare=False)  # filled by `of`

    @classmethod
    def of(
        cls,
        searches: tuple[Search, ...],
        nodes: tuple[GPUNode, ...],
        *,
        stopped: datetime | None = None,
        problems: tuple[str, ...] = (),
    ) -> State:
        """Return a state with its index; the newest searches come first."""
        ordered = tuple(sorted(searches, key=_newest_first))
        return cls(ordered, nodes, stopped, problems, by_key={one.key: one for one in ordered})

    def snapshot(self, key: Key, now: datetime) -> JobSnapshot | None:
        """Return the state of one search for the views; None if there is no such search."""
        search = self.by_key.get(key)
        if search is None:
            return None
        trials = tuple(trial.whole() for trial in search.trials)
        return JobSnapshot(search.job, trials, search.nodes, self.stopped or now)

    def search_of(self, namespace: str, trial: str) -> Search | None:
        """Return the search of a trial; None if there is no such trial."""
        for search in self.searches:
            if search.job.metadata.namespace == namespace and any(one.name == trial for one in search.trials):
                return search
        return None

    def trial(self, namespace: str, name: str) -> tuple[Search, HyperParamTrial] | None:
        """Return a trial with its search; None if there is no such trial."""
        search = self.search_of(namespace, name)
        if search is None:
            return None
        return search, next(one for one in search.trials if one.name == name).whole()


def _newest_first(search: Search) -> tuple[float, Key]:
    return -search.job.metadata.created, search.key
