"""Run queues: the holder of each GPU and the trials that follow.

There is one global order of all trials; the run queue of a GPU is its restriction to the trials with a slot there. So a
trial with several GPUs has a consistent position on all of them, and no trials wait for each other in a circle. Trials
that hold or take all of their GPUs now come first, then the others by rank. Trials whose pod is not at its gate yet
come last: a GPU neither waits for an image pull nor is protected for it.

A suspended trial is not in a run queue, and so holds no GPU. The same is true for trials on a GPU without a reservation
and for terminating pods, which the agent lets end before it admits another trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from podium_core.domain.actions import TrialRank, WriteRunQueues
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.eta import typical_pace
from podium_core.planning.ranking import Standing
from podium_core.planning.switching import CurrentHolder, Verdict, job_time_slice, judge_switch, time_slice_of
from podium_core.policies.base import STARVED, Admission


@dataclass(frozen=True, slots=True)
class RunQueuePlan:
    """Run queues of one cycle."""

    run_queues: tuple[WriteRunQueues, ...]
    rank_of: Callable[[TrialKey], TrialRank | None]  # rank and reason of a trial that has a GPU, built on request
    claims: frozenset[TrialKey]  # trials that are to hold their GPUs now
    wake_at: float | None


def plan_run_queues(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> RunQueuePlan:
    """Return the run queues. O(n log n) in the number of slots in use."""
    gpus = {gpu.uuid: gpu for gpu in sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))}
    eligible, uuids = _eligible(gpus, standings)
    ready = frozenset(
        [k for k, s in eligible.items() if s.trial.phase is not TrialPhase.PENDING or _holds(k, uuids[k], gpus)]
    )
    base = list(eligible.values())
    if len(snapshot.jobs) > 1 or any(s.trial.intent.pinned for s in base):  # else they are ordered by rank already
        base.sort(key=_base_key)
    if len(ready) < len(base):
        base.sort(key=lambda s: s.trial.key not in ready)  # a stable sort: by rank within both parts
    choice = _Choice(snapshot, gpus, eligible, uuids, ready, _Paces(snapshot.trials_by_job))
    choice.run(base)
    wanted: dict[str, list[TrialKey]] = {uuid: [] for uuid in gpus}
    waiting: list[TrialKey] = []
    claims = choice.claims
    for standing in base:
        key = standing.trial.key
        if key in claims:
            for uuid in uuids[key]:
                wanted[uuid].append(key)
        else:
            waiting.append(key)
    for key in waiting:
        for uuid in uuids[key]:
            wanted[uuid].append(key)
    return RunQueuePlan(
        _writes(snapshot, gpus, wanted, choice), choice.rank_of, frozenset(choice.claims), choice.wake_at
    )


def _base_key(standing: Standing) -> tuple[bool, int, float, JobKey]:
    """Return the sort key: jobs are mixed rank by rank, and the older job comes first at equal ranks."""
    trial, job, _, ranked = standing
    return (not trial.intent.pinned, ranked.rank, job.created, job.key)


def _eligible(
    gpus: Mapping[str, GpuView], standings: Mapping[TrialKey, Standing]
) -> tuple[dict[TrialKey, Standing], dict[TrialKey, tuple[str, ...]]]:
    """Return the trials that may be in a run queue, and the GPUs of each."""
    eligible: dict[TrialKey, Standing] = {}
    uuids: dict[TrialKey, tuple[str, ...]] = {}
    unreserved = {uuid for uuid, gpu in gpus.items() if gpu.reservation_ended}
    for key, standing in standings.items():
        trial = standing.trial
        pod = trial.pod
        if pod is None or pod.terminating or trial.intent.suspend or standing.job.state.suspended:
            continue
        if standing.ranked.admission is Admission.WAIT and standing.paused:
            continue
        mine = pod.gpus
        if len(mine) != 1 or mine[0] not in gpus:  # most trials have one, which exists
            mine = tuple([uuid for uuid in mine if uuid in gpus])
        if mine and (not unreserved or unreserved.isdisjoint(mine)):
            eligible[key] = standing
            uuids[key] = mine
    return eligible, uuids


def _holds(key: TrialKey, uuids: tuple[str, ...], gpus: Mapping[str, GpuView]) -> bool:
    """Return whether the trial holds a GPU, whatever its pod reports yet."""
    return any(gpus[uuid].holder == key for uuid in uuids)


def _writes(
    snapshot: Snapshot, gpus: Mapping[str, GpuView], wanted: Mapping[str, Sequence[TrialKey]], choice: _Choice
) -> tuple[WriteRunQueues, ...]:
    """Return one write for each node on which the run queue of some GPU changes."""
    nodes: dict[str, list[str]] = {}
    for uuid, gpu in gpus.items():
        nodes.setdefault(gpu.node, []).append(uuid)
    writes: list[WriteRunQueues] = []
    for node, mine in sorted(nodes.items()):
        if any(tuple(wanted[uuid]) != gpus[uuid].run_queue.trials for uuid in mine):
            epoch = snapshot.epochs.get(node, 0) + 1
            queues = tuple((uuid, tuple(choice.ranks_of(wanted[uuid]))) for uuid in sorted(mine))
            preempting = tuple([uuid for uuid in sorted(mine) if choice.takes(uuid, wanted[uuid])])
            writes.append(WriteRunQueues(node, epoch, queues, preempting))
    return tuple(writes)


class _Why(NamedTuple):
    """Reason for the position of a trial. `say` builds the sentence: a plan compares many trials and shows few."""

    reason: str
    say: Callable[[], str]
    gain: float | None = None


class _Paces:
    """The typical pace of each job, computed on request.

    It is a class of its own, since sentences that are built later refer to it. A reference to the choice would form a
    cycle, and only the garbage collector would free the plan.
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
    """Working state of one decision: which trial gets which GPU, and why."""

    snapshot: Snapshot
    gpus: Mapping[str, GpuView]
    eligible: Mapping[TrialKey, Standing]
    uuids: Mapping[TrialKey, tuple[str, ...]]
    ready: frozenset[TrialKey]
    paces: _Paces
    claims: set[TrialKey] = field(default_factory=set)
    wake_at: float | None = None
    _owner: dict[str, Standing] = field(default_factory=dict)
    _holders: dict[str, CurrentHolder] = field(default_factory=dict)
    _held: dict[JobKey, int] = field(default_factory=dict)
    _awaited: set[str] = field(default_factory=set)  # GPUs for which another job waits until the end of a time slice
    _why: dict[TrialKey, _Why] = field(default_factory=dict)

    def run(self, base: Sequence[Standing]) -> None:
        """Let each trial try to get its GPUs, those of the jobs with the fewest GPUs first.

        Otherwise an older job would never give up a GPU. `base`: all trials by readiness and rank.
        """
        self._find_holders()
        held = dict(self._held)
        owner, uuids, ready, candidates = self._owner, self.uuids, self.ready, base
        if len(self.snapshot.jobs) > 1:  # a stable sort: by rank within each
            candidates = sorted(
                base,
                key=lambda s: (
                    s.trial.key not in ready,
                    not s.trial.intent.pinned,
                    s.ranked.level != STARVED,
                    held.get(s.job.key, 0),
                ),
            )
        for standing in candidates:
            mine = uuids[standing.trial.key]
            if mine[0] not in owner and (len(mine) == 1 or owner.keys().isdisjoint(mine)):
                self._try(standing, mine)
                if len(owner) == len(self.gpus):
                    break
        if len(owner) < len(self.gpus):  # GPUs that a switch of several GPUs left free
            for standing in candidates:
                if standing.trial.key not in self.claims and owner.keys().isdisjoint(self._uuids(standing)):
                    self._claim(standing, _FREE_GPU)

    def rank_of(self, key: TrialKey) -> TrialRank | None:
        standing = self.eligible.get(key)
        if standing is None:
            return None
        why, rank = self._why.get(key) or self._behind(standing), standing.ranked
        return TrialRank(key, rank.rank, why.reason, f"{rank.message} It {why.say()}", why.gain)

    def ranks_of(self, keys: Iterable[TrialKey]) -> Iterator[TrialRank]:
        return (rank for key in keys if (rank := self.rank_of(key)) is not None)

    def _uuids(self, standing: Standing) -> tuple[str, ...]:
        return self.uuids[standing.trial.key]

    def _find_holders(self) -> None:
        """Find the current holder of each GPU.

        It is the first trial of the present run queue that can run on all of its GPUs, else the reported holder. The
        run queue takes precedence because the agent may not have carried it out yet; otherwise each plan until then
        would decide again. Two kinds of holder keep their time slice nevertheless, as against any rival:

        - A holder that cannot be suspended. The run queue does not control it: it is requeued, and then holds nothing.
        - A running holder that is not first, if the agent has carried out the run queue, or knows it and it preempts no
          trial. It was admitted because the trials before it were not at their gates. Their position was decided before
          that was known, so it is not a reason to preempt the holder. The effect of a run queue that the agent does not
          know yet is open.
        """
        first = {uuid: self._first(gpu) for uuid, gpu in self.gpus.items()}
        for uuid, gpu in self.gpus.items():
            leader = first[uuid]
            if leader is not None and any(first[u] is not leader for u in self._uuids(leader)):
                leader = None
            holder = self._present(gpu.holder, uuid)
            if leader is None or (holder is not None and holder is not leader and self._keeps_time_slice(holder)):
                leader = holder
            if leader is None:
                continue
            since = gpu.holder_since if gpu.holder == leader.trial.key else None
            held_for = 0.0 if since is None else max(0.0, self.snapshot.now - since)
            self._holders[uuid] = CurrentHolder(leader, held_for)
            self._held[leader.job.key] = self._held.get(leader.job.key, 0) + 1

    def _keeps_time_slice(self, holder: Standing) -> bool:
        """Return whether the trial holds all of its GPUs, and no pending run queue takes them from it."""
        mine = [self.gpus[uuid] for uuid in self._uuids(holder)]
        if any(gpu.holder != holder.trial.key for gpu in mine):
            return False
        if not holder.job.abilities.suspendable:
            return True
        queues = [gpu.run_queue for gpu in mine]
        return holder.trial.phase is TrialPhase.RUNNING and all(q.in_effect or q.no_preemption for q in queues)

    def takes(self, uuid: str, wanted: Sequence[TrialKey]) -> bool:
        """Return whether the first of `wanted` takes this GPU from its holder."""
        holder = self._present(self.gpus[uuid].holder, uuid)
        return holder is not None and bool(wanted) and wanted[0] != holder.trial.key

    def _first(self, gpu: GpuView) -> Standing | None:
        for key in gpu.run_queue.trials:
            if (standing := self._present(key, gpu.uuid)) is not None:
                return standing
        return None

    def _present(self, key: TrialKey | None, uuid: str) -> Standing | None:
        if key is None or key not in self.ready:
            return None
        standing = self.eligible[key]
        return standing if uuid in standing.trial.gpus else None

    def _try(self, standing: Standing, uuids: tuple[str, ...]) -> None:
        """Claim all GPUs of this trial, which are unclaimed, if it may have them.

        They must be free, its own already, or worth taking from each of their holders.
        """
        holders = self._holders
        there = [holders[u] for u in uuids if u in holders]
        rivals = [current for current in there if current.standing is not standing]
        if not rivals:
            if there:
                self._claim(standing, _GPU_RETAINED)
            else:
                self._claim(standing, _FREE_GPU)
            return
        verdicts = [self._judge(standing, current) for current in rivals]
        refusal = next((verdict for verdict in verdicts if not verdict.switch), None)
        if refusal is not None:
            holder = rivals[verdicts.index(refusal)].standing
            why = refusal.say
            self._why.setdefault(
                standing.trial.key,
                _Why(refusal.reason, lambda: f"waits for {holder.name} (rank {holder.ranked.rank}): {why()}"),
            )
            return
        names = ", ".join(sorted({current.standing.name for current in rivals}))
        first = verdicts[0]
        self._claim(standing, _Why(first.reason, lambda: f"takes the GPU from {names}: {first.message}", first.gain))
        self._switch(standing, rivals)

    def _judge(self, rival: Standing, current: CurrentHolder) -> Verdict:
        verdict = judge_switch(rival, current, self.snapshot.costs, self._held, partial(self.paces.of, rival.job))
        same = rival.job.key == current.standing.job.key
        if verdict.switch and same and not self._awaited.isdisjoint(self._uuids(current.standing)):
            # A job whose time slices are shorter than those between jobs would never give up a GPU.
            return Verdict(False, "OtherJobNext", lambda: "another job has the GPU after this time slice.")
        if verdict.protected:
            if not same:
                self._awaited.update(self._uuids(current.standing))
            time_slice = (time_slice_of if same else job_time_slice)(current, self.snapshot.costs)
            wake = self.snapshot.now + time_slice - current.held_for
            self.wake_at = wake if self.wake_at is None else min(self.wake_at, wake)
        return verdict

    def _claim(self, standing: Standing, why: _Why) -> None:
        self.claims.add(standing.trial.key)
        self._why[standing.trial.key] = why
        for uuid in self._uuids(standing):
            self._owner[uuid] = standing

    def _switch(self, winner: Standing, losers: Iterable[CurrentHolder]) -> None:
        for loser in losers:
            key = loser.standing.job.key
            self._held[key] = self._held.get(key, 0) - 1
            self._held[winner.job.key] = self._held.get(winner.job.key, 0) + 1
            self._why.setdefault(
                loser.standing.trial.key,
                _Why("GPUPreempted", lambda: f"gives its GPU to {winner.name} (rank {winner.ranked.rank})."),
            )

    def _behind(self, standing: Standing) -> _Why:
        owners = [self._owner[u] for u in self._uuids(standing) if u in self._owner]
        if not owners:
            return _Why("WaitingForAllGPUs", lambda: "waits until all of its GPUs are free.")
        return _Why("WaitingForHolder", lambda: f"waits for {owners[0].name} (rank {owners[0].ranked.rank}).")


_GPU_RETAINED = _Why("GPURetained", lambda: "keeps its GPU.")
_FREE_GPU = _Why("FreeGPU", lambda: "takes a free GPU.")
