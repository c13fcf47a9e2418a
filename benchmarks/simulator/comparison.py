"""One search on a cluster against the same search in the simulated system.

The simulation takes from the run: when each trial trained (its curve), the nodes, where each pod was, what its start
and its end took (`starts`), and what a suspension took. It does not take which trial was given a GPU, when and why, or
which trials were stopped: the curve of a stopped trial is continued, so that the simulation decides its end by itself.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from scipy.stats import kendalltau

from benchmarks.simulator.forecast import Run, run_of
from benchmarks.simulator.pod_times import PodTimes, first_pods
from benchmarks.simulator.starts import end_of, gap, held, starts, stopped, usual_gap
from podium_cli.objects import saved_at, snapshot_of
from podium_core.domain.phase import TrialPhase
from podium_core.planning.job_view import job_view
from podium_core.schema.trial import HyperParamTrial
from podium_core.testing.builders import change_job
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial
from podium_views.job_snapshot import JobSnapshot

BARS = {"tau": 0.9, "finish_error_median": 0.10, "finish_error_p90": 0.25}
STARTS_A_TIME_SLICE = frozenset({"starting", "resuming"})
APPLIED = "podium.dev/bench-applied-at"  # annotation of the job: seconds since the epoch
GATES, AGENTS = ".gates.log", ".agents.log"  # beside a search's objects
OPERATOR_CYCLE, HOLDER_REPORT = 2.0, 5.0  # seconds; settings of operator and agent
SliceKey = tuple[int, int]  # trial number, which of its time slices


@dataclass(frozen=True, slots=True)
class Pair:
    """The same moment on the cluster and simulated, in seconds from the job's creation."""

    real: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Search:
    """What the cluster's objects show of one search; times are seconds from the job's creation.

    `slices`: when each time slice began; `stopped`: numbers of the trials that were stopped early.
    """

    scenario: Scenario
    slices: dict[SliceKey, float]
    ends: dict[int, float]
    stopped: frozenset[int]
    run: Run


@dataclass(frozen=True, slots=True)
class Comparison:
    """One search on the cluster and simulated.

    `counts`: time slices, real and simulated; `matched`: share of all time slices, real and simulated, that the other
    side has too; `stopped`: trials that were stopped early, real, simulated, and in both.
    """

    slices: tuple[Pair, ...]
    finishes: tuple[Pair, ...]
    counts: tuple[int, int]
    matched: float
    tau: float
    stopped: tuple[int, int, int]

    def error(self, share: float) -> float:
        """Return the relative error of the finish times at this quantile (nearest rank)."""
        return error_of((self,), share)

    @property
    def end(self) -> Pair:
        return Pair(max(f.real for f in self.finishes), max(f.simulated for f in self.finishes))

    @property
    def job_error(self) -> float:
        return abs(self.end.simulated - self.end.real) / self.end.real

    @property
    def held(self) -> bool:
        within = self.error(0.5) <= BARS["finish_error_median"] and self.error(0.9) <= BARS["finish_error_p90"]
        return within and self.tau >= BARS["tau"]

    def row(self, number: int) -> str:
        """Return one row of the table."""
        real, simulated = self.counts
        held_text = "yes" if self.held else "NO"
        cells = (
            f"{number} | {real} / {simulated} | {self.matched:.0%} | {self.tau:.3f} | {self.error(0.5):.1%}",
            f"{self.error(0.9):.1%} | {self.end.real:.0f} s / {self.end.simulated:.0f} s",
            f"{' / '.join(map(str, self.stopped))} | {held_text}",
        )
        return f"| {' | '.join(cells)} |"


def error_of(comparisons: Sequence[Comparison], share: float) -> float:
    """Return the same error over the trials of several searches.

    One search has few trials: its 90th percentile is its second worst trial.
    """
    errors = sorted(abs(f.simulated - f.real) / f.real for one in comparisons for f in one.finishes)
    return errors[max(0, math.ceil(share * len(errors)) - 1)]


def read_searches(folder: Path) -> list[Search]:
    """Read one file of objects for each search, and the logs of its gates and agents beside it."""
    saved_searches = []
    for path in sorted(folder.glob("*.json")):
        saved = json.loads(path.read_text(encoding="utf-8"))
        gates, agents = (_text(path.with_suffix(suffix)) for suffix in (GATES, AGENTS))
        pods = first_pods(saved["items"], gates, agents)
        saved_searches.append((snapshot_of([saved], None, None, saved_at([saved])), pods))
    return [search_of(snapshot, pods) for snapshot, pods in saved_searches]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def search_of(snapshot: JobSnapshot, pods: Mapping[str, PodTimes]) -> Search:
    """Return a search from its objects.

    `pods`: by trial; a trial without saved times takes the usual ones.
    """
    trials = sorted(snapshot.trials, key=lambda trial: trial.spec.number)
    origin = _applied(snapshot)
    begun = starts(snapshot.job, trials, pods, origin)
    slices = {
        (trial.spec.number, index): hold.start.timestamp() - origin
        for trial in trials
        for index, hold in enumerate(sorted(trial.status.allocations, key=lambda hold: hold.start))
    }
    timing = replace(begun.timing, cycle=OPERATOR_CYCLE, holder_report=HOLDER_REPORT)
    view = job_view(snapshot.job, points=None, accepted=True, finished=False, suspendable=True)
    usual = usual_gap(trials), *usual_first(trials)
    curves = tuple(
        curve(trial, fact.load or 0.0, snapshot.job.spec.trials.max_steps, usual)
        for trial, fact in zip(trials, begun.facts, strict=True)
    )
    job = SimJob(change_job(view, created=0.0, deadline=None), curves, _method(trials), facts=begun.facts)
    nodes = tuple(
        NodeSpec(node.metadata.name, len(gpus), gpus[0].slots, gpus[0].memory_total)
        for node in snapshot.nodes
        if (gpus := node.status.gpus)
    )
    ends = {trial.spec.number: end_of(trial) - origin for trial in trials if trial.status.finished_at}
    early = frozenset(trial.spec.number for trial in trials if stopped(trial))
    return Search(Scenario(nodes, (job,), timing), slices, ends, early, run_of(snapshot, origin))


def curve(
    trial: HyperParamTrial, load: float, max_steps: float | None, usual: tuple[float, float, float]
) -> RecordedTrial:
    """Return the trial's values at the times at which it trained; the last one when its process ended.

    A stopped trial shows only a part of its curve. The rest is not known, and the curve must not reveal the stop: it is
    continued to maxSteps at the trial's own pace, with its last value. `usual`: seconds between two values, first step
    and first value, for a trial that was stopped before it showed any.
    """
    pace, first_step, first_value = usual
    points = trial.status.curve.points
    steps, values = [point.step for point in points], [point.value for point in points]
    trained = [held(trial, point.time) - load for point in points]
    if not stopped(trial):
        trained[-1] = held(trial, math.inf) - load
    elif not points:
        steps, values, trained = [first_step], [first_value], [pace]
    seconds: list[float] = []
    for moment in trained:
        seconds.append(max(moment, (seconds[-1] if seconds else 0.0) + 1e-3))
    if stopped(trial) and max_steps is not None:
        apart, takes = _step_gap(steps), gap(trial) or pace
        while steps[-1] < max_steps:
            step = min(steps[-1] + apart, max_steps)
            seconds.append(seconds[-1] + takes * (step - steps[-1]) / apart)
            steps.append(step)
            values.append(values[-1])
    return RecordedTrial(trial.metadata.name, trial.spec.parameters, tuple(seconds), tuple(values), tuple(steps))


def _step_gap(steps: Sequence[float]) -> float:
    return median(b - a for a, b in pairwise(steps)) if len(steps) > 1 else steps[0]


def usual_first(trials: Sequence[HyperParamTrial]) -> tuple[float, float]:
    """Return the medians of the first steps and of the first values."""
    first_points = [trial.status.curve.points[0] for trial in trials if trial.status.curve.points]
    return median(point.step for point in first_points), median(point.value for point in first_points)


def compared(search: Search) -> Comparison:
    """Simulate the search and compare."""
    return compare(search.slices, search.ends, search.stopped, simulate(search.scenario))


def compare(
    slices: Mapping[SliceKey, float], ends: Mapping[int, float], early: frozenset[int], outcome: Outcome
) -> Comparison:
    """Compare time slices, ends and stopped trials of one course of a search with a simulated course."""
    simulated, simulated_ends = slices_of(outcome), ends_of(outcome)
    both = sorted(slices.keys() & simulated.keys())
    pairs = tuple(Pair(slices[key], simulated[key]) for key in both)
    finishes = tuple(
        Pair(real, simulated_ends[number]) for number, real in sorted(ends.items()) if number in simulated_ends
    )
    tau = float(kendalltau([p.real for p in pairs], [p.simulated for p in pairs]).statistic)
    counts, stops = (len(slices), len(simulated)), stopped_in(outcome)
    return Comparison(
        pairs, finishes, counts, 2.0 * len(both) / sum(counts), tau, (len(early), len(stops), len(early & stops))
    )


def ends_of(outcome: Outcome) -> dict[int, float]:
    """Return the end of each trial by number."""
    return {trial.number: trial.ended for trial in outcome.trials if trial.ended is not None}


def stopped_in(outcome: Outcome) -> frozenset[int]:
    """Return the numbers of the trials that were stopped early."""
    return frozenset(trial.number for trial in outcome.trials if trial.phase is TrialPhase.EARLY_STOPPED)


def slices_of(outcome: Outcome) -> dict[SliceKey, float]:
    """Return when each time slice began."""
    begins: dict[int, list[float]] = defaultdict(list)
    for span in sorted(outcome.spans, key=lambda span: span.start):
        if span.use in STARTS_A_TIME_SLICE:
            begins[span.number].append(span.start)
    return {(number, index): start for number, moments in begins.items() for index, start in enumerate(moments)}


def _applied(snapshot: JobSnapshot) -> float:
    """Return when the job was created.

    Where bench_reality did not record it, the API server's whole second.
    """
    created = snapshot.job.metadata.creation_timestamp
    assert created is not None, "the API server sets it"
    return float(snapshot.job.metadata.annotations.get(APPLIED, created.timestamp()))


def _method(trials: Sequence[HyperParamTrial]) -> Method:
    """Return the mean seconds of the suspensions; 1 ms where there was none."""
    count = sum(trial.status.suspensions.count for trial in trials)
    suspend = sum(trial.status.suspensions.suspend_seconds for trial in trials)
    resume = sum(trial.status.suspensions.resume_seconds for trial in trials)
    return (
        Method(suspend=suspend / count, resume=max(resume / count, 1e-4))
        if count
        else Method(suspend=1e-3, resume=1e-3)
    )
