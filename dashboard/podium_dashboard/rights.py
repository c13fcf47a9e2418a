"""What one caller may read, and the part of the state that these rights leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from podium_core.schema.base import TrialRef
from podium_core.schema.gpunode import GPUNode, GpuRunQueue, GpuStatus, OtherPod, RunQueueEntry
from podium_dashboard.state import State

HIDDEN = "in another namespace"
R = TypeVar("R", bound=TrialRef)


@dataclass(frozen=True, slots=True)
class Rights:
    """The namespaces whose searches a caller may list, and whether it may list the GPUNodes.

    `namespaces=None`: all. `unchecked`: number of namespaces for which the rights were not asked.
    """

    namespaces: frozenset[str] | None
    nodes: bool
    unchecked: int = 0

    def see(self, namespace: str) -> bool:
        """Return whether the caller may list the searches of a namespace."""
        return self.namespaces is None or namespace in self.namespaces


def permitted_nodes(nodes: tuple[GPUNode, ...], rights: Rights) -> tuple[GPUNode, ...]:
    """Return the GPUNodes as the rights allow.

    GPUs remain, because GPUNodes have no namespace. The names of trials and pods on them are hidden where the caller
    may not list the searches of their namespaces.
    """
    if not rights.nodes:
        return ()
    return nodes if rights.namespaces is None else tuple(_node(node, rights) for node in nodes)


def permitted(state: State, rights: Rights, nodes: tuple[GPUNode, ...]) -> State:
    """Return the part of the state that the rights allow; `nodes` are its `permitted_nodes`."""
    searches = tuple(replace(one, nodes=nodes) for one in state.searches if rights.see(one.key[0]))
    problems = state.problems
    if rights.unchecked:
        problems += (f"The searches of {rights.unchecked} more namespaces are not shown: there are too many to check.",)
    return replace(
        state,
        searches=searches,
        nodes=nodes,
        problems=problems,
        partial=len(searches) < len(state.searches),
        by_key={one.key: one for one in searches},
    )


def _node(node: GPUNode, rights: Rights) -> GPUNode:
    gpus = [_gpu(gpu, rights) for gpu in node.status.gpus]
    queues = [_queue(queue, rights) for queue in node.spec.gpus]
    return node.model_copy(
        update={
            "status": node.status.model_copy(update={"gpus": gpus}),
            "spec": node.spec.model_copy(update={"gpus": queues}),
        }
    )


def _gpu(gpu: GpuStatus, rights: Rights) -> GpuStatus:
    return gpu.model_copy(
        update={
            "holder": None if gpu.holder is None else _trial(gpu.holder, rights),
            "trials": [_trial(one, rights) for one in gpu.trials],
            "other_pods": [_pod(one, rights) for one in gpu.other_pods],
            "exclusive_pod": _pod_name(gpu.exclusive_pod, rights),
            "reservation": _pod_name(gpu.reservation, rights),
        }
    )


def _trial(ref: R, rights: Rights) -> R:
    """Return the reference, without names if the caller may not see them.

    The uid remains: pages compare it and do not show it.
    """
    if rights.see(ref.namespace):
        return ref
    hidden = {"namespace": "", "trial": HIDDEN} | ({"pod": ""} if "pod" in type(ref).model_fields else {})
    return ref.model_copy(update=hidden)


def _queue(queue: GpuRunQueue, rights: Rights) -> GpuRunQueue:
    entries = [_entry(one, rights) for one in queue.run_queue]
    return queue.model_copy(update={"run_queue": entries})


def _entry(entry: RunQueueEntry, rights: Rights) -> RunQueueEntry:
    if rights.see(entry.namespace):
        return entry
    return entry.model_copy(update={"namespace": "", "trial": HIDDEN, "message": ""})


def _pod(pod: OtherPod, rights: Rights) -> OtherPod:
    return pod if rights.see(pod.namespace) else pod.model_copy(update={"namespace": "", "pod": HIDDEN})


def _pod_name(name: str | None, rights: Rights) -> str | None:
    """Return the name of a pod, as namespace/name; an empty one names no pod."""
    return name if not name or rights.see(name.partition("/")[0]) else HIDDEN
