"""How long starts and ends took, trial by trial, in a search on a cluster.

For each trial: created, at its gate, started, first step, known to have ended. It is derived from the trials and from
the saved times of their pods. None of it reveals which trial was given a GPU, when or why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.simulator.pod_times import PodTimes, moment
from podium_core.domain.phase import TrialPhase
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_simulator.system.inputs.scenario import PodFacts, Timing

USUAL = Timing()
ONE_CHECK = 0.02  # seconds: the agent handles gates that ask within this time together, in the run queue's order


@dataclass(frozen=True, slots=True)
class Starts:
    """Times in seconds. `facts`: by the trial's number; `timing`: for a trial without saved times."""

    facts: tuple[PodFacts, ...]
    timing: Timing


def starts(
    job: HyperParamJob, trials: Sequence[HyperParamTrial], pods: Mapping[str, PodTimes], origin: float
) -> Starts:
    """Return the starts of a search. `trials`: sorted by number; `origin`: when the job was created."""
    parallel = job.spec.trials.parallel
    at_once = len(trials) if parallel == "auto" else min(parallel, len(trials))
    ends = sorted((end_of(trial), trial.spec.number) for trial in trials if trial.status.finished_at is not None)
    stops = {trial.spec.number for trial in trials if stopped(trial)}  # their ends are known without a pod's report
    made = {trial.spec.number: origin + USUAL.debounce for trial in trials[:at_once]}
    known: dict[int, float] = {}
    for trial, (end, ended) in zip(trials[at_once:], ends, strict=False):
        assert trial.metadata.creation_timestamp is not None, "the API server sets it"
        pod, gate = pods.get(trial.metadata.name), math.inf
        if pod is not None and pod.asked is not None:
            gate = pod.asked
        made[trial.spec.number] = moment(trial.metadata.creation_timestamp.timestamp(), end, gate)
        if ended not in stops:
            known[ended] = max(0.0, made[trial.spec.number] - USUAL.debounce - end)
    gates = together({n: gate for n, gate in _gates(trials, pods, made) if gate is not None}, trials, made)
    pace = usual_gap(trials)
    loads = {
        trial.spec.number: _load(trial, pods.get(trial.metadata.name, PodTimes(None)), pace)
        for trial in trials
        if trial.status.allocations and trial.status.curve.points
    }
    load = median(loads.values())
    least = min(h.start.timestamp() for t in trials for h in t.status.allocations) - origin
    usual = median(gates.values()) if gates else least - 2.0 * USUAL.notice - USUAL.order
    timing = Timing(
        gate=max(0.0, usual - USUAL.place),
        load=load,
        progress=0.0,
        cycle=2.0,
        ended=median(known.values()) if known else USUAL.ended,
    )
    known_of = [pods.get(trial.metadata.name, PodTimes(None)) for trial in trials]
    facts = tuple(
        PodFacts(
            node="" if job.spec.trials.workers > 1 else trial.status.node or "",  # kube-scheduler breaks ties at random
            gate=gates.get(number),
            record_start=after_grant(trial, known_of[number].recorded),
            processes_found=after_grant(trial, known_of[number].processes),
            load=loads.get(number),
            ended=known.get(number),
        )
        for number, trial in enumerate(trials)
    )
    return Starts(facts, timing)


def _gates(
    trials: Sequence[HyperParamTrial], pods: Mapping[str, PodTimes], made: Mapping[int, float]
) -> Iterable[tuple[int, float | None]]:
    """Yield the seconds from a pod's creation, one reconciliation after its trial's, until its gate asked for a GPU."""
    for trial in trials:
        pod, number = pods.get(trial.metadata.name), trial.spec.number
        if pod is None or (pod.asked is None and pod.gate is None) or number not in made:
            continue
        if pod.asked is None and not trial.status.allocations:
            continue
        created = made[number] + USUAL.debounce
        asked = pod.asked
        if asked is None:
            assert pod.gate is not None
            asked = moment(pod.gate, created, min(hold.start.timestamp() for hold in trial.status.allocations))
        yield number, max(0.0, asked - created)


def together(
    gates: Mapping[int, float], trials: Sequence[HyperParamTrial], made: Mapping[int, float]
) -> Mapping[int, float]:
    """Return `gates` with those of one node that asked within ONE_CHECK moved to the last of them."""
    asked = sorted((trials[number].status.node or "", made[number] + gate, number) for number, gate in gates.items())
    groups: list[list[tuple[str, float, int]]] = []
    for one in asked:
        if groups and groups[-1][0][0] == one[0] and one[1] - groups[-1][0][1] <= ONE_CHECK:
            groups[-1].append(one)
        else:
            groups.append([one])
    return {number: group[-1][1] - made[number] for group in groups for _, _, number in group}


def after_grant(trial: HyperParamTrial, moment_of: float | None) -> float | None:
    """Return the seconds from the trial's open gate until this moment."""
    if moment_of is None or not trial.status.allocations:
        return None
    return max(0.0, moment_of - min(hold.start.timestamp() for hold in trial.status.allocations))


def _load(trial: HyperParamTrial, pod: PodTimes, pace: float) -> float:
    """Return the seconds until the first step, which cannot come before the agent knows the processes."""
    return max(0.0, held(trial, first_step(trial, pace)), after_grant(trial, pod.processes) or 0.0)


def first_step(trial: HyperParamTrial, pace: float) -> float:
    """Return when the first step began: one step before the first value."""
    return trial.status.curve.points[0].time - (gap(trial) or pace)


def stopped(trial: HyperParamTrial) -> bool:
    """Return whether the trial was stopped early, by its policy or in favour of another trial."""
    return trial.status.phase is TrialPhase.EARLY_STOPPED


def end_of(trial: HyperParamTrial) -> float:
    """Return when the trial released its GPU for the last time.

    The agent records it to the millisecond, the pod in whole seconds. For a stopped trial it is the operator's stop, in
    whole seconds: not an earlier suspension, and not the later end of its pod.
    """
    ends = [hold.end.timestamp() for hold in trial.status.allocations if hold.end is not None]
    assert trial.status.finished_at is not None
    finished = trial.status.finished_at.timestamp()
    if not stopped(trial):
        return max(ends, default=finished)
    begun = max((hold.start.timestamp() for hold in trial.status.allocations), default=-math.inf)
    return moment(finished, begun, min((end for end in ends if end >= finished), default=math.inf))


def held(trial: HyperParamTrial, until: float) -> float:
    """Return the seconds that the trial held a GPU before this moment."""
    seconds = 0.0
    for hold in trial.status.allocations:
        end = until if hold.end is None else min(until, hold.end.timestamp())
        seconds += max(0.0, end - hold.start.timestamp())
    return seconds


def gap(trial: HyperParamTrial) -> float | None:
    """Return the median seconds of training between two values; None: the trial did not report two."""
    reports = [held(trial, point.time) for point in trial.status.curve.points]
    return median(b - a for a, b in pairwise(reports)) if len(reports) > 1 else None


def usual_gap(trials: Sequence[HyperParamTrial]) -> float:
    """Return the gap to assume for a trial that reported fewer than two values."""
    return median(seconds for trial in trials if (seconds := gap(trial)) is not None)
