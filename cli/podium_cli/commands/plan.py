"""Command `podium plan JOB.yaml`: forecast a job before anything runs. Needs no cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_job, read_jobs
from podium_cli.options import curves as curve_options
from podium_cli.options import faults as fault_options
from podium_cli.options import queues as queue_options
from podium_cli.options import system as system_options
from podium_cli.options.common import Output, examples
from podium_cli.options.curves import CurveOptions, goal_option, read_traces
from podium_cli.options.faults import FaultOptions
from podium_cli.options.queues import check_queue, read_queues
from podium_cli.options.system import (
    MachineOptions,
    SearchOptions,
    SystemOptions,
    check_resume,
    place_of,
    switch_option,
)
from podium_cli.output import show
from podium_cli.progress import progress
from podium_cli.structured import print_data
from podium_cli.views import plan as plan_view
from podium_cluster import clock
from podium_core.acceptance.findings import errors_of, findings
from podium_core.domain.snapshot import JobView
from podium_core.planning.job_view import job_view
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_core.schema.job import HyperParamJob
from podium_core.schema.search.space import grid_points
from podium_simulator.system.inputs import switch_times
from podium_simulator.system.inputs.scenario import Method, SimulationError
from podium_simulator.system.inputs.switch_times import KEEPS_MEMORY
from podium_simulator.system.results.forecast import forecast

SWITCH_SECONDS = 0.2  # of a suspension and of a resumption, without moved memory
DAY = 86_400.0  # the simulation of a longer step would take hours


app = typer.Typer()


@app.command(
    epilog=examples(
        "podium plan examples/digits/job.yaml --gpus 2 --step-seconds 0.75",
        "podium plan job.yaml last-search.jsonl --gpus 8 --nodes 2",
        "podium plan job.yaml last-search.jsonl --gpus 8 --drain node-0@3600-7200",
        "podium plan job.yaml last-search.jsonl --gpus 8 --queues queues.yaml",
        "podium plan job.yaml last-search.jsonl -o json",
    )
)
def plan(
    job: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="File with one HyperParamJob.", readable=False)],
    curves: curve_options.Curves = None,
    step_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds of one step of this job; the curves are stretched to its maxSteps.",
            show_default="as recorded",
        ),
    ] = None,
    gpus: system_options.Gpus = 4,
    suspend: Annotated[float | None, switch_option("suspension", SWITCH_SECONDS)] = None,
    resume: Annotated[float | None, switch_option("resumption", SWITCH_SECONDS)] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Searches to simulate.")] = 5,
    output: Output = "table",
    goal: Annotated[str | None, goal_option("that of the job")] = None,
    metric: curve_options.Metric = None,
    nodes: system_options.Nodes = None,
    slots: system_options.Slots = None,
    load: system_options.Load = None,
    gpu_memory: system_options.GpuMemory = None,
    telemetry: system_options.Telemetry = None,
    exact: system_options.Exact = False,
    node_fails: fault_options.NodeFails = None,
    pod_fails: fault_options.PodFails = None,
    crashes: fault_options.Crashes = None,
    agent_silent: fault_options.AgentSilent = None,
    drain: fault_options.Drains = None,
    queues: queue_options.Queues = None,
) -> None:
    """Forecast a job before anything runs: end, best value, suspensions, GPU hours.

    The job runs in the simulated system on recorded learning curves, several times
    and also under fifo. The table shows the median and the range of the results.
    Its last lines list the assumptions.
    """
    read = _job(job)
    view = _view(read, job)
    machine = MachineOptions(gpus, suspend, resume, SWITCH_SECONDS)
    faults = FaultOptions(node_fails, pod_fails, crashes, agent_silent, tuple(drain or ()))
    system = SystemOptions(nodes, slots, load, gpu_memory, faults, telemetry, exact)
    method = _method(read, view, job, machine, gpu_memory)
    sharing = read_queues(queues)
    check_queue(view, sharing)
    where = replace(place_of(machine, SearchOptions(seeds), system, method), queues=sharing)
    traces = read_traces(CurveOptions(tuple(curves or ()), goal, metric), view.maximize)
    if len(traces) != 1:
        text = f"a forecast needs the curves of one search (got {len(traces)}); name one file"
        raise CliError(Exit.USAGE, "TooManyCurves", text)
    if step_seconds is not None and not 0.0 < step_seconds <= DAY:
        text = f"--step-seconds: must be greater than 0 and at most {DAY:g} (got {step_seconds:g})"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    try:
        with progress("simulating searches", 2 * seeds) as advance:
            made = forecast(view, traces[0], where, seeds, step_seconds, advance)
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if output != "table":
        print_data(plan_view.data(made), output)
        return
    print(plan_view.heading(made))
    show(plan_view.table(made))
    print(plan_view.ends(made))
    print("\n".join(plan_view.assumptions(made)))


def _job(path: Path) -> HyperParamJob:
    jobs = read_jobs(path)
    if len(jobs) != 1:
        raise CliError(
            Exit.FAILED, "SingleJobRequired", f"{path} holds {len(jobs)} HyperParamJobs; give a file with one"
        )
    wrong = errors_of(findings(jobs[0]))
    if wrong:
        raise CliError(Exit.FAILED, "InvalidJob", f"{path}: {wrong[0].code}: {wrong[0]}")
    job = parse_job(jobs[0])
    if job.spec.objectives is not None:
        goal = job.spec.objective
        one = f"objective: {{metric: {goal.metric}, direction: {goal.direction.value}}} and policy: {{name: fifo}}"
        text = f"{path}: spec.objectives lists {len(job.spec.objectives)}, and recorded curves have one metric; plan a"
        text = f"{text} copy with {one} instead: no trial of either job is stopped early, so GPU hours are the same"
        raise CliError(Exit.FAILED, "SeveralObjectives", text)
    return job


def _in_place(job: HyperParamJob) -> str | None:
    """Return the job's first suspension method that keeps a trial on its node, or None."""
    return next((name for name in job.spec.suspension.methods if name in KEEPS_MEMORY), None)


def _method(job: HyperParamJob, view: JobView, path: Path, machine: MachineOptions, gpu_memory: str | None) -> Method:
    memory = None if view.gpus.memory is None else view.gpus.memory * view.gpus.per_trial
    name = _in_place(job) or (APP_CHECKPOINT if view.abilities.checkpointable else "freeze")
    check_resume(name, machine.resume)
    if switch_times.is_undetermined(name, memory, machine.suspend, machine.resume):
        text = f"{path}: spec.gpus.memory is not set, on which the duration of a {name} switch depends; set it"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}, or give both of --suspend and --resume")
    if gpu_memory is not None and memory is None:
        text = f"--gpu-memory: {gpu_memory} has no effect, because the job declares no GPU memory"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", f"{text}; set spec.gpus.memory in {path}, or omit it")
    method = switch_times.switch_method(name, memory, machine.suspend, machine.resume, machine.switch)
    # a frozen trial keeps its memory on the GPU, so agents refuse its live migration
    migrates = view.abilities.migratable and not method.keeps_memory
    return switch_times.with_migration(method, memory or 0) if migrates else method


def _view(job: HyperParamJob, path: Path) -> JobView:
    """Return the job as the operator sees it once it is accepted, with times relative to now."""
    points = grid_points(job.spec) if job.spec.search.algorithm == "grid" else None
    view = job_view(job, points=points, accepted=True, finished=False, suspendable=_in_place(job) is not None)
    limits, now = view.limits, clock.now()
    if limits.deadline is not None and limits.deadline <= now:
        text = f"{path}: spec.budget.deadline: {datetime.fromtimestamp(limits.deadline, UTC):%Y-%m-%d %H:%M} UTC"
        text += " has passed, so the job would end at once; set a later one, or omit it"
        raise CliError(Exit.FAILED, "DeadlineInPast", text)
    if limits.deadline is not None:
        limits = replace(limits, deadline=limits.deadline - now)
    state = replace(view.state, suspended=False)
    return replace(view, uid=f"forecast-{view.key.name}", created=0.0, limits=limits, state=state)
