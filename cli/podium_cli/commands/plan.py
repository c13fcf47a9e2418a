"""`podium plan JOB.yaml`: a forecast before anything runs. Needs no cluster."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from podium_cli.command_table import SAYS
from podium_cli.commands import simulate
from podium_cli.commands.base import Commands, command
from podium_cli.commands.validate import problems
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_job, read_file
from podium_cli.output import show
from podium_cli.views import plan as plan_view
from podium_core.domain.snapshot import JobView
from podium_core.planning.job_view import job_view
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_core.schema.job import HyperParamJob
from podium_core.schema.search_space import grid_points
from podium_simulator.system import switch_times as methods
from podium_simulator.system.forecast import forecast
from podium_simulator.system.scenario import Method, SimulationError
from podium_simulator.system.switch_times import KEEPS_MEMORY

DAY = 86_400.0  # a longer step would be simulated for hours


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "plan",
        _run,
        says=SAYS["plan"],
        examples="""
            podium plan examples/digits/job.yaml --gpus 2 --step-seconds 0.75
            podium plan job.yaml last-search.jsonl --gpus 8 --nodes 2
            podium plan job.yaml last-search.jsonl --gpus 8 --nodes 2 --drain node-1@3600
            podium plan job.yaml last-search.jsonl -o json
        """,
        cluster=False,
    )
    parser.add_argument("job", type=Path, metavar="JOB.yaml", help="one HyperParamJob")
    simulate.curves(parser, goal="that of the job")
    text = "of one step of this job: the curves are stretched to its maxSteps (default: as recorded)"
    parser.add_argument("--step-seconds", type=float, metavar="SECONDS", help=text)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="searches to simulate (default: 5)")
    simulate.machine(parser, switch=0.2)
    simulate.place(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(default: table)")


def _run(arguments: argparse.Namespace) -> Exit:
    job = _job(arguments.job)
    view = _view(job, arguments.job)
    where = simulate.place_of(arguments, _method(job, view, arguments))
    found = simulate.recordings(arguments, view.maximize)
    if len(found) != 1:
        text = f"{len(found)} recordings are named; a forecast is made from one, name one file"
        raise CliError(Exit.USAGE, "TooManyCurves", text)
    if arguments.step_seconds is not None and not 0.0 < arguments.step_seconds <= DAY:
        text = f"--step-seconds: {arguments.step_seconds:g} is no time of a step; give more than 0, {DAY:g} at most"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    try:
        made = forecast(view, found[0], where, arguments.seeds, arguments.step_seconds)
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if arguments.output == "json":
        print(plan_view.as_json(made))
        return Exit.OK
    print(plan_view.heading(made))
    show(plan_view.table(made))
    print(plan_view.ends(made))
    print("\n".join(plan_view.assumptions(made)))
    return Exit.OK


def _job(path: Path) -> HyperParamJob:
    jobs = [payload for payload in read_file(path) if payload.get("kind") == "HyperParamJob"]
    if len(jobs) != 1:
        raise CliError(
            Exit.FAILED, "SingleJobRequired", f"{path} holds {len(jobs)} HyperParamJobs; give a file with one"
        )
    wrong = problems(jobs[0])
    if wrong:
        raise CliError(Exit.FAILED, "InvalidJob", f"{path}: {wrong[0]}")
    return parse_job(jobs[0])


def _in_place(job: HyperParamJob) -> str | None:
    """The first that the job names of what keeps a trial where it is."""
    return next((name for name in job.spec.suspension.methods if name in KEEPS_MEMORY), None)


def _method(job: HyperParamJob, view: JobView, arguments: argparse.Namespace) -> Method:
    memory = None if view.memory is None else view.memory * view.gpus_per_trial
    name = _in_place(job) or (APP_CHECKPOINT if view.checkpointable else "freeze")
    simulate.check_resume(name, arguments.resume)
    if methods.is_undetermined(name, memory, arguments.suspend, arguments.resume):
        text = f"{arguments.job}: spec.gpus.memory is not set, and what a switch by {name} takes goes by it; set it"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}, or give both of --suspend and --resume")
    if arguments.gpu_memory is not None and memory is None:
        text = f"--gpu-memory: {arguments.gpu_memory} of a GPU is without effect where no trial says what it uses"
        raise CliError(
            Exit.USAGE, "MemoryWithoutEffect", f"{text}; set spec.gpus.memory in {arguments.job}, or leave it out"
        )
    found = methods.switch_method(name, memory, arguments.suspend, arguments.resume, arguments.switch)
    # one that is frozen has its memory on the GPU, so that its agent refuses to carry it
    return methods.with_migration(found, memory or 0) if view.migratable and not found.keeps_memory else found


def _view(job: HyperParamJob, path: Path) -> JobView:
    """As the operator will see the job when it is accepted, with times counted from now."""
    points = grid_points(job.spec) if job.spec.search.algorithm == "grid" else None
    view = job_view(job, points=points, accepted=True, finished=False, suspendable=_in_place(job) is not None)
    deadline = None if view.deadline is None else view.deadline - time.time()
    if deadline is not None and deadline <= 0.0:
        text = f"{path}: spec.budget.deadline: {datetime.fromtimestamp(view.deadline or 0.0, UTC):%Y-%m-%d %H:%M} UTC"
        text += " is past, and the job would end at once; give a later one, or leave it out"
        raise CliError(Exit.FAILED, "DeadlineInPast", text)
    return replace(view, uid=f"forecast-{view.key.name}", created=0.0, suspended=False, deadline=deadline)
