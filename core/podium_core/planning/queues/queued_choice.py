"""Choice of the trial that is to hold each GPU, where queues share the GPUs.

Between queues, whole GPUs follow `fair_shares.whole_gpus`. A queue with fewer GPUs than that takes one from a queue
with more, once its holder's time slice is over; the holder is suspended. Within a queue, the choice is that without
queues: by the priority of the job, then in turn, but the namespaces of a queue are equals before its jobs are. A GPU
that no queue takes this way goes to any trial that may have it, so none idles. A queue never holds more than its quota
and what it may borrow: its other trials are in no run queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from podium_core.domain.gpu_queue import QueueShare, QueueView
from podium_core.domain.keys import TrialKey
from podium_core.planning.held_gpus import HeldGpus
from podium_core.planning.holder_choice import HolderChoice, Why
from podium_core.planning.queues.fair_shares import Claim, deserved_gpus, nominal_gpus, whole_gpus
from podium_core.planning.queues.queue_rules import UNQUEUED, QueueRules, jobs_of_holders
from podium_core.planning.ranking import Standing
from podium_core.planning.switching import CurrentHolder, Verdict, job_time_slice
from podium_core.policies.base import STARVED
from podium_core.policies.min_time_slice import MIN_JOB_TIME_SLICE


@dataclass(slots=True)
class QueueTurn:
    """One queue in one choice.

    `ready` and `others`: its trials by rank, at their gates and before. `held`: its GPUs as decided so far; `claimed`:
    those of them that are final. `gives`: it has more GPUs than its target, or can take another one from such a queue.
    """

    queue: QueueView
    ready: list[Standing] = field(default_factory=list)
    others: list[Standing] = field(default_factory=list)
    deserved: float = 0.0
    target: int = 0
    held: int = 0
    claimed: int = 0
    gives: bool = False

    def allows(self, gpus: int) -> bool:
        """Return whether the queue may hold this many GPUs more."""
        return self.queue.most is None or self.claimed + gpus <= self.queue.most


@dataclass(slots=True)
class QueuedChoice(HolderChoice):
    """Working state of one decision with queues."""

    rules: QueueRules = field(kw_only=True)
    turns: dict[str, QueueTurn] = field(default_factory=dict)
    exchanging: bool = False  # whether a queue may give a GPU because it can take another one

    def __post_init__(self) -> None:
        self._held = HeldGpus(self.rules.queue_of)

    def run(self, base: Sequence[Standing]) -> None:
        """Let the queues that miss the most GPUs try first, then all queues up to what they may borrow."""
        self._find_holders()
        self._set_turns(base)
        for uuid, current in self._holders.items():
            standing = current.standing
            if not _preemptible(standing) and (self._is_open(standing) or self._keeps_gpus(standing, uuid)):
                self._try(standing, self._uuids(standing))
        in_need = sorted(self.turns.values(), key=lambda t: (t.held - t.target, t.queue.name))
        passes = (False, True) if any(turn.gives for turn in in_need) else (False,)
        for turn, exchanging in product(in_need, passes):
            self.exchanging = exchanging
            for standing in turn.ready:
                if turn.claimed >= turn.target or len(self._owner) == len(self.gpus):
                    break
                self._attempt(standing)
        self.exchanging = False
        in_need.sort(key=lambda t: (t.claimed - t.deserved) / t.queue.weight)
        for trials in ([turn.ready for turn in in_need], [turn.others for turn in in_need]):
            for standing in (standing for mine in trials for standing in mine):
                if len(self._owner) == len(self.gpus):
                    break
                self._attempt(standing)
        for standing in base:  # GPUs that a switch of several GPUs left free
            if len(self._owner) == len(self.gpus):
                break
            if self._is_open(standing):
                self._claim(standing, Why("FreeGPU", lambda: "takes a free GPU."))
        self.barred = frozenset([s.trial.key for s in base if self._is_barred(s)])
        self._wake_for_shares()

    def shares(self, standings: Mapping[TrialKey, Standing]) -> tuple[QueueShare, ...]:
        """Return the standing of each queue, by name."""
        waiting, held = self._unserved(standings), self._held_in_fact()
        named = sorted((q for q in self.rules.queues.values() if q is not UNQUEUED), key=lambda q: q.name)
        return tuple(
            QueueShare(
                queue=queue.name,
                nominal=nominal,
                deserved=turn.deserved if (turn := self.turns.get(queue.name)) else 0.0,
                target=turn.target if turn else 0,
                held=held.get(queue.name, 0),
                borrowed=0 if queue.gpus is None else max(0, held.get(queue.name, 0) - queue.gpus),
                waiting=waiting.get(queue.name, 0),
            )
            for queue, nominal in zip(named, nominal_gpus(named, len(self.gpus)), strict=True)
        )

    def _set_turns(self, base: Sequence[Standing]) -> None:
        queues, queue_of = self.rules.queues, self.rules.queue_of
        turns = self.turns
        for standing in sorted(
            base,
            key=lambda s: (
                not s.trial.intent.pinned,
                -s.job.gpus.priority,
                s.ranked.level != STARVED,
                self._held.order(s.job.key),
            ),
        ):
            name = queue_of[standing.job.key]
            turn = turns.get(name)
            if turn is None:
                turn = turns[name] = QueueTurn(queues[name])
            (turn.ready if standing.trial.key in self.ready else turn.others).append(standing)
        claims, usable = [], set[str]()
        for turn in turns.values():
            mine = {uuid for standing in turn.ready for uuid in self.uuids[standing.trial.key]}
            widths = [len(self.uuids[standing.trial.key]) for standing in turn.ready]
            claims.append(Claim(turn.queue, min(len(mine), sum(widths)), min(widths, default=1)))
            usable |= mine
        deserved = deserved_gpus(claims, len(usable))
        for turn, part, target in zip(turns.values(), deserved, whole_gpus(claims, deserved, len(usable)), strict=True):
            turn.deserved, turn.target = part, target
        for current in self._holders.values():
            self._turn(current.standing).held += 1
        self._find_givers()

    def _find_givers(self) -> None:
        """Find the queues that can give a GPU because they can take another one. O(slots + queues ** 2).

        A queue in need may have slots only on GPUs of queues that hold exactly their target. One of those gives its GPU
        and takes another one, of a queue above its target or of another such queue, where a time slice is over.
        """
        found = [name for name, turn in self.turns.items() if turn.held > turn.target]
        if not found:
            return
        reached: dict[str, set[str]] = {}  # by queue of the holders: the queues that have a slot on their GPUs
        waiting: dict[str, set[str]] = {}
        for name, turn in self.turns.items():
            for uuids in (self.uuids[standing.trial.key] for standing in turn.ready):
                if len(uuids) == 1:
                    waiting.setdefault(uuids[0], set()).add(name)
        for uuid, current in self._holders.items():
            is_over = current.held_by_job >= job_time_slice(current, self.snapshot.costs)
            if is_over and _preemptible(current.standing):
                name = self.rules.queue_of[current.standing.job.key]
                reached.setdefault(name, set()).update(waiting.get(uuid, ()))
        while found:
            name = found.pop()
            if not self.turns[name].gives:
                self.turns[name].gives = True
                found += reached.get(name, ())

    def _turn(self, standing: Standing) -> QueueTurn:
        return self.turns[self.rules.queue_of[standing.job.key]]

    def _is_open(self, standing: Standing) -> bool:
        """Return whether the trial may claim its GPUs, as far as they are not claimed and its quota allows."""
        key = standing.trial.key
        mine = self.uuids[key]
        return key not in self.claims and self._owner.keys().isdisjoint(mine) and self._turn(standing).allows(len(mine))

    def _keeps_gpus(self, standing: Standing, uuid: str) -> bool:
        """Return whether the trial has its GPUs, which it keeps even beyond a quota that was lowered since."""
        key = standing.trial.key
        unclaimed = key not in self.claims and self._owner.keys().isdisjoint(self._uuids(standing))
        return unclaimed and self.gpus[uuid].holder == key

    def _attempt(self, standing: Standing) -> None:
        if self._is_open(standing):
            self._try(standing, self.uuids[standing.trial.key])

    def _judge(self, rival: Standing, current: CurrentHolder) -> Verdict:
        theirs, mine = self._turn(current.standing), self._turn(rival)
        if theirs is mine:
            return HolderChoice._judge(self, rival, current)
        if not _preemptible(current.standing):
            name = current.standing.name
            return Verdict(False, "HolderNotPreemptible", lambda: f"{name} can neither be suspended nor checkpoint.")
        time_slice = job_time_slice(current, self.snapshot.costs)
        verdict = judge_between_queues(mine, theirs, current, time_slice, exchange=self.exchanging)
        if verdict.protected:
            self._awaited.update(self._uuids(current.standing))
            self._wake(self.snapshot.now + time_slice - current.held_by_job)
        return verdict

    def _claim(self, standing: Standing, why: Why) -> None:
        turn, holders = self._turn(standing), self._holders
        mine = self.uuids[standing.trial.key]
        turn.claimed += len(mine)
        turn.held += sum(uuid not in holders for uuid in mine)
        HolderChoice._claim(self, standing, why)

    def _switch(self, winner: Standing, losers: Iterable[CurrentHolder]) -> None:
        losers = tuple(losers)
        for loser in losers:
            self._turn(loser.standing).held -= 1
            self._turn(winner).held += 1
        HolderChoice._switch(self, winner, losers)

    def _behind(self, standing: Standing) -> Why:
        if standing.trial.key in self.barred:
            queue = self._turn(standing).queue
            return Why("QueueQuotaReached", lambda: f"waits: queue {queue.name} may hold {queue.most} GPUs at a time.")
        return HolderChoice._behind(self, standing)

    def _share_a_queue(self, one: Standing, other: Standing) -> bool:
        return self._turn(one) is self._turn(other)

    def _is_barred(self, standing: Standing) -> bool:
        """Return whether the trial would take its queue beyond its quota if its run queue admitted it."""
        key = standing.trial.key
        if key in self.claims:
            return False
        turn = self._turn(standing)
        if turn.queue.most is None:
            return False
        owners = [self._owner.get(uuid) for uuid in self.uuids[key]]
        more = sum(owner is None or self._turn(owner) is not turn for owner in owners)
        return more > 0 and not turn.allows(more)

    def _wake_for_shares(self) -> None:
        """Decide again after a time slice while a queue has less than it deserves: by then its wish has grown."""
        if any(turn.claimed < turn.deserved for turn in self.turns.values()):
            self._wake(self.snapshot.now + MIN_JOB_TIME_SLICE)

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)

    def _unserved(self, standings: Mapping[TrialKey, Standing]) -> dict[str, int]:
        """Return the number of trials of each queue that want a GPU and are to have none."""
        found: dict[str, int] = {}
        for key, standing in standings.items():
            if key not in self.claims and _wants_gpu(standing):
                name = self.rules.queue_of[standing.job.key]
                found[name] = found.get(name, 0) + 1
        return found

    def _held_in_fact(self) -> dict[str, int]:
        """Return the GPUs that the trials of each queue hold, whatever their pods report."""
        queue_of = self.rules.queue_of
        return Counter(queue_of[job] for job in jobs_of_holders(self.snapshot, self.gpus.values()) if job in queue_of)


def judge_between_queues(
    mine: QueueTurn, theirs: QueueTurn, current: CurrentHolder, time_slice: float, *, exchange: bool
) -> Verdict:
    """Decide whether a trial of the queue `mine` may take the GPU of a holder of the queue `theirs`.

    `exchange`: also if `theirs` has no more than its target, but can take another GPU.
    """
    text = "; ".join(f"queue {t.queue.name} holds {t.held} GPUs of {t.target} that it gets now" for t in (theirs, mine))
    exchanged = exchange and theirs.held == theirs.target and theirs.gives
    if (theirs.held <= theirs.target and not exchanged) or mine.held >= mine.target:
        return Verdict(False, "QueueShareReached", lambda: f"{text}.")
    if current.held_by_job < time_slice:
        return Verdict(
            False, "MinTimeSlice", lambda: f"{text}; a time slice between queues lasts at least {time_slice:g} s.", True
        )
    why = f"{text}; queue {theirs.queue.name} takes another GPU instead." if exchanged else f"{text}."
    return Verdict(True, "QueueShare", lambda: why)


def _preemptible(standing: Standing) -> bool:
    abilities = standing.job.abilities
    return abilities.suspendable or abilities.checkpointable


def _wants_gpu(standing: Standing) -> bool:
    """Return whether the trial needs a GPU and neither its user nor its policy has suspended it."""
    return standing.job.gpus.per_trial > 0 and not standing.suspended_by_user and not standing.paused
