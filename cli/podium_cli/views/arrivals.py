"""Output of `podium simulate --system --jobs`: a table of policies, one of users, and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.table import Table

from podium_cli.views.system import NEVER, drained, switch
from podium_simulator.system.inputs.arrivals import Arrivals, ArrivalsComparison, ArrivalsRun, ArrivedJob
from podium_views import formatting

COLUMNS = (
    "POLICY",
    "FOUND",
    "NEAR BEST",
    "WORST",
    "DONE",
    "WORST",
    "SLOWDOWN",
    "WORST",
    "ALL DONE",
    "FAIRNESS",
)
TARGET = "TARGET"  # a column before DONE, if the curves have a target
BY_USER = (
    "GPU time by user; in brackets the GPU time held while other users had unfinished jobs, over an equal share of it:"
)

BY_QUEUE = (
    "GPU time by queue; in brackets the GPU time held while other queues had unfinished jobs, over its share by weight:"
)


def heading(comparison: ArrivalsComparison) -> str:
    """Return a sentence with the curves, the jobs and the simulated system."""
    place, arrivals = comparison.cluster, comparison.arrivals
    method, slots = place.method, place.nodes[0].slots
    when = f"one every {formatting.duration(arrivals.every)}" if arrivals.every else "all at once"
    return (
        f"{formatting.search(comparison.trace)}: {formatting.count(arrivals.jobs, 'job')} of "
        f"{_users(arrivals)}, {when}, {formatting.count(comparison.size, 'trial')} each, on "
        f"{formatting.count(place.gpus, 'GPU')} on {formatting.count(len(place.nodes), 'node')}, "
        f"{formatting.count(slots, 'slot')} per GPU, {switch(method)}, {drained(place)}"
        f"{formatting.count(len(_rounds(comparison)), 'round')}, the whole system simulated. "
        "Times are from a job's arrival, mean and worst of all jobs; "
        "SLOWDOWN: over its time alone on the cluster."
        f"{formatting.compared(comparison.trace)}"
    )


def table(comparison: ArrivalsComparison) -> Table:
    """Return a row for each policy, the fastest first.

    FOUND counts the jobs with a value within 1 % of their best, and NEAR BEST is their time until then. TARGET is the
    mean time until a value as good as the target. "never" means that not all jobs have such a value.
    """
    at, aims = COLUMNS.index("DONE"), comparison.trace.target is not None
    view = _table((*COLUMNS[:at], TARGET, *COLUMNS[at:]) if aims else COLUMNS)
    for name in fastest_first(comparison):
        view.add_row(name, *_cells(comparison.runs[name], aims=aims))
    return view


def by_user_heading(comparison: ArrivalsComparison) -> str:
    """Return the line above the table of users, or of queues."""
    return BY_QUEUE if comparison.arrivals.queues else BY_USER


def by_user(comparison: ArrivalsComparison) -> Table:
    """Return each user's share of the GPU time; the columns are users or policies, whichever are fewer."""
    names, users = fastest_first(comparison), [user.user for user in _rounds(comparison)[0].users]
    rows = [[_share(comparison.runs[name], place) for place in range(len(users))] for name in names]
    heads, sides, first = users, names, "POLICY"
    if len(users) > len(names):
        rows, heads, sides, first = (
            [list(row) for row in zip(*rows, strict=True)],
            names,
            users,
            "QUEUE" if comparison.arrivals.queues else "USER",
        )
    view = _table((first, *(head.upper() for head in heads)))
    for side, row in zip(sides, rows, strict=True):
        view.add_row(side, *row)
    return view


def fastest_first(comparison: ArrivalsComparison) -> list[str]:
    """Return the policies by the number of jobs that come near their best, then by their mean time."""

    def key(name: str) -> tuple[int, float, str]:
        near = _near(comparison.runs[name])
        return -len(near), fmean(near) if near else 0.0, name

    return sorted(comparison.runs, key=key)


def data(comparisons: Sequence[ArrivalsComparison]) -> list[dict[str, object]]:
    """Return a list with an object for each file of curves.

    Times are seconds from a job's arrival. null means never, or no competition between users.
    """
    return [_plain(comparison) for comparison in comparisons]


def _users(arrivals: Arrivals) -> str:
    if not arrivals.queues:
        return formatting.count(arrivals.users, "user")
    weights = " : ".join(f"{weight:g}" for weight in arrivals.weights.values())
    return f"{formatting.count(len(arrivals.queues), 'queue')} of weight {weights}"


def _table(columns: Sequence[str]) -> Table:
    view = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        view.add_column(name, no_wrap=True, justify="right" if at else "left")
    return view


def _rounds(comparison: ArrivalsComparison) -> tuple[ArrivalsRun, ...]:
    return next(iter(comparison.runs.values()))


def _jobs(rounds: Iterable[ArrivalsRun]) -> list[ArrivedJob]:
    return [job for one in rounds for job in one.jobs]


def _near(rounds: Iterable[ArrivalsRun]) -> list[float]:
    return [near for job in _jobs(rounds) if (near := job.result.score.near_best) is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def _cells(rounds: Sequence[ArrivalsRun], *, aims: bool) -> tuple[str, ...]:
    jobs, near = _jobs(rounds), _near(rounds)
    ends, slowdowns = [job.result.score.end for job in jobs], [job.slowdown for job in jobs]
    fairness = _mean(one.fairness for one in rounds)
    at_target = [at for job in jobs if (at := job.result.score.target) is not None]
    return (
        f"{len(near)}/{len(jobs)}",
        formatting.duration(fmean(near)) if near else NEVER,
        formatting.duration(max(near)) if len(near) == len(jobs) else NEVER,
        *([formatting.duration(fmean(at_target)) if len(at_target) == len(jobs) else NEVER] if aims else []),
        formatting.duration(fmean(ends)),
        formatting.duration(max(ends)),
        f"{fmean(slowdowns):.2f}",
        f"{max(slowdowns):.2f}",
        formatting.duration(fmean(one.end for one in rounds)),
        formatting.NOTHING if fairness is None else f"{fairness:.3f}",
    )


def _share(rounds: Sequence[ArrivalsRun], place: int) -> str:
    mine = [one.users[place] for one in rounds]
    of_equal = _mean(user.of_equal for user in mine)
    relative = formatting.NOTHING if of_equal is None else f"{of_equal:.2f}"
    return f"{100 * fmean(user.share for user in mine):.0f} % ({relative})"


def _plain(comparison: ArrivalsComparison) -> dict[str, object]:
    place, arrivals = comparison.cluster, comparison.arrivals
    return {
        "task": comparison.trace.task,
        "metric": comparison.trace.metric,
        "goal": comparison.trace.goal,
        "target": comparison.trace.target,
        "leftOut": comparison.trace.left_out,
        "jobs": arrivals.jobs,
        "users": arrivals.users,
        "queues": [{"name": queue.name, "weight": queue.weight} for queue in arrivals.queues],
        "arrivalSeconds": arrivals.every,
        "trials": comparison.size,
        "rounds": len(_rounds(comparison)),
        "gpus": place.gpus,
        "nodes": len(place.nodes),
        "method": place.method.name,
        "suspendSeconds": place.method.suspend,
        "resumeSeconds": place.method.resume,
        "policies": [_policy(name, comparison.runs[name]) for name in fastest_first(comparison)],
    }


def _policy(name: str, rounds: Sequence[ArrivalsRun]) -> dict[str, object]:
    jobs, near = _jobs(rounds), _near(rounds)
    ends, slowdowns = [job.result.score.end for job in jobs], [job.slowdown for job in jobs]
    whole = len(near) == len(jobs)
    return {
        "name": name,
        "found": len(near),
        "nearBestSeconds": {"mean": fmean(near) if near else None, "worst": max(near) if whole else None},
        "endSeconds": {"mean": fmean(ends), "worst": max(ends)},
        "slowdown": {"mean": fmean(slowdowns), "worst": max(slowdowns)},
        "allDoneSeconds": fmean(one.end for one in rounds),
        "fairness": _mean(one.fairness for one in rounds),
        "rounds": [_round(one) for one in rounds],
    }


def _round(one: ArrivalsRun) -> dict[str, object]:
    return {
        "seed": one.seed,
        "allDoneSeconds": one.end,
        "fairness": one.fairness,
        "users": [
            {"name": user.user, "gpuSeconds": user.gpu_seconds, "share": user.share, "ofEqualShare": user.of_equal}
            for user in one.users
        ],
        "jobs": [_job(job) for job in one.jobs],
    }


def _job(job: ArrivedJob) -> dict[str, object]:
    score = job.result.score
    return {
        "name": job.key.name,
        "user": job.key.namespace,
        "seed": job.result.seed,
        "arrivedSeconds": job.arrived,
        "best": score.best,
        "nearBestSeconds": score.near_best,
        "targetSeconds": score.target,
        "endSeconds": score.end,
        "aloneSeconds": job.alone_seconds,
        "slowdown": job.slowdown,
        "regret": score.regret,
        "gpuSeconds": score.gpu_seconds,
        "overheadShare": score.overhead,
        "suspensions": score.suspensions,
        "checkpoints": score.checkpoints,
        "migrations": score.migrations,
    }
