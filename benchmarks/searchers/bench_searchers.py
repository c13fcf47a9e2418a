"""Which search algorithm proposes good points soonest? The figures behind `search.algorithm: auto`.

    python -m benchmarks.searchers.bench_searchers [--seeds N] [--trials N] [--parallel N]

Each run searches one surface (`surfaces`) with trials that run at the same time and end after different times. A run is
judged by the share of random points that are better than its best: 1 % means that random search would need about 100
trials for a point as good. Shares of several runs are averaged as logarithms.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.inputs import TASKSET, add_curves, curve_files, load_curves, positive
from benchmarks.output import add_out, command, commit, machine, result_line, write_page
from benchmarks.searchers.surfaces import Surface, functions, recorded
from podium_core.domain.snapshot import Scalar
from podium_searchers.base import TrialResult
from podium_searchers.random import RandomSearcher
from podium_searchers.registry import missing_packages
from podium_searchers.search import propose

CONTENDERS: Mapping[str, tuple[str, Mapping[str, Scalar]]] = {
    "random": ("random", {}),
    "qmc": ("qmc", {}),
    "tpe": ("tpe", {}),
    "cmaes": ("cmaes", {}),
    "gp": ("gp", {}),
    "auto": ("auto", {}),
}
SAMPLE = 4000  # random points that a best value is compared with


@dataclass(frozen=True, slots=True)
class Run:
    """Best value after each ended trial, and the mean seconds of a proposal."""

    best: tuple[float, ...]
    seconds: float


def search(surface: Surface, contender: str, seed: int, trials: int, parallel: int) -> Run:
    """Search the surface once; `parallel` trials run at a time, and their durations differ."""
    algorithm, settings = CONTENDERS[contender]
    spec, durations = surface.spec(algorithm, seed, settings), np.random.default_rng(seed)
    tried: dict[int, TrialResult] = {}
    running: list[tuple[float, int]] = []
    best, ends, spent = math.inf, list[float](), 0.0
    now, number = 0.0, 0
    while len(ends) < trials:
        while len(running) < parallel and number < trials:
            before = time.process_time()
            point = propose(spec, number, list(tried.values()))
            spent += time.process_time() - before
            if point is None:
                raise ValueError(f"{contender}: {surface.name} is exhausted")
            tried[number] = TrialResult(number, point)
            heapq.heappush(running, (now + float(durations.uniform(0.5, 1.5)), number))
            number += 1
        now, ended = heapq.heappop(running)
        value = surface.value(tried[ended].parameters)
        tried[ended] = replace(tried[ended], step=1.0, value=value if math.isfinite(value) else None, completed=True)
        best = min(best, value)
        ends.append(best)
    return Run(tuple(ends), spent / trials)


def better_share(surface: Surface) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the values of random points, ascending."""
    spec = surface.spec("random", 10**6, {})
    points = (RandomSearcher().propose(spec, number) or {} for number in range(SAMPLE))
    return np.sort(np.array([surface.value(point) for point in points]))


def share(values: np.ndarray[tuple[int], np.dtype[np.float64]], best: float) -> float:
    """Return which share of random points is better; half a point where none is."""
    return max(float(np.searchsorted(values, best, side="left")), 0.5) / len(values)


def table(surfaces: Sequence[Surface], contenders: Sequence[str], seeds: int, at: Sequence[int], parallel: int) -> str:
    """Run everything; return Markdown, one table for each number of trials."""
    logs: dict[tuple[str, str, int], float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for surface in surfaces:
        values = better_share(surface)
        for name in contenders:
            runs = [search(surface, name, seed, max(at), parallel) for seed in range(seeds)]
            seconds[name] += [run.seconds for run in runs]
            for count in at:
                logs[surface.name, name, count] = fmean(math.log10(share(values, run.best[count - 1])) for run in runs)
            print(surface.name, name, *(f"{10 ** logs[surface.name, name, count]:.3%}" for count in at), flush=True)
    lines = []
    for count in at:
        lines += [f"\n## After {count} trials\n", "| surface | " + " | ".join(contenders) + " |"]
        lines.append("| --- " * (len(contenders) + 1) + "|")
        for surface in surfaces:
            cells = [f"{10 ** logs[surface.name, name, count]:.2%}" for name in contenders]
            lines.append(f"| {surface.name} | " + " | ".join(cells) + " |")
        means = [10 ** fmean(logs[surface.name, name, count] for surface in surfaces) for name in contenders]
        lines.append("| geometric mean | " + " | ".join(f"{mean:.2%}" for mean in means) + " |")
    lines += ["\n## Time of a proposal\n", "| " + " | ".join(contenders) + " |", "| --- " * len(contenders) + "|"]
    lines.append("| " + " | ".join(f"{1000 * fmean(seconds[name]):.1f} ms" for name in contenders) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the benchmark and write its page."""
    parser = Parser(__doc__)
    parser.add_argument(
        "--seeds", type=positive, default=10, help="repetitions with other random choices (default: 10)"
    )
    parser.add_argument(
        "--trials", type=positive, nargs="+", default=[20, 50, 100], help="report after these many trials"
    )
    parser.add_argument("--parallel", type=positive, default=4, help="trials that run at the same time (default: 4)")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    add_curves(parser, TASKSET, "the four tasks of TaskSet")
    add_out(parser)
    given = parser.parse_args()
    surfaces = [*functions(), *map(recorded, load_curves(curve_files(given.curves)))]
    missing = {name: missing_packages(CONTENDERS[name][0]) for name in given.contenders}
    contenders = [name for name, packages in missing.items() if not packages]
    left_out = "".join(f"\nNot measured: {name}, which needs {', '.join(p)}.\n" for name, p in missing.items() if p)
    print(left_out, end="", flush=True)
    start = time.monotonic()
    text = table(surfaces, contenders, given.seeds, sorted(given.trials), given.parallel)
    head = (
        "# bench-searchers\n\nShare of random points that are better than a search's best: smaller is better. "
        f"Geometric mean of {given.seeds} runs; {given.parallel} trials run at the same time.\n\n"
        f"`{command()}`, commit {commit()}, {machine()}.\n{left_out}"
    )
    write_page(given.out / "bench-searchers.md", head + text)
    print(text)
    print(result_line({"bench": "searchers", "surfaces": len(surfaces), "seconds": round(time.monotonic() - start)}))


if __name__ == "__main__":
    main()
