"""What a tick of the planner costs as the cluster grows: 10 trials a GPU, up to 10,000 trials on 1,000 GPUs.

    python benchmarks/bench_planner.py [--most 1000] [--ticks 5] [--policies envelope,hermes,fifo]

Two shapes: all trials in one job, and ten jobs that share the GPUs (every GPU holds trials of several). The first plan
of a new process reads every curve; a later tick comes after one GPU in a hundred has reported a value. The orders of
each plan are carried out before the next. Growth is the exponent of the fitted power of the number of trials (1 =
linear). Processor time of this process, median of the ticks. Writes benchmarks/results/bench-planner.md and .png; the
last line is RESULT {json}. The bar: a tick of 10,000 trials on 1,000 GPUs under 1 s.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

from podium_cluster.garbage_collection import tune_garbage_collector
from podium_core.domain.actions import Plan, WriteRunQueues
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import GpuView, Point, Snapshot, TrialKey, TrialView
from podium_core.planning.planner import plan
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

RESULTS = Path(__file__).parent / "results" / "bench-planner.md"
PER_GPU, PER_NODE, STEPS, BAR = 10, 8, 40, 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of processor time."""

    policy: str
    jobs: int
    trials: int
    first: float
    tick: float


def cluster(gpus: int, jobs: int, policy: str) -> Snapshot:
    """Every GPU has one trial that runs and others that wait, at different points of their curves."""
    random = np.random.default_rng(gpus)
    count = PER_GPU * gpus
    searches = [
        make_job(f"job-{j}", policy=policy, max_trials=count // jobs, parallel=count // jobs, max_steps=float(STEPS))
        for j in range(jobs)
    ]
    trials = [_trial(i, jobs, gpus, random) for i in range(count)]
    by_gpu: dict[str, list[TrialKey]] = {}
    for trial in trials:
        by_gpu.setdefault(trial.gpus[0], []).append(trial.key)
    places = [
        make_gpu(
            uuid,
            node=f"node-{number // PER_NODE:03}",
            slots=PER_GPU,
            holder=keys[0],
            holder_since=0.0,
            trials=keys,
            run_queue=keys,
        )
        for number, (uuid, keys) in enumerate(by_gpu.items())
    ]
    return make_snapshot(now=1e4, jobs=searches, trials=trials, gpus=places)


def _trial(number: int, jobs: int, gpus: int, random: np.random.Generator) -> TrialView:
    shown = int(random.integers(0, STEPS))
    level, speed = random.uniform(0.5, 0.9), random.uniform(0.05, 0.5)
    values = [float(level * (1.0 - np.exp(-speed * (k + 1))) + random.normal(0.0, 0.01)) for k in range(shown)]
    phase = TrialPhase.RUNNING if number < gpus else TrialPhase.SUSPENDED
    uuid = f"gpu-{number % gpus:04}"
    return make_trial(
        number // jobs, job=f"job-{number % jobs}", values=values, phase=phase, gpus=[uuid], gpu_seconds=float(shown)
    )


def carried_out(snapshot: Snapshot, made: Plan, random: np.random.Generator) -> Snapshot:
    """A second later: every order is in force, and one holder in a hundred has reported a value."""
    now = snapshot.now + 1.0
    orders = {uuid: places for a in made.actions if isinstance(a, WriteRunQueues) for uuid, places in a.gpus}
    gpus = [
        _obeyed(gpu, [p.trial for p in orders[gpu.uuid]], now) if gpu.uuid in orders else gpu for gpu in snapshot.gpus
    ]
    holders = [gpu.holder for gpu in gpus if gpu.holder is not None]
    heard = {holders[i] for i in random.choice(len(holders), max(1, len(holders) // 100), replace=False)}
    trials = [_grown(trial, now, random) if trial.key in heard else trial for trial in snapshot.trials]
    return make_snapshot(now=now, jobs=snapshot.jobs, trials=trials, gpus=gpus)


def _obeyed(gpu: GpuView, order: Sequence[TrialKey], now: float) -> GpuView:
    holder = order[0] if order else None
    since = gpu.holder_since if holder == gpu.holder else now
    return replace(gpu, run_queue=tuple(order), holder=holder, holder_since=since)


def _grown(trial: TrialView, now: float, random: np.random.Generator) -> TrialView:
    last = trial.curve[-1] if trial.curve else Point(0.0, 0.3, 0.0)
    if last.step >= STEPS - 1:
        return trial
    point = Point(last.step + 1.0, last.value + float(random.normal(0.005, 0.01)), now)
    return replace(trial, curve=(*trial.curve, point), gpu_seconds=trial.gpu_seconds + 1.0)


def measure(gpus: int, jobs: int, policy: str, ticks: int) -> Measured:
    random = np.random.default_rng(1)
    snapshot = cluster(gpus, jobs, policy)
    tune_garbage_collector()  # as the operator does once its caches are filled
    seconds = []
    for _ in range(ticks + 1):
        start = process_time()
        made = plan(snapshot)
        told = len(made.ranks)  # the operator writes every place: its sentence is made when it is read
        seconds.append(process_time() - start)
        snapshot = carried_out(snapshot, made, random)
    assert told == PER_GPU * gpus
    return Measured(policy, jobs, PER_GPU * gpus, seconds[0], median(seconds[1:]))


def growth(rows: Sequence[Measured]) -> float:
    """Exponent of the least-squares line through the logarithms, over the larger half of the sizes."""
    half = sorted(rows, key=lambda r: r.trials)[len(rows) // 2 - 1 :]
    return float(np.polyfit(np.log([r.trials for r in half]), np.log([r.tick for r in half]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1000, help="GPUs of the largest cluster")
    parser.add_argument("--ticks", type=int, default=5)
    parser.add_argument("--policies", default="envelope,hermes,fifo")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    sizes = sorted({max(10, round(args.most * part)) for part in (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)})
    names = args.policies.split(",")
    found = [measure(g, jobs, name, args.ticks) for name in names for jobs in (1, 10) for g in sizes]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    plot(found, args.out.with_suffix(".png"))
    line = f"RESULT {json.dumps(summary(found))}"
    args.out.write_text(report(found, args.out.with_suffix(".png").name) + f"\n```\n{line}\n```\n")
    print(args.out.read_text())
    print(line)


def groups(found: Sequence[Measured]) -> dict[tuple[str, int], list[Measured]]:
    table: dict[tuple[str, int], list[Measured]] = {}
    for row in found:
        table.setdefault((row.policy, row.jobs), []).append(row)
    return table


def summary(found: Sequence[Measured]) -> dict[str, object]:
    most = max(row.trials for row in found)
    largest = [row for row in found if row.trials == most]
    return {
        "trials": most,
        "slowest_tick_seconds": round(max(row.tick for row in largest), 3),
        "slowest_first_plan_seconds": round(max(row.first for row in largest), 3),
        "growth": {f"{name}, jobs {jobs}": round(growth(rows), 2) for (name, jobs), rows in groups(found).items()},
        "bar_seconds": BAR,
        "holds": max(row.tick for row in largest) < BAR,
    }


def report(found: Sequence[Measured], image: str) -> str:
    sizes = sorted({row.trials for row in found})
    lines = [
        "# bench-planner\n",
        f"`python {' '.join(sys.argv)}`. Processor milliseconds of one tick; in parentheses of the first plan of a new",
        f"process, which reads every curve. {PER_GPU} trials a GPU. Growth: exponent of the number of trials.\n",
        "| policy | jobs | " + " | ".join(f"{size} trials" for size in sizes) + " | growth |",
        "| --- " * (len(sizes) + 3) + "|",
    ]
    for (name, jobs), rows in groups(found).items():
        cells = [f"{1e3 * r.tick:.1f} ({1e3 * r.first:.0f})" for r in sorted(rows, key=lambda r: r.trials)]
        lines.append(f"| {name} | {jobs} | " + " | ".join(cells) + f" | {growth(rows):.2f} |")
    slowest = max(row.tick for row in found if row.trials == sizes[-1])
    lines.append(
        f"\nThe slowest tick of {sizes[-1]} trials took {slowest:.3f} s (bar: {BAR:g} s).\n\n![ticks]({image})"
    )
    return "\n".join(lines)


def plot(found: Sequence[Measured], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for (name, jobs), rows in groups(found).items():
        axes.plot([r.trials for r in rows], [r.tick for r in rows], "o-", label=f"{name}, {jobs} job{'s'[: jobs > 1]}")
    sizes = sorted({row.trials for row in found})
    axes.plot(sizes, [BAR * size / sizes[-1] for size in sizes], "k--", label="linear to the bar")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("trials (10 a GPU)")
    axes.set_ylabel("seconds of a tick")
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
