"""Replay of a search's curves under every policy: what the default saved against first come, first served.

The curves are those of the trials that have completed. Each repetition puts them into another random order. It ends
after a number of repetitions or a time, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from time import monotonic

import numpy as np

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Costs
from podium_core.policies.registry import FOR_ONE_OBJECTIVE
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.background.tasks import UnknownError
from podium_simulator.replay.comparison import BASE, compare
from podium_simulator.replay.metrics import Score
from podium_simulator.replay.samples import Machine
from podium_simulator.replay.statistics import METRICS, Ratio, RunKey, ratios, summary
from podium_simulator.traces.trace import Trace, TraceError
from podium_views.job_snapshot import JobSnapshot
from podium_views.trace import trace_of

FEWEST, MOST = 4, 64  # trials of a repetition
REPETITIONS, SECONDS = 12, 30.0  # no further repetition that would end later
MEASURE, MEASURE_TEXT = "time_to_best", "Until the best has completed"
USUAL_SWITCH = 0.2  # seconds of a suspension and of a resumption before any was measured


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy: seconds until the best trial has completed, and fifo's time over its time.

    The seconds are the median of the repetitions.
    """

    name: str
    seconds: float | None
    ratio: Ratio | None


@dataclass(frozen=True, slots=True)
class Replay:
    """Results of all policies, the fastest first.

    `suspend`, `resume`: seconds of a switch, as measured.
    """

    policies: tuple[PolicyResult, ...]
    trials: int
    left_out: int
    gpus: int
    suspend: float
    resume: float
    repetitions: int

    def of(self, policy: str) -> PolicyResult | None:
        """Return the result of one policy."""
        return next((one for one in self.policies if one.name == policy), None)


def replayed(job: HyperParamJob, trials: Sequence[HyperParamTrial]) -> Replay:
    """Return the comparison. Raises UnknownError where the curves do not allow one."""
    if job.spec.objectives is not None:
        raise UnknownError("A search with several objectives has no single best trial, so it is not replayed.")
    trace = trace_of(JobSnapshot(job, tuple(trials), (), datetime.now(UTC)))
    if len(trace.trials) < FEWEST:
        text = f"Not enough completed trials: {len(trace.trials)} have a whole curve, and {FEWEST} are needed."
        raise UnknownError(text)
    if all(diverged(value) for trial in trace.trials for value in trial.values):
        raise UnknownError("No completed trial has a finite value.")
    machine = _machine(job, trials)
    try:
        scores = _scores(trace, machine)
    except TraceError as error:
        raise UnknownError(f"The curves cannot be replayed: {error}") from error
    results = [_result(name, mine, scores[BASE]) for name, mine in scores.items()]
    results.sort(key=lambda one: (-(one.ratio.mean if one.ratio else 0.0), one.name))
    return Replay(
        policies=tuple(results),
        trials=min(MOST, len(trace.trials)),
        left_out=trace.left_out,
        gpus=machine.gpus,
        suspend=machine.costs.suspend,
        resume=machine.costs.resume,
        repetitions=len(scores[BASE]),
    )


def _scores(trace: Trace, machine: Machine) -> dict[str, dict[RunKey, Score]]:
    scores: dict[str, dict[RunKey, Score]] = {}
    began = monotonic()
    for seed in range(REPETITIONS):
        once = compare(trace, FOR_ONE_OBJECTIVE, machine, range(seed, seed + 1), MOST)
        for name, mine in once.scores.items():
            scores.setdefault(name, {}).update(mine)
        passed = monotonic() - began
        if passed + passed / (seed + 1) > SECONDS:
            break
    return scores


def _result(name: str, mine: dict[RunKey, Score], base: dict[RunKey, Score]) -> PolicyResult:
    seconds = [value for score in mine.values() if (value := METRICS[MEASURE](score)) is not None]
    gains = ratios(mine, base, MEASURE)
    return PolicyResult(
        name, median(seconds) if seconds else None, summary(gains.values(), np.random.default_rng(0)) if gains else None
    )


def _machine(job: HyperParamJob, trials: Sequence[HyperParamTrial]) -> Machine:
    """Return as many GPUs as the search has used at a time, at most, with the measured seconds of a switch."""
    used = {uuid for trial in trials for one in trial.status.allocations for uuid in one.gpus}
    width = max(1, job.spec.gpus.per_trial)
    past = [trial.status.suspensions for trial in trials]
    count = sum(one.count for one in past)
    suspend = sum(one.suspend_seconds for one in past) / count if count else USUAL_SWITCH
    resume = sum(one.resume_seconds for one in past) / count if count else USUAL_SWITCH
    asked = job.spec.trials.parallel
    parallel = asked if isinstance(asked, int) else 1
    return Machine(max(1, len(used) // width) if used else parallel, Costs(suspend, resume))
