"""Who leaves when a more important pod wants a share and none is free: exactly one node, Podium's trials of lower
priority only, and of those the ones that lose least. Pure; the extender's verb `preempt` puts it behind HTTP.

kube-scheduler proposes, for each node, pods whose end would make room by its own count. It kills what it is told and
checks nothing (it killed a priority-1000 pod for a priority-100 one: shared extender-proof, 1c), so it is checked here.
A proposal is changed for two reasons: its end would be of no use (the scheduler counts shares, not which GPU they are
on, nor the memory that trials declared), or other trials lose less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from podium_core.placement.fit import STALE_AFTER, refuse
from podium_core.placement.load_terms import slices_ahead
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.views import GpuReading, NodeRefusal, NodeView, PodNeed

_NOBODY = -(2**31)  # below every priority


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on a node. `unsaved`: GPU-seconds since its last save; those of different jobs compare, steps do not.
    `young`: it has only just begun, and is spared while anybody else can go. `steps`: since its last save, told but not
    compared; `trial_uid`: of its HyperParamTrial, empty where that is not known.
    """

    pod: PlacedPod
    rank: int | None = None
    unsaved: float = 0.0
    just_started: bool = False
    steps: float = 0.0
    trial_uid: str = ""

    @property
    def loss(self) -> float:
        """GPU-seconds to do again, and those of a good trial count for more: times 1/2 + 1/rank."""
        return self.unsaved * slices_ahead(self.rank)

    @property
    def sort_key(self) -> tuple[int, bool, float, float, str]:
        """The first goes first: lowest priority, not just begun, least loss, worst rank."""
        return self.pod.priority, self.just_started, self.loss, slices_ahead(self.rank), self.pod.uid


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The pod that wants room. `exchangeable`: room is all it wants (as for PlacedPod)."""

    need: PodNeed
    priority: int
    exchangeable: bool = True


@dataclass(frozen=True, slots=True)
class Proposal:
    """One node of the scheduler's. `victims`: uids; none of them on it: a node that the extender refused before, which
    kube-scheduler proposes from 1.38 on. `known`: every pod of the node that the extender has heard of.
    """

    node: NodeView
    victims: tuple[str, ...]
    violations: int  # of PodDisruptionBudgets
    known: Mapping[str, Occupant]


@dataclass(frozen=True, slots=True)
class Eviction:
    """The answer: these pods of this node, ordered by what goes first."""

    node: str
    victims: tuple[Occupant, ...]
    violations: int

    @property
    def sort_key(self) -> tuple[int, tuple[int, int, float, int, float], str]:
        """The scheduler's own first criterion, then `_worth`; ties by name."""
        return self.violations, _worth(self.victims), self.node


def choose(
    preemptor: Preemptor, proposals: Iterable[Proposal], now: float, stale_after: float = STALE_AFTER
) -> tuple[Eviction | None, dict[str, NodeRefusal]]:
    """The best eviction of all nodes, None where no proposal can be used; and why each unusable one cannot."""
    found: list[Eviction] = []
    refusals: dict[str, NodeRefusal] = {}
    for proposal in proposals:
        victims = _victims(preemptor, proposal, now, stale_after)
        if isinstance(victims, NodeRefusal):
            refusals[proposal.node.name] = victims
        else:
            found.append(Eviction(proposal.node.name, victims, proposal.violations))
    return min(found, key=lambda eviction: eviction.sort_key, default=None), refusals


def _victims(
    preemptor: Preemptor, proposal: Proposal, now: float, stale_after: float
) -> tuple[Occupant, ...] | NodeRefusal:
    """The best of what was proposed and what could go instead."""

    def trouble(victims: Sequence[Occupant]) -> NodeRefusal | None:
        return refuse(preemptor.need, _without(proposal.node, victims, proposal.known), now, stale_after)

    may_go = sorted(
        (one for one in proposal.known.values() if one.pod.trial and one.pod.priority < preemptor.priority),
        key=lambda one: one.sort_key,
    )
    allowed = {one.pod.uid for one in may_go}
    foreign = [uid for uid in proposal.victims if uid not in allowed]
    options: list[tuple[Occupant, ...]] = []
    last: NodeRefusal | None = None
    if not foreign:
        proposed = tuple(sorted((proposal.known[uid] for uid in proposal.victims), key=lambda one: one.sort_key))
        last = trouble(proposed)
        if last is None:
            options.append(proposed)
    named = [proposal.known.get(uid) for uid in proposal.victims]
    wanted = [one for one in named if one is not None]
    # a budget that counts some of them would not be asked about others: then the proposal stands as it is
    if len(wanted) == len(named) and not proposal.violations and _exchangeable(preemptor, wanted):
        room = _requests(wanted)
        others = [one for one in may_go if one.pod.exchangeable and not one.pod.terminating]

        def enough(victims: Sequence[Occupant]) -> bool:
            somebody = bool(victims) or not proposal.victims  # nobody at all is an error before 1.38
            return somebody and _covers(_requests(victims), room) and trouble(victims) is None

        exchanged = _least(others, enough)
        if exchanged is not None:
            options.append(exchanged)
    if options:
        return min(options, key=_worth)
    if foreign:
        return NodeRefusal(
            "VictimNotPreemptible",
            f"{len(foreign)} of {len(proposal.victims)} victims are no trials of lower "
            "priority, and no such trials leave as much room.",
        )
    return last or NodeRefusal("NoVictims", "No trials of lower priority leave enough room.")


def _least(candidates: Sequence[Occupant], enough: Callable[[Sequence[Occupant]], bool]) -> tuple[Occupant, ...] | None:
    """The first that is enough alone; else as many as it takes, less those that turn out not to be needed.

    `candidates` by what goes first. One victim is found exactly, which is the usual case; several are a greedy choice.
    """
    if enough(()):
        return ()
    for one in candidates:
        if enough((one,)):
            return (one,)
    taken: list[Occupant] = []
    for one in candidates:
        taken.append(one)
        if enough(taken):
            break
    else:
        return None
    for one in reversed(taken.copy()):
        rest = [other for other in taken if other is not one]
        if enough(rest):
            taken = rest
    return tuple(taken)


def _worth(victims: Sequence[Occupant]) -> tuple[int, int, float, int, float]:
    """Less is better: the highest priority among them, how many have only just begun, what they lose, how many they
    are, how good. Nobody: best.
    """
    top, young = max((one.pod.priority for one in victims), default=_NOBODY), sum(one.just_started for one in victims)
    return top, young, sum(one.loss for one in victims), len(victims), sum(slices_ahead(one.rank) for one in victims)


def _exchangeable(preemptor: Preemptor, victims: Sequence[Occupant]) -> bool:
    return preemptor.exchangeable and all(one.pod.exchangeable for one in victims)


def _requests(victims: Sequence[Occupant]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in victims:
        total.update(one.pod.requests)
    return total


def _covers(freed: Counter[str], room: Counter[str]) -> bool:
    return all(freed[name] >= amount for name, amount in room.items())


def _without(node: NodeView, victims: Sequence[Occupant], known: Mapping[str, Occupant]) -> NodeView:
    """The node once these pods are gone. One that no agent has reported yet is on an unknown GPU and frees none."""
    gone = {one.pod.uid: one.pod.need for one in victims}
    return replace(node, gpus=tuple(_gpu_without(gpu, gone, known) for gpu in node.gpus)) if gone else node


def _gpu_without(gpu: GpuReading, gone: Mapping[str, PodNeed], known: Mapping[str, Occupant]) -> GpuReading:
    leaving = [gone[uid] for uid in gpu.pods if uid in gone]
    if not leaving:
        return gpu
    stays = gpu.memory_reserved - gpu.memory_movable - sum(need.memory or 0 for need in leaving if need.memory_stays)
    moved = gpu.memory_movable
    rest = [known[uid].pod.need for uid in gpu.pods if uid not in gone and uid in known]
    # of what is moved off, the largest that is left counts; it is told where no trial of the GPU is a stranger
    if len(leaving) + len(rest) == gpu.trials:
        moved = min(moved, max((need.memory or 0 for need in rest if not need.memory_stays), default=0))
    return replace(gpu, trials=gpu.trials - len(leaving), memory_reserved=max(0, stays) + moved, memory_movable=moved)
