"""Who holds each GPU and who follows: one global order of all trials, restricted to the trials that have a share of
each GPU.

One global order means that a trial with several GPUs has a consistent place on all of them: nobody waits in a
circle. First come the trials that hold or take all of their GPUs now, then the rest by rank, last those whose pod is
not at its gate yet: a GPU neither waits for an image nor is protected for it. Suspended trials are left out: not in the
order = not to hold a GPU. So are trials on a GPU that no lease holds any more, and those whose pod is told to go: the
agent lets them end before it lets another in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from podium_core.domain.actions import TrialRank, WriteRunQueues
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.eta import typical_pace
from podium_core.planning.ranking import Standing
from podium_core.planning.switching import CurrentHolder, Verdict, job_time_slice, judge_switch, time_slice_of
from podium_core.policies.base import STARVED, Admission


@dataclass(frozen=True, slots=True)
class RunQueuePlan:
    run_queues: tuple[WriteRunQueues, ...]
    rank_of: Callable[
        [TrialKey], TrialRank | None
    ]  # what was decided for a trial that has a GPU; made when it is asked for
    claims: frozenset[TrialKey]  # those that are to hold their GPUs now
    wake_at: float | None


def plan_run_queues(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> RunQueuePlan:
    """O(n log n) over the places of trials on GPUs."""
    gpus = {gpu.uuid: gpu for gpu in sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))}
    eligible, uuids = _eligible(gpus, standings)
    ready = frozenset(
        [k for k, s in eligible.items() if s.trial.phase is not TrialPhase.PENDING or _holds(k, uuids[k], gpus)]
    )
    base = list(eligible.values())
    if len(snapshot.jobs) > 1 or any(s.trial.pinned for s in base):  # else they are in the order of rank
        base.sort(key=_base_key)
    if len(ready) < len(base):
        base.sort(key=lambda s: s.trial.key not in ready)  # a stable sort: by rank within either
    choice = _Choice(snapshot, gpus, eligible, uuids, ready, _Paces(snapshot.trials_by_job))
    choice.run(base)
    wanted: dict[str, list[TrialKey]] = {uuid: [] for uuid in gpus}
    behind: list[TrialKey] = []
    claims = choice.claims
    for standing in base:
        key = standing.trial.key
        if key in claims:
            for uuid in uuids[key]:
                wanted[uuid].append(key)
        else:
            behind.append(key)
    for key in behind:
        for uuid in uuids[key]:
            wanted[uuid].append(key)
    return RunQueuePlan(_orders(snapshot, gpus, wanted, choice), choice.place, frozenset(choice.claims), choice.wake_at)


def _base_key(standing: Standing) -> tuple[bool, int, float, JobKey]:
    """Jobs mixed rank by rank, the older job first among equals."""
    trial, job, _, ranked = standing
    return (not trial.pinned, ranked.rank, job.created, job.key)


def _eligible(
    gpus: Mapping[str, GpuView], standings: Mapping[TrialKey, Standing]
) -> tuple[dict[TrialKey, Standing], dict[TrialKey, tuple[str, ...]]]:
    """Who may be in an order, and the GPUs of each."""
    eligible: dict[TrialKey, Standing] = {}
    uuids: dict[TrialKey, tuple[str, ...]] = {}
    lost = {uuid for uuid, gpu in gpus.items() if gpu.reservation_ended}
    for key, standing in standings.items():
        trial = standing.trial
        if trial.pod is None or trial.terminating or trial.suspend or standing.job.suspended:
            continue
        if standing.ranked.admission is Admission.WAIT and standing.paused:
            continue
        mine = trial.gpus
        if len(mine) != 1 or mine[0] not in gpus:  # most trials have one, that is there
            mine = tuple([uuid for uuid in mine if uuid in gpus])
        if mine and (not lost or lost.isdisjoint(mine)):
            eligible[key] = standing
            uuids[key] = mine
    return eligible, uuids


def _holds(key: TrialKey, uuids: tuple[str, ...], gpus: Mapping[str, GpuView]) -> bool:
    """A holder in fact works, whatever its pod shows yet."""
    return any(gpus[uuid].holder == key for uuid in uuids)


def _orders(
    snapshot: Snapshot, gpus: Mapping[str, GpuView], wanted: Mapping[str, Sequence[TrialKey]], choice: _Choice
) -> tuple[WriteRunQueues, ...]:
    """One write for each node of which some GPU's sequence of trials differs from the one in force."""
    nodes: dict[str, list[str]] = {}
    for uuid, gpu in gpus.items():
        nodes.setdefault(gpu.node, []).append(uuid)
    orders: list[WriteRunQueues] = []
    for node, mine in sorted(nodes.items()):
        if any(tuple(wanted[uuid]) != gpus[uuid].run_queue for uuid in mine):
            epoch = snapshot.epochs.get(node, 0) + 1
            told = tuple((uuid, tuple(choice.places(wanted[uuid]))) for uuid in sorted(mine))
            over = tuple([uuid for uuid in sorted(mine) if choice.takes(uuid, wanted[uuid])])
            orders.append(WriteRunQueues(node, epoch, told, over))
    return tuple(orders)


class _Paces:
    """The usual pace of each job, looked up where it is asked for. On its own, since sentences made later keep it:
    a choice that they kept would be kept by them in turn, and only a collection of garbage would free the plan.
    """

    def __init__(self, of_job: Mapping[JobKey, Sequence[TrialView]]) -> None:
        self._of_job = of_job
        self._known: dict[JobKey, float | None] = {}

    def of(self, job: JobView) -> float | None:
        if job.key not in self._known:
            self._known[job.key] = typical_pace(job, self._of_job.get(job.key, ()))
        return self._known[job.key]


@dataclass(slots=True)
class _Choice:
    """The working state of one decision: who takes which GPU, and with which reason."""

    snapshot: Snapshot
    gpus: Mapping[str, GpuView]
    eligible: Mapping[TrialKey, Standing]
    uuids: Mapping[TrialKey, tuple[str, ...]]
    ready: frozenset[TrialKey]
    paces: _Paces
    claims: set[TrialKey] = field(default_factory=set)
    wake_at: float | None = None
    _owner: dict[str, Standing] = field(default_factory=dict)
    _incumbents: dict[str, CurrentHolder] = field(default_factory=dict)
    _held: dict[JobKey, int] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)  # GPUs on which another job only waits for the end of a turn
    _why: dict[TrialKey, tuple[str, Callable[[], str]]] = field(default_factory=dict)  # a sentence is made when asked

    def run(self, base: Sequence[Standing]) -> None:
        """Each trial tries in turn, those of the jobs that hold the fewest GPUs first: else an older job never gave
        way. `base`: all by readiness and rank.
        """
        self._find_incumbents()
        held = dict(self._held)
        owner, uuids, ready, in_order = self._owner, self.uuids, self.ready, base
        if len(self.snapshot.jobs) > 1:  # a stable sort: by rank within each
            in_order = sorted(
                base,
                key=lambda s: (
                    s.trial.key not in ready,
                    not s.trial.pinned,
                    s.ranked.level != STARVED,
                    held.get(s.job.key, 0),
                ),
            )
        for standing in in_order:
            mine = uuids[standing.trial.key]
            if mine[0] not in owner and (len(mine) == 1 or owner.keys().isdisjoint(mine)):
                self._try(standing, mine)
                if len(owner) == len(self.gpus):
                    break
        if len(owner) < len(self.gpus):  # what a hand-over of several GPUs left free
            for standing in in_order:
                if standing.trial.key not in self.claims and owner.keys().isdisjoint(self._uuids(standing)):
                    self._claim(standing, "FreeGPU", _takes_free)

    def place(self, key: TrialKey) -> TrialRank | None:
        standing = self.eligible.get(key)
        if standing is None:
            return None
        reason, say = self._why.get(key) or self._behind(standing)
        rank = standing.ranked
        return TrialRank(key, rank.rank, reason, f"{rank.message} It {say()}")

    def places(self, keys: Iterable[TrialKey]) -> Iterator[TrialRank]:
        return (place for key in keys if (place := self.place(key)) is not None)

    def _uuids(self, standing: Standing) -> tuple[str, ...]:
        return self.uuids[standing.trial.key]

    def _find_incumbents(self) -> None:
        """The first of the order in force who can work, on all of its GPUs; where no order says it, the holder in fact.

        The order goes first because the agent may not have carried it out yet: else each plan until then would
        decide anew. Two holders keep their turn against it, as against any rival. One that cannot be frozen goes by no
        order: it is asked to leave, and is no holder then. And where the order is in effect, or known to the agent and
        to throw nobody out, one that works though it is not the first was let in because those before it were not at
        their gates. Now that one of them is, the first place was given when nobody could say who would be there first,
        and is no reason to throw the holder out. Of an order that is on its way the agent may make anything yet.
        """
        first = {uuid: self._first(gpu) for uuid, gpu in self.gpus.items()}
        for uuid, gpu in self.gpus.items():
            leader = first[uuid]
            if leader is not None and any(first[u] is not leader for u in self._uuids(leader)):
                leader = None
            holder = self._present(gpu.holder, uuid)
            if leader is None or (holder is not None and holder is not leader and self._keeps_its_turn(holder)):
                leader = holder
            if leader is None:
                continue
            since = gpu.holder_since if gpu.holder == leader.trial.key else None
            held_for = 0.0 if since is None else max(0.0, self.snapshot.now - since)
            self._incumbents[uuid] = CurrentHolder(leader, held_for)
            self._held[leader.job.key] = self._held.get(leader.job.key, 0) + 1

    def _keeps_its_turn(self, holder: Standing) -> bool:
        """Whether it holds all of its GPUs, and no order that is still to be carried out takes them from it."""
        mine = [self.gpus[uuid] for uuid in self._uuids(holder)]
        if any(gpu.holder != holder.trial.key for gpu in mine):
            return False
        if not holder.job.suspendable:
            return True
        return holder.trial.phase is TrialPhase.RUNNING and all(gpu.in_effect or gpu.no_preemption for gpu in mine)

    def takes(self, uuid: str, wanted: Sequence[TrialKey]) -> bool:
        """Whether the first of `wanted` is to have this GPU instead of one that works on it."""
        holder = self._present(self.gpus[uuid].holder, uuid)
        return holder is not None and bool(wanted) and wanted[0] != holder.trial.key

    def _first(self, gpu: GpuView) -> Standing | None:
        for key in gpu.run_queue:
            if (standing := self._present(key, gpu.uuid)) is not None:
                return standing
        return None

    def _present(self, key: TrialKey | None, uuid: str) -> Standing | None:
        if key is None or key not in self.ready:
            return None
        standing = self.eligible[key]
        return standing if uuid in standing.trial.gpus else None

    def _try(self, standing: Standing, uuids: tuple[str, ...]) -> None:
        """Take all GPUs of this trial, none of which has been claimed yet, if they are free, its own already, or worth
        taking from each of their holders.
        """
        incumbents = self._incumbents
        there = [incumbents[u] for u in uuids if u in incumbents]
        rivals = [incumbent for incumbent in there if incumbent.standing is not standing]
        if not rivals:
            if there:
                self._claim(standing, "GPURetained", _keeps)
            else:
                self._claim(standing, "FreeGPU", _takes_free)
            return
        verdicts = [self._judge(standing, incumbent) for incumbent in rivals]
        refusal = next((verdict for verdict in verdicts if not verdict.switch), None)
        if refusal is not None:
            holder = rivals[verdicts.index(refusal)].standing
            why = refusal.say
            self._why.setdefault(
                standing.trial.key,
                (refusal.reason, lambda: f"waits for {holder.name} (rank {holder.ranked.rank}): {why()}"),
            )
            return
        names = ", ".join(sorted({incumbent.standing.name for incumbent in rivals}))
        self._claim(standing, verdicts[0].reason, lambda: f"takes the GPU from {names}: {verdicts[0].message}")
        self._hand_over(standing, rivals)

    def _judge(self, rival: Standing, incumbent: CurrentHolder) -> Verdict:
        verdict = judge_switch(rival, incumbent, self.snapshot.costs, self._held, partial(self.paces.of, rival.job))
        same = rival.job.key == incumbent.standing.job.key
        if verdict.switch and same and not self._asked.isdisjoint(self._uuids(incumbent.standing)):
            # a job whose trials take turns shorter than those between jobs would never give a GPU up
            return Verdict(False, "OtherJobNext", lambda: "another job has the GPU after this turn.")
        if verdict.protected:
            if not same:
                self._asked.update(self._uuids(incumbent.standing))
            turn = (time_slice_of if same else job_time_slice)(incumbent, self.snapshot.costs)
            wake = self.snapshot.now + turn - incumbent.held_for
            self.wake_at = wake if self.wake_at is None else min(self.wake_at, wake)
        return verdict

    def _claim(self, standing: Standing, reason: str, say: Callable[[], str]) -> None:
        self.claims.add(standing.trial.key)
        self._why[standing.trial.key] = (reason, say)
        for uuid in self._uuids(standing):
            self._owner[uuid] = standing

    def _hand_over(self, winner: Standing, losers: Iterable[CurrentHolder]) -> None:
        for loser in losers:
            key = loser.standing.job.key
            self._held[key] = self._held.get(key, 0) - 1
            self._held[winner.job.key] = self._held.get(winner.job.key, 0) + 1
            self._why.setdefault(
                loser.standing.trial.key,
                ("GPUPreempted", lambda: f"gives its GPU to {winner.name} (rank {winner.ranked.rank})."),
            )

    def _behind(self, standing: Standing) -> tuple[str, Callable[[], str]]:
        owners = [self._owner[u] for u in self._uuids(standing) if u in self._owner]
        if not owners:
            return "WaitingForAllGPUs", lambda: "waits until all of its GPUs are free."
        return "WaitingForHolder", lambda: f"waits for {owners[0].name} (rank {owners[0].ranked.rank})."


def _keeps() -> str:
    return "keeps its GPU."


def _takes_free() -> str:
    return "takes a free GPU."
