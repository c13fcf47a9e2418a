"""Output of `podium simulate --system`: heading, table and data of searches in the simulated system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median

from rich.table import Table

from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_simulator.replay.metrics import near_best_value, target_value
from podium_simulator.replay.samples import Sample
from podium_simulator.replay.statistics import geometric_mean
from podium_simulator.system.inputs.scenario import Method
from podium_simulator.system.results.comparison import BASE, ClusterSpec, SearchResult, SearchScore, SystemComparison
from podium_views import formatting

NEVER = "never"
COLUMNS = (
    "POLICY",
    "BEST",
    "NEAR BEST",
    "X FIFO",
    "WORST",
    "REGRET",
    "ALL DONE",
    "GPU TIME",
    "OVERHEAD",
    "SWITCHES",
)
TARGET = "TARGET"  # a column before REGRET, if the curves have a target
MIGRATIONS = "MIGRATIONS"  # a column if live migration is possible


def heading(comparison: SystemComparison) -> str:
    """Return a sentence with the curves and the simulated system."""
    place, sample = comparison.cluster, comparison.samples[0]
    method, slots = place.method, place.nodes[0].slots
    where = f"{formatting.count(place.gpus, 'GPU')} on {formatting.count(len(place.nodes), 'node')}"
    return (
        f"{formatting.search(comparison.trace)}: {formatting.count(len(sample.trials), 'trial')} on {where}, "
        f"{formatting.count(slots, 'slot')} per GPU, {switch(method)}, {drained(place)}"
        f"{formatting.count(len(comparison.samples), 'search', 'searches')}, "
        "the whole system simulated. Times are medians, X FIFO the mean of fifo's time over the policy's."
        f"{formatting.compared(comparison.trace)}"
    )


def drained(place: ClusterSpec) -> str:
    """Return the drains of the simulated system, each with a comma after it."""
    return "".join(f"{drain}, " for drain in place.drains)


def switch(method: Method) -> str:
    """Return the cost of a switch, and the method if it is not the default one."""
    cost = f"suspend {method.suspend:g} s, resume {method.resume:g} s"
    if method.suspends and method.checkpoints:
        cost += f", trials write checkpoints ({APP_CHECKPOINT})"
    if method.keeps_memory and method.suspends:
        return cost
    migration = f", live migration {method.migration_seconds:g} s" if method.migrates else ""
    return f"{cost} ({method.name}{f': {method.basis}' if method.basis else ''}){migration}"


def columns(comparison: SystemComparison) -> tuple[str, ...]:
    """Return the heads of the table."""
    at, aims = COLUMNS.index("REGRET"), comparison.trace.target is not None
    names = (*COLUMNS[:at], TARGET, *COLUMNS[at:]) if aims else COLUMNS
    return (*names, MIGRATIONS) if comparison.cluster.method.migrates else names


def rows(comparison: SystemComparison) -> list[tuple[str, ...]]:
    """Return the cells of the table, the fastest policy first.

    NEAR BEST is the time until a value within 1 % of the best of all, TARGET until one as good as the target. "never"
    means in half of the searches or more; a dash means that no trial has such a value.
    """
    return [_row(comparison, name) for name in fastest_first(comparison)]


def table(comparison: SystemComparison) -> Table:
    """Return a row for each policy, the fastest first."""
    view = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns(comparison):
        view.add_column(name, no_wrap=True, justify="left" if name == "POLICY" else "right")
    for row in rows(comparison):
        view.add_row(*row)
    return view


def against_fifo(comparison: SystemComparison, name: str) -> list[float]:
    """Return fifo's time to near the best over the policy's, for each search in which both reach it."""
    pairs = zip(comparison.runs[BASE], comparison.runs[name], strict=True)
    return [b.score.near_best / m.score.near_best for b, m in pairs if b.score.near_best and m.score.near_best]


def fastest_first(comparison: SystemComparison) -> list[str]:
    """Return the policies by their median time to near the best."""

    def key(name: str) -> tuple[bool, float, str]:
        near = _median(comparison.runs[name], lambda score: score.near_best)
        return near is None, 0.0 if near is None else near, name

    return sorted(comparison.runs, key=key)


def data(comparisons: Sequence[SystemComparison]) -> list[dict[str, object]]:
    """Return a list with an object for each file of curves; times are seconds, null means never."""
    return [_plain(comparison) for comparison in comparisons]


def _row(comparison: SystemComparison, name: str) -> tuple[str, ...]:
    runs, ratios = comparison.runs[name], against_fifo(comparison, name)
    whole = len(ratios) == len(runs)
    return (
        name,
        formatting.number(_median(runs, lambda score: score.best)),
        _until(comparison, name, lambda score: score.near_best, near_best_value),
        f"{geometric_mean(ratios):.2f}" if whole else formatting.NOTHING,
        f"{min(ratios):.2f}" if whole else formatting.NOTHING,
        *(
            [_until(comparison, name, lambda score: score.target, target_value)]
            if comparison.trace.target is not None
            else []
        ),
        formatting.number(fmean(run.score.regret for run in runs), 3),
        formatting.duration(_median(runs, lambda score: score.end)),
        formatting.duration(_median(runs, lambda score: score.gpu_seconds)),
        f"{100 * fmean(run.score.overhead for run in runs):.1f} %",
        str(round(fmean(run.score.suspensions + run.score.checkpoints for run in runs))),
        *(
            [formatting.number(fmean(run.score.migrations for run in runs))]
            if comparison.cluster.method.migrates
            else []
        ),
    )


def _until(
    comparison: SystemComparison,
    name: str,
    of: Callable[[SearchScore], float | None],
    goal: Callable[[Sample], float | None],
) -> str:
    """Return the median time, "never", or a dash if no trial of a sample has the value `goal`."""
    seconds = _median(comparison.runs[name], of)
    there = any(goal(sample) is not None for sample in comparison.samples)
    return NEVER if seconds is None and there else formatting.duration(seconds)


def _median(runs: Sequence[SearchResult], of: Callable[[SearchScore], float | None]) -> float | None:
    """Return the median over the searches; None if half of them or more have no value."""
    values = [value for run in runs if (value := of(run.score)) is not None]
    return median(values) if 2 * len(values) > len(runs) else None


def _plain(comparison: SystemComparison) -> dict[str, object]:
    place = comparison.cluster
    return {
        "task": comparison.trace.task,
        "metric": comparison.trace.metric,
        "goal": comparison.trace.goal,
        "target": comparison.trace.target,
        "leftOut": comparison.trace.left_out,
        "trials": len(comparison.samples[0].trials),
        "searches": len(comparison.samples),
        "gpus": place.gpus,
        "nodes": len(place.nodes),
        "slots": place.nodes[0].slots,
        "method": place.method.name,
        "checkpoints": place.method.checkpoints or not place.method.suspends,
        "suspendSeconds": place.method.suspend,
        "resumeSeconds": place.method.resume,
        "migrationSeconds": place.method.migration_seconds if place.method.migrates else None,
        "policies": [
            {"name": name, "searches": _searches(comparison.runs[name])} for name in fastest_first(comparison)
        ],
    }


def _searches(runs: Sequence[SearchResult]) -> list[dict[str, object]]:
    return [
        {
            "seed": run.seed,
            "best": run.score.best,
            "nearBestSeconds": run.score.near_best,
            "targetSeconds": run.score.target,
            "endSeconds": run.score.end,
            "regret": run.score.regret,
            "gpuSeconds": run.score.gpu_seconds,
            "overheadShare": run.score.overhead,
            "suspensions": run.score.suspensions,
            "checkpoints": run.score.checkpoints,
            "migrations": run.score.migrations,
        }
        for run in runs
    ]
