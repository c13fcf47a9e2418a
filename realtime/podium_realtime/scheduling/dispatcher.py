"""Keeps the jobs, queues and streams, and asks a policy for every decision. Time is an argument: no clock in here.

Called by `simulation.engine` with virtual time and by `runtime.executive` with the machine's. Each step returns what is
to be done; nothing is done in here. Invariants (held by tests): a stage is committed only after its predecessors are
done; a context has at most `in_flight` stages on the device and `in_flight x depth` committed; of what may start in a
context, the smallest key starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from podium_realtime.model.network import Network
from podium_realtime.model.profile import Profiles
from podium_realtime.model.refusal import RealtimeError, require_between
from podium_realtime.model.task import PeriodicTask, require_distinct
from podium_realtime.scheduling.base import Board, ContextState, Policy
from podium_realtime.scheduling.deadlines import virtual_deadlines
from podium_realtime.scheduling.pool import ContextSpec
from podium_realtime.scheduling.recent import RecentMaximum
from podium_realtime.scheduling.work import Job, JobEnd, Outcome, ReadyStage, Work


@dataclass(slots=True)
class _Progress:
    """A job under way: which stages are done, which are committed, was one late."""

    job: Job
    done: set[int] = field(default_factory=set)
    begun: float | None = None  # when its first stage was committed
    late: bool = False


@dataclass(slots=True)
class _TaskState:
    task: PeriodicTask
    relative: tuple[float, ...]
    places: tuple[int, ...]
    released: int = 0
    current: Job | None = None
    waiting: Job | None = None  # released while the job before it was under way


class Dispatcher:
    """`patience`: the share of its period that a release waits for the job before it, before it is skipped (0: it is
    skipped at once).
    """

    def __init__(
        self,
        tasks: Sequence[PeriodicTask],
        pool: Sequence[ContextSpec],
        profiles: Profiles,
        policy: Policy,
        patience: float = 0.0,
    ) -> None:
        require_distinct(tasks)
        _require_one_network_a_name(tasks)
        require_between(patience, 0.0, 1.0, "dispatcher: patience")
        if not pool:
            raise RealtimeError("NoContexts", "pool: contexts", "is empty; give at least one context")
        self.policy = policy
        self.ends: list[JobEnd] = []
        self._patience = patience
        self._profiles = profiles
        self._pool = [ContextState(spec, [], [[] for _ in spec.streams]) for spec in pool]
        self._shared: list[ReadyStage] = []
        self._recent = RecentMaximum(profiles, [spec.sms for spec in pool], policy.recent)
        self._tasks = {task.name: self._task_state(task) for task in tasks}
        self._progress: dict[tuple[str, int], _Progress] = {}
        self._active: dict[tuple[str, int], Job] = {}
        self._works: dict[int, Work] = {}
        self._numbers = 0
        self._board = Board(
            0.0,
            [state.task for state in self._tasks.values()],
            {name: number for number, name in enumerate(self._tasks)},
            self._pool,
            self._recent.expected,
            self._recent.network_time,
            self._recent.span,
            self._recent.least,
            self._active,
        )

    def release(self, name: str, now: float) -> None:
        """The next job of this task is there."""
        state = self._tasks[name]
        task = state.task
        deadlines = tuple(now + relative for relative in state.relative)
        job = Job(task, state.released, now, now + task.deadline, deadlines)
        state.released += 1
        if state.waiting is not None:
            self._end(state.waiting, Outcome.SKIPPED, None)
            state.waiting = None
        if state.current is None:
            self._start(state, job, now)
        elif self._patience > 0.0:
            state.waiting = job
        else:
            self._end(job, Outcome.SKIPPED, None)

    def finish(self, number: int, now: float) -> None:
        """A committed work is done."""
        work = self._works.pop(number)
        stream = self._pool[work.context].streams[work.stream]
        stream.remove(work)
        for ready in work.stages:
            self._recent.saw(ready, work.context, work.batch, now - work.committed)
            self._stage_done(ready, now)

    def dispatch(self, now: float) -> list[Work]:
        """Everything that is to be launched now, in this order."""
        self._board.now = now
        found: list[Work] = []
        while True:
            work = self._next(now)
            if work is None:
                return found
            found.append(work)

    def close(self) -> None:
        """The run is over: what is under way stays open."""
        for progress in list(self._progress.values()):
            self._end(progress.job, Outcome.OPEN, None)
        for state in self._tasks.values():
            if state.waiting is not None:
                self._end(state.waiting, Outcome.OPEN, None)

    @property
    def contexts(self) -> Sequence[ContextState]:
        return self._pool

    def _task_state(self, task: PeriodicTask) -> _TaskState:
        task = task if self.policy.staged else replace(task, network=task.network.fused())
        profiles = self._profiles.get(task.network.name)
        if profiles is None or len(profiles) != len(task.network.stages):
            told = f"there is no profile for the {len(task.network.stages)} stages of {task.network.name}; make one"
            raise RealtimeError("NoProfile", f"task {task.name}: network", told)
        reference = max(state.spec.sms for state in self._pool)
        seconds = [profile.time(reference) for profile in profiles]
        relative = virtual_deadlines(task.network, seconds, task.deadline)
        return _TaskState(task, relative, _places(task.network))

    def _start(self, state: _TaskState, job: Job, now: float) -> None:
        self._board.now = now
        verdict = self.policy.admit(job, self._board)
        if not verdict.accepted:
            self._end(job, Outcome.REFUSED, None)
            return
        job = replace(job, home=verdict.home)
        state.current = job
        self._progress[job.key] = _Progress(job)
        self._active[job.key] = job
        for index in job.task.network.roots:
            self._enqueue(ReadyStage(job, index, now, False, state.places[index]))

    def _enqueue(self, ready: ReadyStage) -> None:
        where = self.policy.place(ready, self._board)
        (self._shared if where is None else self._pool[where].queued).append(ready)

    def _stage_done(self, ready: ReadyStage, now: float) -> None:
        progress = self._progress[ready.job.key]
        job, network = progress.job, progress.job.task.network
        progress.done.add(ready.index)
        progress.late = progress.late or now > ready.deadline
        if len(progress.done) == len(network.stages):
            assert progress.begun is not None
            self._recent.ended(job.task, now - progress.begun)
            self._end(job, Outcome.MET if now <= job.deadline else Outcome.LATE, now)
            self._follow(self._tasks[job.task.name], now)
            return
        self._board.now = now
        places = self._tasks[job.task.name].places
        for index in network.followers[ready.index]:
            if progress.done.issuperset(network.stages[index].after):
                self._enqueue(ReadyStage(job, index, now, progress.late, places[index]))

    def _follow(self, state: _TaskState, now: float) -> None:
        """The task is free again: what was released meanwhile starts, unless it waited too long."""
        state.current = None
        waiting, state.waiting = state.waiting, None
        if waiting is None:
            return
        if now - waiting.release > self._patience * state.task.period:
            self._end(waiting, Outcome.SKIPPED, None)
        else:
            self._start(state, waiting, now)

    def _end(self, job: Job, outcome: Outcome, finished: float | None) -> None:
        self._progress.pop(job.key, None)
        self._active.pop(job.key, None)
        self.ends.append(JobEnd(job, outcome, finished))

    def _next(self, now: float) -> Work | None:
        """The next work: into the context with the fewest stages per SM that has a place and something to do."""
        open_contexts = [
            context
            for context in self._pool
            if (context.queued or self._shared) and context.committed < context.spec.in_flight * context.spec.depth
        ]
        # a context with room on the device goes before one where the work would only be launched ahead
        open_contexts.sort(key=lambda c: (not c.has_room, c.committed / c.spec.sms, c.spec.number))
        for context in open_contexts:
            work = self._pick(context, now)
            if work is not None:
                return work
        return None

    def _pick(self, context: ContextState, now: float) -> Work | None:
        key = self.policy.key
        while True:
            queue = context.queued if not self._shared else [*context.queued, *self._shared]
            free = {priority for _, priority in self._free_streams(context)}
            usable = [ready for ready in queue if self.policy.stream(ready) in free]
            if not usable:
                return None
            head = min(usable, key=lambda ready: (key(ready, now), ready.job.task.name, ready.index))
            progress = self._progress[head.job.key]
            if progress.begun is not None:
                return self._commit(head, usable, context, now)
            waiting = sum(one.begun is None for one in self._progress.values()) - 1
            if not self.policy.sheds(head, waiting, self._board):
                return self._commit(head, usable, context, now)
            self._drop(progress.job, now)

    def _drop(self, job: Job, now: float) -> None:
        for queue in (self._shared, *(context.queued for context in self._pool)):
            queue[:] = [ready for ready in queue if ready.job.key != job.key]
        self._recent.shed(job.task)
        self._end(job, Outcome.SHED, None)
        self._follow(self._tasks[job.task.name], now)

    def _free_streams(self, context: ContextState) -> list[tuple[int, int]]:
        """(number, priority) of the streams that can take one more work now."""
        full = not context.has_room
        return [
            (number, priority)
            for number, priority in enumerate(context.spec.streams)
            if (len(context.streams[number]) < context.spec.depth if context.streams[number] else not full)
        ]

    def _commit(self, head: ReadyStage, usable: Sequence[ReadyStage], context: ContextState, now: float) -> Work:
        key: Callable[[ReadyStage, float], tuple[float, ...]] = self.policy.key
        number = context.spec.number
        alike = [one for one in usable if one.kind == head.kind and one is not head]
        alike.sort(key=lambda ready: (key(ready, now), ready.job.task.name))
        stages = (head, *self.policy.mates(head, alike, number, self._board)) if alike else (head,)
        priority = self.policy.stream(head)
        streams = [stream for stream, found in self._free_streams(context) if found == priority]
        stream = min(streams, key=lambda one: (len(context.streams[one]), one))
        before = max((work.expected for work in context.streams[stream]), default=now)
        expected = max(now, before) + len(stages) * self._recent.expected(head, number)
        work = Work(self._numbers, stages, number, stream, priority, now, expected)
        self._numbers += 1
        for ready in stages:
            progress = self._progress[ready.job.key]
            progress.begun = now if progress.begun is None else progress.begun
            (context.queued if ready in context.queued else self._shared).remove(ready)
        context.streams[stream].append(work)
        self._works[work.number] = work
        return work


def _require_one_network_a_name(tasks: Sequence[PeriodicTask]) -> None:
    """Profiles and batches go by the network's name."""
    known: dict[str, Network] = {}
    for task in tasks:
        name = task.network.name
        if known.setdefault(name, task.network) != task.network:
            told = f"{name} names two different networks; give each its own name"
            raise RealtimeError("DuplicateName", f"task {task.name}: network", told)


def _places(network: Network) -> tuple[int, ...]:
    """How many stages at least come after each one."""
    found = [0] * len(network.stages)
    for number in range(len(found) - 1, -1, -1):
        found[number] = max((1 + found[follower] for follower in network.followers[number]), default=0)
    return tuple(found)
