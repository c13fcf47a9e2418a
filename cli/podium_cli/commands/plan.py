"""Command `podium plan JOB.yaml`: forecast a job before anything runs. Needs no cluster."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from podium_cli.command_table import SUMMARIES
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
from podium_simulator.system import switch_times
from podium_simulator.system.forecast import forecast
from podium_simulator.system.scenario import Method, SimulationError
from podium_simulator.system.switch_times import KEEPS_MEMORY

DAY = 86_400.0  # the simulation of a longer step would take hours


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "plan",
        _run,
        summary=SUMMARIES["plan"],
        examples="""
            podium plan examples/digits/job.yaml --gpus 2 --step-seconds 0.75
            podium plan job.yaml last-search.jsonl --gpus 8 --nodes 2
            podium plan job.yaml last-search.jsonl --gpus 8 --nodes 2 --drain node-1@3600
            podium plan job.yaml last-search.jsonl -o json
        """,
        about="""
            The job runs in the simulated system on recorded learning curves, several times and also under fifo. The
            table shows the median and the range of the results. Its last lines list the assumptions.
        """,
        cluster=False,
    )
    parser.add_argument("job", type=Path, metavar="JOB.yaml", help="file with one HyperParamJob")
    simulate.add_curve_options(parser, goal="that of the job")
    text = "seconds of one step of this job; the curves are stretched to its maxSteps (default: as recorded)"
    parser.add_argument("--step-seconds", type=float, metavar="SECONDS", help=text)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="searches to simulate (default: 5)")
    simulate.add_machine_options(parser, switch=0.2)
    simulate.add_system_options(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(default: table)")


def _run(arguments: argparse.Namespace) -> Exit:
    job = _job(arguments.job)
    view = _view(job, arguments.job)
    where = simulate.place_of(arguments, _method(job, view, arguments))
    found = simulate.recordings(arguments, view.maximize)
    if len(found) != 1:
        text = f"a forecast needs one recording (got {len(found)}); name one file"
        raise CliError(Exit.USAGE, "TooManyCurves", text)
    if arguments.step_seconds is not None and not 0.0 < arguments.step_seconds <= DAY:
        text = f"--step-seconds: must be greater than 0 and at most {DAY:g} (got {arguments.step_seconds:g})"
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
    """Return the job's first suspension method that keeps a trial on its node, or None."""
    return next((name for name in job.spec.suspension.methods if name in KEEPS_MEMORY), None)


def _method(job: HyperParamJob, view: JobView, arguments: argparse.Namespace) -> Method:
    memory = None if view.gpus.memory is None else view.gpus.memory * view.gpus.per_trial
    name = _in_place(job) or (APP_CHECKPOINT if view.abilities.checkpointable else "freeze")
    simulate.check_resume(name, arguments.resume)
    if switch_times.is_undetermined(name, memory, arguments.suspend, arguments.resume):
        text = f"{arguments.job}: spec.gpus.memory is not set, on which the duration of a {name} switch depends; set it"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}, or give both of --suspend and --resume")
    if arguments.gpu_memory is not None and memory is None:
        text = f"--gpu-memory: {arguments.gpu_memory} has no effect, because the job declares no GPU memory"
        raise CliError(
            Exit.USAGE, "MemoryWithoutEffect", f"{text}; set spec.gpus.memory in {arguments.job}, or omit it"
        )
    found = switch_times.switch_method(name, memory, arguments.suspend, arguments.resume, arguments.switch)
    # a frozen trial keeps its memory on the GPU, so agents refuse its live migration
    migrates = view.abilities.migratable and not found.keeps_memory
    return switch_times.with_migration(found, memory or 0) if migrates else found


def _view(job: HyperParamJob, path: Path) -> JobView:
    """Return the job as the operator sees it once it is accepted, with times relative to now."""
    points = grid_points(job.spec) if job.spec.search.algorithm == "grid" else None
    view = job_view(job, points=points, accepted=True, finished=False, suspendable=_in_place(job) is not None)
    limits, now = view.limits, time.time()
    if limits.deadline is not None and limits.deadline <= now:
        text = f"{path}: spec.budget.deadline: {datetime.fromtimestamp(limits.deadline, UTC):%Y-%m-%d %H:%M} UTC"
        text += " has passed, so the job would end at once; set a later one, or omit it"
        raise CliError(Exit.FAILED, "DeadlineInPast", text)
    if limits.deadline is not None:
        limits = replace(limits, deadline=limits.deadline - now)
    state = replace(view.state, suspended=False)
    return replace(view, uid=f"forecast-{view.key.name}", created=0.0, limits=limits, state=state)
