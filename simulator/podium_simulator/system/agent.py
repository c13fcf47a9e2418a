"""Next steps of the agent of a simulated node. Pure.

The rules are those of `podium_agent.schedule.local_scheduler`.

It is separate from the real agent, which the simulator may not import. The shared rules: a trial holds all of its GPUs
or none; claims are made in one global order; the next trial starts only when the one before has left the GPU.
"""

from __future__ import annotations

from enum import Enum, auto

from podium_simulator.system.state import Gpu, Node, State, Trial, Way


class Step(Enum):
    GRANT = auto()
    SUSPEND = auto()
    RESUME = auto()
    SAVE = auto()  # it was asked to end and can checkpoint
    LEAVE = auto()  # it was asked to migrate away, and uses no GPU any more
    STAY = auto()  # the migration was cancelled
    RESTORE = auto()  # its pod starts from a checkpoint image


def decide(node: Node) -> list[tuple[Trial, Step]]:
    """Return the next step of each trial on the node. O(trials on the node * run queue length)."""
    if not node.up:
        return []
    if node.silent:  # a running trial checkpoints by itself when the kubelet asks it to end
        return [(t, Step.SAVE) for t in node.trials if t.told and t.state is State.RUNNING]
    working = _to_work(node)
    found: list[tuple[Trial, Step]] = []
    for trial in node.trials:
        chosen = trial in working
        if trial.state in (State.LOADING, State.RUNNING):
            if trial.told and trial.state is State.RUNNING:
                found.append((trial, Step.SAVE))
            elif not chosen and trial.freezes:
                found.append((trial, Step.SUSPEND))
        elif chosen and trial.state in (State.GATED, State.SUSPENDED) and _free(trial, node):
            if trial.state is State.SUSPENDED:
                found.append((trial, Step.RESUME))
            else:
                found.append((trial, Step.RESTORE if trial.arrives else Step.GRANT))
        elif trial.way is not None:
            found += _on_its_way(trial, trial.way)
    return found


def _on_its_way(trial: Trial, way: Way) -> list[tuple[Trial, Step]]:
    """Return the step of a trial that was asked to migrate; such a trial is never chosen to run."""
    if trial.asked and trial.state is State.SUSPENDED and not way.pushed:
        return [(trial, Step.LEAVE)]
    if not trial.asked and trial.state is State.LEAVING:
        return [(trial, Step.STAY)]
    return []


def unsettled(node: Node) -> frozenset[str]:
    """Return the GPUs on which a run queue is not in effect yet."""
    working = _to_work(node)
    moving = [t for t in node.trials if t.state in (State.SUSPENDING, State.RESUMING)]
    next_ones = [t for t in node.trials if t in working and not t.occupies]
    return frozenset([gpu.uuid for trial in (*moving, *next_ones) for gpu in trial.gpus])


def _to_work(node: Node) -> set[Trial]:
    """Return the trials that shall run on all of their GPUs: greedy claims in the global order."""
    places = [(place, trial.key, trial) for trial in node.trials if (place := _place(trial)) is not None]
    claimed: set[Gpu] = set()
    found: set[Trial] = set()
    for _, _, trial in sorted(places):  # no two trials have the same key
        if claimed.isdisjoint(trial.gpus):
            claimed.update(trial.gpus)
            found.add(trial)
    return found


def _place(trial: Trial) -> int | None:
    """Return the trial's worst position in the run queues of its GPUs; None: it may not run now.

    -1 for a trial that must end.
    """
    if trial.state in (State.CREATING, State.ENDED) or trial.asked:
        return None
    if trial.told:
        return -1
    worst = -1
    for gpu in trial.gpus:
        place = _in_order(trial, gpu)
        if place is None:
            return None
        worst = max(worst, place)
    return worst


def _in_order(trial: Trial, gpu: Gpu) -> int | None:
    if gpu.order is None:
        return 0 if trial.occupies else None  # a trial on a GPU without a run queue continues
    try:
        return gpu.order.index(trial.key)
    except ValueError:
        return None


def _free(trial: Trial, node: Node) -> bool:
    """Return whether no other trial uses its GPUs or is leaving them."""
    return not any(o is not trial and o.occupies and not set(trial.gpus).isdisjoint(o.gpus) for o in node.trials)
