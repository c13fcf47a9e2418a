"""Decision which GPU reservations to give up for pods that wait for a GPU.

Pure; the operator calls it where GPUs are dynamic resources (DRA). There kube-scheduler preempts no pod for a GPU, so a
pod of higher priority would wait for as long as Podium keeps its reservations.

A pod gets no more GPUs than it lacks, on one node, from the reservations whose trials lose least. Podium requests no
GPU until the pod has a node. If the pod still waits HOLD seconds after its GPUs became free, something else holds it
back: Podium requests GPUs again, and gives up none for this pod until a pause is over, which doubles each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from podium_core.domain.backoff import backoff_pause

SETTLE = 2.0  # seconds for which a pod must have waited: the scheduler may be about to try it again
PATIENCE = 30.0  # seconds after which free GPUs do not count: the scheduler cannot use them for this pod
HOLD = 30.0  # seconds for the scheduler to place a pod on its GPUs; its own back-off is at most 10
FIRST_PAUSE, LONGEST_PAUSE = 300.0, 3600.0
MAX_PODS = 100  # pods that are considered in one decision


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits for nothing but GPUs. `since`: when it was first observed without a node.

    `nodes`: nodes with reservations that would accept the pod if their GPUs were free.
    """

    uid: str
    name: str  # namespace/name
    priority: int
    gpus: int
    since: float
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A reservation with a GPU that can be given up.

    `loss`: what its end costs its trials, the most important measure first.
    """

    uid: str
    node: str
    priority: int
    loss: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuSupply:
    """GPUs of the nodes with reservations.

    `held`: the reservations that can be given up; `free`: unused GPUs by node; `leaving`: the node of each reservation
    that is terminating, by uid.
    """

    held: Sequence[HeldGpu]
    free: Mapping[str, int] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class YieldRecord:
    """What is remembered of a pod as long as it exists and has no node.

    - `given`: uids of the reservations that were given up for it; empty while there are none
    - `freed_at`: since when none of them exists
    - `enough_since`: since when there have been enough free GPUs for it
    - `failures`: how often the pod was not placed although its GPUs were free
    - `retry_at`: no reservation is given up for it before
    """

    pod: str  # namespace/name
    node: str = ""
    given: frozenset[str] = frozenset()
    freed_at: float | None = None
    enough_since: float | None = None
    failures: int = 0
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class YieldPlan:
    """Decision.

    - `give`: the reservations to give up now, by uid, each with the pod that needs its GPU
    - `records`: by uid of the pod, for the next decision
    - `waits_for`: pods that are about to be placed; until then no GPU is requested
    - `wake_at`: when to decide again if nothing happens before
    """

    give: Mapping[str, WaitingPod] = field(default_factory=dict)
    records: Mapping[str, YieldRecord] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()
    wake_at: float | None = None


def plan_yields(
    pods: Iterable[WaitingPod],
    supply: GpuSupply,
    records: Mapping[str, YieldRecord],
    unplaced: Collection[str],
    now: float,
) -> YieldPlan:
    """Plan which reservations to give up. O(pods x reservations), for at most MAX_PODS pods.

    `unplaced`: uids of all pods without a node, also of those that wait for something else now.
    """
    waiting = {pod.uid: pod for pod in pods}
    there = supply.leaving.keys() | {one.uid for one in supply.held}
    kept = {
        uid: _followed(record, there, waits=uid in waiting, now=now)
        for uid, record in records.items()
        if uid in unplaced or uid in waiting
    }
    given = {uid for record in kept.values() for uid in record.given}
    market = _Market(supply, given)
    for uid, record in kept.items():
        if record.given:  # what is free by now is that pod's
            promised = waiting[uid].gpus - len(record.given.intersection(there))
            market.free[record.node] = market.free.get(record.node, 0) - promised
    wakes = [record.freed_at + HOLD for record in kept.values() if record.freed_at is not None]
    waits_for = [record.pod for record in kept.values() if record.given]
    give: dict[str, WaitingPod] = {}
    for pod in sorted(waiting.values(), key=lambda one: (-one.priority, one.since, one.uid))[:MAX_PODS]:
        record = kept.get(pod.uid, YieldRecord(pod.name))
        ready_at = max(pod.since + SETTLE, record.retry_at)
        if record.given:
            continue
        if ready_at > now:
            wakes.append(ready_at)
            continue
        enough_since = None if not market.has_enough(pod) else record.enough_since or now
        if enough_since is not None and now - enough_since < PATIENCE:
            wakes.append(enough_since + PATIENCE)
        record = kept[pod.uid] = replace(record, enough_since=enough_since)
        node, lacking = market.offer(pod, usable=enough_since is None or now - enough_since < PATIENCE)
        if node is None:
            continue
        market.take(node, pod.gpus - len(lacking), lacking)
        give.update({one.uid: pod for one in lacking})
        kept[pod.uid] = replace(record, node=node, given=frozenset(one.uid for one in lacking))
        waits_for.append(pod.name)
    return YieldPlan(give, kept, tuple(sorted(waits_for)), min(wakes, default=None))


def _followed(record: YieldRecord, there: Collection[str], *, waits: bool, now: float) -> YieldRecord:
    """Return the record of a pod without a node after an observation. `waits`: only GPUs are missing."""
    if not record.given:
        return record
    if waits and not record.given.isdisjoint(there):
        return replace(record, freed_at=None)
    freed_at = now if record.freed_at is None else record.freed_at
    if waits and now - freed_at < HOLD:
        return replace(record, freed_at=freed_at)
    failures = record.failures + 1
    pause = backoff_pause(failures, FIRST_PAUSE, LONGEST_PAUSE)
    return YieldRecord(record.pod, failures=failures, retry_at=now + pause)


class _Market:
    """The GPUs that no pod has been promised yet in this decision."""

    def __init__(self, supply: GpuSupply, given: Collection[str]) -> None:
        self.held = [one for one in supply.held if one.uid not in given]
        self.free = dict(supply.free)
        self.leaving: dict[str, int] = {}
        for uid, node in supply.leaving.items():
            if uid not in given:
                self.leaving[node] = self.leaving.get(node, 0) + 1

    def has_enough(self, pod: WaitingPod) -> bool:
        """Return whether a node has enough free GPUs for the pod."""
        return any(self.free.get(node, 0) >= pod.gpus for node in pod.nodes)

    def offer(self, pod: WaitingPod, *, usable: bool) -> tuple[str | None, Sequence[HeldGpu]]:
        """Return the node for the pod, and the reservations whose GPUs it lacks there; None if none has enough.

        Of several nodes, the one where the fewest reservations end, then the one where their trials lose least.
        `usable`: whether the pod can use free GPUs.
        """
        options = []
        for node in pod.nodes:
            there = [one for one in self.held if one.node == node and one.priority < pod.priority]
            soon = self.leaving.get(node, 0) + (max(0, self.free.get(node, 0)) if usable else 0)
            lacking = max(0, pod.gpus - soon)
            if lacking <= len(there):
                cheapest = sorted(there, key=lambda one: (one.loss, one.uid))[:lacking]
                loss = tuple(map(sum, zip(*(one.loss for one in cheapest), strict=True)))
                options.append((lacking, loss, node, cheapest))
        if not options:
            return None, ()
        _, _, node, cheapest = min(options, key=lambda option: option[:3])
        return node, cheapest

    def take(self, node: str, gpus: int, reservations: Collection[HeldGpu]) -> None:
        """Take GPUs that are free or about to be, and reservations that are given up, off the market."""
        soon = min(gpus, self.leaving.get(node, 0))
        self.leaving[node] = self.leaving.get(node, 0) - soon
        self.free[node] = self.free.get(node, 0) - (gpus - soon)
        self.held = [one for one in self.held if one not in reservations]
