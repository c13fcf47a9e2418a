"""SGPRS and its rivals, simulated against the papers' figures and executed on real cores.

    make bench-realtime [OUT=FOLDER]
    python -m benchmarks.realtime.bench_realtime [--only simulated|promises|cpu|gpu]

1. simulated: the figures of the SGPRS paper (2 and 3 contexts, over-subscription 1.0, 1.5 and 2.0, with naive
   concurrency and launch-ahead), every published cell beside Podium's with its error, DARIS and launch-ahead on one
   model, and the ablation of launch-ahead.
2. promises: random task sets through the admission test (10,000 by default); every admitted deadline must be met.
3. cpu: real execution on this machine's cores (`real_execution`) against naive concurrency, in one run.
4. gpu: the same on a GPU where there is one; else "not run".

Each part that ran replaces its section in bench-realtime.md in `--out`, with command and machine; bench-realtime.png
has the figures. The last line is RESULT {json}.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks import result_sections
from benchmarks.command_line import Parser
from benchmarks.output import Say, add_out, command
from benchmarks.realtime import real_execution, report
from benchmarks.result_sections import Section
from podium_realtime.model import published
from podium_realtime.runtime import cuda
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec, context_pool
from podium_realtime.scheduling.sgprs import Sgprs
from podium_realtime.simulation import figures, scenarios, validation
from podium_realtime.simulation.calibration import CALIBRATED, fit
from podium_realtime.simulation.guarantees import check_guarantees
from podium_realtime.simulation.scenarios import BATCHED_LAUNCH_AHEAD, DARIS_POOL, LAUNCH_AHEAD_POOL, SimulationSettings

OVERLOAD = 48  # tasks: more than any scheduler can serve
ABLATION = 38  # tasks at which launch-ahead is at its limit in one process
AHEAD = "launch-ahead (Podium)"
TEN = context_pool(published.DEVICE_SMS, 10, 10.0, high=0, low=1)
DARIS_POOLS = {
    "6 contexts x 1 stream, 6.0 (published)": DARIS_POOL,
    "8 contexts x 1 stream, 8.0": context_pool(published.DEVICE_SMS, 8, 8.0, high=0, low=1),
    "10 contexts x 1 stream, 10.0": TEN,
    "12 contexts x 1 stream, 12.0": context_pool(published.DEVICE_SMS, 12, 12.0, high=0, low=1),
    "4 contexts x 2 streams, 2.0": context_pool(published.DEVICE_SMS, 4, 2.0, high=0, low=2, in_flight=2),
}


def simulated(options: argparse.Namespace, say: Say) -> dict[str, float]:
    """Run the simulated part; `say` receives the lines of its section."""
    settings = SimulationSettings(options.virtual, options.seed)
    with ProcessPoolExecutor() as workers:
        sweeps = [
            workers.submit(figures.simulate_figure, CALIBRATED, contexts, (1.0, 1.5, 2.0), validation.COUNTS, settings)
            for contexts in (2, 3)
        ]
        fitting, others = workers.submit(fit), workers.submit(other_cells, settings)
        results = [sweep.result() for sweep in sweeps]
        again = fitting.result()
    say(f"\nThe model as fitted: {CALIBRATED}\n")
    same = "the same" if again == CALIBRATED else f"DIFFERENT: {again}"
    say(f"Fitted again in this run: {same}.")
    for scenario in results:
        say(f"\n### {scenario.contexts} contexts, simulated: missed deadlines % / total fps\n")
        for line in figures.table(scenario):
            say(line)
        say(
            "\nTasks without a miss: "
            + ", ".join(f"{one.label} {one.max_tasks_without_miss}" for one in scenario.series)
            + "."
        )
    options.out.mkdir(parents=True, exist_ok=True)
    figures.plot(results, options.out / "bench-realtime.png")
    series = [one for scenario in results for one in scenario.series[:3]]
    table = [*validation.sgprs_points(list(zip(published.SGPRS, series, strict=True))), *others.result()]
    say("\n### Every published cell beside the simulated one\n")
    say("| cell | published | simulated | error | |\n| --- | ---: | ---: | ---: | --- |")
    for cell in table:
        values = (cell.published_value, cell.simulated_value)
        shown = [
            f"{100 * one:.1f} %" if cell.quantity is validation.Quantity.MISSED else f"{one:.0f}" for one in values
        ]
        say(f"| {cell.name} | {' | '.join(shown)} | {cell.error:.3f} | {'fitted' if cell.used_in_fit else ''} |")
    say(
        f"\nMedian error of the {sum(not cell.used_in_fit for cell in table)} cells that were not fitted: "
        f"{validation.median_error(table):.3f}; of all {len(table)}: {statistics.median(c.error for c in table):.3f}. "
        "Errors of misses are differences as shares, others are relative."
    )
    pivot, naive = results[1].series[1], results[1].series[3]
    held = scenarios.naive(CALIBRATED, 3, 30, settings, CALIBRATED.patience).fps
    say(f"\nNaive, 3 contexts, 30 tasks: {naive.points[30].fps:.0f} fps; with SGPRS' patience {held:.0f} fps.")
    return {
        "zero_miss_tasks": pivot.max_tasks_without_miss,
        "fps_at_30": round(pivot.points[30].fps),
        "naive_fps_at_30": round(naive.points[30].fps),
        "median_cell_error": round(validation.median_error(table), 3),
        **processes(settings, say),
        **ablation(settings, say),
    }


def other_cells(settings: SimulationSettings) -> list[validation.ValidationPoint]:
    return [*validation.unmanaged_points(CALIBRATED, settings), *validation.device_points(CALIBRATED, settings)]


def processes(settings: SimulationSettings, say: Say) -> dict[str, float]:
    """Run DARIS, SGPRS and launch-ahead under the same overload.

    Rates are divided by that of one stream with frames launched ahead.
    """
    single = scenarios.single_stream(CALIBRATED, 2, settings)
    limit = CALIBRATED.gpu().max_throughput()
    say(
        f"\n### {OVERLOAD} tasks at 30 fps, a third of high priority, releases spread (simulated)\n\n"
        f"Normalised: divided by {single:.0f} fps, one stream with frames launched ahead "
        f"(published {published.SINGLE_STREAM_FPS:.0f}). "
        "Processes: one for each context (DARIS' harness) or one for all (SGPRS'). "
        f"The limit of the model's SMs under any scheduler is {limit:.0f} fps = {limit / single:.3f}.\n\n"
        "| scheduler | pool | processes | fps | normalised | in time | high missed | accepted low missed | "
        "high, 99th percentile |\n"
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    runs: list[tuple[str, str, SchedulingPolicy, Sequence[ContextSpec], bool]] = [
        *(("DARIS", name, Daris(), pool, False) for name, pool in DARIS_POOLS.items()),
        ("SGPRS", "3 contexts, 1.5", Sgprs(), context_pool(published.DEVICE_SMS, 3, 1.5), False),
        (AHEAD, "6 contexts x 1 stream, 6.0, depth 2", LaunchAhead(), LAUNCH_AHEAD_POOL, False),
        (AHEAD, "6 contexts x 1 stream, 6.0, depth 1", LaunchAhead(), DARIS_POOL, False),
        (AHEAD, "10 contexts x 1 stream, 10.0, depth 1", LaunchAhead(), TEN, False),
        ("DARIS in one", "6 contexts x 1 stream, 6.0", Daris(), DARIS_POOL, True),
        ("SGPRS in one", "3 contexts, 1.5", Sgprs(), context_pool(published.DEVICE_SMS, 3, 1.5), True),
        (f"{AHEAD} in one", "6 contexts x 1 stream, 6.0, batches of 2", BATCHED_LAUNCH_AHEAD, DARIS_POOL, True),
    ]
    total: dict[str, list[float]] = {}
    in_time: dict[str, list[float]] = {}
    for name, where, policy, pool, shared in runs:
        result = scenarios.mixed_priorities(CALIBRATED, policy, pool, OVERLOAD, settings, shared_process=shared)
        late = 100 * result.low.accepted_missed
        total.setdefault(name, []).append(round(result.overall.fps / single, 3))
        in_time.setdefault(name, []).append(round(result.overall.fps_in_time / single, 3))
        say(
            f"| {name} | {where} | {'one' if shared else 'each'} | {result.overall.fps:.0f} | {total[name][-1]:.3f} | "
            f"{result.overall.fps_in_time:.0f} | {100 * result.high.missed:.2f} % | {late:.2f} % | "
            f"{1e3 * result.high.p99_response:.1f} ms |"
        )
    return {
        "daris_normalised": total["DARIS"][0],
        "launch_ahead_normalised": max(total[AHEAD]),
        "launch_ahead_in_time_same_pool_normalised": in_time[AHEAD][0],
        "daris_best_normalised": max(total["DARIS"]),
        "launch_ahead_in_time_normalised": max(in_time[AHEAD]),
        "daris_best_in_time_normalised": max(in_time["DARIS"]),
        "launch_ahead_in_time_in_one_process": in_time[f"{AHEAD} in one"][0],
        "daris_in_time_in_one_process": in_time["DARIS in one"][0],
    }


def ablation(settings: SimulationSettings, say: Say) -> dict[str, float]:
    """Run launch-ahead without each of its ideas, in both harnesses, at the same load."""
    say(
        "\n### Ablation of launch-ahead (simulated): fps in time\n\n"
        "In one process: batches of 2, depth 1. One process for each context: no batches, depth 2. Six contexts.\n\n"
        f"| variant | one process, {ABLATION} tasks released together | one process, {OVERLOAD} tasks, spread | "
        f"one process for each context, {OVERLOAD} tasks, spread |\n"
        "| --- | ---: | ---: | ---: |"
    )
    alone = LaunchAhead()
    variants: dict[str, tuple[LaunchAhead, LaunchAhead]] = {
        "whole": (BATCHED_LAUNCH_AHEAD, alone),
        "without shedding": (replace(BATCHED_LAUNCH_AHEAD, shedding=False), replace(alone, shedding=False)),
        "shedding without hope": (
            replace(BATCHED_LAUNCH_AHEAD, finish_bursts=False),
            replace(alone, finish_bursts=False),
        ),
        "without late binding": (replace(BATCHED_LAUNCH_AHEAD, late_binding=False), replace(alone, late_binding=False)),
        "batches: none / up to 2": (alone, BATCHED_LAUNCH_AHEAD),
        "batches: up to 4 / up to 4": (replace(BATCHED_LAUNCH_AHEAD, max_batch=4), replace(alone, max_batch=4)),
    }
    rates: list[float] = []
    for name, (one, many) in variants.items():
        rates.append(_ablated(name, settings, (one, DARIS_POOL), (many, LAUNCH_AHEAD_POOL), say))
    yes, no = (BATCHED_LAUNCH_AHEAD, LAUNCH_AHEAD_POOL), (alone, DARIS_POOL)
    _ablated("launching ahead: yes / no", settings, yes, no, say)
    return {f"launch_ahead_in_time_at_{ABLATION}": round(rates[0])}


def _ablated(
    name: str,
    settings: SimulationSettings,
    one: tuple[LaunchAhead, Sequence[ContextSpec]],
    many: tuple[LaunchAhead, Sequence[ContextSpec]],
    say: Say,
) -> float:
    """Print one row, and return the frames in time of `one`.

    `one` runs in one process, `many` with one process for each context.
    """
    together = scenarios.launch_ahead(CALIBRATED, ABLATION, settings, *one).fps_in_time
    spread = scenarios.mixed_priorities(CALIBRATED, *one, OVERLOAD, settings, shared_process=True).overall.fps_in_time
    apart = scenarios.mixed_priorities(CALIBRATED, *many, OVERLOAD, settings).overall.fps_in_time
    say(f"| {name} | {together:.0f} | {spread:.0f} | {apart:.0f} |")
    return together


def promises(sets: int, say: Say) -> dict[str, float]:
    """Check on random task sets that admitted tasks meet their deadlines."""
    with ProcessPoolExecutor() as workers:
        checks = list(workers.map(check_guarantees, range(sets), chunksize=50))
    missed = sum(one.missed for one in checks)
    fullest = statistics.median(one.utilisation for one in checks)
    releases = sum(one.releases for one in checks)
    say(
        f"{sets} random task sets: {sum(one.admitted for one in checks)} tasks admitted, "
        f"{sum(one.rejected for one in checks)} refused, {releases} releases simulated, {missed} missed. "
        f"Median utilisation of the fullest context by worst times: {fullest:.2f}."
    )
    return {"sets": sets, "releases": releases, "missed": missed}


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--virtual", type=float, default=4.0, help="seconds of virtual time for each point")
    parser.add_argument("--sets", type=int, default=10_000, help="random task sets for the promises")
    parser.add_argument("--repeats", type=int, default=3, help="of the measurements on real cores")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each run on real cores")
    parser.add_argument("--only", choices=report.PARTS, help="repeat one part; the page keeps the others")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated part (default: 0)")
    add_out(parser)
    options = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    cores = f"{len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "simulated": lambda: simulated(options, say),
        "promises": lambda: promises(options.sets, say),
        "cpu": lambda: real_execution.compare(options.repeats, options.seconds, say),
        "gpu": lambda: real_execution.on_gpu(cuda.availability(), options.seconds, say),
    }
    path = options.out / "bench-realtime.md"
    for name in report.PARTS:
        if options.only in (None, name):
            lines.clear()
            result = parts[name]()
            head = f"\n## {name}\n\n`{command()}` on {cores}.\n"
            sections = result_sections.read(path)  # read late: another process may have written a part meanwhile
            sections[name] = Section(result, head + "\n".join(lines) + "\n")
            last = report.write(path, sections)
    print(last)


if __name__ == "__main__":
    main()
