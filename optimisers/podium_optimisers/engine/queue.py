"""Waiting jobs in order of their keys, by width: who is next among those that fit? Called by deciders."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from podium_optimisers.engine.simulation import JobState

Entry = tuple[float, int, JobState]
"""Key (lower goes first), sequence of arrival (breaks ties), job."""


class WaitingQueue:
    """One heap for each width. A job that is put in again replaces its entry; stale entries go when they surface."""

    __slots__ = ("_heaps", "_keys")

    def __init__(self) -> None:
        self._heaps: dict[int, list[Entry]] = {}
        self._keys: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, job: JobState) -> bool:
        return job.sequence in self._keys

    def __iter__(self) -> Iterator[JobState]:
        """Every waiting job once, narrow ones first, otherwise in no order that means anything."""
        for width in sorted(self._heaps):
            seen = set()
            for key, sequence, job in self._heaps[width]:
                if self._keys.get(sequence) == key and sequence not in seen:
                    seen.add(sequence)
                    yield job

    def put(self, job: JobState, key: float) -> None:
        self._keys[job.sequence] = key
        heap = self._heaps.get(job.gpus)
        if heap is None:
            heap = self._heaps[job.gpus] = []
        heapq.heappush(heap, (key, job.sequence, job))

    def head(self, limit: int) -> Entry | None:
        """The entry with the lowest key among jobs of at most `limit` GPUs. O(widths)."""
        best: Entry | None = None
        for width, heap in self._heaps.items():
            if width > limit:
                continue
            while heap and self._keys.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if heap and (best is None or heap[0] < best):
                best = heap[0]
        return best

    def pop(self, head: Entry) -> JobState:
        """Takes out what `head` gave."""
        heapq.heappop(self._heaps[head[2].gpus])
        del self._keys[head[1]]
        return head[2]
