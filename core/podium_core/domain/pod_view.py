"""The pods of a trial as the planner sees them: one, or one for each worker of a trial of several workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One of several pods of a trial. Workers are on different nodes."""

    rank: int  # 0 is the worker whose log and checkpoints count
    name: str
    node: str | None = None
    gpus: tuple[str, ...] = ()  # UUIDs of the GPUs on which it has a slot


@dataclass(frozen=True, slots=True)
class PodView:
    """The pod of a trial as the planner sees it, or all pods of a trial of several workers.

    A trial holds the GPUs of all of its workers or none. So `gpus` is empty while any worker has no slot, and the slots
    that the others have already are in `workers`.
    """

    name: str  # of worker 0, as is `node`
    node: str | None = None
    gpus: tuple[str, ...] = ()  # UUIDs of the GPUs on which it has a slot
    since: float = 0.0  # when it was created; of several workers, the oldest
    terminating: bool = False  # it is being deleted: it may still checkpoint, and keeps its slot until it is gone
    termination_overdue: bool = False  # it should have been gone for a long time; it is unknown when it will be
    stuck: bool = False  # it has found no node, or could not start, for a long time
    # it is stuck for lack of capacity, which the end of another trial of its job would free
    waits_for_capacity: bool = False
    workers: tuple[WorkerView, ...] = ()  # by rank; empty for a trial of one pod

    @property
    def ends_soon(self) -> bool:
        """Return whether the pod is being deleted and will be gone soon."""
        return self.terminating and not self.termination_overdue

    @property
    def slots(self) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs on which any of its workers has a slot, even if others have none yet."""
        return self.gpus or tuple([uuid for worker in self.workers for uuid in worker.gpus])

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of all workers that have one."""
        nodes = [worker.node for worker in self.workers] if self.workers else [self.node]
        return tuple([node for node in nodes if node is not None])
