"""Cost of a tick of the planner as the cluster grows: 10 trials a GPU, up to 10,000 trials on 1,000 GPUs.

    make bench-planner [OUT=FOLDER]
    python -m benchmarks.planner.bench_planner [--max-gpus 1000] [--ticks 5] [--policies envelope,pareto]

There are four shapes: all trials in one job; ten jobs that share the GPUs, so that every GPU has trials of several
jobs; 200 jobs in 20 queues of different weights and quotas; and the same with trials of 1, 2, 4 and 8 GPUs. The first
plan of a new process reads every curve. A later tick comes after one GPU in a hundred has reported a value. The run
queues of each plan take effect before the next. Jobs of the policy pareto have three objectives. A fill is the plan of
a cluster whose slots are all empty, so that every trial gets its pod. Growth is the exponent of the fitted power of the
number of trials (1 = linear). Times are processor seconds of this process, as medians of the ticks. Bar: a tick of
10,000 trials on 1,000 GPUs takes less than 1 s, and so does a fill.

Writes bench-planner.md and .png into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.command_line import Parser
from benchmarks.inputs import positive
from benchmarks.output import add_out, command, result_line, write_page
from podium_cluster.component.garbage_collection import tune_garbage_collector
from podium_core.domain.actions import CreatePod, Plan, WriteRunQueues
from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point, Snapshot, TrialView
from podium_core.planning.planner import plan
from podium_core.testing.builders import change_gpu, change_trial, make_gpu, make_job, make_snapshot, make_trial

PER_GPU, PER_NODE, STEPS, BAR = 10, 8, 40, 1.0
WIDTHS = (1, 2, 4, 8)  # GPUs of a trial, where they differ by job
POLICIES = "envelope,hermes,fifo"


class Shape(NamedTuple):
    """Number of jobs and of the queues that they are in; 0: without queues.

    `wide`: trials have 1 to 8 GPUs.
    """

    jobs: int
    queues: int = 0
    wide: bool = False

    def __str__(self) -> str:
        text = f"{self.jobs} in {self.queues} queues" if self.queues else str(self.jobs)
        return f"{text}, 1 to {WIDTHS[-1]} GPUs" if self.wide else text

    def width(self, job: int) -> int:
        """Return the GPUs of each trial of a job."""
        return WIDTHS[job % len(WIDTHS)] if self.wide else 1


SHAPES = (Shape(1), Shape(10), Shape(200, 20), Shape(200, 20, wide=True))


@dataclass(frozen=True, slots=True)
class Measured:
    """Processor seconds of the first plan and of a later tick."""

    policy: str
    shape: Shape
    trials: int
    first: float
    tick: float
    fill: float


def cluster(gpus: int, shape: Shape, policy: str) -> Snapshot:
    """Return a cluster whose GPUs have one running trial each and others that wait, along their curves."""
    random = np.random.default_rng(gpus)
    count = PER_GPU * gpus
    jobs = min(shape.jobs, count)
    searches = [
        make_job(
            f"job-{j}",
            policy=policy,
            max_trials=-(-count // jobs),
            parallel=-(-count // jobs),
            max_steps=float(STEPS),
            queue=f"queue-{j % shape.queues}" if shape.queues else "",
            gpus_per_trial=shape.width(j),
        )
        for j in range(jobs)
    ]
    held: set[str] = set()
    trials = [_trial(i, jobs, _uuids(i, shape.width(i % jobs), gpus), held, random) for i in range(count)]
    if policy == "pareto":
        searches = [replace(job, directions=(True, False, False)) for job in searches]
        trials = [_with_objectives(trial, random) for trial in trials]
    by_gpu: dict[str, list[TrialKey]] = {}
    for trial in trials:
        for uuid in trial.gpus:
            by_gpu.setdefault(uuid, []).append(trial.key)
    running = {uuid: trial.key for trial in trials if trial.phase is TrialPhase.RUNNING for uuid in trial.gpus}
    views = [
        make_gpu(
            uuid,
            node=f"node-{int(uuid.removeprefix('gpu-')) // PER_NODE:03}",
            slots=len(keys),
            holder=running.get(uuid),
            holder_since=0.0,
            trials=keys,
            run_queue=sorted(keys, key=lambda key: key != running.get(uuid)),
        )
        for uuid, keys in sorted(by_gpu.items())
    ]
    queues = [
        QueueView(f"queue-{q}", weight=1.0 + q % 3, gpus=None if q % 4 else max(1, gpus // 20), minimum=q % 2)
        for q in range(shape.queues)
    ]
    return make_snapshot(now=1e4, jobs=searches, trials=trials, gpus=views, queues=queues)


def empty(snapshot: Snapshot) -> Snapshot:
    """Return the same cluster before any trial had a pod."""
    trials = [change_trial(t, pod=None, curve=(), phase=TrialPhase.PENDING, gpu_seconds=0.0) for t in snapshot.trials]
    gpus = [
        replace(change_gpu(gpu, holder=None, holder_since=None, trials=(), run_queue=()), free_slots=gpu.slots)
        for gpu in snapshot.gpus
    ]
    return make_snapshot(now=snapshot.now, jobs=snapshot.jobs, trials=trials, gpus=gpus, queues=snapshot.queues)


def _uuids(number: int, width: int, gpus: int) -> list[str]:
    """Return the GPUs of a trial: one of all, or `width` of one node."""
    if width == 1:
        return [f"gpu-{number % gpus:04}"]
    nodes, group = max(1, gpus // PER_NODE), (number // WIDTHS[-1]) % (PER_NODE // width)
    first = (number % nodes) * PER_NODE + group * width
    return [f"gpu-{first + k:04}" for k in range(width)]


def _trial(number: int, jobs: int, uuids: list[str], held: set[str], random: np.random.Generator) -> TrialView:
    """Return a trial; it runs if its GPUs are not in `held`, to which they are added."""
    reported = int(random.integers(0, STEPS))
    level, speed = random.uniform(0.5, 0.9), random.uniform(0.05, 0.5)
    values = [float(level * (1.0 - np.exp(-speed * (k + 1))) + random.normal(0.0, 0.01)) for k in range(reported)]
    phase = TrialPhase.RUNNING if held.isdisjoint(uuids) else TrialPhase.SUSPENDED
    if phase is TrialPhase.RUNNING:
        held.update(uuids)
    return make_trial(
        number // jobs, job=f"job-{number % jobs}", values=values, phase=phase, gpus=uuids, gpu_seconds=float(reported)
    )


def _with_objectives(trial: TrialView, random: np.random.Generator) -> TrialView:
    """Return the trial with its value, a size and a cost as three objectives."""
    value = trial.curve[-1].value if trial.curve else float("nan")
    return change_trial(trial, objective_values=(value, float(random.uniform(1.0, 9.0)), trial.usage.gpu_seconds))


def after_a_second(snapshot: Snapshot, made: Plan, random: np.random.Generator) -> Snapshot:
    """Return the cluster a second later.

    Run queues have taken effect, and one holder in a hundred has reported a value.
    """
    now = snapshot.now + 1.0
    queues = {uuid: entries for a in made.actions if isinstance(a, WriteRunQueues) for uuid, entries in a.gpus}
    gpus = [
        _with_queue(gpu, [entry.trial for entry in queues[gpu.uuid]], now) if gpu.uuid in queues else gpu
        for gpu in snapshot.gpus
    ]
    holders = [gpu.holder for gpu in gpus if gpu.holder is not None]
    reporting = {holders[i] for i in random.choice(len(holders), max(1, len(holders) // 100), replace=False)}
    trials = [_with_new_value(trial, now, random) if trial.key in reporting else trial for trial in snapshot.trials]
    return make_snapshot(now=now, jobs=snapshot.jobs, trials=trials, gpus=gpus, queues=snapshot.queues)


def _with_queue(gpu: GpuView, queue: Sequence[TrialKey], now: float) -> GpuView:
    holder = queue[0] if queue else None
    since = gpu.holder_since if holder == gpu.holder else now
    return change_gpu(gpu, run_queue=tuple(queue), holder=holder, holder_since=since)


def _with_new_value(trial: TrialView, now: float, random: np.random.Generator) -> TrialView:
    last = trial.curve[-1] if trial.curve else Point(0.0, 0.3, 0.0)
    if last.step >= STEPS - 1:
        return trial
    point = Point(last.step + 1.0, last.value + float(random.normal(0.005, 0.01)), now)
    seconds, before = trial.usage.gpu_seconds + 1.0, trial.result.objective_values
    values = (point.value, *before[1:-1], seconds) if before else ()
    return change_trial(trial, curve=(*trial.curve, point), gpu_seconds=seconds, objective_values=values)


def measure(gpus: int, shape: Shape, policy: str, ticks: int) -> Measured:
    """Measure one policy on one cluster."""
    random = np.random.default_rng(1)
    snapshot = cluster(gpus, shape, policy)
    unstarted = empty(snapshot)
    tune_garbage_collector()  # as the operator does after its caches have been filled
    seconds = []
    for _ in range(ticks + 1):
        start = process_time()
        made = plan(snapshot)
        ranked = len(made.ranks)  # the operator writes every rank; its message is built when it is read
        seconds.append(process_time() - start)
        snapshot = after_a_second(snapshot, made, random)
    assert ranked == PER_GPU * gpus
    start = process_time()
    pods = sum(isinstance(action, CreatePod) for action in plan(unstarted).actions)
    fill = process_time() - start
    assert pods >= PER_GPU * gpus // 2, pods  # quotas keep some back
    return Measured(policy, shape, PER_GPU * gpus, seconds[0], median(seconds[1:]), fill)


def growth(rows: Sequence[Measured]) -> float:
    """Return the exponent of growth over the larger half of the sizes.

    It is the slope of the least-squares line through the logarithms.
    """
    half = sorted(rows, key=lambda r: r.trials)[len(rows) // 2 - 1 :]
    return float(np.polyfit(np.log([r.trials for r in half]), np.log([r.tick for r in half]), 1)[0])


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--max-gpus", type=positive, default=1000, help="GPUs of the largest cluster (default: 1000)")
    parser.add_argument("--ticks", type=positive, default=5, help="of each cluster (default: 5)")
    parser.add_argument("--policies", default=POLICIES, help=f"(default: {POLICIES})")
    add_out(parser)
    options = parser.parse_args()
    sizes = sorted({max(10, round(options.max_gpus * part)) for part in (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)})
    names = options.policies.split(",")
    measured = [measure(gpus, shape, name, options.ticks) for name in names for shape in SHAPES for gpus in sizes]
    path = options.out / "bench-planner.md"
    line = result_line(summary(measured))
    text = report(measured, path.with_suffix(".png").name) + f"\n```\n{line}\n```\n"
    write_page(path, text)
    plot(measured, path.with_suffix(".png"))
    print(text)
    print(line)


def by_policy_and_shape(measured: Sequence[Measured]) -> dict[tuple[str, Shape], list[Measured]]:
    """Return the figures by policy and shape."""
    table: dict[tuple[str, Shape], list[Measured]] = {}
    for row in measured:
        table.setdefault((row.policy, row.shape), []).append(row)
    return table


def summary(measured: Sequence[Measured]) -> dict[str, object]:
    """Return the figures for RESULT."""
    most = max(row.trials for row in measured)
    largest = [row for row in measured if row.trials == most]
    return {
        "trials": most,
        "slowest_tick_seconds": round(max(row.tick for row in largest), 3),
        "slowest_first_plan_seconds": round(max(row.first for row in largest), 3),
        "slowest_fill_seconds": round(max(row.fill for row in largest), 3),
        "growth": {
            f"{name}, jobs {shape}": round(growth(rows), 2)
            for (name, shape), rows in by_policy_and_shape(measured).items()
        },
        "bar_seconds": BAR,
        "holds": max(max(row.tick, row.fill) for row in largest) < BAR,
    }


def report(measured: Sequence[Measured], image: str) -> str:
    """Return the page."""
    sizes = sorted({row.trials for row in measured})
    lines = [
        "# bench-planner\n",
        f"`{command()}`. Processor milliseconds of one tick; in parentheses those of the first plan of a",
        f"new process, which reads every curve. {PER_GPU} trials a GPU. Growth: exponent of the number of trials.\n",
        "| policy | jobs | " + " | ".join(f"{size} trials" for size in sizes) + " | growth |",
        "| --- " * (len(sizes) + 3) + "|",
    ]
    for (name, shape), rows in by_policy_and_shape(measured).items():
        cells = [f"{1e3 * r.tick:.1f} ({1e3 * r.first:.0f})" for r in sorted(rows, key=lambda r: r.trials)]
        lines.append(f"| {name} | {shape} | " + " | ".join(cells) + f" | {growth(rows):.2f} |")
    slowest = max(row.tick for row in measured if row.trials == sizes[-1])
    fill = max(row.fill for row in measured if row.trials == sizes[-1])
    lines.append(
        f"\nThe slowest tick of {sizes[-1]} trials took {slowest:.3f} s, the slowest fill {fill:.3f} s "
        f"(bar: {BAR:g} s).\n\n![ticks]({image})"
    )
    return "\n".join(lines)


def plot(measured: Sequence[Measured], path: Path) -> None:
    """Draw the seconds of a tick over the number of trials."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for (name, shape), rows in by_policy_and_shape(measured).items():
        label = f"{name}, {shape} job{'s'[: shape.jobs > 1]}"
        axes.plot([r.trials for r in rows], [r.tick for r in rows], "o-", label=label)
    sizes = sorted({row.trials for row in measured})
    axes.plot(sizes, [BAR * size / sizes[-1] for size in sizes], "k--", label="linear to the bar")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("trials (10 a GPU)")
    axes.set_ylabel("seconds of a tick")
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
