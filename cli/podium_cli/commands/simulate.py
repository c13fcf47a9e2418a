"""Command `podium simulate`: run policies on recorded learning curves, on virtual time. Needs no cluster.

Without a file it uses the bundled curves of the digits example.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from podium_cli.commands import arrival_options, curve_options, fault_options, system_options
from podium_cli.commands.arrival_options import ArrivalOptions
from podium_cli.commands.curve_options import CurveOptions, goal_option
from podium_cli.commands.fault_options import FaultOptions
from podium_cli.commands.options import Output, examples, one_of
from podium_cli.commands.system_options import (
    MachineOptions,
    SearchOptions,
    SystemOptions,
    check_resume,
    machine_of,
    place_of,
    size_in_bytes,
    switch_option,
)
from podium_cli.exit_codes import CliError, Exit
from podium_cli.output import show, write
from podium_cli.report import simulation
from podium_cli.views import simulate as simulate_view
from podium_cli.views import system as system_view
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.policies.policy_text import parse_policy
from podium_core.policies.registry import NAMES, PolicyError
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_simulator.replay.comparison import compare
from podium_simulator.system import arrivals as system_arrivals
from podium_simulator.system import comparison as system_comparison
from podium_simulator.system import switch_times
from podium_simulator.system.arrivals import Arrivals
from podium_simulator.system.scenario import Method, SimulationError
from podium_simulator.system.switch_times import KEEPS_MEMORY
from podium_simulator.traces.trace import Trace, TraceError

SWITCH_SECONDS = 4.0  # of a suspension and of a resumption, without moved memory

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The simulated trials: how they are suspended, and the memory of each."""

    memory: str | None
    method: str | None
    checkpoints: bool


@dataclass(frozen=True, slots=True)
class Simulation:
    """Options of one `podium simulate`."""

    policies: Sequence[str]
    curves: CurveOptions
    target: float | None
    machine: MachineOptions
    searches: SearchOptions
    trial: TrialOptions
    system: SystemOptions
    output: str
    report: Path | None

    @property
    def trials(self) -> int:
        """Return the number of trials of a search."""
        return self.searches.trials or 0


def _complete_policy(incomplete: str) -> list[str]:
    return [name for name in NAMES if name.startswith(incomplete)]


@app.command(
    epilog=examples(
        "podium simulate",
        "podium simulate --gpus 8 --policy envelope --policy asha",
        "podium simulate --policy asha --policy asha:eta=3,onCut=stop",
        "podium simulate curves/ --seeds 5 --suspend 30 --resume 30",
        "podium simulate search.jsonl.gz -o json",
        "podium simulate search.csv --goal minimize --system --nodes 2",
        "podium simulate runs/ --metric val_acc --target 0.9",
        "podium simulate --system --method cuda-checkpoint --memory 64Gi",
        "podium simulate --gpus 8 --nodes 2 --report simulation.html",
        "podium simulate --system --nodes 2 --drain node-1@3600-7200",
        "podium simulate --system --jobs 4 --users 2 --arrivals 600 --trials 12",
    )
)
def simulate(
    curves: curve_options.Curves = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:SETTING=VALUE,...]",
            help=f"one of: {', '.join(NAMES)}; with settings: asha:eta=3,onCut=stop; can be repeated",
            show_default="all",
            autocompletion=_complete_policy,
        ),
    ] = None,
    gpus: system_options.Gpus = 4,
    suspend: Annotated[float | None, switch_option("suspension", SWITCH_SECONDS)] = None,
    resume: Annotated[float | None, switch_option("resumption", SWITCH_SECONDS)] = None,
    trials: Annotated[int, typer.Option(metavar="N", help="trials of a search")] = 64,
    seeds: Annotated[int, typer.Option(metavar="N", help="searches sampled from a file")] = 3,
    output: Output = "table",
    goal: Annotated[curve_options.Goal | None, goal_option("maximize")] = None,
    metric: curve_options.Metric = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="target value of curves without one (CSV, TensorBoard); TARGET is the time until a trial reaches it",
            show_default="none",
            rich_help_panel=curve_options.PANEL,
        ),
    ] = None,
    system: Annotated[
        bool,
        typer.Option(
            "--system",
            help="simulate the whole system: pods, agents, delayed telemetry; ended trials stay ended",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML",
            help="also write this file (implies --system)",
            readable=False,
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="memory of a trial on its GPU, such as 16Gi, with --gpu-memory or --method cuda-checkpoint",
            show_default="all trials fit",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = None,
    method: Annotated[
        str | None,
        one_of(
            switch_times.METHODS,
            help=f"suspension method: {' or '.join(KEEPS_MEMORY)}, which moves memory off the GPU; "
            f"{CONTAINER_CHECKPOINT}: the same, with live migration from drained nodes (--drain); or "
            f"{APP_CHECKPOINT}: the trial checkpoints and continues in a new pod",
            show_default="freeze",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help=f"trials also write checkpoints ({APP_CHECKPOINT} in addition to --method), so slots are reclaimed",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = False,
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
    jobs: arrival_options.Jobs = None,
    arrivals: arrival_options.Every = None,
    users: arrival_options.Users = None,
) -> None:
    """Replay policies on recorded learning curves, to see which finds good trials soonest.

    The plain replay answers which trial each policy trains next. --system
    simulates the whole cluster: pods, agents, switches, faults and drains. Each
    policy is compared with fifo on the same curves. The table has a row for each
    policy, the fastest first.
    """
    faults = FaultOptions(node_fails, pod_fails, crashes, agent_silent, tuple(drain or ()))
    asked = Simulation(
        _policies(policy or NAMES),
        CurveOptions(tuple(curves or ()), goal, metric),
        target,
        MachineOptions(gpus, suspend, resume, SWITCH_SECONDS),
        SearchOptions(seeds, trials),
        TrialOptions(memory, method, checkpoints),
        SystemOptions(nodes, slots, load, gpu_memory, faults, telemetry, exact),
        output,
        report,
    )
    several = ArrivalOptions(jobs, arrivals, users)
    if not system and report is None:
        arrival_options.check_alone(several)
        _needs_no_system(asked)
        _replay(asked)
        return
    arriving = arrival_options.parse_arrivals(several, trials, reports=report is not None)
    try:
        if arriving is None:
            _simulate_system(asked)
        else:
            _simulate_arrivals(asked, arriving)
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error


def _needs_no_system(asked: Simulation) -> None:
    """Raise CliError if an option of the simulated system is given without --system."""
    for name in given_options(asked.trial, asked.system):
        option = "--" + name.replace("_", "-")
        text = f"{option}: needs the simulated system; add --system (or --report), or omit"
        raise CliError(Exit.USAGE, "SystemRequired", f"{text} {option}")


def given_options(*groups: Any) -> Iterator[str]:
    """Yield the name of each option that is not at its default, in the order of the fields."""
    for group in groups:
        for field in fields(group):
            value = getattr(group, field.name)
            if is_dataclass(value):
                yield from given_options(value)
            elif value is not None and value is not False and value != ():
                yield field.name


def _replay(asked: Simulation) -> None:
    where, searches = machine_of(asked.machine, asked.searches, asked.system), asked.searches
    try:
        found = [compare(r, asked.policies, where, searches.seeds, asked.trials) for r in _recordings(asked)]
    except TraceError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if asked.output == "json":
        print(simulate_view.as_json(found))
        return
    for one in found:
        print(simulate_view.heading(one))
        show(simulate_view.table(one))


def _simulate_system(asked: Simulation) -> None:
    memory, seeds, size = _of_a_trial(asked), asked.searches.seeds, asked.trials
    where = place_of(asked.machine, asked.searches, asked.system, _method(asked, memory))
    compared = system_comparison.compare
    found = [compared(r, asked.policies, where, seeds, size, memory) for r in _recordings(asked)]
    if asked.report is not None:
        write(asked.report, simulation.render(found), "--report")
    if asked.output == "json":
        print(system_view.as_json(found))
        return
    for one in found:
        print(system_view.heading(one))
        show(system_view.table(one))
    if asked.report is not None:
        print(f"{asked.report}: holder of each GPU over time, under each policy.")


def _simulate_arrivals(asked: Simulation, arrivals: Arrivals) -> None:
    memory, seeds, size = _of_a_trial(asked), asked.searches.seeds, asked.trials
    where = place_of(asked.machine, asked.searches, asked.system, _method(asked, memory))
    compared = system_arrivals.compare
    found = [compared(r, asked.policies, where, seeds, size, arrivals, memory) for r in _recordings(asked)]
    arrival_options.print_comparisons(found, asked.output)


def _method(asked: Simulation, memory: int | None) -> Method:
    machine = asked.machine
    name, suspend, resume = asked.trial.method or "freeze", machine.suspend, machine.resume
    check_resume(name, resume)
    if switch_times.is_undetermined(name, memory, suspend, resume):
        text = f"--method {name}: the duration of a switch depends on the memory; give --memory"
        other = "" if name == CONTAINER_CHECKPOINT else ", or both of --suspend and --resume"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}{other}")
    method = switch_times.switch_method(name, memory, suspend, resume, machine.switch)
    return replace(method, checkpoints=asked.trial.checkpoints)


def _of_a_trial(asked: Simulation) -> int | None:
    """Return the bytes that a trial declares, or None if all fit; raise CliError if one size alone is given."""
    size, gpu_size = asked.trial.memory, asked.system.gpu_memory
    found, limit = size_in_bytes("--memory", size), size_in_bytes("--gpu-memory", gpu_size)
    if limit is not None and found is None:
        text = f"--gpu-memory: {gpu_size} has no effect without the memory of a trial; give --memory, too"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if found is not None and limit is None and switch_times.keeps_memory(asked.trial.method or "freeze"):
        text = f"--memory: {size} has no effect without the memory of a GPU; give --gpu-memory, too"
        text += ", or --method cuda-checkpoint"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if found is not None and limit is not None and found > limit:
        text = f"--memory: a trial needs {size} and a GPU has {gpu_size}; give a larger --gpu-memory"
        raise CliError(Exit.USAGE, "TooLarge", text)
    return found


def _policies(names: Sequence[str]) -> Sequence[str]:
    """Return the names unchanged; raise CliError for an unknown policy or setting."""
    for name in names:
        try:
            parse_policy(name).create()
        except PolicyError as error:
            raise CliError(Exit.USAGE, error.code, f"--policy {name}: {error}") from error
    return names


def _recordings(asked: Simulation) -> tuple[Trace, ...]:
    """Return the recordings, with --target for those without a target."""
    target = asked.target
    if target is not None and not math.isfinite(target):
        text = f"--target: must be a finite number (got {target:g}), or omit it"
        raise CliError(Exit.USAGE, "InvalidTarget", text)
    found = curve_options.recordings(asked.curves)
    if target is None:
        return found
    without = any(recording.target is None for recording in found)
    for recording in found:
        if not without and recording.target != target:
            text = f"--target: {target:.10g} has no effect: the file of {recording.task} sets its target to"
            text += f" {recording.target:.10g}; omit --target, or correct the header of the file"
            raise CliError(Exit.USAGE, "TargetWithoutEffect", text)
    return tuple(replace(one, target=target) if one.target is None else one for one in found)
