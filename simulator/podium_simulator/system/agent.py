"""What a node's agent does next: the rules of `podium_agent.schedule.local_scheduler` on the truth of one simulated
node. Pure.

Kept apart from the real agent, which core may not import; what they share is stated there: a trial holds all of its
GPUs or none, claims go in one global order, the next is let in only when the one before is off.
"""

from __future__ import annotations

from enum import Enum, auto

from podium_simulator.system.state import Gpu, Node, State, Trial, Way


class Step(Enum):
    GRANT = auto()
    SUSPEND = auto()
    RESUME = auto()
    SAVE = auto()  # it was told to go and can
    LEAVE = auto()  # it was asked to be carried away, and holds nothing of its GPU any more
    STAY = auto()  # it is not to be, after all
    RESTORE = auto()  # it came as an image


def decide(node: Node) -> list[tuple[Trial, Step]]:
    """O(trials on the node * places)."""
    if not node.up:
        return []
    if node.silent:  # whoever works saves by itself, when the kubelet tells it to go
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
    """To another node, if it was asked to go there: it is never chosen then."""
    if trial.asked and trial.state is State.SUSPENDED and not way.pushed:
        return [(trial, Step.LEAVE)]
    if not trial.asked and trial.state is State.LEAVING:
        return [(trial, Step.STAY)]
    return []


def unsettled(node: Node) -> frozenset[str]:
    """The GPUs on which an order is still being carried out."""
    working = _to_work(node)
    moving = [t for t in node.trials if t.state in (State.SUSPENDING, State.RESUMING)]
    next_ones = [t for t in node.trials if t in working and not t.occupies]
    return frozenset([gpu.uuid for trial in (*moving, *next_ones) for gpu in trial.gpus])


def _to_work(node: Node) -> set[Trial]:
    """Greedy claims in the global order: who shall work on all of its GPUs."""
    places = [(place, trial.key, trial) for trial in node.trials if (place := _place(trial)) is not None]
    claimed: set[Gpu] = set()
    found: set[Trial] = set()
    for _, _, trial in sorted(places):  # no two have one key
        if claimed.isdisjoint(trial.gpus):
            claimed.update(trial.gpus)
            found.add(trial)
    return found


def _place(trial: Trial) -> int | None:
    """Its worst place in the orders of its GPUs, -1 for one that must end; None: it may not work now."""
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
        return 0 if trial.occupies else None  # what works on a GPU without orders goes on
    try:
        return gpu.order.index(trial.key)
    except ValueError:
        return None


def _free(trial: Trial, node: Node) -> bool:
    """Nobody else works on its GPUs, or is on the way off them."""
    return not any(o is not trial and o.occupies and not set(trial.gpus).isdisjoint(o.gpus) for o in node.trials)
