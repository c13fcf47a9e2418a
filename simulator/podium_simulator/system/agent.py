"""Next steps of the agent of a simulated node. Pure.

The rules are those of `podium_core.attempts.local_scheduler`.

It is separate from the real agent, which the simulator may not import. The shared rules:

- A trial holds all of its GPUs or none.
- Claims are made in one global order.
- The next trial starts only when the previous one has left the GPU.
- A trial whose entry is on hold may not run: `Gpu.run_queue` lacks it.

The agents of several nodes suspend and resume the workers of a trial at the same moment here. In a cluster each one
does so when it has read its own run queues.
"""

from __future__ import annotations

from enum import Enum, auto

from podium_simulator.system.stages import PodStage
from podium_simulator.system.state import Gpu, Node, SimPod, Trial
from podium_simulator.system.trial_state import SimMigration


class Step(Enum):
    START = auto()
    SUSPEND = auto()
    RESUME = auto()
    CHECKPOINT = auto()  # it was asked to end and can checkpoint
    MAKE_IMAGE = auto()  # it was asked to migrate away, and uses no GPU any more
    CANCEL_IMAGE = auto()  # the migration was cancelled
    RESTORE = auto()  # its pod starts from a checkpoint image


def next_steps(node: Node) -> list[tuple[Trial, Step]]:
    """Return the next step of each trial on the node. O(trials on the node * run queue length)."""
    if not node.up:
        return []
    if node.silent:  # a running trial checkpoints by itself when the kubelet asks it to end
        return [(t, Step.CHECKPOINT) for t in node.trials if t.pod.asked_to_end and t.pod.stage is PodStage.RUNNING]
    # the agent of another of its nodes cannot act: its worker remains as it is, and the others wait for it
    fixed = [t for t in node.trials if any(not one.up or one.silent for one in t.pod.nodes)]
    working = _trials_to_run(node)
    steps: list[tuple[Trial, Step]] = []
    for trial in node.trials:
        pod, chosen = trial.pod, trial in working
        if trial in fixed and not pod.asked_to_end:
            continue
        if pod.stage in (PodStage.LOADING, PodStage.RUNNING):
            if pod.asked_to_end and pod.stage is PodStage.RUNNING:
                steps.append((trial, Step.CHECKPOINT))
            elif not chosen and trial.freezes:
                steps.append((trial, Step.SUSPEND))
        elif chosen and pod.stage in (PodStage.GATED, PodStage.SUSPENDED) and _free(pod):
            if pod.stage is PodStage.SUSPENDED:
                steps.append((trial, Step.RESUME))
            else:
                steps.append((trial, Step.RESTORE if trial.starts_from_image else Step.START))
        elif trial.migration is not None:
            steps += _migration_step(trial, trial.migration)
    return steps


def _migration_step(trial: Trial, migration: SimMigration) -> list[tuple[Trial, Step]]:
    """Return the step of a trial that was asked to migrate; such a trial is never chosen to run."""
    pod = trial.pod
    if pod.asked_to_migrate and pod.stage is PodStage.SUSPENDED and not migration.pushed:
        return [(trial, Step.MAKE_IMAGE)]
    if not pod.asked_to_migrate and pod.stage is PodStage.MAKING_IMAGE:
        return [(trial, Step.CANCEL_IMAGE)]
    return []


def together_with(node: Node) -> list[Node]:
    """Return the nodes that share a trial with this one, itself first."""
    return list(dict.fromkeys([node, *[other for trial in node.trials for other in trial.pod.nodes]]))


def gpus_in_transition(node: Node) -> frozenset[str]:
    """Return the GPUs on which a run queue is not in effect yet.

    A worker is next as soon as the run queues of its own node say so. The other nodes' may arrive later.
    """
    working = _trials_to_run(node, locally=True)
    moving = [t for t in node.trials if t.pod.stage in (PodStage.SUSPENDING, PodStage.RESUMING)]
    next_ones = [t for t in node.trials if t in working and not t.pod.occupies]
    return frozenset([gpu.uuid for trial in (*moving, *next_ones) for gpu in trial.pod.gpus])


def _trials_to_run(node: Node, *, locally: bool = False) -> set[Trial]:
    """Return the trials that shall run on all of their GPUs: greedy claims in the global order.

    `locally`: on those GPUs of theirs that are on this node.
    """
    only = node if locally else None
    places = [(place, trial.key, trial) for trial in node.trials if (place := _worst_position(trial, only)) is not None]
    claimed: set[Gpu] = set()
    chosen: set[Trial] = set()
    for _, _, trial in sorted(places):  # no two trials have the same key
        if claimed.isdisjoint(trial.pod.gpus):
            claimed.update(trial.pod.gpus)
            chosen.add(trial)
    return chosen


def _worst_position(trial: Trial, only: Node | None) -> int | None:
    """Return the trial's worst position in the run queues of its GPUs; None: it may not run now.

    -1 for a trial that must end. `only`: the node whose GPUs count; None: those of all nodes.
    """
    pod = trial.pod
    if pod.stage in (PodStage.CREATING, PodStage.ENDED) or pod.asked_to_migrate:
        return None
    if pod.asked_to_end:
        return -1
    worst = -1
    for gpu in pod.gpus:
        if only is not None and gpu.node is not only:
            continue
        place = _position(trial, gpu)
        if place is None:
            return None
        worst = max(worst, place)
    return worst


def _position(trial: Trial, gpu: Gpu) -> int | None:
    if gpu.run_queue is None:
        return 0 if trial.pod.occupies else None  # a trial on a GPU without a run queue continues
    try:
        return gpu.run_queue.index(trial.key)
    except ValueError:
        return None


def _free(pod: SimPod) -> bool:
    """Return whether the pod's GPUs are free: another pod neither uses them nor is leaving them."""
    others = [trial.pod for node in pod.nodes for trial in node.trials if trial.pod is not pod]
    return not any(other.occupies and not set(pod.gpus).isdisjoint(other.gpus) for other in others)
