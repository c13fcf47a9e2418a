"""The runs of bench_hpo: which policies, on which pools, on which machines. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np

from podium_core.domain.snapshot import Costs
from podium_core.policies.asha import Asha
from podium_core.policies.base import Policy
from podium_core.policies.best_so_far import BestSoFar
from podium_core.policies.envelope import Envelope
from podium_core.policies.fifo import Fifo
from podium_core.policies.hermes import Hermes
from podium_core.policies.hyperband import Hyperband
from podium_core.policies.median_stop import MedianStop
from podium_core.policies.pop import Pop
from podium_core.policies.round_robin import RoundRobin
from podium_core.policies.slaq import Slaq
from podium_simulator.replay import statistics
from podium_simulator.replay.engine import replay
from podium_simulator.replay.metrics import Score, score
from podium_simulator.replay.oracle import Oracle
from podium_simulator.replay.samples import Machine, Sample, draw_sample
from podium_simulator.replay.state import DEFAULT_RULES, Rules
from podium_simulator.replay.statistics import RunKey
from podium_simulator.traces.trace import Trace, bundled_trace, load_all

SHORT, LONG = Costs(4.0, 4.0), Costs(30.0, 30.0)
BARE = Rules(bare_rank=True)


# keys of the tables -> metrics of the simulator
KEYS = {
    "a": "time_to_target",
    "a1": "time_to_near_best",
    "b": "time_to_best",
    "c": "mean_regret",
    "gpu": "gpu_seconds_to_best",
}


def ratios(scores: Mapping[RunKey, Score], base: Mapping[RunKey, Score], metric: str) -> dict[RunKey, float]:
    """Return `statistics.ratios` for a key of the tables."""
    return statistics.ratios(scores, base, KEYS[metric])


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy as it is measured. Rivals get the rules of their own definition: a bare rank is never worse for them."""

    make: Callable[[Sample], Policy]
    rules: Rules = BARE


ENTRANTS: Mapping[str, Entrant] = {
    "fifo": Entrant(lambda _: Fifo()),
    "round_robin": Entrant(lambda _: RoundRobin(), Rules(whole_slices=True)),
    "slaq": Entrant(lambda _: Slaq()),
    "hermes": Entrant(lambda _: Hermes(start="own"), Rules(queue_per_gpu=True, bare_rank=True)),
    "hermes_cluster": Entrant(lambda _: Hermes(), DEFAULT_RULES),
    "best_so_far": Entrant(lambda _: BestSoFar()),
    "median_stop": Entrant(lambda _: MedianStop()),
    "median_stop_suspend": Entrant(lambda _: MedianStop(on_cut="suspend")),
    "asha": Entrant(lambda _: Asha()),
    "asha_stop": Entrant(lambda _: Asha(on_cut="stop")),
    "hyperband": Entrant(lambda _: Hyperband()),
    "hyperband_stop": Entrant(lambda _: Hyperband(on_cut="stop")),
    "hyperband_async": Entrant(lambda _: Hyperband(mode="async")),
    "hyperband_async_stop": Entrant(lambda _: Hyperband(mode="async", on_cut="stop")),
    "pop": Entrant(lambda _: Pop()),
    "pop_suspend": Entrant(lambda _: Pop(on_cut="suspend")),
    "envelope": Entrant(lambda _: Envelope(), DEFAULT_RULES),
    "envelope_turns": Entrant(lambda _: Envelope(), Rules(measured_slices=True)),
    "envelope_no_floor": Entrant(lambda _: Envelope(min_share=0.0), DEFAULT_RULES),
    "oracle": Entrant(Oracle.of),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One replay. `pools`: own (this benchmark's draw), reference (refsim.md's), distinct (no configuration twice)."""

    curves: tuple[Path, ...]
    task: str
    pools: str
    seed: int
    size: int
    entrant: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class Run:
    family: str
    key: RunKey
    entrant: str
    gpus: int
    score: Score
    trained: float  # seconds that all trials of the pool take together
    horizon: float
    seconds: float  # CPU seconds of the replay
    decisions: int


def reference_draw(recording: Trace, seed: int, size: int = 64) -> Sample:
    """The draw that the development table of refsim.md was made with (its seeds are the same for every task)."""
    order = np.random.default_rng(1000 + seed).permutation(len(recording.trials))[:size]
    trials = tuple(recording.trials[i] for i in order)
    return Sample(recording.task, recording.family, seed, recording.maximize, recording.target, trials)


@cache
def recordings(paths: tuple[Path, ...]) -> Mapping[str, Trace]:
    found = load_all(paths) if paths else (bundled_trace(),)
    return {recording.task: recording for recording in found}


@cache
def pool_of(curves: tuple[Path, ...], task: str, pools: str, seed: int, size: int) -> Sample:
    recording = recordings(curves)[task]
    if pools == "reference":
        return reference_draw(recording, seed, size)
    return draw_sample(recording.distinct() if pools == "distinct" else recording, seed, size)


@cache
def makespan(curves: tuple[Path, ...], task: str, pools: str, seed: int, size: int, machine: Machine) -> float:
    return max(replay(pool_of(curves, task, pools, seed, size), Fifo(), machine).completed.values())


def work(job: Job) -> Run:
    pool = pool_of(job.curves, job.task, job.pools, job.seed, job.size)
    entrant = ENTRANTS[job.entrant]
    span = makespan(job.curves, job.task, job.pools, job.seed, job.size, job.machine)
    start = process_time()
    history = replay(pool, entrant.make(pool), job.machine, entrant.rules)
    taken = process_time() - start
    return Run(
        pool.family,
        (job.task, job.seed),
        job.entrant,
        job.machine.gpus,
        score(pool, history, span),
        sum(trial.length for trial in pool.trials),
        pool.horizon,
        taken,
        history.decisions,
    )


def run_all(jobs: Sequence[Job], processes: int) -> list[Run]:
    """In the order of `jobs`, whatever the number of processes."""
    if processes <= 1:
        return [work(job) for job in jobs]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(work, jobs, chunksize=4))


def jobs_of(
    curves: tuple[Path, ...],
    pools: str,
    seeds: int,
    size: int,
    entrants: Iterable[str],
    machine: Machine,
    family: str | None = None,
) -> list[Job]:
    tasks = [task for task, recording in recordings(curves).items() if family in (None, recording.family)]
    names = list(entrants)
    return [
        Job(curves, task, pools, seed, size, name, machine) for task in tasks for seed in range(seeds) for name in names
    ]


def by_entrant(runs: Iterable[Run], family: str) -> dict[str, dict[RunKey, Run]]:
    found: dict[str, dict[RunKey, Run]] = {}
    for run in runs:
        if run.family == family:
            found.setdefault(run.entrant, {})[run.key] = run
    return found
