"""Command `podium simulate`: run policies on recorded learning curves, on virtual time. Needs no cluster.

Without a file it uses the bundled curves of the digits example.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podium_cli.command_table import SUMMARIES
from podium_cli.commands import arrival_options, fault_options
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_cli.output import show, write
from podium_cli.report import simulation
from podium_cli.views import formatting
from podium_cli.views import simulate as simulate_view
from podium_cli.views import system as system_view
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.domain.snapshot import Costs
from podium_core.policies.policy_text import parse_policy
from podium_core.policies.registry import NAMES, PolicyError
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_core.schema.quantity import to_bytes
from podium_simulator.replay.comparison import compare
from podium_simulator.replay.samples import Machine
from podium_simulator.system import comparison as system_comparison
from podium_simulator.system import switch_times
from podium_simulator.system.scenario import Method, SimulationError, Timing
from podium_simulator.system.searches import even_nodes
from podium_simulator.system.switch_times import KEEPS_MEMORY
from podium_simulator.traces.sources import KINDS, ReadOptions, needs_goal, needs_metric, read_all
from podium_simulator.traces.trace import Trace, TraceError, bundled_trace

# options of the simulated system, in the order of --help; a replay would ignore them
SYSTEM = (
    *("memory", "method", "checkpoints", "nodes", "slots", "load", "gpu_memory"),
    *fault_options.OPTIONS,
    *("telemetry", "exact"),
)
MAX_COUNT = arrival_options.MAX_TRIALS  # limit of GPUs, nodes and searches, too
MIN_TELEMETRY_SECONDS = 1e-6  # least time between two reports of an agent, unless it is 0


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "simulate",
        _run,
        summary=SUMMARIES["simulate"],
        examples="""
            podium simulate
            podium simulate --gpus 8 --policy envelope --policy asha
            podium simulate --policy asha --policy asha:eta=3,onCut=stop
            podium simulate curves/ --seeds 5 --suspend 30 --resume 30
            podium simulate search.jsonl.gz -o json
            podium simulate search.csv --goal minimize --system --nodes 2
            podium simulate runs/ --metric val_acc --target 0.9
            podium simulate --system --method cuda-checkpoint --memory 64Gi
            podium simulate --gpus 8 --nodes 2 --report simulation.html
            podium simulate --system --nodes 2 --drain node-1@3600-7200
            podium simulate --system --jobs 4 --users 2 --arrivals 600 --trials 12
        """,
        about="""
            The plain replay answers which trial each policy trains next. --system simulates the whole cluster: pods,
            agents, switches, faults and drains. Each policy is compared with fifo on the same curves. The table has a
            row for each policy, the fastest first.
        """,
        cluster=False,
    )
    add_curve_options(parser)
    text = "target value of curves without one (CSV, TensorBoard); TARGET is the time until a trial reaches it"
    parser.add_argument("--target", type=float, metavar="VALUE", help=f"{text} (default: none)")
    add_machine_options(parser, switch=4.0)
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="trials of a search (default: 64)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="searches sampled from a file (default: 3)")
    text = f"one of: {', '.join(NAMES)} (default: all); with settings: asha:eta=3,onCut=stop; can be repeated"
    parser.add_argument("--policy", action="append", metavar="NAME[:SETTING=VALUE,...]", help=text)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(default: table)")
    text = "simulate the whole system: pods, agents, delayed telemetry; ended trials stay ended"
    parser.add_argument("--system", action="store_true", help=text)
    parser.add_argument("--report", type=Path, metavar="HTML", help="also write this file (implies --system)")
    text = "memory of a trial on its GPU, such as 16Gi, with --gpu-memory or --method cuda-checkpoint"
    parser.add_argument("--memory", metavar="SIZE", help=f"{text} (default: all trials fit)")
    text = f"suspension method: {' or '.join(KEEPS_MEMORY)}, which moves memory off the GPU;"
    text += f" {CONTAINER_CHECKPOINT}: the same, with live migration from drained nodes (--drain); or"
    text += f" {APP_CHECKPOINT}: the trial checkpoints and continues in a new pod (default: freeze)"
    parser.add_argument("--method", choices=switch_times.METHODS, metavar="NAME", help=text)
    text = f"trials also write checkpoints ({APP_CHECKPOINT} in addition to --method), so slots are reclaimed"
    parser.add_argument("--checkpoints", action="store_true", help=text)
    add_system_options(parser)
    arrival_options.add_options(parser)


def add_machine_options(parser: argparse.ArgumentParser, switch: float) -> None:
    """Add the options for the GPUs and the cost of a switch; `switch` is the default without moved memory."""
    parser.set_defaults(switch=switch)
    parser.add_argument(
        "--gpus", type=int, default=4, metavar="N", help="number of GPUs; one trial runs on each (default: 4)"
    )
    for name in ("suspend", "resume"):
        what = "suspension" if name == "suspend" else "resumption"
        checkpoint = f"; of {APP_CHECKPOINT}: {Timing().save:g}, a checkpoint" if name == "suspend" else ""
        text = f"duration of one {what} (default: {switch:g}; of cuda-checkpoint: by its memory, as measured on an H100"
        text += f"{checkpoint})"
        parser.add_argument(f"--{name}", type=float, metavar="SECONDS", help=text)


def add_system_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the simulated system, which `place_of` reads."""
    parser.add_argument("--nodes", type=int, metavar="N", help="number of nodes with the GPUs (default: 1)")
    parser.add_argument("--slots", type=int, metavar="N", help="slots on each GPU (default: 4, as in the chart)")
    text = "start of a trial, from the open gate to its first step, on the GPU (default: 1)"
    parser.add_argument("--load", type=float, metavar="SECONDS", help=text)
    parser.add_argument(
        "--gpu-memory", metavar="SIZE", help="memory of each GPU, such as 80Gi (default: all trials fit)"
    )
    fault_options.add_options(parser)
    text = "time between two reports of an agent; placement uses the last one. In a cluster it is 2 s"
    text += " (default: 0, placement uses current values)"
    parser.add_argument("--telemetry", type=float, metavar="SECONDS", help=text)
    text = "plan at each value and at each step of a switch, as the operator does; takes two to three times as long"
    text += " (default: these events wait for others, for one time slice of the policy (10 switches) at most)"
    parser.add_argument("--exact", action="store_true", help=text)


def add_curve_options(parser: argparse.ArgumentParser, goal: str = "maximize") -> None:
    """Add the options for the curves, which `recordings` reads; --help shows `goal` as the default."""
    text = (
        "curves: JSON lines or a CSV table, also .gz, a TensorBoard folder, or a folder of files "
        "(default: those of the digits example)"
    )
    parser.add_argument("curves", nargs="*", default=[], type=Path, metavar="FILE", help=text)
    text = f"direction of curves from CSV and TensorBoard; JSON lines name theirs (default: {goal})"
    parser.add_argument("--goal", choices=("maximize", "minimize"), help=text)
    parser.add_argument("--metric", metavar="NAME", help="scalar to read from TensorBoard folders")


def _run(arguments: argparse.Namespace) -> Exit:
    names, arrivals = _policies(arguments.policy or NAMES), arrival_options.parse_arrivals(arguments)
    if arrivals is not None:
        memory = _of_a_trial(arguments)
        place = place_of(arguments, _method(arguments, memory))
        return arrival_options.run(arguments, names, arrivals, place, memory, _recordings(arguments))
    if arguments.system or arguments.report is not None:
        return _run_system(arguments, names)
    _needs_no_system(arguments)
    where = _machine(arguments)
    try:
        found = [compare(r, names, where, arguments.seeds, arguments.trials) for r in _recordings(arguments)]
    except TraceError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if arguments.output == "json":
        print(simulate_view.as_json(found))
        return Exit.OK
    for one in found:
        print(simulate_view.heading(one))
        show(simulate_view.table(one))
    return Exit.OK


def _needs_no_system(arguments: argparse.Namespace) -> None:
    """Raise CliError if an option of the simulated system is given without --system."""
    for name in SYSTEM:
        given = getattr(arguments, name)
        if given is not None and given is not False:
            option = "--" + name.replace("_", "-")
            text = f"{option}: needs the simulated system; add --system (or --report), or omit"
            raise CliError(Exit.USAGE, "SystemRequired", f"{text} {option}")


def _run_system(arguments: argparse.Namespace, names: Sequence[str]) -> Exit:
    memory, seeds, size = _of_a_trial(arguments), arguments.seeds, arguments.trials
    where = place_of(arguments, _method(arguments, memory))
    try:
        found = [system_comparison.compare(r, names, where, seeds, size, memory) for r in _recordings(arguments)]
    except SimulationError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if arguments.report is not None:
        write(arguments.report, simulation.render(found), "--report")
    if arguments.output == "json":
        print(system_view.as_json(found))
        return Exit.OK
    for one in found:
        print(system_view.heading(one))
        show(system_view.table(one))
    if arguments.report is not None:
        print(f"{arguments.report}: holder of each GPU over time, under each policy.")
    return Exit.OK


def place_of(arguments: argparse.Namespace, method: Method) -> system_comparison.ClusterSpec:
    """Return the simulated system that the options describe; raise CliError for impossible values."""
    given = _machine(arguments)
    timing = Timing() if arguments.load is None else Timing(load=arguments.load)
    method, timing = switch_times.consistent(method, timing)
    nodes, slots, memory = arguments.nodes or 1, arguments.slots or 4, _bytes("--gpu-memory", arguments.gpu_memory)
    if nodes > given.gpus:
        gpus = formatting.count(given.gpus, "GPU")
        text = f"--nodes: every node needs a GPU (got {nodes} nodes for {gpus}); give {given.gpus} nodes at most"
        raise CliError(Exit.USAGE, "TooManyNodes", f"{text}, or more --gpus")
    if arguments.telemetry is not None and not 0.0 <= arguments.telemetry <= 3600.0:
        text = f"--telemetry: must be 0 to 3600 seconds (got {arguments.telemetry:g})"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    if arguments.telemetry is not None and 0.0 < arguments.telemetry < MIN_TELEMETRY_SECONDS:
        text = f"--telemetry: must be 0 or at least {MIN_TELEMETRY_SECONDS:g} seconds (got {arguments.telemetry:g})"
        raise CliError(Exit.USAGE, "InvalidTime", f"{text}; 0 means that placement uses current values")
    timing = replace(timing, telemetry=arguments.telemetry or 0.0)
    spread = even_nodes(given.gpus, nodes, slots, memory or 0)
    return system_comparison.ClusterSpec(
        nodes=spread,
        timing=replace(timing, progress=0.0) if arguments.exact else timing,
        method=method,
        faults=fault_options.faults(arguments),
        drains=fault_options.drains(arguments, spread),
    )


def _method(arguments: argparse.Namespace, memory: int | None) -> Method:
    name, suspend, resume = arguments.method or "freeze", arguments.suspend, arguments.resume
    check_resume(name, resume)
    if switch_times.is_undetermined(name, memory, suspend, resume):
        text = f"--method {name}: the duration of a switch depends on the memory; give --memory"
        other = "" if name == CONTAINER_CHECKPOINT else ", or both of --suspend and --resume"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}{other}")
    method = switch_times.switch_method(name, memory, suspend, resume, arguments.switch)
    return replace(method, checkpoints=arguments.checkpoints)


def check_resume(method: str, resume: float | None) -> None:
    """Raise CliError if --resume is given for a method that resumes nothing."""
    if method == APP_CHECKPOINT and resume is not None:
        text = f"--resume: {resume:g} has no effect, because a trial continues in a new pod with {method}"
        raise CliError(Exit.USAGE, "ResumeUnused", f"{text}; give --load, the seconds until its first step")


def _of_a_trial(arguments: argparse.Namespace) -> int | None:
    """Return the bytes that a trial declares, or None if all fit; raise CliError if one size alone is given."""
    size, gpu_size = arguments.memory, arguments.gpu_memory
    found, limit = _bytes("--memory", size), _bytes("--gpu-memory", gpu_size)
    if limit is not None and found is None:
        text = f"--gpu-memory: {gpu_size} has no effect without the memory of a trial; give --memory, too"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if found is not None and limit is None and switch_times.keeps_memory(arguments.method or "freeze"):
        text = f"--memory: {size} has no effect without the memory of a GPU; give --gpu-memory, too"
        text += ", or --method cuda-checkpoint"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if found is not None and limit is not None and found > limit:
        text = f"--memory: a trial needs {size} and a GPU has {gpu_size}; give a larger --gpu-memory"
        raise CliError(Exit.USAGE, "TooLarge", text)
    return found


def _bytes(option: str, size: str | None) -> int | None:
    if size is None:
        return None
    try:
        found = to_bytes(size)
    except ValueError as error:
        raise CliError(Exit.USAGE, "InvalidSize", f"{option}: {error}") from error
    if not found:
        raise CliError(
            Exit.USAGE, "InvalidSize", f"{option}: must be greater than 0 (got {size}); omit it for no limit"
        )
    return found


def _machine(arguments: argparse.Namespace) -> Machine:
    for name in ("gpus", "trials", "seeds", "nodes", "slots"):
        number = getattr(arguments, name, None)
        if number is not None and number < 1:
            raise CliError(Exit.USAGE, "TooFew", f"--{name}: must be at least 1 (got {number})")
        if number is not None and number > MAX_COUNT:
            text = f"--{name}: must be at most {MAX_COUNT} (got {number})"
            raise CliError(Exit.USAGE, "TooMany", text)
    for name in ("suspend", "resume", "load"):
        seconds = getattr(arguments, name, None)
        if seconds is not None and not 0.0 <= seconds <= 3600.0:
            text = f"--{name}: must be 0 to 3600 seconds (got {seconds:g})"
            raise CliError(Exit.USAGE, "InvalidCost", text)
    suspend, resume = (arguments.switch if one is None else one for one in (arguments.suspend, arguments.resume))
    return Machine(arguments.gpus, Costs(suspend, resume))


def _policies(names: Sequence[str]) -> Sequence[str]:
    """Return the names unchanged; raise CliError for an unknown policy or setting."""
    for name in names:
        try:
            parse_policy(name).create()
        except PolicyError as error:
            raise CliError(Exit.USAGE, error.code, f"--policy {name}: {error}") from error
    return names


def _recordings(arguments: argparse.Namespace) -> tuple[Trace, ...]:
    """Return the recordings, with --target for those without a target; `plan` uses the target of its job."""
    target: float | None = arguments.target
    if target is not None and not math.isfinite(target):
        text = f"--target: must be a finite number (got {target:g}), or omit it"
        raise CliError(Exit.USAGE, "InvalidTarget", text)
    found = recordings(arguments)
    if target is None:
        return found
    asked = any(recording.target is None for recording in found)
    for recording in found:
        if not asked and recording.target != target:
            text = f"--target: {target:.10g} has no effect: the file of {recording.task} sets its target to"
            text += f" {recording.target:.10g}; omit --target, or correct the header of the file"
            raise CliError(Exit.USAGE, "TargetWithoutEffect", text)
    return tuple(replace(one, target=target) if one.target is None else one for one in found)


def recordings(arguments: argparse.Namespace, maximize: bool = True) -> tuple[Trace, ...]:
    """Read the curves and print a note to standard error for each omitted part.

    `maximize` is the direction of curves that have none, if --goal is not given.
    """
    paths: list[Path] = arguments.curves
    reading = ReadOptions(maximize if arguments.goal is None else arguments.goal == "maximize", arguments.metric)
    try:
        found = read_all(paths, reading, _note) if paths else (bundled_trace(),)
        asked = arguments.goal is None or needs_goal(paths)
        named = arguments.metric is None or needs_metric(paths)
    except TraceError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    except OSError as error:
        text = f"{error.filename or paths[0]}: {error.strerror or error}; name a file of curves, or a folder of them"
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", text) from error
    if not found:
        text = f"{paths[0]}: contains no file of curves; name a folder with {KINDS}"
        raise CliError(Exit.NOT_FOUND, "NoCurves", text)
    if not named:
        text = f"--metric: {arguments.metric} has no effect without a TensorBoard folder: JSON lines name their metric,"
        text += " and the metric of a CSV table is value; omit --metric, or name such a folder"
        raise CliError(Exit.USAGE, "MetricWithoutEffect", text)
    for recording in found:
        if not asked and recording.maximize != reading.maximize:
            text = f"--goal: {arguments.goal} has no effect: the file of {recording.task} states that "
            text += f"{formatting.better(recording.maximize)}; omit --goal, or correct the header of the file"
            raise CliError(Exit.USAGE, "GoalWithoutEffect", text)
    return found


def _note(text: str) -> None:
    print(f"podium: note: {formatting.clean(text)}", file=sys.stderr)
