"""A queue of waiting jobs by priority key and width, which finds the first job that fits."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from podium_optimisers.engine.simulation import JobState

QueueEntry = tuple[float, int, JobState]
"""Key (lower runs first), arrival sequence number (breaks ties), job."""


class WaitingQueue:
    """A priority queue with one heap for each width.

    A job that is put in again replaces its entry. Stale entries are dropped when they reach the top of a heap.
    """

    __slots__ = ("_heaps", "_keys")

    def __init__(self) -> None:
        self._heaps: dict[int, list[QueueEntry]] = {}
        self._keys: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, job: JobState) -> bool:
        return job.sequence in self._keys

    def __iter__(self) -> Iterator[JobState]:
        """Yield every waiting job once, narrow jobs first; the order within a width is arbitrary."""
        for width in sorted(self._heaps):
            seen = set()
            for key, sequence, job in self._heaps[width]:
                if self._keys.get(sequence) == key and sequence not in seen:
                    seen.add(sequence)
                    yield job

    def put(self, job: JobState, key: float) -> None:
        """Insert a job under this key, or move it there."""
        self._keys[job.sequence] = key
        heap = self._heaps.get(job.gpus)
        if heap is None:
            heap = self._heaps[job.gpus] = []
        heapq.heappush(heap, (key, job.sequence, job))

    def head(self, limit: int) -> QueueEntry | None:
        """Return the entry with the lowest key among jobs of at most `limit` GPUs. O(widths)."""
        best: QueueEntry | None = None
        for width, heap in self._heaps.items():
            if width > limit:
                continue
            while heap and self._keys.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if heap and (best is None or heap[0] < best):
                best = heap[0]
        return best

    def pop(self, head: QueueEntry) -> JobState:
        """Remove the entry that `head` returned and return its job."""
        heapq.heappop(self._heaps[head[2].gpus])
        del self._keys[head[1]]
        return head[2]
