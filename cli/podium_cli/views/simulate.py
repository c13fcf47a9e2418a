"""How a contest of policies reads: a table, the fastest first, and JSON. Pure. Used by `podium simulate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from podium_cli.views import formatting as texts
from podium_simulator.replay.comparison import ReplayComparison

REPORTED = ("time_to_target", "time_to_near_best", "time_to_best", "mean_regret")


def heading(contest: ReplayComparison) -> str:
    machine, costs = contest.machine, contest.machine.costs
    trials = texts.count(contest.size, "trial")
    return (
        f"{texts.search(contest.trace)}: {trials} on {texts.count(machine.gpus, 'GPU')}, "
        f"{costs.suspend:g} s + {costs.resume:g} s a switch, {texts.count(contest.runs, 'search', 'searches')}. "
        "Times are medians, X FIFO the mean of fifo's time over the policy's."
        f"{texts.compared(contest.trace)}"
    )


def table(contest: ReplayComparison) -> Table:
    """BEST DONE: until the best trial of all has completed; NEAR BEST: until a value within 1 % of the best; of curves
    that have a target TARGET: until one as good as that, a dash where no trial has any.
    """
    found = Table(box=None, pad_edge=False, header_style="bold")
    soon, until = ("NEAR BEST", "time_to_near_best") if contest.trace.target is None else ("TARGET", "time_to_target")
    for name in ("POLICY", "BEST DONE", "X FIFO", "WORST", soon, "X FIFO", "REGRET", "GPU TIME", "SWITCHES"):
        found.add_column(name, no_wrap=True, justify="left" if name == "POLICY" else "right")
    for name in _fastest_first(contest):
        done, near = contest.against_fifo(name, "time_to_best"), contest.against_fifo(name, until)
        found.add_row(
            name,
            texts.duration(contest.typical(name, "time_to_best")),
            _ratio(done, 0),
            _ratio(done, 1),
            texts.duration(contest.typical(name, until)),
            _ratio(near, 0),
            texts.number(contest.typical(name, "mean_regret"), 3),
            texts.duration(contest.typical(name, "gpu_seconds_to_best")),
            f"{100 * fmean(s.switch_share for s in contest.scores[name].values()):.1f} %",
        )
    return found


def as_json(contests: Sequence[ReplayComparison]) -> str:
    """An array, one object for each file of curves. Seconds; a ratio above 1 = faster than fifo."""
    return json.dumps([_plain(contest) for contest in contests], indent=2)


def _plain(contest: ReplayComparison) -> dict[str, object]:
    return {
        "task": contest.trace.task,
        "metric": contest.trace.metric,
        "goal": contest.trace.goal,
        "target": contest.trace.target,
        "leftOut": contest.trace.left_out,
        "trials": contest.size,
        "searches": contest.runs,
        "gpus": contest.machine.gpus,
        "suspendSeconds": contest.machine.costs.suspend,
        "resumeSeconds": contest.machine.costs.resume,
        "policies": [_policy(contest, name) for name in _fastest_first(contest)],
    }


def _policy(contest: ReplayComparison, name: str) -> dict[str, object]:
    scores = contest.scores[name].values()
    return {
        "name": name,
        "targetSeconds": contest.typical(name, "time_to_target") if contest.trace.target is not None else None,
        "nearBestSeconds": contest.typical(name, "time_to_near_best"),
        "bestDoneSeconds": contest.typical(name, "time_to_best"),
        "regret": contest.typical(name, "mean_regret"),
        "gpuSecondsToBest": contest.typical(name, "gpu_seconds_to_best"),
        "switchShare": fmean(score.switch_share for score in scores),
        "longestWaitInTrials": max(score.longest_wait for score in scores),
        "againstFifo": {
            metric: None if found is None else {"mean": found[0], "worst": found[1]}
            for metric, found in ((m, contest.against_fifo(name, m)) for m in REPORTED)
        },
    }


def _fastest_first(contest: ReplayComparison) -> list[str]:
    return sorted(
        contest.scores, key=lambda name: (-(contest.against_fifo(name, "time_to_best") or (0.0, 0.0))[0], name)
    )


def _ratio(found: tuple[float, float] | None, which: int) -> str:
    return texts.NOTHING if found is None else f"{found[which]:.2f}"
