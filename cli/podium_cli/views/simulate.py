"""Output of `podium simulate` without --system: heading, table and data of a comparison of policies."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from podium_simulator.replay.comparison import ReplayComparison
from podium_views import formatting

REPORTED = ("time_to_target", "time_to_near_best", "time_to_best", "mean_regret")


def heading(comparison: ReplayComparison) -> str:
    """Return a sentence with the curves, the GPUs and the cost of a switch."""
    machine, costs = comparison.machine, comparison.machine.costs
    trials = formatting.count(comparison.size, "trial")
    return (
        f"{formatting.search(comparison.trace)}: {trials} "
        f"on {formatting.count(machine.gpus, 'GPU')}, "
        f"suspend {costs.suspend:g} s, resume {costs.resume:g} s, "
        f"{formatting.count(comparison.runs, 'search', 'searches')}. "
        "Times are medians, X FIFO the mean of fifo's time over the policy's."
        f"{formatting.compared(comparison.trace)}"
    )


def table(comparison: ReplayComparison) -> Table:
    """Return a row for each policy, the fastest first.

    BEST DONE is the time until the best trial of all has completed. NEAR BEST is the time until a value within 1 % of
    the best. Curves with a target have TARGET instead: the time until a value as good as the target, or a dash if no
    trial reaches it. SWITCHING is the share of the GPU time that switches took.
    """
    view = Table(box=None, pad_edge=False, header_style="bold")
    soon, until = (
        ("NEAR BEST", "time_to_near_best") if comparison.trace.target is None else ("TARGET", "time_to_target")
    )
    for name in ("POLICY", "BEST DONE", "X FIFO", "WORST", soon, "X FIFO", "REGRET", "GPU TIME", "SWITCHING"):
        view.add_column(name, no_wrap=True, justify="left" if name == "POLICY" else "right")
    for name in _fastest_first(comparison):
        done, near = comparison.against_fifo(name, "time_to_best"), comparison.against_fifo(name, until)
        view.add_row(
            name,
            formatting.duration(comparison.typical(name, "time_to_best")),
            _ratio(done, 0),
            _ratio(done, 1),
            formatting.duration(comparison.typical(name, until)),
            _ratio(near, 0),
            formatting.number(comparison.typical(name, "mean_regret"), 3),
            formatting.duration(comparison.typical(name, "gpu_seconds_to_best")),
            f"{100 * fmean(s.switch_share for s in comparison.scores[name].values()):.1f} %",
        )
    return view


def data(comparisons: Sequence[ReplayComparison]) -> list[dict[str, object]]:
    """Return a list with an object for each file of curves; a ratio above 1 is faster than fifo."""
    return [_plain(comparison) for comparison in comparisons]


def _plain(comparison: ReplayComparison) -> dict[str, object]:
    return {
        "task": comparison.trace.task,
        "metric": comparison.trace.metric,
        "goal": comparison.trace.goal,
        "target": comparison.trace.target,
        "leftOut": comparison.trace.left_out,
        "trials": comparison.size,
        "searches": comparison.runs,
        "gpus": comparison.machine.gpus,
        "suspendSeconds": comparison.machine.costs.suspend,
        "resumeSeconds": comparison.machine.costs.resume,
        "policies": [_policy(comparison, name) for name in _fastest_first(comparison)],
    }


def _policy(comparison: ReplayComparison, name: str) -> dict[str, object]:
    scores = comparison.scores[name].values()
    return {
        "name": name,
        "targetSeconds": comparison.typical(name, "time_to_target") if comparison.trace.target is not None else None,
        "nearBestSeconds": comparison.typical(name, "time_to_near_best"),
        "bestDoneSeconds": comparison.typical(name, "time_to_best"),
        "regret": comparison.typical(name, "mean_regret"),
        "gpuSecondsToBest": comparison.typical(name, "gpu_seconds_to_best"),
        "switchShare": fmean(score.switch_share for score in scores),
        "longestWaitInTrials": max(score.longest_wait for score in scores),
        "againstFifo": {
            metric: None if ratios is None else {"mean": ratios[0], "worst": ratios[1]}
            for metric, ratios in ((m, comparison.against_fifo(name, m)) for m in REPORTED)
        },
    }


def _fastest_first(comparison: ReplayComparison) -> list[str]:
    def key(name: str) -> tuple[float, str]:
        gain, _ = comparison.against_fifo(name, "time_to_best") or (0.0, 0.0)
        return -gain, name

    return sorted(comparison.scores, key=key)


def _ratio(ratios: tuple[float, float] | None, which: int) -> str:
    return formatting.NOTHING if ratios is None else f"{ratios[which]:.2f}"
