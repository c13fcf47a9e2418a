"""When a search starts its next trial and when it ends: simulated from its present state, with an interval.

The simulated system runs the planner's own code on the present state of the search and of its rivals. What is not known
is sampled (`futures`), so each sample gives another start and end. The interval holds the given share of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from podium_core.domain.keys import JobKey
from podium_core.domain.phrases import count
from podium_core.policies.fifo import Fifo
from podium_core.waiting.explain import rivals
from podium_core.waiting.explanation import GpuState
from podium_core.waiting.gpus import gpu_states
from podium_core.waiting.objects import StoredObjects, key_of, names_by_uid
from podium_simulator.expected.futures import Pace, draw_futures, ends_at, pace_of
from podium_simulator.expected.histories import SearchHistory, TrialHistory, search_history
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import NodeSpec, Scenario, SimJob, SimulationError, Timing, TrialProgress
from podium_simulator.system.results.outcome import Outcome
from podium_simulator.traces.trace import RecordedTrial

MAX_TRIALS = 3_000  # unfinished trials of all simulated searches
MAX_EVALUATIONS = 12_000  # of one sample: fewer points a curve where there are many trials
MOST_POINTS, FEWEST_POINTS = 20, 4  # of a whole curve
TIME_LIMIT_FACTOR = 20.0  # a sample is abandoned after this multiple of what one GPU would take for all
MIN_SAMPLES = 5  # fewer give no interval
# of local mode: processes, no pods
LOCAL = Timing(place=0.05, gate=0.05, record_start=0.05, processes_found=0.05, load=0.5, ended=0.1)
CPUS = "cpus"  # stands for the places of trials without a GPU
Draw = Callable[[SearchHistory, int], tuple[RecordedTrial, ...]]  # whole curves by number, for a seed


@dataclass(frozen=True, slots=True)
class Sampling:
    """Limits of the sampling: `samples` at most, and no further one after `seconds` of `clock`.

    `level`: share of the samples inside an interval. `step_seconds`: seconds of one step, for searches in which no
    trial has made one.
    """

    samples: int = 19
    seconds: float = 5.0
    level: float = 0.8
    seed: int = 0
    step_seconds: float | None = None
    clock: Callable[[], float] = lambda: 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds from now: the median of the samples and the ends of the interval.

    Infinity: never in these samples.
    """

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class TrialStart:
    """When a waiting trial gets its GPUs.

    None: in most samples it never does, because its policy ends it before.
    """

    trial: str
    start: Interval | None


@dataclass(frozen=True, slots=True)
class ExpectedTimes:
    """Expected times of a search.

    `start`: when its next waiting trial gets a GPU. `end`: when it ends. `unknown`: why neither is known.
    """

    start: Interval | None = None
    end: Interval | None = None
    starts: tuple[TrialStart, ...] = ()
    level: float = 0.8
    samples: int = 0
    assumptions: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Present:
    """The state from which a simulation begins; the search in question is the first one.

    `gpus`: name of the simulated GPU by the UUID of the real one.
    """

    searches: tuple[SearchHistory, ...]
    nodes: tuple[NodeSpec, ...]
    gpus: Mapping[str, str]
    timing: Timing
    assumptions: tuple[str, ...] = ()


def expected_times(
    objects: StoredObjects, key: JobKey, sampling: Sampling | None = None, timing: Timing | None = None
) -> ExpectedTimes:
    """Return when the job's next trial starts and when the job ends.

    Raises KeyError if the job is not among the objects.

    It is slow (up to `sampling.seconds`, and one sample more). For a job that cannot run (`JobExplanation.blocked`) the
    times are those after the cause is removed, so callers do not ask then.
    """
    sampling = sampling or Sampling()
    job = objects.job(key)
    if job.spec.search.algorithm == "pbt":
        return ExpectedTimes(unknown="A population replaces its trials, which is not simulated here.")
    search = search_history(objects, job)
    present: Present | str
    if search.view.gpus.per_trial == 0:
        present = _on_cpus(search, timing or Timing())
    else:
        gpus = gpu_states(search.view, objects.nodes, names_by_uid(objects.trials))
        keys = set(rivals(objects, search.view, gpus)) - {key}
        others = [search_history(objects, one) for one in objects.open_jobs() if key_of(one) in keys]
        present = _on_gpus(search, others, objects, gpus, timing or Timing())
    if isinstance(present, str):
        return ExpectedTimes(unknown=present)
    return simulated_times(present, sampling)


def simulated_times(present: Present, sampling: Sampling, known: Sequence[Draw] = ()) -> ExpectedTimes:
    """Return the times by simulation.

    `known`: curves of each search, for tests in which nothing is unknown.
    """
    search = present.searches[0]
    draws, others, left_out = _draws(present, sampling, known)
    if draws is None:
        return ExpectedTimes(unknown=left_out)
    unfinished = sum(_unfinished(one) for one in others)
    if unfinished > MAX_TRIALS:
        text = f"{unfinished} unfinished trials are more than are simulated ({MAX_TRIALS})"
        return ExpectedTimes(unknown=f"{text}; the job's status has an estimate without an interval.")
    begun, outcomes, failed = sampling.clock(), list[Outcome](), 0
    for seed in range(sampling.samples):
        curves = [draw(one, sampling.seed + seed) for draw, one in zip(draws, others, strict=True)]
        try:
            outcomes.append(simulate(_scenario(present, others, curves, seed)))
        except SimulationError:
            failed += 1
        passed = sampling.clock() - begun
        if passed + passed / (seed + 1) > sampling.seconds:
            break
    if not outcomes or failed > len(outcomes):
        return ExpectedTimes(unknown="The simulated search does not end: its trials may fit no node together.")
    key = search.view.key
    ends = [max(0.0, next(job.ended for job in one.jobs if job.job == key)) for one in outcomes]
    names = {trial.number: trial.name for trial in search.trials if trial.ended is None and not trial.holds}
    starts = [_starts(one, key) for one in outcomes]
    level = sampling.level
    firsts = [min((at for number, at in one.items() if not _holds(search, number)), default=math.inf) for one in starts]
    first = _interval(firsts, level) if any(map(math.isfinite, firsts)) else None
    each = tuple(
        TrialStart(name, _interval([one.get(number, math.inf) for one in starts], level))
        for number, name in names.items()
    )
    assumptions = [*present.assumptions, *([left_out] if left_out else [])]
    if len(outcomes) < MIN_SAMPLES:
        assumptions.append(
            f"only {count(len(outcomes), 'sample')} fitted into the time limit: the interval is too narrow"
        )
    return ExpectedTimes(
        start=None if first is None or math.isinf(first.median) else first,
        end=_interval(ends, level),
        starts=tuple(s if s.start and math.isfinite(s.start.median) else replace(s, start=None) for s in each),
        level=level,
        samples=len(outcomes),
        assumptions=tuple(assumptions),
    )


def _draws(
    present: Present, sampling: Sampling, known: Sequence[Draw]
) -> tuple[list[Draw] | None, list[SearchHistory], str]:
    """Return how the curves of each search are drawn, those searches, and which are left out and why."""
    if known:
        return list(known), list(present.searches), ""
    draws: list[Draw] = []
    kept: list[SearchHistory] = []
    missing: list[str] = []
    total = sum(_unfinished(one) for one in present.searches)
    points = max(FEWEST_POINTS, min(MOST_POINTS, MAX_EVALUATIONS // max(1, total)))
    for place, search in enumerate(present.searches):
        pace, ends = pace_of(search, sampling.step_seconds if place == 0 else None), ends_at(search)
        if pace is not None and ends:
            draws.append(_sampled(pace, ends, points))
            kept.append(search)
            continue
        if place == 0:
            why = "no trial has made a step yet" if pace is None else "no trial has ended yet, and maxSteps is not set"
            cure = "give --step-seconds" if pace is None else "set trials.maxSteps"
            return None, [], f"How long a trial takes is not known: {why}; wait, or {cure}."
        missing.append(search.view.key.name)
    text = f"how long trials of {', '.join(missing)} take is not known: they are left out" if missing else ""
    return draws, kept, text


def _sampled(pace: Pace, ends: Sequence[float], points: int) -> Draw:
    def draw(search: SearchHistory, seed: int) -> tuple[RecordedTrial, ...]:
        return draw_futures(search, pace, ends, points, np.random.default_rng([seed, len(search.view.key.name)]))

    return draw


def _scenario(
    present: Present, searches: Sequence[SearchHistory], curves: Sequence[tuple[RecordedTrial, ...]], seed: int
) -> Scenario:
    taken: set[str] = set()
    jobs = [_sim_job(search, mine, present.gpus, taken) for search, mine in zip(searches, curves, strict=True)]
    timing = present.timing
    start = timing.place + timing.gate + timing.load + timing.ended
    longest = TIME_LIMIT_FACTOR * sum(curve.length + start for job in jobs for curve in job.curves)
    return Scenario(present.nodes, tuple(jobs), timing, seed=seed, longest=longest)


def _sim_job(
    search: SearchHistory, curves: tuple[RecordedTrial, ...], gpus: Mapping[str, str], taken: set[str]
) -> SimJob:
    """Return a search with its present state. `taken`: GPUs that are held already; it grows."""
    view = search.view
    if view.directions:  # recorded curves have one metric: fifo too ends no trial early
        view = replace(view, policy=Fifo.name, settings={}, directions=())
    if view.gpus.per_trial == 0:
        view = replace(view, gpus=replace(view.gpus, per_trial=1), policy=Fifo.name, settings={})
    progress = tuple(_progress(trial, gpus, view.gpus.per_trial, taken) for trial in search.trials)
    return SimJob(view, curves, search.method, progress=progress)


def _progress(trial: TrialHistory, gpus: Mapping[str, str], width: int, taken: set[str]) -> TrialProgress:
    there = tuple(gpus[uuid] for uuid in trial.gpus if uuid in gpus)
    placed = there if len(there) == width else ()
    # while GPUs change hands, statuses may show two holders; the second one waits
    holds = trial.holds and bool(placed) and taken.isdisjoint(placed)
    taken.update(placed if holds else ())
    return TrialProgress(
        number=trial.number,
        values=trial.times,
        trained=trial.trained,
        gpu_seconds=trial.gpu_seconds,
        ended=trial.ended,
        gpus=placed,
        holds=holds,
    )


def _on_gpus(
    search: SearchHistory,
    others: Sequence[SearchHistory],
    objects: StoredObjects,
    gpus: Sequence[GpuState],
    timing: Timing,
) -> Present | str:
    """Return the present state on the GPUs that the job can use, or why there is none."""
    unseen = {gpu.uuid for gpu in gpus if gpu.use == "held" and not gpu.job}
    usable = {gpu.uuid for gpu in gpus if gpu.use != "unusable"} - unseen
    specs: list[NodeSpec] = []
    names: dict[str, str] = {}
    for node in sorted(objects.nodes, key=lambda node: node.metadata.name):
        there = [gpu for gpu in node.status.gpus if gpu.uuid in usable]
        if there:
            slots = max(1, min(gpu.slots - len(gpu.other_pods) for gpu in there))
            memory = min(gpu.memory_total for gpu in there)
            specs.append(NodeSpec(node.metadata.name, len(there), slots, memory))
            names.update({gpu.uuid: f"{node.metadata.name}-gpu{place}" for place, gpu in enumerate(there)})
    if not specs:
        return "No GPU that the job could use is known to become free."
    need = search.view.gpus
    if sum(spec.gpus >= need.per_worker for spec in specs) < need.workers:
        where = "No node has" if need.workers == 1 else f"No {need.workers} nodes have"
        each = "" if need.workers == 1 else " each"
        return f"{where} {need.per_worker} GPUs{each} that the job could use."
    assumptions = [
        f"{count(len(names), 'GPU')} can run trials of this search, and that remains so",
        "no further job arrives, and nothing fails",
    ]
    if len(names) < len(gpus):
        text = f"{len(gpus) - len(names)} of {count(len(gpus), 'GPU')} are left out: other pods or namespaces have them"
        assumptions.append(f"{text}, or they do not fit")
    if others:
        assumptions.append(f"it shares the GPUs with {', '.join(one.view.key.name for one in others)}")
    return Present((search, *others), tuple(specs), names, _timing(search, timing), (*assumptions, *_notes(search)))


def _on_cpus(search: SearchHistory, timing: Timing) -> Present:
    """Return the present state of a search whose trials use no GPU: each place stands for a GPU with one slot."""
    width = search.view.limits.parallel or max(1, sum(trial.holds for trial in search.trials))
    spec = NodeSpec(CPUS, width, 1)
    holders = [trial for trial in search.trials if trial.ended is None and trial.holds][:width]
    names = {f"{trial.number}": f"{CPUS}-gpu{place}" for place, trial in enumerate(holders)}
    trials = tuple(replace(t, gpus=(str(t.number),) if str(t.number) in names else ()) for t in search.trials)
    assumptions = (f"{count(width, 'trial')} at a time, without GPUs", "nothing fails", *_notes(search))
    return Present((replace(search, trials=trials),), (spec,), names, _timing(search, timing), assumptions)


def _timing(search: SearchHistory, timing: Timing) -> Timing:
    """Return the timing. The start of a trial is part of its curve where one was measured."""
    if search.start_seconds is None:
        return timing
    return replace(timing, load=0.0, processes_found=min(timing.processes_found, timing.load))


def _notes(search: SearchHistory) -> list[str]:
    notes = []
    if search.suspended:
        notes.append(f"{count(search.suspended, 'suspended trial')} count as ended: nothing says when they continue")
    if search.view.directions:
        notes.append("no trial is stopped early, because a simulation has one metric")
    return notes


def _unfinished(search: SearchHistory) -> int:
    ended = sum(trial.ended is not None for trial in search.trials)
    return max(len(search.trials), search.view.limits.max_trials) - ended


def _starts(outcome: Outcome, key: JobKey) -> dict[int, float]:
    """Return when each trial of a job first holds its GPUs in a simulation, by number."""
    mine = {trial.trial for trial in outcome.trials if trial.job == key}
    first: dict[int, float] = {}
    for span in outcome.spans:
        if span.trial in mine:
            first[span.number] = min(first.get(span.number, math.inf), span.start)
    return first


def _holds(search: SearchHistory, number: int) -> bool:
    return any(trial.number == number and trial.holds for trial in search.trials)


def _interval(values: Sequence[float], level: float) -> Interval:
    """Return median and interval; with few samples the interval reaches to the outermost ones."""
    ordered, tail = sorted(values), (1.0 - level) / 2.0
    last = len(ordered) - 1
    low = max(
        0, math.floor(tail * (last + 2) + 1e-9) - 1
    )  # order statistics k and n + 1 - k hold (n + 1 - 2 k) / (n + 1)
    return Interval(ordered[low], ordered[last // 2] if last % 2 == 0 else _middle(ordered), ordered[last - low])


def _middle(ordered: Sequence[float]) -> float:
    place = len(ordered) // 2
    return (ordered[place - 1] + ordered[place]) / 2.0
