"""Forecast of a job before it runs, simulated with its own policy on typical curves.

`podium plan` calls it. `assumptions` lists what the forecast assumes: it is only as good as its curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from podium_core.domain.gpu_queue import DEFAULT_QUEUE
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView
from podium_core.planning.queues.fair_shares import nominal_gpus
from podium_core.planning.queues.queue_ledger import with_usage
from podium_simulator.replay.samples import draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Faults, Method, SimJob, SimulationError
from podium_simulator.system.operator import steps_of
from podium_simulator.system.results.comparison import (
    BASE,
    ClusterSpec,
    SearchResult,
    scenario_of,
    search_result,
    time_limit,
)
from podium_simulator.traces.trace import MAX_SECONDS, RecordedTrial, Trace


@dataclass(frozen=True, slots=True)
class JobForecast:
    """Forecast of one job. `own`: with the job's policy; `fifo`: the same searches under fifo."""

    view: JobView
    trace: Trace
    cluster: ClusterSpec
    own: tuple[SearchResult, ...]
    fifo: tuple[SearchResult, ...]
    assumptions: tuple[str, ...]


def forecast(
    view: JobView,
    trace: Trace,
    cluster: ClusterSpec,
    seeds: int,
    step_seconds: float | None,
    advance: Callable[[], None] = lambda: None,
) -> JobForecast:
    """Return the forecast.

    `view`: with times counted from its start. `step_seconds`: seconds of one step of this job; the curves are then
    stretched to its maxSteps. None: the curves are used as recorded. Raises SimulationError where the curves cannot
    represent the job. `advance` is called after each simulated search, two for each seed.
    """
    _check_memory(view, cluster)
    fitting = fit_curves(view, trace, step_seconds)
    own, fifo = [], []
    for seed in range(seeds):
        sample = draw_sample(fitting, seed, view.limits.max_trials)
        outcomes = {}
        for name, job in ((view.policy, view), (BASE, replace(view, policy=BASE, settings={}))):
            sim = SimJob(job, sample.trials, cluster.method)
            outcomes[name] = simulate(scenario_of(cluster, (sim,), seed, time_limit(sample, cluster)))
            advance()
        makespan = outcomes[BASE].makespan
        own.append(search_result(view.policy, sample, outcomes[view.policy], makespan))
        fifo.append(search_result(BASE, sample, outcomes[BASE], makespan))
    return JobForecast(
        view, fitting, cluster, tuple(own), tuple(fifo), _assumptions(view, fitting, cluster, step_seconds)
    )


def _check_memory(view: JobView, cluster: ClusterSpec) -> None:
    """Raise SimulationError for a trial that fits no GPU: it would wait forever."""
    most = max(node.memory for node in cluster.nodes)
    if most and view.gpus.memory is not None and view.gpus.memory > most:
        text = f"a trial needs {view.gpus.memory} bytes on a GPU (gpus.memory), a GPU has {most} (--gpu-memory)"
        raise SimulationError(f"job {view.key.name}: {text}; give a GPU that holds one")


def fit_curves(view: JobView, trace: Trace, step_seconds: float | None) -> Trace:
    """Return the curves as this job's trials would report them."""
    if trace.maximize != view.maximize:
        better = "larger" if trace.maximize else "smaller"
        text = f"a {better} {trace.metric} is better in these curves and worse in the job"
        text += "; name other curves, or for CSV and TensorBoard the right --goal"
        raise SimulationError(f"{trace.task}: {text}")
    longest = max(steps_of(trial)[-1] for trial in trace.trials)
    if step_seconds is None:
        if view.max_steps is not None and longest > view.max_steps * (1.0 + 1e-9):
            text = f"the longest curve has {longest:g} steps, the job's trials.maxSteps is {view.max_steps:g}"
            raise SimulationError(f"{trace.task}: {text}; give --step-seconds to stretch the curves to it")
        return trace
    if view.max_steps is None:
        raise SimulationError("the job has no trials.maxSteps that curves could be stretched to; set it")
    if not longest > 0.0:
        text = f"the last step of its longest curve is {longest:g}: nothing to stretch to the job's trials.maxSteps"
        raise SimulationError(f"{trace.task}: {text}; give steps above 0, or leave --step-seconds out")
    if view.max_steps * step_seconds > MAX_SECONDS:
        text = f"{view.max_steps:g} steps (trials.maxSteps) of {step_seconds:g} s each are more than three years"
        raise SimulationError(f"job {view.key.name}: {text}; give {MAX_SECONDS:g} seconds at most, with fewer of one")
    factor = view.max_steps / longest
    if math.isinf(factor):
        text = f"its longest curve ends at step {longest:g}, too close to 0 to be stretched to {view.max_steps:g} steps"
        raise SimulationError(f"{trace.task}: {text}; give its steps as they were counted")
    return replace(trace, trials=tuple(_stretched(trial, factor, step_seconds) for trial in trace.trials))


def _stretched(trial: RecordedTrial, factor: float, step_seconds: float) -> RecordedTrial:
    steps = tuple(step * factor for step in steps_of(trial))
    return replace(trial, steps=steps, seconds=tuple(step * step_seconds for step in steps))


def _assumptions(view: JobView, trace: Trace, cluster: ClusterSpec, step_seconds: float | None) -> tuple[str, ...]:
    timing, method, curves = cluster.timing, cluster.method, len(trace.trials)
    use = "as recorded" if step_seconds is None else f"stretched to {view.max_steps:g} steps of {step_seconds:g} s"
    assumptions = [
        f"trials learn like random ones of {curves} curves of {trace.task} ({trace.metric}), {use}",
        "the values are those of these curves, not of your search",
        f"the GPUs are this job's alone: {cluster.gpus} on {len(cluster.nodes)} node{'s' * (len(cluster.nodes) > 1)}",
        *_fault_texts(cluster.faults),
        *map(str, cluster.drains),
        *_queue_text(view, cluster),
        f"a pod needs {timing.place + timing.gate:g} s to its gate, then {timing.load:g} s on the GPU to train",
        _release_text(view, method),
        "trials on one GPU do not slow each other down",
    ]
    if view.gpus.products:
        assumptions.append(f"the GPUs are of a product that the job takes ({', '.join(view.gpus.products)})")
    if view.abilities.migratable:
        assumptions.append(_migration_text(method, cluster))
    if view.limits.max_trials > curves:
        assumptions.append(f"{view.limits.max_trials} trials share {curves} curves: some are the same")
    if view.gpus.memory is not None and not cluster.nodes[0].memory:
        assumptions.append("all trials of a GPU fit into its memory (--gpu-memory sets it)")
    return tuple(assumptions)


def _fault_texts(faults: Faults) -> list[str]:
    """Return, for each kind of fault, whether it happens; one line for all kinds that do not."""
    kinds = (
        ("node fails", faults.node),
        ("pod is lost", faults.pod),
        ("trial's process ends in an error of its own", faults.crash),
        ("node's agent falls silent", faults.silence),
    )
    happen = [f"a {what} each {mean / 3600.0:g} hours (mean)" for what, mean in kinds if not math.isinf(mean)]
    never = [what for what, mean in kinds if math.isinf(mean)]
    return [*happen, *([f"no {', no '.join(never)}"] if never else [])]


def _queue_text(view: JobView, cluster: ClusterSpec) -> list[str]:
    """Return what is assumed of the other queues, and what they would leave to the job's queue if they were busy."""
    if not cluster.queues:
        return []
    queues = with_usage(cluster.queues, {})
    nominal = dict(zip([queue.name for queue in queues], nominal_gpus(queues, cluster.gpus), strict=True))
    name = view.gpus.queue or DEFAULT_QUEUE
    text = f"the other queues are idle; if all of them had trials, queue {name} would get {nominal[name]:.3g}"
    return [f"{text} of {count(cluster.gpus, 'GPU')}"]


def _release_text(view: JobView, method: Method) -> str:
    """Return how a trial releases its GPU to another one."""
    if view.abilities.suspendable:
        use = f"a suspension takes {method.suspend:g} s, a resumption {method.resume:g} s"
        return f"{use} ({method.name}, on every node{f': {method.basis}' if method.basis else ''})"
    if view.abilities.checkpointable:
        return f"a trial releases its GPU with a checkpoint ({method.suspend:g} s) and continues in another pod"
    return "a trial keeps its GPU to its end: it can neither be suspended nor saved as a checkpoint"


def _migration_text(method: Method, cluster: ClusterSpec) -> str:
    """Return what is assumed of live migration, for a job that allows it."""
    if not method.migrates:
        return f"no trial migrates live to another node: {method.name} leaves its memory on the GPU"
    if not cluster.drains:
        return "no trial migrates live to another node, as no node drains (--drain names nodes and times)"
    return f"a live migration to another node takes {method.migration_seconds:g} s, as measured"


def low_median_high(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lowest, the median and the highest value."""
    newest_epoch = sorted(values)
    middle = len(newest_epoch) // 2
    median = newest_epoch[middle] if len(newest_epoch) % 2 else (newest_epoch[middle - 1] + newest_epoch[middle]) / 2.0
    return newest_epoch[0], median, newest_epoch[-1]
