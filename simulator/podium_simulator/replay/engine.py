"""Replay of one sample under one policy on one machine, on virtual time.

The cluster's own policies and switch rule decide; recorded curves provide the values. A GPU decides when its trial
reaches an evaluation or its end, or when a slice Q has passed, and never about another GPU's trial. A suspension and a
resumption occupy the GPU; a first start and the end of a trial cost nothing. The policy sees a snapshot with each
trial's values up to its last evaluation.

A policy that gives trials up may end its plan before the sample's best trial is trained. The replay then trains the
remaining trials, best-so-far first ("revived"), so a wrong early stop costs its full price. The benchmarks and
the tests use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from podium_core.curves.non_finite import diverged
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point
from podium_core.planning.held_gpus import HeldGpus
from podium_core.planning.ranking import Standing
from podium_core.planning.switching import CurrentHolder, judge_switch
from podium_core.policies.base import Admission, Policy, Ranked
from podium_core.policies.best_so_far import BestSoFar
from podium_simulator.replay.history import Evaluation, History
from podium_simulator.replay.samples import Machine, Sample
from podium_simulator.replay.state import DEFAULT_RULES, ReplayState, Rules, SimGpu, SimTrial, new_state

_INSTANT = 1e-6  # seconds: closer than this to an evaluation counts as at it


def replay(sample: Sample, policy: Policy, machine: Machine, rules: Rules = DEFAULT_RULES) -> History:
    """Return the history of the replay. Deterministic to the last bit.

    One decision per evaluation and one per slice.
    """
    state = new_state(sample, policy, machine, rules)
    _decide(state, state.gpus)
    while True:
        upcoming = min(gpu.next for gpu in state.gpus)
        if math.isinf(upcoming):
            if not _revive(state):
                return _make_history(state)
            _decide(state, state.gpus)
            continue
        state.now = upcoming
        due = [gpu for gpu in state.gpus if gpu.next == upcoming]
        for gpu in due:  # first record all that is known now, then decide
            _advance(state, gpu)
        _decide(state, [*due, *(gpu for gpu in state.gpus if gpu.trial is None and gpu not in due)])


def _revive(state: ReplayState) -> bool:
    """Continue with the remaining trials when the policy's plan is over.

    The plan is over when no trial runs and the policy starts none. Returns False where the best trial is trained or
    none remains.
    """
    record = state.record
    if record.plan_seconds is None:
        record.plan_seconds = math.fsum(end - start for start, end in record.busy)
    left = [trial for trial in state.trials if not trial.ended]
    if not left or state.setup.sample.winner in record.completed:
        return False
    for trial in left:
        if trial.stopped:
            record.repeated_seconds += trial.trained
            trial.reset()
    state.policy, state.live = BestSoFar(warmup=0), len(left)
    return True


def _make_history(state: ReplayState) -> History:
    waits = {
        t.number: t.longest_wait if t.ended else max(t.longest_wait, state.now - t.idle_since)
        for t in state.trials
        if not t.stopped
    }
    return state.record.history(waits)


def _advance(state: ReplayState, gpu: SimGpu) -> None:
    """Train the GPU's trial up to now, and record the evaluation or the end that it reached."""
    trial = gpu.trial
    assert trial is not None
    trial.trained += state.now - gpu.trains_from
    gpu.trains_from = state.now
    curve = None
    due = trial.seconds[trial.evaluations]
    if trial.trained >= due - _INSTANT:
        value = trial.values[trial.evaluations]
        trial.trained = due  # avoids accumulated rounding errors
        trial.evaluations += 1
        curve = (*trial.view.curve, Point(due, value, state.now))
        comparable = -math.inf if diverged(value) else state.setup.sample.sign * value
        state.record.reached.append(Evaluation(state.now, trial.number, comparable))
    if trial.evaluations < len(trial.seconds):
        trial.publish(TrialPhase.RUNNING, curve)
        return
    trial.ended = True
    state.record.completed.setdefault(trial.number, state.now)
    state.live -= 1
    trial.publish(TrialPhase.SUCCEEDED, curve)
    _vacate(state, gpu)
    if state.setup.rules.queue_per_gpu:
        _migrate(state)


def _migrate(state: ReplayState) -> None:
    """Move one waiting trial from the longest queue to the shortest where they differ by more than one."""
    lengths = [sum(t.queue == gpu.index and not t.ended for t in state.trials) for gpu in state.gpus]
    longest, shortest = lengths.index(max(lengths)), lengths.index(min(lengths))
    if lengths[longest] - lengths[shortest] > 1:
        waiting = [t for t in state.trials if t.queue == longest and not t.ended and not t.placed]
        waiting[0].queue = shortest


def _vacate(state: ReplayState, gpu: SimGpu) -> None:
    trial = gpu.trial
    assert trial is not None
    state.record.busy.append((gpu.since, state.now))
    trial.placed, trial.idle_since = False, state.now
    gpu.trial, gpu.next = None, math.inf


def _decide(state: ReplayState, gpus: Iterable[SimGpu]) -> None:
    for gpu in gpus:
        if not state.live:
            return
        holder = gpu.trial
        chosen = _choose(state, gpu)
        state.record.decisions += 1
        if chosen is None or chosen is not holder:
            _switch(state, gpu, chosen)
        if gpu.trial is not None:
            gpu.next = gpu.trains_from + _seconds_until_decision(state, gpu, gpu.trial)


def _seconds_until_decision(state: ReplayState, gpu: SimGpu, trial: SimTrial) -> float:
    """Return the seconds of training until this GPU decides again."""
    left = min(trial.seconds[trial.evaluations] - trial.trained, state.setup.slice_seconds)
    if state.setup.rules.whole_slices:
        slice_left = gpu.since + state.policy.time_slice(state.setup.machine.costs) - gpu.trains_from
        return min(left, slice_left) if slice_left > _INSTANT else left
    return left


def _switch(state: ReplayState, gpu: SimGpu, chosen: SimTrial | None) -> None:
    holder, costs, pause = gpu.trial, state.setup.machine.costs, 0.0
    if holder is not None:
        _vacate(state, gpu)
        if not holder.stopped:
            pause = costs.suspend
            holder.publish(TrialPhase.SUSPENDED)
    if chosen is not None and chosen.started:
        pause += costs.resume
        if state.setup.rules.measured_slices:
            chosen.switch = costs.suspend + costs.resume
    start = max(state.now, gpu.trains_from)  # an earlier suspension may still be in progress
    gpu.trains_from = start + pause
    if pause:
        state.record.switches.append((start, start + pause))
    if chosen is None:
        state.record.busy.append((start, start + pause))
        return
    chosen.started = chosen.placed = True
    chosen.longest_wait = max(chosen.longest_wait, state.now - chosen.idle_since)
    chosen.publish(TrialPhase.RUNNING)
    gpu.trial, gpu.since = chosen, start


def _choose(state: ReplayState, gpu: SimGpu) -> SimTrial | None:
    """Return the trial that this GPU trains next.

    That is the best-ranked of its holder and the waiting trials, where the planner's switch rule allows it.
    """
    holder, policy, setup = gpu.trial, state.policy, state.setup
    rules, by_key, costs = setup.rules, setup.by_key, setup.machine.costs
    if holder is not None and rules.whole_slices and state.now - gpu.since < policy.time_slice(costs) - _INSTANT:
        return holder
    if not policy.cuts and state.live == sum([other.trial is not None for other in state.gpus]):
        return holder  # no trial waits, so no rank would change anything
    best: Ranked | None = None
    own: Ranked | None = None
    for ranked in policy.rank(setup.job, state.unfinished(), state.snapshot()):
        trial, admission = by_key[ranked.trial], ranked.admission
        if admission is Admission.STOP and (trial is holder or not trial.placed):
            _stop(state, trial)  # a trial on another GPU ends when that GPU decides
        if trial is holder:
            own = ranked if admission is Admission.GO else None
            break
        if best is None and admission is Admission.GO and _eligible(trial, gpu):
            best = ranked
            if holder is None:
                break
    if own is None:
        return None if best is None else by_key[best.trial]
    if best is None or holder is None:
        return holder
    chosen = by_key[best.trial]
    if rules.bare_rank:
        return chosen if (best.level, -best.score) < (own.level, -own.score) else holder
    held = state.now - gpu.since if rules.measured_slices else math.inf
    incumbent = CurrentHolder(Standing(holder.view, setup.job, policy, own), held, held)
    rival = Standing(chosen.view, setup.job, policy, best)
    return chosen if judge_switch(rival, incumbent, costs, HeldGpus(), lambda: 1.0).switch else holder


def _eligible(trial: SimTrial, gpu: SimGpu) -> bool:
    return not trial.placed and not trial.stopped and trial.queue in (None, gpu.index)


def _stop(state: ReplayState, trial: SimTrial) -> None:
    trial.stopped = True
    state.live -= 1
    trial.publish(TrialPhase.EARLY_STOPPED)
