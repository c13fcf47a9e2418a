"""Command `podium simulate`: run policies on recorded learning curves, on virtual time. Needs no cluster.

Without a file it uses the bundled curves of the digits example.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium_cli.commands.simulation import (
    SimulateOptions,
    TrialOptions,
    known_policies,
    needs_no_system,
    replay,
    simulate_arrivals,
    simulate_system,
)
from podium_cli.exit_codes import CliError, Exit
from podium_cli.options import arrivals as arrival_options
from podium_cli.options import curves as curve_options
from podium_cli.options import faults as fault_options
from podium_cli.options import system as system_options
from podium_cli.options.arrivals import ArrivalOptions
from podium_cli.options.common import Output, examples, one_of
from podium_cli.options.curves import CurveOptions, goal_option
from podium_cli.options.faults import FaultOptions
from podium_cli.options.system import MachineOptions, SearchOptions, SystemOptions, switch_option
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.policies.registry import FOR_ONE_OBJECTIVE
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_simulator.system.inputs import switch_times
from podium_simulator.system.inputs.scenario import SimulationError
from podium_simulator.system.inputs.switch_times import KEEPS_MEMORY

SWITCH_SECONDS = 4.0  # of a suspension and of a resumption, without moved memory

app = typer.Typer()


def _complete_policy(incomplete: str) -> list[str]:
    return [name for name in FOR_ONE_OBJECTIVE if name.startswith(incomplete)]


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
        "podium simulate --system --jobs 6 --queues queues.yaml --trials 12",
    )
)
def simulate(
    curves: curve_options.Curves = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:SETTINGS]",
            help=f"One of: {', '.join(FOR_ONE_OBJECTIVE)}; with settings: asha:eta=3,onCut=stop; can be repeated.",
            show_default="all",
            autocompletion=_complete_policy,
        ),
    ] = None,
    gpus: system_options.Gpus = 4,
    suspend: Annotated[float | None, switch_option("suspension", SWITCH_SECONDS)] = None,
    resume: Annotated[float | None, switch_option("resumption", SWITCH_SECONDS)] = None,
    trials: Annotated[int, typer.Option(metavar="N", help="Trials of a search.")] = 64,
    seeds: Annotated[int, typer.Option(metavar="N", help="Searches sampled from a file.")] = 3,
    output: Output = "table",
    goal: Annotated[str | None, goal_option("maximize")] = None,
    metric: curve_options.Metric = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="Target value of curves without one (CSV, TensorBoard); TARGET is the time until a trial reaches it.",
            show_default="none",
            rich_help_panel=curve_options.PANEL,
        ),
    ] = None,
    system: Annotated[
        bool,
        typer.Option(
            "--system",
            help="Simulate the whole system: pods, agents, delayed telemetry; ended trials stay ended.",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML",
            help="Also write this file (implies --system).",
            readable=False,
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of a trial on its GPU, such as 16Gi, with --gpu-memory or --method cuda-checkpoint.",
            show_default="all trials fit",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = None,
    method: Annotated[
        str | None,
        one_of(
            switch_times.METHODS,
            help=f"Suspension method: {' or '.join(KEEPS_MEMORY)}, which moves memory off the GPU; "
            f"{CONTAINER_CHECKPOINT}: the same, with live migration from drained nodes (--drain); or "
            f"{APP_CHECKPOINT}: the trial checkpoints and continues in a new pod.",
            show_default="freeze",
            rich_help_panel=system_options.SYSTEM,
        ),
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help=f"Trials also write checkpoints ({APP_CHECKPOINT} in addition to --method), so slots are reclaimed.",
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
    queues: arrival_options.Queues = None,
) -> None:
    """Replay policies on recorded learning curves, to see which finds good trials soonest.

    The plain replay answers which trial each policy trains next. --system
    simulates the whole cluster: pods, agents, switches, faults and drains. Each
    policy is compared with fifo on the same curves. The table has a row for each
    policy, the fastest first.
    """
    faults = FaultOptions(node_fails, pod_fails, crashes, agent_silent, tuple(drain or ()))
    asked = SimulateOptions(
        known_policies(policy or FOR_ONE_OBJECTIVE),
        CurveOptions(tuple(curves or ()), goal, metric),
        target,
        MachineOptions(gpus, suspend, resume, SWITCH_SECONDS),
        SearchOptions(seeds, trials),
        TrialOptions(memory, method, checkpoints),
        SystemOptions(nodes, slots, load, gpu_memory, faults, telemetry, exact),
        output,
        report,
    )
    several = ArrivalOptions(jobs, arrivals, users, queues)
    if not system and report is None:
        arrival_options.check_alone(several)
        needs_no_system(asked)
        replay(asked)
        return
    arriving = arrival_options.parse_arrivals(several, trials, reports=report is not None)
    try:
        if arriving is None:
            simulate_system(asked)
        else:
            simulate_arrivals(asked, arriving)
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
