"""One search on a cluster against the same search in the simulated system. Used by bench_reality.

What the simulation takes from the run: when each trial trained (its curve), the nodes, where each pod was and what its
start and its end took (reality_starts), what a suspension took. What it does not: who was let on a GPU, when, and why,
and who was stopped: the curve of one that was goes on (reality_curves), so that its end is the simulation's own affair.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reality_curves import curve, usual_first
from reality_forecast import Run, run_of
from reality_pods import PodTimes, first_pods
from reality_starts import end_of, starts, stopped, usual_gap
from scipy.stats import kendalltau

from podium_cli.job_snapshot import JobSnapshot
from podium_cli.objects import saved_at, snapshot_of
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView
from podium_core.planning.job_view import job_view
from podium_core.schema.trial import HyperParamTrial
from podium_simulator.system.engine import simulate
from podium_simulator.system.outcome import Outcome
from podium_simulator.system.scenario import Method, NodeSpec, Scenario, SimJob

BARS = {"tau": 0.9, "finish_error_median": 0.10, "finish_error_p90": 0.25}
BEGINS_A_TURN = frozenset({"starting", "resuming"})
APPLIED = "podium.dev/bench-applied-at"  # annotation of the job: seconds since the epoch
GATES, AGENTS = ".gates.log", ".agents.log"  # beside a search's objects
OPERATOR_CYCLE, TURN_REPORT = 2.0, 5.0  # seconds; settings of operator and agent
TurnKey = tuple[int, int]  # trial number, which of its turns


@dataclass(frozen=True, slots=True)
class Pair:
    """Seconds from the job's creation."""

    real: float
    simulated: float


@dataclass(frozen=True, slots=True)
class Search:
    """What the cluster's objects say of one search; times count from the job's creation. `stopped`: numbers of the
    trials that were ended early.
    """

    scenario: Scenario
    turns: dict[TurnKey, float]
    ends: dict[int, float]
    stopped: frozenset[int]
    run: Run


@dataclass(frozen=True, slots=True)
class Comparison:
    """`matched`: share of all turns, real and simulated, that the other side has as well; `stopped`: trials that were
    ended early, real, simulated, and in both.
    """

    turns: tuple[Pair, ...]
    finishes: tuple[Pair, ...]
    counts: tuple[int, int]
    matched: float
    tau: float
    stopped: tuple[int, int, int]

    def error(self, share: float) -> float:
        """Of the finish times, relative to the real ones, at this quantile (nearest rank)."""
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
        real, simulated = self.counts
        held = "yes" if self.held else "NO"
        cells = (
            f"{number} | {real} / {simulated} | {self.matched:.0%} | {self.tau:.3f} | {self.error(0.5):.1%}",
            f"{self.error(0.9):.1%} | {self.end.real:.0f} s / {self.end.simulated:.0f} s",
            f"{' / '.join(map(str, self.stopped))} | {held}",
        )
        return f"| {' | '.join(cells)} |"


def error_of(found: Sequence[Comparison], share: float) -> float:
    """The same over the trials of several searches: of one search the 90th percentile is its second worst trial."""
    errors = sorted(abs(f.simulated - f.real) / f.real for one in found for f in one.finishes)
    return errors[max(0, math.ceil(share * len(errors)) - 1)]


def read_searches(folder: Path) -> list[Search]:
    """A file of objects a search, and beside it, where it was saved, the log of its pods' gates."""
    found = []
    for path in sorted(folder.glob("*.json")):
        saved = json.loads(path.read_text(encoding="utf-8"))
        gates, agents = (_text(path.with_suffix(suffix)) for suffix in (GATES, AGENTS))
        pods = first_pods(saved["items"], gates, agents)
        found.append((snapshot_of([saved], None, None, saved_at([saved])), pods))
    return [search_of(seen, pods) for seen, pods in found]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def search_of(seen: JobSnapshot, pods: Mapping[str, PodTimes]) -> Search:
    """`pods`: by trial; one that was not saved takes the usual times."""
    trials = sorted(seen.trials, key=lambda trial: trial.spec.number)
    origin = _applied(seen)
    begun = starts(seen.job, trials, pods, origin)
    turns = {
        (trial.spec.number, place): hold.start.timestamp() - origin
        for trial in trials
        for place, hold in enumerate(sorted(trial.status.allocations, key=lambda hold: hold.start))
    }
    timing = replace(begun.timing, cycle=OPERATOR_CYCLE, holder_report=TURN_REPORT)
    view = job_view(seen.job, points=None, accepted=True, finished=False, suspendable=True)
    rhythm, first = usual_gap(trials), usual_first(trials)
    curves = tuple(
        curve(trial, fact.load or 0.0, seen.job.spec.trials.max_steps, rhythm, first)
        for trial, fact in zip(trials, begun.facts, strict=True)
    )
    job = SimJob(_from_zero(view), curves, _method(trials), facts=begun.facts)
    nodes = tuple(
        NodeSpec(node.metadata.name, len(gpus), gpus[0].slots, gpus[0].memory_total)
        for node in seen.nodes
        if (gpus := node.status.gpus)
    )
    ends = {trial.spec.number: end_of(trial) - origin for trial in trials if trial.status.finished_at}
    early = frozenset(trial.spec.number for trial in trials if stopped(trial))
    return Search(Scenario(nodes, (job,), timing), turns, ends, early, run_of(seen, origin))


def compared(search: Search) -> Comparison:
    return likened(search.turns, search.ends, search.stopped, simulate(search.scenario))


def likened(
    turns: Mapping[TurnKey, float], ends: Mapping[int, float], early: frozenset[int], outcome: Outcome
) -> Comparison:
    """Turns, ends and stopped trials of one course of a search, and another course of it, simulated."""
    mine, ended = turns_of(outcome), ends_of(outcome)
    both = sorted(turns.keys() & mine.keys())
    pairs = tuple(Pair(turns[key], mine[key]) for key in both)
    finishes = tuple(Pair(real, ended[number]) for number, real in sorted(ends.items()) if number in ended)
    tau = float(kendalltau([p.real for p in pairs], [p.simulated for p in pairs]).statistic)
    counts, stops = (len(turns), len(mine)), stopped_in(outcome)
    return Comparison(
        pairs, finishes, counts, 2.0 * len(both) / sum(counts), tau, (len(early), len(stops), len(early & stops))
    )


def ends_of(outcome: Outcome) -> dict[int, float]:
    return {trial.number: trial.ended for trial in outcome.trials if trial.ended is not None}


def stopped_in(outcome: Outcome) -> frozenset[int]:
    return frozenset(trial.number for trial in outcome.trials if trial.phase is TrialPhase.EARLY_STOPPED)


def turns_of(outcome: Outcome) -> dict[TurnKey, float]:
    starts: dict[int, list[float]] = defaultdict(list)
    for span in sorted(outcome.spans, key=lambda span: span.start):
        if span.use in BEGINS_A_TURN:
            starts[span.number].append(span.start)
    return {(number, place): start for number, found in starts.items() for place, start in enumerate(found)}


def _applied(seen: JobSnapshot) -> float:
    """When the job was made; where bench_reality has not noted it, the API server's whole second."""
    created = seen.job.metadata.creation_timestamp
    assert created is not None, "the API server sets it"
    return float(seen.job.metadata.annotations.get(APPLIED, created.timestamp()))


def _from_zero(view: JobView) -> JobView:
    return replace(view, created=0.0, deadline=None)


def _method(trials: Sequence[HyperParamTrial]) -> Method:
    """Means of what suspensions took; 1 ms where none was made."""
    count = sum(trial.status.suspensions.count for trial in trials)
    out = sum(trial.status.suspensions.suspend_seconds for trial in trials)
    back = sum(trial.status.suspensions.resume_seconds for trial in trials)
    return Method(suspend=out / count, resume=max(back / count, 1e-4)) if count else Method(suspend=1e-3, resume=1e-3)
