"""The replays of bench_hpo: policies, samples and machines. This module prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.inputs import load_curves
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
from podium_simulator.replay.engine import replay
from podium_simulator.replay.metrics import Score, score
from podium_simulator.replay.oracle import Oracle
from podium_simulator.replay.samples import Machine, Sample, draw_sample
from podium_simulator.replay.state import DEFAULT_RULES, Rules
from podium_simulator.replay.statistics import RunKey
from podium_simulator.traces.trace import Trace

MAIN_METRICS = ("time_to_target", "time_to_best", "mean_regret")  # those that have confidence intervals and bars
SHORT, LONG = Costs(4.0, 4.0), Costs(30.0, 30.0)
BARE = Rules(bare_rank=True)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy as it is measured.

    Rivals run by the rules of their own definition: a bare rank is never worse for them.
    """

    make: Callable[[Sample], Policy]
    rules: Rules = BARE


Entrants = Mapping[str, Entrant]
ENTRANTS: Entrants = {
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
    "envelope_min_time_slice": Entrant(lambda _: Envelope(), Rules(measured_slices=True)),
    "envelope_no_guard": Entrant(lambda _: Envelope(min_share=0.0), DEFAULT_RULES),
    "oracle": Entrant(Oracle.of),
}


class Source(NamedTuple):
    """Where samples come from: the curves, how they are drawn, and the trials of one sample.

    `draw`: `random` (this benchmark's own draw), `reference` (the draw of the independent replay) or `distinct`
    (no configuration twice).
    """

    curves: tuple[Path, ...]
    draw: str = "random"
    size: int = 64


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay to run: one policy on one sample."""

    source: Source
    task: str
    seed: int
    entrant: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class Run:
    """One replay that has run.

    `trained`: seconds of training of all trials; `seconds`: CPU seconds of the replay.
    """

    family: str
    key: RunKey
    entrant: str
    gpus: int
    score: Score
    trained: float
    horizon: float
    seconds: float
    decisions: int


def reference_draw(trace: Trace, seed: int, size: int = 64) -> Sample:
    """Return the sample of the independent replay: its seeds are the same for every task."""
    order = np.random.default_rng(1000 + seed).permutation(len(trace.trials))[:size]
    trials = tuple(trace.trials[i] for i in order)
    return Sample(trace.task, trace.family, seed, trace.maximize, trace.target, trials)


@cache
def traces(paths: tuple[Path, ...]) -> Mapping[str, Trace]:
    """Return the traces by task; those of the example where no path is given."""
    return {trace.task: trace for trace in load_curves(paths)}


@cache
def sample_of(source: Source, task: str, seed: int) -> Sample:
    """Return one sample of a task."""
    trace = traces(source.curves)[task]
    if source.draw == "reference":
        return reference_draw(trace, seed, source.size)
    return draw_sample(trace.distinct() if source.draw == "distinct" else trace, seed, source.size)


@cache
def fifo_makespan(source: Source, task: str, seed: int, machine: Machine) -> float:
    """Return the seconds that fifo needs for all trials of the sample."""
    return max(replay(sample_of(source, task, seed), Fifo(), machine).completed.values())


_entrants: Entrants = ENTRANTS  # of this process


def _use(entrants: Entrants) -> None:
    global _entrants
    _entrants = entrants


def run_one(one: Replay) -> Run:
    """Run one replay."""
    sample = sample_of(one.source, one.task, one.seed)
    entrant = _entrants[one.entrant]
    makespan = fifo_makespan(one.source, one.task, one.seed, one.machine)
    start = process_time()
    history = replay(sample, entrant.make(sample), one.machine, entrant.rules)
    taken = process_time() - start
    return Run(
        sample.family,
        (one.task, one.seed),
        one.entrant,
        one.machine.gpus,
        score(sample, history, makespan),
        sum(trial.length for trial in sample.trials),
        sample.horizon,
        taken,
        history.decisions,
    )


def run_all(replays: Sequence[Replay], processes: int, entrants: Entrants = ENTRANTS) -> list[Run]:
    """Run all replays and return them in their order, whatever the number of processes.

    The processes are forked: an entrant is made by a function, which cannot be pickled.
    """
    if processes <= 1:
        _use(entrants)
        return [run_one(one) for one in replays]
    context = get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_use, initargs=(entrants,)) as workers:
        return list(workers.map(run_one, replays, chunksize=4))


def replays_of(
    source: Source, seeds: int, entrants: Iterable[str], machine: Machine, family: str | None = None
) -> list[Replay]:
    """Return one replay for each task (of `family`), seed and entrant."""
    tasks = [task for task, trace in traces(source.curves).items() if family in (None, trace.family)]
    names = list(entrants)
    return [Replay(source, task, seed, name, machine) for task in tasks for seed in range(seeds) for name in names]


def by_entrant(runs: Iterable[Run], family: str) -> dict[str, dict[RunKey, Run]]:
    """Return the runs of a family by entrant, then by task and seed."""
    entrants: dict[str, dict[RunKey, Run]] = {}
    for run in runs:
        if run.family == family:
            entrants.setdefault(run.entrant, {})[run.key] = run
    return entrants
