"""Choice of victims: which pods to delete if a more important pod needs a slot and none is free.

Victims are on exactly one node, are Podium's trials of lower priority, and are those that lose least. Pure; the
extender's verb `preempt` offers it over HTTP.

kube-scheduler proposes, for each node, pods whose end would free enough capacity by its own count. It deletes the
returned pods without a further check (in a test, a priority-1000 pod for a priority-100 one), so they are checked here.
A proposal is changed for two reasons:

- The end of its pods would not help: the scheduler knows neither the GPU of a slot nor the memory that trials declared.
- Other trials lose less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from podium_core.placement.fit import STALE_AFTER, refuse
from podium_core.placement.load_terms import slices_ahead
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.views import GpuReading, MemoryUse, NodeRefusal, NodeView, PodNeed

_NO_VICTIM = -(2**31)  # below every priority


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on a node.

    `unsaved`: GPU-seconds since its last checkpoint, which are comparable between jobs, unlike steps. `just_started`:
    it is spared while another pod can be deleted. `steps`: since its last checkpoint, reported but not compared.
    `trial_uid`: UID of its HyperParamTrial, empty if it is not known.
    """

    pod: PlacedPod
    rank: int | None = None
    unsaved: float = 0.0
    just_started: bool = False
    steps: float = 0.0
    trial_uid: str = ""

    @property
    def loss(self) -> float:
        """Return the GPU-seconds to repeat, weighted by 1/2 + 1/rank: those of a good trial count more."""
        return self.unsaved * slices_ahead(self.rank)

    @property
    def sort_key(self) -> tuple[int, bool, float, float, str]:
        """Return the sort key of victims: lowest priority, not just started, least loss, worst rank."""
        return self.pod.priority, self.just_started, self.loss, slices_ahead(self.rank), self.pod.uid


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The pod that needs capacity. `exchangeable`: it needs only capacity (as for PlacedPod)."""

    need: PodNeed
    priority: int
    exchangeable: bool = True


@dataclass(frozen=True, slots=True)
class Proposal:
    """kube-scheduler's proposal for one node.

    `victims`: UIDs. None on the node: a node that the extender refused before, which kube-scheduler proposes from 1.38
    on. `known`: every pod of the node that the extender knows.
    """

    node: NodeView
    victims: tuple[str, ...]
    violations: int  # of PodDisruptionBudgets
    known: Mapping[str, Occupant]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Pods of one node to delete, in this order."""

    node: str
    victims: tuple[Occupant, ...]
    violations: int

    @property
    def sort_key(self) -> tuple[int, tuple[int, int, float, int, float], str]:
        """Return the scheduler's first criterion, then `_worth`, then the name of the node."""
        return self.violations, _worth(self.victims), self.node


def choose(
    preemptor: Preemptor, proposals: Iterable[Proposal], now: float, stale_after: float = STALE_AFTER
) -> tuple[Eviction | None, dict[str, NodeRefusal]]:
    """Return the best eviction over all nodes, and the reason for each unusable proposal.

    The eviction is None if no proposal is usable.
    """
    evictions: list[Eviction] = []
    refusals: dict[str, NodeRefusal] = {}
    for proposal in proposals:
        victims = _victims(preemptor, proposal, now, stale_after)
        if isinstance(victims, NodeRefusal):
            refusals[proposal.node.name] = victims
        else:
            evictions.append(Eviction(proposal.node.name, victims, proposal.violations))
    return min(evictions, key=lambda eviction: eviction.sort_key, default=None), refusals


def _victims(
    preemptor: Preemptor, proposal: Proposal, now: float, stale_after: float
) -> tuple[Occupant, ...] | NodeRefusal:
    """Return the best of the proposed victims and of those that could replace them."""

    def problem(victims: Sequence[Occupant]) -> NodeRefusal | None:
        return refuse(preemptor.need, _without(proposal.node, victims, proposal.known), now, stale_after)

    preemptible = sorted(
        (one for one in proposal.known.values() if one.pod.trial and one.pod.priority < preemptor.priority),
        key=lambda one: one.sort_key,
    )
    allowed = {one.pod.uid for one in preemptible}
    foreign = [uid for uid in proposal.victims if uid not in allowed]
    options: list[tuple[Occupant, ...]] = []
    last: NodeRefusal | None = None
    if not foreign:
        proposed = tuple(sorted((proposal.known[uid] for uid in proposal.victims), key=lambda one: one.sort_key))
        last = problem(proposed)
        if last is None:
            options.append(proposed)
    named = [proposal.known.get(uid) for uid in proposal.victims]
    proposed_pods = [one for one in named if one is not None]
    # Other victims would not be checked against a disruption budget that counts these: then the proposal is not
    # changed.
    if len(proposed_pods) == len(named) and not proposal.violations and _exchangeable(preemptor, proposed_pods):
        needed = _requests(proposed_pods)
        others = [one for one in preemptible if one.pod.exchangeable and not one.pod.terminating]

        def enough(victims: Sequence[Occupant]) -> bool:
            allowed_empty = bool(victims) or not proposal.victims  # no victim at all is an error before 1.38
            return allowed_empty and _covers(_requests(victims), needed) and problem(victims) is None

        exchanged = _least(others, enough)
        if exchanged is not None:
            options.append(exchanged)
    if options:
        return min(options, key=_worth)
    if foreign:
        return NodeRefusal(
            "VictimNotPreemptible",
            f"{len(foreign)} of {len(proposal.victims)} victims are not trials of lower "
            "priority, and no such trials free as much capacity.",
        )
    return last or NodeRefusal("NoVictims", "No trials of lower priority free enough capacity.")


def _least(candidates: Sequence[Occupant], enough: Callable[[Sequence[Occupant]], bool]) -> tuple[Occupant, ...] | None:
    """Return the first candidate that is enough alone.

    Else as many as needed, minus those that are superfluous.

    `candidates` are in the order of deletion. One victim, the usual case, is exact; several are a greedy choice.
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
    """Return the cost of deleting these pods; lower is better, and no victim is best.

    The criteria: highest priority, number of pods that just started, loss, number, ranks.
    """
    top, young = (
        max((one.pod.priority for one in victims), default=_NO_VICTIM),
        sum(one.just_started for one in victims),
    )
    return top, young, sum(one.loss for one in victims), len(victims), sum(slices_ahead(one.rank) for one in victims)


def _exchangeable(preemptor: Preemptor, victims: Sequence[Occupant]) -> bool:
    return preemptor.exchangeable and all(one.pod.exchangeable for one in victims)


def _requests(victims: Sequence[Occupant]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in victims:
        total.update(one.pod.requests)
    return total


def _covers(freed: Counter[str], needed: Counter[str]) -> bool:
    return all(freed[name] >= amount for name, amount in needed.items())


def _without(node: NodeView, victims: Sequence[Occupant], known: Mapping[str, Occupant]) -> NodeView:
    """Return the node without these pods. An unreported pod is on an unknown GPU and frees none."""
    gone = {one.pod.uid: one.pod.need for one in victims}
    return replace(node, gpus=tuple(_gpu_without(gpu, gone, known) for gpu in node.gpus)) if gone else node


def _gpu_without(gpu: GpuReading, gone: Mapping[str, PodNeed], known: Mapping[str, Occupant]) -> GpuReading:
    removed = [gone[uid] for uid in gpu.pods if uid in gone]
    if not removed:
        return gpu
    before, movable = gpu.memory, gpu.memory.movable
    fixed = before.reserved - movable - sum(need.memory or 0 for need in removed if need.memory_stays)
    rest = [known[uid].pod.need for uid in gpu.pods if uid not in gone and uid in known]
    # Of the movable memory the largest remaining part counts; it is known only if all trials of the GPU are known.
    if len(removed) + len(rest) == gpu.trials:
        movable = min(movable, max((need.memory or 0 for need in rest if not need.memory_stays), default=0))
    memory = MemoryUse(max(0, fixed) + movable, movable, before.used)
    return replace(gpu, trials=gpu.trials - len(removed), memory=memory)
