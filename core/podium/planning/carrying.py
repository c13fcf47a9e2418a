"""Which live trials are carried to another node, where to, and when the pod that they go on in is made.

Called by the planner beside `leaving`: on a node that drains, a trial that would lose steps by a requeue is carried if
its job names `container-checkpoint` and the agents of both nodes do it. Steps are as `domain.carrying` has them.
"""

from __future__ import annotations

from collections.abc import Mapping

from podium.domain.actions import Carry, CreatePod, Requeue
from podium.domain.carrying import HELD, CarryPhase
from podium.domain.moving import carriable, movable
from podium.domain.snapshot import GpuView, JobView, Snapshot, TrialKey, TrialView
from podium.planning.ranking import Standing
from podium.planning.share import fits


def carry(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> tuple[Carry | CreatePod | Requeue, ...]:
    """One at a time from a node: its disk takes all memory of each. O(trials + GPUs of a trial)."""
    drains = any(gpu.draining for gpu in snapshot.gpus)
    if not drains and all(standing.trial.carrying is None for standing in standings.values()):
        return ()
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    busy = {standing.trial.node for standing in standings.values() if leaves(standing.trial)}
    told: list[Carry | CreatePod | Requeue] = []
    for standing in standings.values():
        trial = standing.trial
        if trial.pod is None or trial.leaving:
            continue
        if trial.carrying is CarryPhase.PUSHED and leaves(trial):
            text = "Its image is in the registry: it goes on from there."
            told.append(CreatePod(trial.key, trial.attempt + 1, "Carried", text))
        elif trial.carrying is CarryPhase.FELL_BACK and trial.carried:
            text = "The pod that it was carried to does not go on: a new one begins from its save, or anew."
            told.append(Requeue(trial.key, "CarryFailed", text))
        elif trial.carrying is None and trial.node not in busy:
            target = _target(standing.job, trial, gpus)
            if target is not None:
                busy.add(trial.node)
                text = f"Node {trial.node} drains, and the trial cannot save: it is carried to {target} alive."
                told.append(Carry(trial.key, target, "NodeDraining", text))
    return tuple(told)


def leaves(trial: TrialView) -> bool:
    """Its present pod is the old one, and gets no turn any more."""
    return trial.carrying in HELD and not trial.carried


def _target(job: JobView, trial: TrialView, gpus: Mapping[str, GpuView]) -> str | None:
    """The node with most free shares among those that it can be carried to; None: it stays.

    Its GPUs' memory comes back only on GPUs of the same product.
    """
    mine = [gpus[uuid] for uuid in trial.gpus if uuid in gpus]
    if not any(gpu.draining for gpu in mine):
        return None
    if movable(trial.phase, saves=job.saves, saves_at=job.saves_at, has_save=trial.saved is not None):
        return None
    if not carriable(trial.phase, carries=job.carries, node_carries=all(gpu.carries for gpu in mine)):
        return None
    products = {gpu.product for gpu in mine}
    free: dict[str, list[int]] = {}
    for gpu in gpus.values():
        there = gpu.carries and gpu.node != trial.node and gpu.health == "Healthy" and gpu.free_shares > 0
        if there and {gpu.product} == products and fits(job, gpu):
            free.setdefault(gpu.node, []).append(gpu.free_shares)
    fit = {node: sum(shares) for node, shares in free.items() if len(shares) >= job.gpus_per_trial}
    return min(fit, key=lambda node: (-fit[node], node), default=None)
