"""Replay of one sample under one policy on one machine, on virtual time.

The cluster's own policies and switch rule decide; recorded curves provide the values. A GPU decides when its trial
reaches an evaluation or its end, or when a slice Q has passed, and never about another GPU's trial. A suspension and a
resumption occupy the GPU; a first start and the end of a trial cost nothing. The policy sees a snapshot with each
trial's values up to its last evaluation.

A policy that gives trials up may end its plan before the sample's best trial is trained. The replay then trains the
remaining trials, best-so-far first ("revived"), so a wrong early stop costs its full price. Used by the benchmarks and
by tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from podium_core.curves.non_finite import diverged
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point
from podium_core.planning.ranking import Standing
from podium_core.planning.switching import CurrentHolder, judge_switch
from podium_core.policies.base import Admission, Policy, Ranked
from podium_core.policies.best_so_far import BestSoFar
from podium_simulator.replay.history import History, Reached
from podium_simulator.replay.samples import Machine, Pool
from podium_simulator.replay.state import DEFAULT_RULES, JOB, Rules, SimGpu, SimTrial, World, new_world

_INSTANT = 1e-6  # seconds: closer than this to an evaluation counts as at it


def replay(pool: Pool, policy: Policy, machine: Machine, rules: Rules = DEFAULT_RULES) -> History:
    """Return the history of the replay. Deterministic to the last bit.

    One decision per evaluation and one per slice.
    """
    world = new_world(pool, policy, machine, rules)
    _decide(world, world.gpus)
    while True:
        upcoming = min(gpu.next for gpu in world.gpus)
        if math.isinf(upcoming):
            if not _revive(world):
                return _history(world)
            _decide(world, world.gpus)
            continue
        world.now = upcoming
        due = [gpu for gpu in world.gpus if gpu.next == upcoming]
        for gpu in due:  # first record all that is known now, then decide
            _advance(world, gpu)
        _decide(world, [*due, *(gpu for gpu in world.gpus if gpu.trial is None and gpu not in due)])


def _revive(world: World) -> bool:
    """Continue with the remaining trials when the policy's plan is over.

    The plan is over when no trial runs and the policy starts none. Returns False where the best trial is trained or
    none remains.
    """
    if world.plan_seconds is None:
        world.plan_seconds = math.fsum(end - start for start, end in world.busy)
    left = [trial for trial in world.trials if not trial.over]
    if not left or world.pool.winner in world.completed:
        return False
    for trial in left:
        if trial.stopped:
            world.again_seconds += trial.trained
            trial.start_anew()
    world.policy, world.live = BestSoFar(warmup=0), len(left)
    return True


def _history(world: World) -> History:
    waits = {
        t.number: t.longest_wait if t.over else max(t.longest_wait, world.now - t.idle_since)
        for t in world.trials
        if not t.stopped
    }
    return History(
        reached=tuple(world.reached),
        completed=world.completed,
        waits=waits,
        busy=tuple(sorted(world.busy)),
        switches=tuple(sorted(world.switches)),
        again_seconds=world.again_seconds,
        plan_seconds=world.plan_seconds or 0.0,
        decisions=world.decisions,
    )


def _advance(world: World, gpu: SimGpu) -> None:
    """Train the GPU's trial up to now, and record the evaluation or the end that it reached."""
    trial = gpu.trial
    assert trial is not None
    trial.trained += world.now - gpu.trains_from
    gpu.trains_from = world.now
    curve = None
    due = trial.seconds[trial.evaluations]
    if trial.trained >= due - _INSTANT:
        value = trial.values[trial.evaluations]
        trial.trained = due  # avoids accumulated rounding errors
        trial.evaluations += 1
        curve = (*trial.view.curve, Point(due, value, world.now))
        shown = -math.inf if diverged(value) else world.pool.sign * value
        world.reached.append(Reached(world.now, trial.number, shown))
    if trial.evaluations < len(trial.seconds):
        trial.see(TrialPhase.RUNNING, curve)
        return
    trial.over = True
    world.completed.setdefault(trial.number, world.now)
    world.live -= 1
    trial.see(TrialPhase.SUCCEEDED, curve)
    _leave(world, gpu)
    if world.rules.queue_per_gpu:
        _migrate(world)


def _migrate(world: World) -> None:
    """Move one waiting trial from the longest queue to the shortest where they differ by more than one."""
    lengths = [sum(t.queue == gpu.index and not t.over for t in world.trials) for gpu in world.gpus]
    longest, shortest = lengths.index(max(lengths)), lengths.index(min(lengths))
    if lengths[longest] - lengths[shortest] > 1:
        waiting = [t for t in world.trials if t.queue == longest and not t.over and not t.placed]
        waiting[0].queue = shortest


def _leave(world: World, gpu: SimGpu) -> None:
    trial = gpu.trial
    assert trial is not None
    world.busy.append((gpu.since, world.now))
    trial.placed, trial.idle_since = False, world.now
    gpu.trial, gpu.next = None, math.inf


def _decide(world: World, gpus: Iterable[SimGpu]) -> None:
    for gpu in gpus:
        if not world.live:
            return
        holder = gpu.trial
        chosen = _choose(world, gpu)
        world.decisions += 1
        if chosen is None or chosen is not holder:
            _hand_over(world, gpu, chosen)
        if gpu.trial is not None:
            gpu.next = gpu.trains_from + _stretch(world, gpu, gpu.trial)


def _stretch(world: World, gpu: SimGpu, trial: SimTrial) -> float:
    """Return the seconds of training until this GPU decides again."""
    left = min(trial.seconds[trial.evaluations] - trial.trained, world.slice_seconds)
    if world.rules.whole_turns:
        turn = gpu.since + world.policy.time_slice(world.machine.costs) - gpu.trains_from
        return min(left, turn) if turn > _INSTANT else left
    return left


def _hand_over(world: World, gpu: SimGpu, chosen: SimTrial | None) -> None:
    holder, costs, pause = gpu.trial, world.machine.costs, 0.0
    if holder is not None:
        _leave(world, gpu)
        if not holder.stopped:
            pause = costs.suspend
            holder.see(TrialPhase.SUSPENDED)
    if chosen is not None and chosen.started:
        pause += costs.resume
        if world.rules.minimum_turns:
            chosen.switch = costs.suspend + costs.resume
    start = max(world.now, gpu.trains_from)  # an earlier suspension may still be in progress
    gpu.trains_from = start + pause
    if pause:
        world.switches.append((start, start + pause))
    if chosen is None:
        world.busy.append((start, start + pause))
        return
    chosen.started = chosen.placed = True
    chosen.longest_wait = max(chosen.longest_wait, world.now - chosen.idle_since)
    chosen.see(TrialPhase.RUNNING)
    gpu.trial, gpu.since = chosen, start


def _choose(world: World, gpu: SimGpu) -> SimTrial | None:
    """Return the trial that this GPU trains next.

    That is the best-ranked of its holder and the waiting trials, where the planner's switch rule allows it.
    """
    holder, policy, costs = gpu.trial, world.policy, world.machine.costs
    if holder is not None and world.rules.whole_turns and world.now - gpu.since < policy.time_slice(costs) - _INSTANT:
        return holder
    if not policy.cuts and world.live == sum([other.trial is not None for other in world.gpus]):
        return holder  # no trial waits, so no rank would change anything
    best: Ranked | None = None
    own: Ranked | None = None
    for ranked in policy.rank(world.job, world.unfinished(), world.snapshot()):
        trial, admission = world.by_key[ranked.trial], ranked.admission
        if admission is Admission.STOP and (trial is holder or not trial.placed):
            _stop(world, trial)  # a trial on another GPU ends when that GPU decides
        if trial is holder:
            own = ranked if admission is Admission.GO else None
            break
        if best is None and admission is Admission.GO and _may_come(trial, gpu):
            best = ranked
            if holder is None:
                break
    if own is None:
        return None if best is None else world.by_key[best.trial]
    if best is None or holder is None:
        return holder
    chosen = world.by_key[best.trial]
    if world.rules.bare_rank:
        return chosen if (best.level, -best.score) < (own.level, -own.score) else holder
    held = world.now - gpu.since if world.rules.minimum_turns else math.inf
    incumbent = CurrentHolder(Standing(holder.view, world.job, policy, own), held)
    rival = Standing(chosen.view, world.job, policy, best)
    return chosen if judge_switch(rival, incumbent, costs, {JOB: len(world.gpus)}, lambda: 1.0).switch else holder


def _may_come(trial: SimTrial, gpu: SimGpu) -> bool:
    return not trial.placed and not trial.stopped and trial.queue in (None, gpu.index)


def _stop(world: World, trial: SimTrial) -> None:
    trial.stopped = True
    world.live -= 1
    trial.see(TrialPhase.EARLY_STOPPED)
