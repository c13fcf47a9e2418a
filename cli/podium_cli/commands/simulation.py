"""Runs of `podium simulate`: a replay, the simulated system with one job, or with several jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.arrivals import print_comparisons
from podium_cli.options.curves import CurveOptions, read_traces
from podium_cli.options.system import (
    MachineOptions,
    SearchOptions,
    SystemOptions,
    check_resume,
    machine_of,
    place_of,
    size_in_bytes,
)
from podium_cli.output import show, write
from podium_cli.progress import progress
from podium_cli.report import simulation as simulation_page
from podium_cli.structured import print_data
from podium_cli.views import simulate as simulate_view
from podium_cli.views import system as system_view
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.policies.policy_text import parse_policy
from podium_core.policies.registry import FOR_ONE_OBJECTIVE, PolicyError
from podium_simulator.replay.comparison import BASE, compare
from podium_simulator.system.inputs import arrivals as system_arrivals
from podium_simulator.system.inputs import switch_times
from podium_simulator.system.inputs.arrivals import Arrivals
from podium_simulator.system.inputs.scenario import Method
from podium_simulator.system.results import comparison as system_comparison
from podium_simulator.traces.trace import Trace, TraceError
from podium_views import formatting


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The simulated trials: how they are suspended, and the memory of each."""

    memory: str | None
    method: str | None
    checkpoints: bool


@dataclass(frozen=True, slots=True)
class SimulateOptions:
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


def needs_no_system(asked: SimulateOptions) -> None:
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


def replay(asked: SimulateOptions) -> None:
    """Replay the policies on the curves and print the result."""
    where, searches = machine_of(asked.machine, asked.searches, asked.system), asked.searches
    read = _traces(asked)
    try:
        with progress("replaying searches", _searches(asked, read)) as advance:
            comparisons = [compare(r, asked.policies, where, searches.seeds, asked.trials, advance) for r in read]
    except TraceError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if asked.output != "table":
        print_data(simulate_view.data(comparisons), asked.output)
        return
    for one in comparisons:
        print(simulate_view.heading(one))
        show(simulate_view.table(one))


def simulate_system(asked: SimulateOptions) -> None:
    """Simulate one job under each policy, print the result and write the page."""
    memory, seeds, size = _of_a_trial(asked), asked.searches.seeds, asked.trials
    where = place_of(asked.machine, asked.searches, asked.system, _method(asked, memory))
    compared = system_comparison.compare
    read = _traces(asked)
    with progress(f"simulating {formatting.count(_searches(asked, read), 'search', 'searches')}"):
        comparisons = [compared(r, asked.policies, where, seeds, size, memory) for r in read]
    if asked.report is not None:
        write(asked.report, simulation_page.render(comparisons), "--report")
    if asked.output != "table":
        print_data(system_view.data(comparisons), asked.output)
        return
    for one in comparisons:
        print(system_view.heading(one))
        show(system_view.table(one))
    if asked.report is not None:
        print(f"{asked.report}: holder of each GPU over time, under each policy.")


def simulate_arrivals(asked: SimulateOptions, arrivals: Arrivals) -> None:
    """Simulate several jobs under each policy and print the result."""
    memory, seeds, size = _of_a_trial(asked), asked.searches.seeds, asked.trials
    where = place_of(asked.machine, asked.searches, asked.system, _method(asked, memory))
    shared = system_arrivals.SharedCluster(where, arrivals, memory)
    read = _traces(asked)
    with progress("simulating jobs", _searches(asked, read)) as advance:
        comparisons = [system_arrivals.compare(r, asked.policies, shared, seeds, size, advance) for r in read]
    print_comparisons(comparisons, asked.output)


def _searches(asked: SimulateOptions, read: Sequence[Trace]) -> int:
    """Return the number of simulated searches: each policy and fifo, on each sample of each trace."""
    return len(read) * asked.searches.seeds * len({BASE, *asked.policies})


def _method(asked: SimulateOptions, memory: int | None) -> Method:
    machine = asked.machine
    name, suspend, resume = asked.trial.method or "freeze", machine.suspend, machine.resume
    check_resume(name, resume)
    if switch_times.is_undetermined(name, memory, suspend, resume):
        text = f"--method {name}: the duration of a switch depends on the memory; give --memory"
        other = "" if name == CONTAINER_CHECKPOINT else ", or both of --suspend and --resume"
        raise CliError(Exit.USAGE, "GPUMemoryRequired", f"{text}{other}")
    method = switch_times.switch_method(name, memory, suspend, resume, machine.switch)
    return replace(method, checkpoints=asked.trial.checkpoints)


def _of_a_trial(asked: SimulateOptions) -> int | None:
    """Return the bytes that a trial declares, or None if all fit; raise CliError if one size alone is given."""
    size, gpu_size = asked.trial.memory, asked.system.gpu_memory
    memory, limit = size_in_bytes("--memory", size), size_in_bytes("--gpu-memory", gpu_size)
    if limit is not None and memory is None:
        text = f"--gpu-memory: {gpu_size} has no effect without the memory of a trial; give --memory, too"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if memory is not None and limit is None and switch_times.keeps_memory(asked.trial.method or "freeze"):
        text = f"--memory: {size} has no effect without the memory of a GPU; give --gpu-memory, too"
        text += ", or --method cuda-checkpoint"
        raise CliError(Exit.USAGE, "MemoryWithoutEffect", text)
    if memory is not None and limit is not None and memory > limit:
        text = f"--memory: a trial needs {size} and a GPU has {gpu_size}; give a larger --gpu-memory"
        raise CliError(Exit.USAGE, "TooLarge", text)
    return memory


def known_policies(names: Sequence[str]) -> Sequence[str]:
    """Return the names unchanged; raise CliError for a policy or setting that no replay has."""
    for name in names:
        try:
            policy = parse_policy(name).create()
        except PolicyError as error:
            raise CliError(Exit.USAGE, error.code, f"--policy {name}: {error}") from error
        if policy.name not in FOR_ONE_OBJECTIVE:
            text = f"--policy {name}: it ranks trials by several objectives, and recorded curves have one metric"
            choice = ", ".join(FOR_ONE_OBJECTIVE)
            raise CliError(Exit.USAGE, "PolicyForSeveralObjectives", f"{text}; choose one of: {choice}")
    return names


def _traces(asked: SimulateOptions) -> tuple[Trace, ...]:
    """Return the traces, with --target for those without a target."""
    target = asked.target
    if target is not None and not math.isfinite(target):
        text = f"--target: must be a finite number (got {target:g}), or omit it"
        raise CliError(Exit.USAGE, "InvalidTarget", text)
    traces = read_traces(asked.curves)
    if target is None:
        return traces
    without = any(trace.target is None for trace in traces)
    for trace in traces:
        if not without and trace.target != target:
            text = f"--target: {target:.10g} has no effect: the file of {trace.task} sets its target to"
            text += f" {trace.target:.10g}; omit --target, or correct the header of the file"
            raise CliError(Exit.USAGE, "TargetWithoutEffect", text)
    return tuple(replace(one, target=target) if one.target is None else one for one in traces)
