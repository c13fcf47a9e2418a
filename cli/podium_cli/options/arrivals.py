"""Options and results of `podium simulate --system --jobs N`: several searches that arrive one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.queues import read_queues
from podium_cli.options.system import MAX_COUNT
from podium_cli.output import show
from podium_cli.structured import print_data
from podium_cli.views import arrivals as arrivals_view
from podium_core.domain.gpu_queue import QueueUsage
from podium_simulator.system.inputs.arrivals import Arrivals, ArrivalsComparison
from podium_views import formatting

MAX_JOBS = 100  # each plan reads all jobs, so the run time grows faster than their number
WEEK = 604_800.0
PANEL = "Several jobs (with --system)"

Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help=f"Searches that share the GPUs, each with its own --trials, {MAX_JOBS} at most.",
        show_default="1",
        rich_help_panel=PANEL,
    ),
]
Every = Annotated[
    float | None,
    typer.Option(
        "--arrivals",
        metavar="SECONDS",
        help="Fixed time between two arrivals, as in Kueue's load generator.",
        show_default="0, all at once",
        rich_help_panel=PANEL,
    ),
]
Users = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Users that own the jobs in turn, with a namespace each.",
        show_default="one for each job",
        rich_help_panel=PANEL,
    ),
]

Queues = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File of GPUQueues that share the GPUs, as for kubectl apply. The jobs belong to them in turn.",
        show_default="no queues",
        readable=False,
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class ArrivalOptions:
    """Numbers of jobs and users, seconds between two arrivals, file of queues; None: not given."""

    jobs: int | None
    every: float | None
    users: int | None
    queues: Path | None = None


def check_alone(options: ArrivalOptions) -> None:
    """Raise CliError if an option is given without the simulated system."""
    for given in _given(options):
        text = f"{given} needs the simulated system, which jobs share; add --system"
        raise CliError(Exit.USAGE, "SystemRequired", text)


def parse_arrivals(options: ArrivalOptions, trials: int, *, reports: bool) -> Arrivals | None:
    """Return the arrivals, or None for a single job; raise CliError if the options contradict each other.

    `trials`: number of trials of each job. `reports`: whether a report page is written; a page can show only one job.
    """
    jobs, every, users = options.jobs, options.every, options.users
    if jobs is None:
        for given in _given(options):
            text = f"{given} needs several jobs, and --jobs is not given; add --jobs 2 or more"
            raise CliError(Exit.USAGE, "JobsRequired", text)
        return None
    _number("--jobs", jobs, MAX_JOBS, "jobs to simulate")
    if jobs * trials > MAX_COUNT and jobs > 1:
        text = f"--jobs: {jobs} jobs of {trials} trials are too many to simulate"
        text += f"; give {MAX_COUNT} trials in all at most, with fewer --jobs or --trials"
        raise CliError(Exit.USAGE, "TooMany", text)
    if every is not None and not 0.0 <= every <= WEEK:
        text = f"--arrivals: must be 0 to {WEEK:g} seconds (got {every:g}); give a time between two arrivals"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    queues = read_queues(options.queues)
    if queues:
        _check_queues(options, jobs, len(queues))
    if users is not None:
        _number("--users", users, jobs, f"users of {formatting.count(jobs, 'job')} (--jobs)")
    if jobs == 1:
        if every is not None:
            text = f"--arrivals: {every:g} needs several jobs, and --jobs is 1; give --jobs 2 or more, or omit it"
            raise CliError(Exit.USAGE, "JobsRequired", text)
        return None
    if reports:
        text = f"--report: it draws one job, and --jobs is {jobs}; omit --report (-o json contains every job)"
        raise CliError(Exit.USAGE, "SingleJobOnly", text)
    if queues:  # each is a user: namespaces and usage are those of the cluster, which is not simulated
        fresh = tuple(replace(queue, namespaces=None, usage=QueueUsage()) for queue in queues)
        return Arrivals(jobs, every or 0.0, len(fresh), fresh)
    return Arrivals(jobs, every or 0.0, users or jobs)


def _check_queues(options: ArrivalOptions, jobs: int, queues: int) -> None:
    """Raise CliError unless each queue has a job, and users are not given, too."""
    if options.users is not None:
        text = f"--users: {options.users} has no effect with --queues, as each queue is a user"
        raise CliError(Exit.USAGE, "OptionUnused", f"{text}; omit one of them")
    if jobs < max(2, queues):
        text = f"--jobs: {jobs} is too few for {formatting.count(queues, 'queue')} (--queues)"
        raise CliError(Exit.USAGE, "TooFew", f"{text}; give at least {max(2, queues)}")


def _given(options: ArrivalOptions) -> list[str]:
    every = {"--jobs": options.jobs, "--arrivals": options.every, "--users": options.users}
    files = [f"--queues: {options.queues}"] if options.queues is not None else []
    return [*(f"{option}: {value:g}" for option, value in every.items() if value is not None), *files]


def _number(option: str, number: int, maximum: int, what: str) -> None:
    if number < 1:
        raise CliError(Exit.USAGE, "TooFew", f"{option}: must be at least 1 (got {number})")
    if number > maximum:
        raise CliError(Exit.USAGE, "TooMany", f"{option}: {number} is too many {what}; give {maximum} at most")


def print_comparisons(comparisons: Sequence[ArrivalsComparison], output: str) -> None:
    """Print the tables of the jobs under each policy, or the data."""
    if output != "table":
        print_data(arrivals_view.data(comparisons), output)
        return
    for one in comparisons:
        print(arrivals_view.heading(one))
        show(arrivals_view.table(one))
        if one.arrivals.users > 1:
            print(arrivals_view.by_user_heading(one))
            show(arrivals_view.by_user(one))
