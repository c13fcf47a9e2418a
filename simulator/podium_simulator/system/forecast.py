"""Forecast of a job before it runs, simulated with its own policy on typical curves.

`podium plan` calls it. `assumptions` lists what the forecast assumes: it is only as good as its curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from podium_core.domain.snapshot import JobView
from podium_simulator.replay.samples import draw
from podium_simulator.system.comparison import BASE, Place, Searched, patience, searched, there
from podium_simulator.system.engine import simulate
from podium_simulator.system.operator import steps_of
from podium_simulator.system.scenario import Faults, Method, SimJob, SimulationError
from podium_simulator.traces.trace import MOST_SECONDS, RecordedTrial, Recording


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of one job. `own`: with the job's policy; `fifo`: the same searches under fifo."""

    view: JobView
    recording: Recording
    place: Place
    own: tuple[Searched, ...]
    fifo: tuple[Searched, ...]
    assumptions: tuple[str, ...]


def forecast(view: JobView, recording: Recording, place: Place, seeds: int, step_seconds: float | None) -> Forecast:
    """Return the forecast.

    `view`: with times counted from its start. `step_seconds`: seconds of one step of this job; the curves are then
    stretched to its maxSteps. None: the curves are used as recorded. Raises SimulationError where the curves cannot
    represent the job.
    """
    _fits(view, place)
    fitting = fit(view, recording, step_seconds)
    own, fifo = [], []
    for seed in range(seeds):
        pool = draw(fitting, seed, view.max_trials)
        outcomes = {}
        for name, job in ((view.policy, view), (BASE, replace(view, policy=BASE, settings={}))):
            sim = SimJob(job, pool.trials, place.method)
            outcomes[name] = simulate(there(place, (sim,), seed, patience(pool, place)))
        makespan = outcomes[BASE].makespan
        own.append(searched(view.policy, pool, outcomes[view.policy], makespan))
        fifo.append(searched(BASE, pool, outcomes[BASE], makespan))
    return Forecast(view, fitting, place, tuple(own), tuple(fifo), _assumptions(view, fitting, place, step_seconds))


def _fits(view: JobView, place: Place) -> None:
    """Raise SimulationError for a trial that fits no GPU: it would wait forever."""
    most = max(node.memory for node in place.nodes)
    if most and view.memory is not None and view.memory > most:
        text = f"a trial needs {view.memory} bytes on a GPU (gpus.memory), a GPU has {most} (--gpu-memory)"
        raise SimulationError(f"job {view.key.name}: {text}; give a GPU that holds one")


def fit(view: JobView, recording: Recording, step_seconds: float | None) -> Recording:
    """Return the curves as this job's trials would report them."""
    if recording.maximize != view.maximize:
        better = "larger" if recording.maximize else "smaller"
        text = f"a {better} {recording.metric} is better in these curves and worse in the job"
        text += "; name other curves, or for CSV and TensorBoard the right --goal"
        raise SimulationError(f"{recording.task}: {text}")
    longest = max(steps_of(trial)[-1] for trial in recording.trials)
    if step_seconds is None:
        if view.max_steps is not None and longest > view.max_steps * (1.0 + 1e-9):
            text = f"the longest curve has {longest:g} steps, the job's trials.maxSteps is {view.max_steps:g}"
            raise SimulationError(f"{recording.task}: {text}; give --step-seconds to stretch the curves to it")
        return recording
    if view.max_steps is None:
        raise SimulationError("the job has no trials.maxSteps that curves could be stretched to; set it")
    if not longest > 0.0:
        text = f"the last step of its longest curve is {longest:g}: nothing to stretch to the job's trials.maxSteps"
        raise SimulationError(f"{recording.task}: {text}; give steps above 0, or leave --step-seconds out")
    if view.max_steps * step_seconds > MOST_SECONDS:
        text = f"{view.max_steps:g} steps (trials.maxSteps) of {step_seconds:g} s each are more than three years"
        raise SimulationError(f"job {view.key.name}: {text}; give {MOST_SECONDS:g} seconds at most, with fewer of one")
    factor = view.max_steps / longest
    if math.isinf(factor):
        text = f"its longest curve ends at step {longest:g}, too close to 0 to be stretched to {view.max_steps:g} steps"
        raise SimulationError(f"{recording.task}: {text}; give its steps as they were counted")
    return replace(recording, trials=tuple(_stretched(trial, factor, step_seconds) for trial in recording.trials))


def _stretched(trial: RecordedTrial, factor: float, step_seconds: float) -> RecordedTrial:
    steps = tuple(step * factor for step in steps_of(trial))
    return replace(trial, steps=steps, seconds=tuple(step * step_seconds for step in steps))


def _assumptions(view: JobView, recording: Recording, place: Place, step_seconds: float | None) -> tuple[str, ...]:
    timing, method, count = place.timing, place.method, len(recording.trials)
    taken = "as recorded" if step_seconds is None else f"stretched to {view.max_steps:g} steps of {step_seconds:g} s"
    found = [
        f"trials learn like random ones of {count} curves of {recording.task} ({recording.metric}), {taken}",
        "the values are those of these curves, not of your search",
        f"the GPUs are this job's alone: {place.gpus} on {len(place.nodes)} node{'s' * (len(place.nodes) > 1)}",
        *_accidents(place.faults),
        *map(str, place.drains),
        f"a pod needs {timing.place + timing.gate:g} s to its gate, then {timing.load:g} s on the GPU to train",
        _room(view, method),
        "trials on one GPU do not slow each other down",
    ]
    if view.products:
        found.append(f"the GPUs are of a product that the job takes ({', '.join(view.products)})")
    if view.migratable:
        found.append(_carried(method, place))
    if view.max_trials > count:
        found.append(f"{view.max_trials} trials share {count} curves: some are the same")
    if view.memory is not None and not place.nodes[0].memory:
        found.append("all trials of a GPU fit into its memory (--gpu-memory says how much there is)")
    return tuple(found)


def _accidents(faults: Faults) -> list[str]:
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


def _room(view: JobView, method: Method) -> str:
    """Return how a trial releases its GPU to another one."""
    if view.suspendable:
        taken = f"a suspension takes {method.suspend:g} s, a resumption {method.resume:g} s"
        return f"{taken} ({method.name}, on every node{f': {method.basis}' if method.basis else ''})"
    if view.checkpointable:
        return (
            f"a trial that gives its GPU away saves ({method.suspend:g} s) and goes on in another pod: never suspended"
        )
    return "a trial keeps its GPU to its end: it can neither be suspended nor save"


def _carried(method: Method, place: Place) -> str:
    """Return what is assumed of live migration, for a job that allows it."""
    if not method.carries:
        return f"no trial is carried to another node alive: {method.name} leaves its memory on the GPU"
    if not place.drains:
        return "no trial is carried to another node alive, as no node drains (--drain says which do, and when)"
    return f"a trial that is carried to another node alive stands still for {method.carry:g} s, as measured"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lowest, the median and the highest value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
    return ordered[0], median, ordered[-1]
