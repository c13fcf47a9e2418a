"""The door to a GPU: may this task join those that have a promise there? A pure function of what already runs.

A promise is kept by `scheduling.reserved`: the task stays in the context it was promised, jobs go by EDF, one stage
at a time in each context, and each stage's worst time is known. Called by `podium realtime admit`; a cluster component
would call `admit` with the promises that it reads from its objects (docs/realtime.md has the sketch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podium_realtime.admission.demand import Demand, Finding, examine
from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import PeriodicTask

# worst seconds of each stage by (network, context): from `simulation.profiling.worst` or from measurements
WorstTimes = Mapping[tuple[str, int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Promise:
    task: PeriodicTask
    context: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU has promised: `contexts` by number 0.., the worst times there, the tasks with a promise."""

    name: str
    contexts: int
    worst: WorstTimes
    promises: tuple[Promise, ...] = ()

    def of(self, context: int) -> list[PeriodicTask]:
        return [promise.task for promise in self.promises if promise.context == context]

    def utilisation(self, context: int) -> float:
        return sum(_demand(task, context, self.worst).total / task.period for task in self.of(context))

    @property
    def homes(self) -> dict[str, int]:
        """The context of each task: what `Reserved` schedules by."""
        return {promise.task.name: promise.context for promise in self.promises}


@dataclass(frozen=True, slots=True)
class Decision:
    """`gpu` is the GPU as it is after the decision: with one promise more, or unchanged."""

    accepted: bool
    code: str
    message: str
    gpu: Gpu


def admit(task: PeriodicTask, gpu: Gpu) -> Decision:
    """Tries the contexts from the least used on. O(contexts x points of the demand test x tasks).

    Raises RealtimeError for a name that is taken or a network without worst times.
    """
    if task.name in gpu.homes:
        told = f"is already promised to on {gpu.name}; names must differ"
        raise RealtimeError("DuplicateName", f"task {task.name}: name", told)
    order = sorted(range(gpu.contexts), key=lambda number: (gpu.utilisation(number), number))
    findings: list[tuple[int, Finding]] = []
    for number in order:
        found = _try(task, number, gpu)
        if found.fits:
            before = gpu.utilisation(number)
            text = (
                f"task {task.name} fits {gpu.name}, context {number}: utilisation {before:.3f} + "
                f"{found.utilisation - before:.3f} of 1; tightest: {1e3 * found.work:.2f} ms of work are due within "
                f"{1e3 * found.within:.2f} ms."
            )
            promised = replace(gpu, promises=(*gpu.promises, Promise(task, number)))
            return Decision(True, "Admitted", text, promised)
        findings.append((number, found))
    number, nearest = min(findings, key=lambda found: found[1].work / found[1].within)
    text = (
        f"task {task.name} does not fit {gpu.name}; nearest is context {number} ({nearest.code}): utilisation would be "
        f"{nearest.utilisation:.3f}, {1e3 * nearest.work:.2f} ms of work would be due within "
        f"{1e3 * nearest.within:.2f} ms; {_cure(task, gpu)}"
    )
    return Decision(False, nearest.code, text, gpu)


def _try(task: PeriodicTask, context: int, gpu: Gpu) -> Finding:
    return examine([_demand(one, context, gpu.worst) for one in (*gpu.of(context), task)])


def _demand(task: PeriodicTask, context: int, worst: WorstTimes) -> Demand:
    times = worst.get((task.network.name, context))
    if times is None:
        told = f"{task.network.name} has no worst times in context {context}; profile it first"
        raise RealtimeError("NoProfile", f"task {task.name}: network", told)
    return Demand(task.period, task.deadline, sum(times), max(times))


def _cure(task: PeriodicTask, gpu: Gpu) -> str:
    """The smallest stretch of period and deadline that would fit, to 1 %, up to 16 times."""
    low, high = 1.0, 16.0

    def fits(factor: float) -> bool:
        slower = replace(task, period=task.period * factor, deadline=task.deadline * factor)
        return any(_try(slower, number, gpu).fits for number in range(gpu.contexts))

    if not fits(high):
        return "not even at a sixteenth of the rate; ask for another GPU."
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    period, deadline = 1e3 * task.period * high, 1e3 * task.deadline * high
    return f"a period of {period:.1f} ms with a deadline of {deadline:.1f} ms would fit."
