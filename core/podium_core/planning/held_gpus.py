"""GPUs that jobs hold while holders are chosen, and what is compared when two jobs want the same GPU.

Without queues, all jobs are equals. In a queue, namespaces are equals, and so are the jobs of a namespace: a user with
ten searches gets no more than a user with one, if each has a namespace of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from podium_core.domain.keys import JobKey


class Party(NamedTuple):
    """A job or a namespace that shares GPUs with others, and the GPUs that it holds."""

    name: str
    gpus: int


class HeldGpus:
    """GPUs of each job, and of each namespace in a queue, as decided so far.

    `queue_of`: queue of each job; None without queues.
    """

    def __init__(self, queue_of: Mapping[JobKey, str] | None = None) -> None:
        self._queue_of = queue_of
        self._jobs: Counter[JobKey] = Counter()
        self._namespaces: Counter[tuple[str, str]] = Counter()

    def add(self, job: JobKey, gpus: int) -> None:
        """Count more GPUs for the job; fewer if `gpus` is negative."""
        self._jobs[job] += gpus
        if self._queue_of is not None:
            self._namespaces[self._queue_of[job], job.namespace] += gpus

    def order(self, job: JobKey) -> tuple[int, int]:
        """Return the sort key of the job: those that hold the fewest GPUs come first."""
        if self._queue_of is None:
            return 0, self._jobs[job]
        return self._namespaces[self._queue_of[job], job.namespace], self._jobs[job]

    def parties(self, one: JobKey, other: JobKey) -> tuple[Party, Party]:
        """Return what is compared: the namespaces of two jobs of a queue, or the jobs of one namespace."""
        if self._queue_of is None or one.namespace == other.namespace:
            return Party(f"job {one.name}", self._jobs[one]), Party(f"job {other.name}", self._jobs[other])
        return self._namespace(one), self._namespace(other)

    def _namespace(self, job: JobKey) -> Party:
        queue = "" if self._queue_of is None else self._queue_of[job]
        return Party(f"namespace {job.namespace}", self._namespaces[queue, job.namespace])
