"""Options of `podium simulate` and `podium plan` for the GPUs and for the simulated system around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options import faults
from podium_cli.options.faults import FaultOptions
from podium_core.domain.snapshot import Costs
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_core.schema.quantity import to_bytes
from podium_simulator.replay.samples import Machine
from podium_simulator.system.inputs import switch_times
from podium_simulator.system.inputs.scenario import Method, Timing
from podium_simulator.system.inputs.searches import even_nodes
from podium_simulator.system.results.comparison import ClusterSpec
from podium_views import formatting

MAX_COUNT = 10_000  # of trials, as Podium's limit; also of GPUs, nodes and searches
MIN_TELEMETRY_SECONDS = 1e-6  # least time between two reports of an agent, unless it is 0
SYSTEM, FIDELITY = "Simulated system", "Fidelity of the simulated system"  # panels of the help

Gpus = Annotated[int, typer.Option(metavar="N", help="Number of GPUs; one trial runs on each.")]
Nodes = Annotated[
    int | None,
    typer.Option(metavar="N", help="Number of nodes with the GPUs.", show_default="1", rich_help_panel=SYSTEM),
]
Slots = Annotated[
    int | None,
    typer.Option(metavar="N", help="Slots on each GPU.", show_default="4, as in the chart", rich_help_panel=SYSTEM),
]
Load = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Start of a trial, from the open gate to its first step, on the GPU.",
        show_default="1",
        rich_help_panel=SYSTEM,
    ),
]
GpuMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory of each GPU, such as 80Gi.",
        show_default="all trials fit",
        rich_help_panel=SYSTEM,
    ),
]
Telemetry = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Time between two reports of an agent; placement uses the last one. In a cluster it is 2 s.",
        show_default="0, placement uses current values",
        rich_help_panel=FIDELITY,
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Plan at each value and at each step of a switch, as the operator does; takes two to three times as long.",
        show_default="these events wait for others, for one time slice of the policy (10 switches) at most",
        rich_help_panel=FIDELITY,
    ),
]


def switch_option(what: str, default: float) -> Any:
    """Return the option for the seconds of a suspension or resumption; the help shows `default`."""
    checkpoint = f"; of {APP_CHECKPOINT}: {Timing().save:g}, a checkpoint" if what == "suspension" else ""
    shown = f"{default:g}; of cuda-checkpoint: by its memory, as measured on an H100{checkpoint}"
    return typer.Option(metavar="SECONDS", help=f"Duration of one {what}.", show_default=shown)


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The GPUs and the cost of a switch.

    `switch`: seconds of a suspension and of a resumption that are not given, without moved memory.
    """

    gpus: int
    suspend: float | None
    resume: float | None
    switch: float


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Number of searches, and of the trials of each; `trials` is None if a job determines it."""

    seeds: int
    trials: int | None = None


@dataclass(frozen=True, slots=True)
class SystemOptions:
    """The simulated system: None and False stand for the default."""

    nodes: int | None
    slots: int | None
    load: float | None
    gpu_memory: str | None
    faults: FaultOptions
    telemetry: float | None
    exact: bool


def place_of(machine: MachineOptions, searches: SearchOptions, system: SystemOptions, method: Method) -> ClusterSpec:
    """Return the simulated system that the options describe; raise CliError for impossible values."""
    given = machine_of(machine, searches, system)
    timing = Timing() if system.load is None else Timing(load=system.load)
    method, timing = switch_times.consistent(method, timing)
    nodes, slots, memory = system.nodes or 1, system.slots or 4, size_in_bytes("--gpu-memory", system.gpu_memory)
    if nodes > given.gpus:
        gpus = formatting.count(given.gpus, "GPU")
        text = f"--nodes: every node needs a GPU (got {nodes} nodes for {gpus}); give {given.gpus} nodes at most"
        raise CliError(Exit.USAGE, "TooManyNodes", f"{text}, or more --gpus")
    telemetry = system.telemetry or 0.0
    if not 0.0 <= telemetry <= 3600.0:
        text = f"--telemetry: must be 0 to 3600 seconds (got {telemetry:g})"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    if 0.0 < telemetry < MIN_TELEMETRY_SECONDS:
        text = f"--telemetry: must be 0 or at least {MIN_TELEMETRY_SECONDS:g} seconds (got {telemetry:g})"
        raise CliError(Exit.USAGE, "InvalidTime", f"{text}; 0 means that placement uses current values")
    timing = replace(timing, telemetry=telemetry)
    spread = even_nodes(given.gpus, nodes, slots, memory or 0)
    return ClusterSpec(
        nodes=spread,
        timing=replace(timing, progress=0.0) if system.exact else timing,
        method=method,
        faults=faults.rates(system.faults),
        drains=faults.drains(system.faults, spread),
    )


def machine_of(machine: MachineOptions, searches: SearchOptions, system: SystemOptions) -> Machine:
    """Return the GPUs with the cost of a switch; raise CliError for a number out of its range."""
    counts = {
        "gpus": machine.gpus,
        "trials": searches.trials,
        "seeds": searches.seeds,
        "nodes": system.nodes,
        "slots": system.slots,
    }
    for name, number in counts.items():
        if number is not None and number < 1:
            raise CliError(Exit.USAGE, "TooFew", f"--{name}: must be at least 1 (got {number})")
        if number is not None and number > MAX_COUNT:
            raise CliError(Exit.USAGE, "TooMany", f"--{name}: must be at most {MAX_COUNT} (got {number})")
    for name, seconds in {"suspend": machine.suspend, "resume": machine.resume, "load": system.load}.items():
        if seconds is not None and not 0.0 <= seconds <= 3600.0:
            text = f"--{name}: must be 0 to 3600 seconds (got {seconds:g})"
            raise CliError(Exit.USAGE, "InvalidCost", text)
    suspend, resume = (machine.switch if one is None else one for one in (machine.suspend, machine.resume))
    return Machine(machine.gpus, Costs(suspend, resume))


def check_resume(method: str, resume: float | None) -> None:
    """Raise CliError if --resume is given for a method that resumes nothing."""
    if method == APP_CHECKPOINT and resume is not None:
        text = f"--resume: {resume:g} has no effect, because a trial continues in a new pod with {method}"
        raise CliError(Exit.USAGE, "ResumeUnused", f"{text}; give --load, the seconds until its first step")


def size_in_bytes(option: str, size: str | None) -> int | None:
    """Return the bytes of a size such as 16Gi, or None without one; raise CliError for an invalid size."""
    if size is None:
        return None
    try:
        amount = to_bytes(size)
    except ValueError as error:
        raise CliError(Exit.USAGE, "InvalidSize", f"{option}: {error}") from error
    if not amount:
        raise CliError(
            Exit.USAGE, "InvalidSize", f"{option}: must be greater than 0 (got {size}); omit it for no limit"
        )
    return amount
