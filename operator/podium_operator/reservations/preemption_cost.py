"""What the preemption of a reservation would cost its trials: time of their checkpoints, and work at risk. Pure.

`controller` writes both on the reservation pod, because Kueue and people see reservation pods and not trials
(kubernetes-sigs/kueue#477). `kueue_workloads` derives from the cost which reservation Kueue should preempt first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from podium_core.domain.keys import JobKey
from podium_core.domain.phase import FINAL
from podium_core.planning.slots.preemption_order import cost_class
from podium_core.schema.gpunode import GPUNode
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.observe.trial_state import TrialState

MIN_CHANGE = 30.0  # seconds between two times of a checkpoint that are written: a trial may checkpoint every second


def last_checkpoints(
    reservations: Iterable[ReservationPodState], nodes: Iterable[GPUNode], trials: Iterable[TrialState]
) -> Mapping[str, float]:
    """Return the time of the oldest newest checkpoint on each reserved GPU, by uid of the reservation pod.

    A trial without a checkpoint counts from its start. A GPU without a started trial has no entry.
    """
    oldest: dict[str, float] = {}
    for uid, trial in _trials_on(reservations, nodes, trials):
        status = trial.status
        saved = status.checkpoint.at if status.checkpoint is not None else status.started_at
        if saved is not None:
            oldest[uid] = min(oldest.get(uid, saved.timestamp()), saved.timestamp())
    return oldest


def preemption_costs(
    reservations: Iterable[ReservationPodState],
    nodes: Iterable[GPUNode],
    trials: Iterable[TrialState],
    suspendable: Collection[JobKey],
) -> Mapping[str, float]:
    """Return the GPU-seconds since the newest checkpoints on each reserved GPU.

    The keys are the uids of the reservation pods. Trials of the jobs in `suspendable` cost nothing: they are suspended
    with their memory off the GPU. A GPU without a trial has no entry.
    """
    costs: dict[str, float] = {}
    for uid, trial in _trials_on(reservations, nodes, trials):
        free = JobKey(trial.metadata.namespace, trial.spec.job) in suspendable
        costs[uid] = costs.get(uid, 0.0) + (0.0 if free else trial.unsaved.gpu_seconds)
    return costs


def _trials_on(
    reservations: Iterable[ReservationPodState], nodes: Iterable[GPUNode], trials: Iterable[TrialState]
) -> Iterator[tuple[str, TrialState]]:
    """Yield the trials on reserved GPUs that have not ended, each with the uid of the reservation pod."""
    path_of = {gpu.uuid: gpu.reservation for node in nodes for gpu in node.status.gpus if gpu.reservation is not None}
    uid_of = {one.path: one.uid for one in reservations}
    for trial in trials:
        if trial.status.phase in FINAL:
            continue
        for path in {path_of[uuid] for uuid in trial.status.gpus if uuid in path_of}:
            if path in uid_of:
                yield uid_of[path], trial


def checkpoint_differs(recorded: float | None, actual: float | None) -> bool:
    """Return whether the annotation of the checkpoints has to be written again."""
    if recorded is None or actual is None:
        return recorded is not actual
    return abs(recorded - actual) >= MIN_CHANGE


def cost_differs(recorded: float | None, actual: float | None) -> bool:
    """Return whether the annotation of the cost has to be written again."""
    if recorded is None or actual is None:
        return recorded is not actual
    return cost_class(recorded) != cost_class(actual)
