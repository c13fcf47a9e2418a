"""Who holds each GPU and who follows: one global order of all trials, restricted to the trials that have a share of
each GPU.

One global order means that a trial with several GPUs has a consistent place on all of them: nobody waits in a
circle. First come the trials that hold or take all of their GPUs now, then the rest by rank, last those whose pod is
not at its gate yet: a GPU neither waits for an image nor is protected for it. Suspended trials are left out: not in the
order = not to hold a GPU. So are trials on a GPU that no lease holds any more, and those whose pod is told to go: the
agent lets them end before it lets another in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podium.domain.actions import Order, Place
from podium.domain.phase import TrialPhase
from podium.domain.snapshot import GpuView, JobKey, Snapshot, TrialKey
from podium.planning.eta import typical_pace
from podium.planning.ranking import Standing
from podium.planning.switching import Incumbent, Verdict, job_turn, judge, turn_of


@dataclass(frozen=True, slots=True)
class Ordering:
    orders: tuple[Order, ...]
    places: Mapping[TrialKey, Place]  # what was decided for each trial that has a GPU
    claims: frozenset[TrialKey]  # those that are to hold their GPUs now
    wake_at: float | None


def order(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> Ordering:
    """O(n log n) over the places of trials on GPUs."""
    gpus = {gpu.uuid: gpu for gpu in sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))}
    eligible = _eligible(gpus, standings)
    ready = frozenset(key for key, s in eligible.items() if _ready(s, gpus))
    base = sorted(eligible.values(), key=lambda s: (s.trial.key not in ready, *_base_key(s)))
    choice = _Choice(snapshot, gpus, eligible, ready)
    choice.run()
    claimed = [s for s in base if s.trial.key in choice.claims]
    waiting = [s for s in base if s.trial.key not in choice.claims]
    sequence = [*claimed, *waiting]
    places = {s.trial.key: choice.place(s) for s in sequence}
    wanted: dict[str, tuple[Place, ...]] = dict.fromkeys(gpus, ())
    for standing in sequence:
        for uuid in _gpus_of(standing, gpus):
            wanted[uuid] += (places[standing.trial.key],)
    return Ordering(_orders(snapshot, gpus, wanted), places, frozenset(choice.claims), choice.wake_at)


def _base_key(standing: Standing) -> tuple[bool, int, float, JobKey]:
    """Jobs mixed rank by rank, the older job first among equals."""
    return (not standing.trial.pinned, standing.ranked.rank, standing.job.created, standing.job.key)


def _gpus_of(standing: Standing, gpus: Mapping[str, GpuView]) -> tuple[str, ...]:
    uuids = standing.trial.gpus
    if len(uuids) == 1:  # most trials: a plan asks this a dozen times for each
        return uuids if uuids[0] in gpus else ()
    return tuple([uuid for uuid in uuids if uuid in gpus])


def _eligible(gpus: Mapping[str, GpuView], standings: Mapping[TrialKey, Standing]) -> dict[TrialKey, Standing]:
    return {
        key: s
        for key, s in standings.items()
        if s.trial.pod is not None
        and not s.trial.leaving
        and not s.trial.suspend
        and not s.waits
        and not s.job.suspended
        and (mine := _gpus_of(s, gpus))
        and not any(gpus[uuid].lost for uuid in mine)
    }


def _ready(standing: Standing, gpus: Mapping[str, GpuView]) -> bool:
    """Whether it could work now. A holder in fact does, whatever its pod shows yet."""
    trial = standing.trial
    return trial.phase is not TrialPhase.PENDING or any(gpus[u].holder == trial.key for u in _gpus_of(standing, gpus))


def _orders(
    snapshot: Snapshot, gpus: Mapping[str, GpuView], wanted: Mapping[str, tuple[Place, ...]]
) -> tuple[Order, ...]:
    """One write for each node of which some GPU's sequence of trials differs from the one in force."""
    nodes: dict[str, list[str]] = {}
    for uuid, gpu in gpus.items():
        nodes.setdefault(gpu.node, []).append(uuid)
    orders: list[Order] = []
    for node, mine in sorted(nodes.items()):
        if any(tuple(p.trial for p in wanted[uuid]) != gpus[uuid].order for uuid in mine):
            epoch = snapshot.epochs.get(node, 0) + 1
            orders.append(Order(node, epoch, tuple((uuid, wanted[uuid]) for uuid in sorted(mine))))
    return tuple(orders)


@dataclass(slots=True)
class _Choice:
    """The working state of one decision: who takes which GPU, and with which reason."""

    snapshot: Snapshot
    gpus: Mapping[str, GpuView]
    eligible: Mapping[TrialKey, Standing]
    ready: frozenset[TrialKey]
    claims: set[TrialKey] = field(default_factory=set)
    wake_at: float | None = None
    _owner: dict[str, Standing] = field(default_factory=dict)
    _incumbents: dict[str, Incumbent] = field(default_factory=dict)
    _held: dict[JobKey, int] = field(default_factory=dict)
    _why: dict[TrialKey, tuple[str, str]] = field(default_factory=dict)
    _pace: dict[JobKey, float | None] = field(default_factory=dict)

    def run(self) -> None:
        """Each trial tries in turn, those of the jobs that hold the fewest GPUs first: else an older job never gave
        way.
        """
        self._find_incumbents()
        held = dict(self._held)
        in_order = sorted(
            self.eligible.values(),
            key=lambda s: (s.trial.key not in self.ready, not s.trial.pinned, held.get(s.job.key, 0), *_base_key(s)),
        )
        for standing in in_order:
            self._try(standing)
        for standing in in_order:  # what a hand-over of several GPUs left free
            if standing.trial.key not in self.claims and all(u not in self._owner for u in self._uuids(standing)):
                self._claim(standing, "FreeGpu", "takes a free GPU.")

    def place(self, standing: Standing) -> Place:
        reason, text = self._why.get(standing.trial.key) or self._behind(standing)
        rank = standing.ranked
        return Place(standing.trial.key, rank.rank, reason, f"{rank.message} It {text}")

    def _uuids(self, standing: Standing) -> tuple[str, ...]:
        return _gpus_of(standing, self.gpus)

    def _find_incumbents(self) -> None:
        """The first of the order in force who can work, on all of its GPUs; where no order says it, the holder in fact.

        The order goes first because the agent may not have carried it out yet: else each plan until then would
        decide anew.
        """
        first = {uuid: self._first(gpu) for uuid, gpu in self.gpus.items()}
        for uuid, gpu in self.gpus.items():
            leader = first[uuid]
            if leader is not None and any(first[u] is not leader for u in self._uuids(leader)):
                leader = None
            if leader is None:
                leader = self._present(gpu.holder, uuid)
            if leader is None:
                continue
            since = gpu.holder_since if gpu.holder == leader.trial.key else None
            held_for = 0.0 if since is None else max(0.0, self.snapshot.now - since)
            self._incumbents[uuid] = Incumbent(leader, held_for)
            self._held[leader.job.key] = self._held.get(leader.job.key, 0) + 1

    def _first(self, gpu: GpuView) -> Standing | None:
        found = (self._present(key, gpu.uuid) for key in gpu.order)
        return next((standing for standing in found if standing is not None), None)

    def _present(self, key: TrialKey | None, uuid: str) -> Standing | None:
        standing = self.eligible.get(key) if key in self.ready and key is not None else None
        return standing if standing is not None and uuid in standing.trial.gpus else None

    def _try(self, standing: Standing) -> None:
        """Take all GPUs of this trial if they are free, its own already, or worth taking from each of their holders."""
        uuids = self._uuids(standing)
        if any(uuid in self._owner for uuid in uuids):
            return
        rivals = [self._incumbents[u] for u in uuids if u in self._incumbents]
        rivals = [incumbent for incumbent in rivals if incumbent.standing is not standing]
        if not rivals:
            own = any(u in self._incumbents for u in uuids)
            if own:
                self._claim(standing, "KeepsGpu", "keeps its GPU.")
            else:
                self._claim(standing, "FreeGpu", "takes a free GPU.")
            return
        verdicts = [self._judge(standing, incumbent) for incumbent in rivals]
        refusal = next((verdict for verdict in verdicts if not verdict.switch), None)
        if refusal is not None:
            holder = rivals[verdicts.index(refusal)].standing
            text = f"waits for {holder.name} (rank {holder.ranked.rank}): {refusal.message}"
            self._why.setdefault(standing.trial.key, (refusal.reason, text))
            return
        names = ", ".join(sorted({incumbent.standing.name for incumbent in rivals}))
        self._claim(standing, verdicts[0].reason, f"takes the GPU from {names}: {verdicts[0].message}")
        self._hand_over(standing, rivals)

    def _judge(self, rival: Standing, incumbent: Incumbent) -> Verdict:
        if rival.job.key not in self._pace:
            mine = [t for t in self.snapshot.trials if t.job == rival.job.key]
            self._pace[rival.job.key] = typical_pace(rival.job, mine)
        verdict = judge(rival, incumbent, self.snapshot.costs, self._held, self._pace[rival.job.key])
        if verdict.protected:
            same = rival.job.key == incumbent.standing.job.key
            turn = (turn_of if same else job_turn)(incumbent, self.snapshot.costs)
            wake = self.snapshot.now + turn - incumbent.held_for
            self.wake_at = wake if self.wake_at is None else min(self.wake_at, wake)
        return verdict

    def _claim(self, standing: Standing, reason: str, text: str) -> None:
        self.claims.add(standing.trial.key)
        self._why[standing.trial.key] = (reason, text)
        for uuid in self._uuids(standing):
            self._owner[uuid] = standing

    def _hand_over(self, winner: Standing, losers: Iterable[Incumbent]) -> None:
        for loser in losers:
            key = loser.standing.job.key
            self._held[key] = self._held.get(key, 0) - 1
            self._held[winner.job.key] = self._held.get(winner.job.key, 0) + 1
            text = f"gives its GPU to {winner.name} (rank {winner.ranked.rank})."
            self._why.setdefault(loser.standing.trial.key, ("GivesWay", text))

    def _behind(self, standing: Standing) -> tuple[str, str]:
        owners = [self._owner[u] for u in self._uuids(standing) if u in self._owner]
        if not owners:
            return "WaitsForAllGpus", "waits until all of its GPUs are free."
        return "WaitsForTurn", f"waits for {owners[0].name} (rank {owners[0].ranked.rank})."
