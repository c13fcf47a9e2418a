"""Options and run of `podium simulate --system --jobs N`: several searches that arrive one after the other.

`simulate` calls it with the simulated system and the curves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from podium_cli.exit_codes import CliError, Exit
from podium_cli.output import show
from podium_cli.views import arrivals as arrivals_view
from podium_cli.views import formatting
from podium_simulator.system.arrivals import (
    Arrivals,
    SharedCluster,
    compare,
)
from podium_simulator.system.comparison import ClusterSpec
from podium_simulator.system.scenario import SimulationError
from podium_simulator.traces.trace import Trace

MAX_JOBS = 100  # each plan reads all jobs, so the run time grows faster than their number
MAX_TRIALS = 10_000  # of all jobs: Podium's limit on trials
WEEK = 604_800.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for several jobs."""
    group = parser.add_argument_group("several jobs (with --system)")
    text = f"searches that share the GPUs, each with its own --trials, {MAX_JOBS} at most (default: 1)"
    group.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "fixed time between two arrivals, as in Kueue's load generator (default: 0, all at once)"
    group.add_argument("--arrivals", type=float, metavar="SECONDS", help=text)
    text = "users that own the jobs in turn, with a namespace each (default: one for each job)"
    group.add_argument("--users", type=int, metavar="N", help=text)


def parse_arrivals(arguments: argparse.Namespace) -> Arrivals | None:
    """Return the arrivals, or None for a single job; raise CliError if the options contradict each other."""
    jobs, every, users = arguments.jobs, arguments.arrivals, arguments.users
    given = {"--jobs": jobs, "--arrivals": every, "--users": users}
    named = [f"{option}: {value:g}" for option, value in given.items() if value is not None]
    if named and not (arguments.system or arguments.report is not None):
        text = f"{named[0]} needs the simulated system, which jobs share; add --system"
        raise CliError(Exit.USAGE, "SystemRequired", text)
    if named and jobs is None:
        text = f"{named[0]} needs several jobs, and --jobs is not given; add --jobs 2 or more"
        raise CliError(Exit.USAGE, "JobsRequired", text)
    if jobs is None:
        return None
    _number("--jobs", jobs, MAX_JOBS, "jobs to simulate")
    if jobs * arguments.trials > MAX_TRIALS and jobs > 1:
        text = f"--jobs: {jobs} jobs of {arguments.trials} trials are too many to simulate"
        text += f"; give {MAX_TRIALS} trials in all at most, with fewer --jobs or --trials"
        raise CliError(Exit.USAGE, "TooMany", text)
    if every is not None and not 0.0 <= every <= WEEK:
        text = f"--arrivals: must be 0 to {WEEK:g} seconds (got {every:g}); give a time between two arrivals"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    if users is not None:
        _number("--users", users, jobs, f"users of {formatting.count(jobs, 'job')} (--jobs)")
    if jobs == 1:
        if every is not None:
            text = f"--arrivals: {every:g} needs several jobs, and --jobs is 1; give --jobs 2 or more, or omit it"
            raise CliError(Exit.USAGE, "JobsRequired", text)
        return None
    if arguments.report is not None:
        text = f"--report: it draws one job, and --jobs is {jobs}; omit --report (-o json contains every job)"
        raise CliError(Exit.USAGE, "SingleJobOnly", text)
    return Arrivals(jobs, every or 0.0, users or jobs)


def _number(option: str, number: int, maximum: int, what: str) -> None:
    if number < 1:
        raise CliError(Exit.USAGE, "TooFew", f"{option}: must be at least 1 (got {number})")
    if number > maximum:
        raise CliError(Exit.USAGE, "TooMany", f"{option}: {number} is too many {what}; give {maximum} at most")


def run(
    arguments: argparse.Namespace,
    names: Sequence[str],
    arrivals: Arrivals,
    place: ClusterSpec,
    memory: int | None,
    recordings: Sequence[Trace],
) -> Exit:
    """Simulate the jobs under each policy and print the tables or the JSON."""
    try:
        shared = SharedCluster(place, arrivals, memory)
        found = [compare(r, names, shared, arguments.seeds, arguments.trials) for r in recordings]
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if arguments.output == "json":
        print(arrivals_view.as_json(found))
        return Exit.OK
    for one in found:
        print(arrivals_view.heading(one))
        show(arrivals_view.table(one))
        if arrivals.users > 1:
            print(arrivals_view.BY_USER)
            show(arrivals_view.by_user(one))
    return Exit.OK
