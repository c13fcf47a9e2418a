"""Choice of the trial that is to hold each GPU, without queues. `run_queue` calls it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from podium_core.domain.actions import TrialRank
from podium_core.domain.gpu_queue import QueueShare
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.eta import typical_pace
from podium_core.planning.held_gpus import HeldGpus
from podium_core.planning.ranking import Standing
from podium_core.planning.switching import CurrentHolder, Verdict, job_time_slice, judge_switch, time_slice_of
from podium_core.policies.base import STARVED

GATHERING_SECONDS = 30.0  # for which a trial keeps the GPUs of some of its workers until the others have theirs


class Why(NamedTuple):
    """Reason for the position of a trial.

    `say` builds the sentence: a plan compares many trials and shows few.
    """

    reason: str
    say: Callable[[], str]
    gain: float | None = None


class Paces:
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
class HolderChoice:
    """Working state of one decision: which trial gets which GPU, and why."""

    snapshot: Snapshot
    gpus: Mapping[str, GpuView]
    eligible: Mapping[TrialKey, Standing]
    uuids: Mapping[TrialKey, tuple[str, ...]]
    ready: frozenset[TrialKey]
    paces: Paces
    unfinished: Container[TrialKey]
    claims: set[TrialKey] = field(default_factory=set)
    barred: frozenset[TrialKey] = frozenset()  # trials that may be in no run queue, since their queue has its quota
    wake_at: float | None = None
    _owner: dict[str, Standing] = field(default_factory=dict)
    _holders: dict[str, CurrentHolder] = field(default_factory=dict)
    _held: HeldGpus = field(default_factory=HeldGpus)
    _awaited: set[str] = field(default_factory=set)  # GPUs for which another job waits until the end of a time slice
    _why: dict[TrialKey, Why] = field(default_factory=dict)

    def run(self, base: Sequence[Standing]) -> None:
        """Let each trial try to get its GPUs, those of the jobs with the fewest GPUs first.

        Otherwise an older job would never give up a GPU. `base`: all trials by readiness and rank.
        """
        self._find_holders()
        owner, uuids, ready, candidates = self._owner, self.uuids, self.ready, base
        if len(self.snapshot.jobs) > 1:  # a stable sort: by rank within each
            candidates = sorted(
                base,
                key=lambda s: (
                    s.trial.key not in ready,
                    not s.trial.intent.pinned,
                    -s.job.gpus.priority,
                    s.ranked.level != STARVED,
                    self._held.order(s.job.key),
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

    def shares(self, standings: Mapping[TrialKey, Standing]) -> tuple[QueueShare, ...]:
        """Return the standing of each queue; `standings`: all unfinished trials."""
        return ()

    def rank_of(self, key: TrialKey) -> TrialRank | None:
        standing = self.eligible.get(key)
        if standing is None:
            return None
        why, rank = self._why.get(key) or self._behind(standing), standing.ranked
        return TrialRank(
            key, rank.rank, why.reason, f"{rank.message} It {why.say()}", why.gain, self._is_held(standing)
        )

    def on_hold(self) -> frozenset[TrialKey]:
        """Return the trials of several workers that are not to hold the GPUs of all of them now."""
        if all(job.gpus.workers == 1 for job in self.snapshot.jobs):  # the usual case
            return frozenset()
        return frozenset([key for key, standing in self.eligible.items() if self._is_held(standing)])

    def _is_held(self, standing: Standing) -> bool:
        return standing.job.gpus.workers > 1 and standing.trial.key not in self.claims

    def ranks_of(self, keys: Iterable[TrialKey]) -> Iterator[TrialRank]:
        return (rank for key in keys if (rank := self.rank_of(key)) is not None)

    def _uuids(self, standing: Standing) -> tuple[str, ...]:
        return self.uuids[standing.trial.key]

    def _find_holders(self) -> None:
        """Find the current holder of each GPU.

        It is the first trial of the present run queue that may run on all of its GPUs, else the reported holder. The
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
            held_for = self._held_for(leader, gpu)
            self._holders[uuid] = CurrentHolder(leader, held_for, max(held_for, self._held_by_job(leader, gpu)))
            self._held.add(leader.job.key, 1)

    def _held_for(self, leader: Standing, gpu: GpuView) -> float:
        """Return the seconds for which the trial has held the GPU.

        The workers of a trial get their GPUs one after another. The time counts from the last one, so that a trial
        that waits for its GPU on a slow node is not preempted on the others before it has done a step.
        """
        if gpu.holder != leader.trial.key or gpu.holder_since is None:
            return 0.0
        held_for = max(0.0, self.snapshot.now - gpu.holder_since)
        if leader.job.gpus.workers == 1:
            return held_for
        mine = [self.gpus[uuid] for uuid in self._uuids(leader)]
        since = [one.holder_since for one in mine if one.holder == leader.trial.key and one.holder_since is not None]
        if len(since) < len(mine):
            return max(0.0, self.snapshot.now - min(since) - GATHERING_SECONDS)
        return max(0.0, self.snapshot.now - max(since))

    def _held_by_job(self, leader: Standing, gpu: GpuView) -> float:
        """Return the seconds of the job's tenure of the GPU; 0 if the trial does not hold it yet.

        A trial of several workers that just got its GPUs must do a step first, so only its own time counts.
        """
        tenure = gpu.tenure
        if gpu.holder != leader.trial.key or tenure is None or leader.job.gpus.workers > 1:
            return 0.0
        return max(0.0, self.snapshot.now - tenure.start(self.unfinished))

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
        for key in gpu.run_queue.startable:
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
                Why(refusal.reason, lambda: f"waits for {holder.name} (rank {holder.ranked.rank}): {why()}"),
            )
            return
        names = ", ".join(sorted({current.standing.name for current in rivals}))
        first = verdicts[0]
        self._claim(standing, Why(first.reason, lambda: f"takes the GPU from {names}: {first.message}", first.gain))
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
            wake = self.snapshot.now + time_slice - (current.held_for if same else current.held_by_job)
            self.wake_at = wake if self.wake_at is None else min(self.wake_at, wake)
        return verdict

    def _claim(self, standing: Standing, why: Why) -> None:
        self.claims.add(standing.trial.key)
        self._why[standing.trial.key] = why
        for uuid in self._uuids(standing):
            self._owner[uuid] = standing

    def _switch(self, winner: Standing, losers: Iterable[CurrentHolder]) -> None:
        for loser in losers:
            self._held.add(loser.standing.job.key, -1)
            self._held.add(winner.job.key, 1)
            self._why.setdefault(
                loser.standing.trial.key,
                Why("GPUPreempted", lambda: f"gives its GPU to {winner.name} (rank {winner.ranked.rank})."),
            )

    def _behind(self, standing: Standing) -> Why:
        owners = [self._owner[u] for u in self._uuids(standing) if u in self._owner]
        if not owners:
            return Why("WaitingForAllGPUs", lambda: "waits until all of its GPUs are free.")
        first = owners[0]
        if first.job.gpus.priority > standing.job.gpus.priority and self._share_a_queue(first, standing):
            theirs, mine = first.job.gpus.priority, standing.job.gpus.priority
            return Why(
                "PriorityTooLow", lambda: f"waits for {first.name}: priority {theirs} of its job is above {mine}."
            )
        return Why("WaitingForHolder", lambda: f"waits for {first.name} (rank {first.ranked.rank}).")

    def _share_a_queue(self, one: Standing, other: Standing) -> bool:
        """Return whether the jobs of two trials are in the same queue; without queues, all are."""
        return True


_GPU_RETAINED = Why("GPURetained", lambda: "keeps its GPU.")
_FREE_GPU = Why("FreeGPU", lambda: "takes a free GPU.")
