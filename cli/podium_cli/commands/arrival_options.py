"""`podium simulate --system --jobs N`: searches that arrive one after the other. Its options, what refuses them, and
the run itself. Called by `simulate`, which says where and on which curves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from podium_cli.exit_codes import CliError, Exit
from podium_cli.output import show
from podium_cli.views import arrivals as arrivals_view
from podium_cli.views import formatting as texts
from podium_simulator.system.arrivals import Arrivals, compare
from podium_simulator.system.comparison import ClusterSpec
from podium_simulator.system.scenario import SimulationError
from podium_simulator.traces.trace import Trace

MOST_JOBS = 100  # a plan looks at each: time goes by more than their number
MOST_TRIALS = 10_000  # of all jobs: Podium's own bound on trials
WEEK = 604_800.0


def options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("several jobs (with --system)")
    text = f"searches that share the GPUs, each of its own --trials, {MOST_JOBS} at most (default: 1)"
    group.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "from one job's arrival to the next one's: fixed, as Kueue's load generator has it (default: 0, all at once)"
    group.add_argument("--arrivals", type=float, metavar="SECONDS", help=text)
    text = "that the jobs belong to in turn, a namespace each (default: one a job)"
    group.add_argument("--users", type=int, metavar="N", help=text)


def asked(arguments: argparse.Namespace) -> Arrivals | None:
    """None: one job, as without these options. Raises CliError for what cannot be."""
    jobs, every, users = arguments.jobs, arguments.arrivals, arguments.users
    given = {"--jobs": jobs, "--arrivals": every, "--users": users}
    named = [f"{option}: {value:g}" for option, value in given.items() if value is not None]
    if named and not (arguments.system or arguments.report is not None):
        text = f"{named[0]} is for jobs that share a cluster, which is simulated with --system only; add --system"
        raise CliError(Exit.USAGE, "SystemRequired", text)
    if named and jobs is None:
        text = f"{named[0]} is for several jobs, and --jobs is not given; add --jobs 2 or more"
        raise CliError(Exit.USAGE, "JobsRequired", text)
    if jobs is None:
        return None
    _number("--jobs", jobs, MOST_JOBS, "jobs to simulate")
    if jobs * arguments.trials > MOST_TRIALS and jobs > 1:
        text = f"--jobs: {jobs} jobs of {arguments.trials} trials are too many to simulate"
        text += f"; give {MOST_TRIALS} trials in all at most, with fewer --jobs or --trials"
        raise CliError(Exit.USAGE, "TooMany", text)
    if every is not None and not 0.0 <= every <= WEEK:
        text = f"--arrivals: {every:g} seconds is no time between jobs; give 0 to {WEEK:g}"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    if users is not None:
        _number("--users", users, jobs, f"users of {texts.count(jobs, 'job')} (--jobs)")
    if jobs == 1:
        if every is not None:
            text = f"--arrivals: {every:g} is for several jobs, and --jobs is 1; give --jobs 2 or more, or leave it out"
            raise CliError(Exit.USAGE, "JobsRequired", text)
        return None
    if arguments.report is not None:
        text = (
            f"--report: its drawings are of one job, and --jobs is {jobs}; leave --report out (-o json has every job)"
        )
        raise CliError(Exit.USAGE, "SingleJobOnly", text)
    return Arrivals(jobs, every or 0.0, users or jobs)


def _number(option: str, number: int, most: int, what: str) -> None:
    if number < 1:
        raise CliError(Exit.USAGE, "TooFew", f"{option}: {number} is too few; give 1 or more")
    if number > most:
        raise CliError(Exit.USAGE, "TooMany", f"{option}: {number} is too many {what}; give {most} at most")


def run(
    arguments: argparse.Namespace,
    names: Sequence[str],
    arrivals: Arrivals,
    place: ClusterSpec,
    memory: int | None,
    recordings: Sequence[Trace],
) -> Exit:
    try:
        found = [compare(r, names, place, arguments.seeds, arguments.trials, arrivals, memory) for r in recordings]
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
