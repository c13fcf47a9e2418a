"""`podium simulate`: every policy on recorded learning curves, on virtual time. Needs no cluster.

Without a file it runs on curves of the example that are part of Podium.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podium_cli.command_table import SAYS
from podium_cli.commands import arrival_options as arrivals
from podium_cli.commands import fault_options as accidents
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_cli.output import show, write
from podium_cli.report import simulation
from podium_cli.views import formatting as texts
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
from podium_simulator.system import switch_times as methods
from podium_simulator.system.scenario import Method, SimulationError, Timing
from podium_simulator.system.searches import even_nodes
from podium_simulator.system.switch_times import KEEPS_MEMORY
from podium_simulator.traces.sources import KINDS, ReadOptions, needs_goal, needs_metric, read_all
from podium_simulator.traces.trace import Trace, TraceError, bundled_trace

# of the simulated system alone, in the order of --help; a replay would take them and do nothing with them
SYSTEM = (
    *("memory", "method", "saves", "nodes", "slots", "load", "gpu_memory"),
    *accidents.OPTIONS,
    *("telemetry", "exact"),
)
MOST = arrivals.MOST_TRIALS  # GPUs, nodes, searches as well
SOONEST = 1e-6  # seconds between two reports of an agent: what happens at once happens at once


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "simulate",
        _run,
        says=SAYS["simulate"],
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
        cluster=False,
    )
    curves(parser)
    text = "that a search is after, of curves that name none, as CSV and TensorBoard; TARGET is the time until then"
    parser.add_argument("--target", type=float, metavar="VALUE", help=f"{text} (default: none)")
    machine(parser, switch=4.0)
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="trials of a search (default: 64)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="searches drawn from a file (default: 3)")
    text = (
        f"one of: {', '.join(NAMES)} (default: all); with settings: asha:eta=3,onCut=stop, also several of one policy"
    )
    parser.add_argument("--policy", action="append", metavar="NAME[:SETTING=VALUE,...]", help=text)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="(default: table)")
    text = "simulate the whole system: pods, agents, old telemetry, no revival; not only who is trained next"
    parser.add_argument("--system", action="store_true", help=text)
    parser.add_argument("--report", type=Path, metavar="HTML", help="also write this file (implies --system)")
    text = "that a trial uses on its GPU, such as 16Gi, with --gpu-memory or --method cuda-checkpoint"
    parser.add_argument("--memory", metavar="SIZE", help=f"{text} (default: all trials fit)")
    text = f"how a trial leaves its GPU: {' or '.join(KEEPS_MEMORY)}, which takes its memory off the GPU;"
    text += f" {CONTAINER_CHECKPOINT}: in the same way, and nodes that drain (--drain) alive; or"
    text += f" {APP_CHECKPOINT}: it saves, and goes on in a new pod (default: freeze)"
    parser.add_argument("--method", choices=methods.METHODS, metavar="NAME", help=text)
    text = f"its trials save when told to go, too ({APP_CHECKPOINT} beside --method): they give places to each other"
    parser.add_argument("--saves", action="store_true", help=text)
    place(parser)
    arrivals.options(parser)


def machine(parser: argparse.ArgumentParser, switch: float) -> None:
    """GPUs and what a switch takes, in seconds each way; `switch`: where no memory is moved."""
    parser.set_defaults(switch=switch)
    parser.add_argument("--gpus", type=int, default=4, metavar="N", help="GPUs, one trial each (default: 4)")
    for name in ("suspend", "resume"):
        what = "suspension" if name == "suspend" else "resumption"
        of_saves = f"; of {APP_CHECKPOINT}: {Timing().save:g}, a save" if name == "suspend" else ""
        text = f"of one {what} (default: {switch:g}; of cuda-checkpoint: by the memory, as measured on one H100"
        text += f"{of_saves})"
        parser.add_argument(f"--{name}", type=float, metavar="SECONDS", help=text)


def place(parser: argparse.ArgumentParser) -> None:
    """Where the simulated system runs; read by `place_of`."""
    parser.add_argument("--nodes", type=int, metavar="N", help="that the GPUs are spread over (default: 1)")
    parser.add_argument("--slots", type=int, metavar="N", help="slots of each GPU (default: 4, the chart's)")
    text = "of a trial, from the open gate to its first step, on the GPU (default: 1)"
    parser.add_argument("--load", type=float, metavar="SECONDS", help=text)
    parser.add_argument("--gpu-memory", metavar="SIZE", help="of each GPU, such as 80Gi (default: all trials fit)")
    accidents.options(parser)
    text = "between two reports of an agent: placement sees how much each GPU does and holds as of the last one; a"
    text += " cluster's are 2 s apart (default: 0, as it is at that moment)"
    parser.add_argument("--telemetry", type=float, metavar="SECONDS", help=text)
    text = "plan at each value and each step of a hand-over, as the operator does, and take two to three times as long"
    text += "; default: such news waits for other news, a turn of the policy (10 hand-overs) at most"
    parser.add_argument("--exact", action="store_true", help=text)


def curves(parser: argparse.ArgumentParser, goal: str = "maximize") -> None:
    """What says where the curves are; `recordings` reads them. `goal`: what --help says of its default."""
    text = (
        "curves: JSON lines or a CSV table, also .gz, a TensorBoard folder, or a folder of files "
        "(default: the example's)"
    )
    parser.add_argument("curves", nargs="*", default=[], type=Path, metavar="FILE", help=text)
    text = f"of CSV and TensorBoard; JSON lines say it themselves (default: {goal})"
    parser.add_argument("--goal", choices=("maximize", "minimize"), help=text)
    parser.add_argument("--metric", metavar="NAME", help="the scalar to read from TensorBoard folders")


def _run(arguments: argparse.Namespace) -> Exit:
    names, several = _policies(arguments.policy or NAMES), arrivals.asked(arguments)
    if several is not None:
        memory = _of_a_trial(arguments)
        place = place_of(arguments, _method(arguments, memory))
        return arrivals.run(arguments, names, several, place, memory, _recordings(arguments))
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
    """What only the system has was not given. None or False: it was not, as it has no other default in argparse."""
    for name in SYSTEM:
        given = getattr(arguments, name)
        if given is not None and given is not False:
            option = "--" + name.replace("_", "-")
            text = f"{option}: needs --system (or --report): only the simulated system has it; add --system, or leave"
            raise CliError(Exit.USAGE, "SystemRequired", f"{text} {option} out")


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
        print(f"{arguments.report}: who was trained when, under each policy.")
    return Exit.OK


def place_of(arguments: argparse.Namespace, method: Method) -> system_comparison.ClusterSpec:
    given = _machine(arguments)
    method, timing = methods.consistent(method, Timing() if arguments.load is None else Timing(load=arguments.load))
    nodes, shares, memory = arguments.nodes or 1, arguments.slots or 4, _bytes("--gpu-memory", arguments.gpu_memory)
    if nodes > given.gpus:
        text = f"--nodes: {nodes} nodes for {texts.count(given.gpus, 'GPU')} (--gpus), and a node without a GPU has no"
        most = texts.count(given.gpus, "node")
        raise CliError(Exit.USAGE, "TooManyNodes", f"{text} trials; give {most} at most, or more GPUs")
    if arguments.telemetry is not None and not 0.0 <= arguments.telemetry <= 3600.0:
        text = f"--telemetry: {arguments.telemetry:g} seconds is no time between two reports; give 0 to 3600"
        raise CliError(Exit.USAGE, "InvalidTime", text)
    if arguments.telemetry is not None and 0.0 < arguments.telemetry < SOONEST:
        text = f"--telemetry: {arguments.telemetry:g} seconds is too short a time between two reports"
        raise CliError(Exit.USAGE, "InvalidTime", f"{text}; give 0, as it is at that moment, or {SOONEST:g} and more")
    timing = replace(timing, telemetry=arguments.telemetry or 0.0)
    spread = even_nodes(given.gpus, nodes, shares, memory or 0)
    return system_comparison.ClusterSpec(
        nodes=spread,
        timing=replace(timing, progress=0.0) if arguments.exact else timing,
        method=method,
        faults=accidents.faults(arguments),
        drains=accidents.drains(arguments, spread),
    )


def _method(arguments: argparse.Namespace, memory: int | None) -> Method:
    name, out, back = arguments.method or "freeze", arguments.suspend, arguments.resume
    check_resume(name, back)
    if methods.is_undetermined(name, memory, out, back):
        text = f"--method {name}: what a switch takes goes by the memory that is moved; give --memory"
        told = "" if name == CONTAINER_CHECKPOINT else ", or both of --suspend and --resume"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}{told}")
    return replace(methods.switch_method(name, memory, out, back, arguments.switch), checkpoints=arguments.saves)


def check_resume(method: str, resume: float | None) -> None:
    if method == APP_CHECKPOINT and resume is not None:
        text = f"--resume: {resume:g} is without effect where a trial goes on in a new pod ({method})"
        raise CliError(Exit.USAGE, "ResumeUnused", f"{text}; give --load, the seconds until its first step there")


def _of_a_trial(arguments: argparse.Namespace) -> int | None:
    """Bytes that a trial declares; None: the trials fit. One of the two sizes alone keeps nobody out."""
    size, room = arguments.memory, arguments.gpu_memory
    found, most = _bytes("--memory", size), _bytes("--gpu-memory", room)
    if most is not None and found is None:
        text = f"--gpu-memory: {room} of a GPU is without effect where no trial says what it uses; give --memory, too"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if found is not None and most is None and methods.keeps_memory(arguments.method or "freeze"):
        text = f"--memory: {size} of a trial is without effect where a GPU holds any number; give --gpu-memory, too"
        text += ", or --method cuda-checkpoint"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if found is not None and most is not None and found > most:
        text = f"--memory: a trial needs {size} and a GPU has {room} (--gpu-memory); give a GPU that holds one"
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
        raise CliError(Exit.USAGE, "InvalidSize", f"{option}: {size} is no memory; give more than 0, or leave it out")
    return found


def _machine(arguments: argparse.Namespace) -> Machine:
    for name in ("gpus", "trials", "seeds", "nodes", "slots"):
        number = getattr(arguments, name, None)
        if number is not None and number < 1:
            raise CliError(Exit.USAGE, "TooFew", f"--{name}: {number} is too few; give 1 or more")
        if number is not None and number > MOST:
            text = f"--{name}: {number} is too many to simulate; give {MOST} at most"
            raise CliError(Exit.USAGE, "TooMany", text)
    for name in ("suspend", "resume", "load"):
        seconds = getattr(arguments, name, None)
        if seconds is not None and not 0.0 <= seconds <= 3600.0:
            text = f"--{name}: {seconds:g} seconds is no cost; give 0 to 3600"
            raise CliError(Exit.USAGE, "InvalidCost", text)
    out, back = (arguments.switch if one is None else one for one in (arguments.suspend, arguments.resume))
    return Machine(arguments.gpus, Costs(out, back))


def _policies(names: Sequence[str]) -> Sequence[str]:
    """The same, where all of them are policies with settings that they know."""
    for name in names:
        try:
            parse_policy(name).create()
        except PolicyError as error:
            raise CliError(Exit.USAGE, error.code, f"--policy {name}: {error}") from error
    return names


def _recordings(arguments: argparse.Namespace) -> tuple[Trace, ...]:
    """With --target, where curves say none; `plan` has its job's own."""
    target: float | None = arguments.target
    if target is not None and not math.isfinite(target):
        text = f"--target: {target:g} is no value that a trial could reach; give a finite number, or leave it out"
        raise CliError(Exit.USAGE, "InvalidTarget", text)
    found = recordings(arguments)
    if target is None:
        return found
    asked = any(recording.target is None for recording in found)
    for recording in found:
        if not asked and recording.target != target:
            text = f"--target: {target:.10g} is without effect: {recording.task} says itself that its target is"
            text += f" {recording.target:.10g}; leave --target out, or correct the header of its file"
            raise CliError(Exit.USAGE, "TargetWithoutEffect", text)
    return tuple(replace(one, target=target) if one.target is None else one for one in found)


def recordings(arguments: argparse.Namespace, maximize: bool = True) -> tuple[Trace, ...]:
    """`maximize`: of curves that do not say it, where --goal is not given. What was left out goes to standard error."""
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
        text = f"{paths[0]}: no file of curves is in it; read are {KINDS}: name a folder that has some"
        raise CliError(Exit.NOT_FOUND, "NoCurves", text)
    if not named:
        text = f"--metric: {arguments.metric} is without effect: no TensorBoard folder is among the curves, and JSON"
        text += " lines name their metric themselves, a CSV table's is value; leave --metric out, or name such a folder"
        raise CliError(Exit.USAGE, "MetricWithoutEffect", text)
    for recording in found:
        if not asked and recording.maximize != reading.maximize:
            text = f"--goal: {arguments.goal} is without effect: {recording.task} says itself that "
            text += f"{texts.better(recording.maximize)}; leave --goal out, or correct the header of its file"
            raise CliError(Exit.USAGE, "GoalWithoutEffect", text)
    return found


def _note(text: str) -> None:
    print(f"podium: note: {texts.clean(text)}", file=sys.stderr)
