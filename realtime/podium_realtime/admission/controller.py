"""Admission controller of a GPU: may a task join the tasks whose deadlines are already guaranteed?

The decision is a pure function of the tasks admitted so far. The guarantee holds under `scheduling.partitioned_edf`:
each task stays in its context, jobs run by EDF, each context runs one stage at a time, and the worst-case time of each
stage is known. `docs/explanation/realtime.md` sketches how a cluster would use the controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from podium_realtime.admission.demand import SchedulabilityResult, TaskDemand, processor_demand_test
from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.task import PeriodicTask

# worst-case seconds of each stage, by (network, context): from `simulation.profiling` or from measurements
WorstCaseTimes = Mapping[tuple[str, int], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """An admitted task and its context."""

    task: PeriodicTask
    context: int


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU with its admitted tasks.

    `contexts`: number of contexts; they are numbered from 0.
    `worst_case`: worst-case times of each network in each context.
    """

    name: str
    contexts: int
    worst_case: WorstCaseTimes
    guarantees: tuple[Guarantee, ...] = ()

    def tasks_in(self, context: int) -> list[PeriodicTask]:
        """Return the admitted tasks of a context."""
        return [guarantee.task for guarantee in self.guarantees if guarantee.context == context]

    def utilisation(self, context: int) -> float:
        """Return the utilisation of a context by worst-case times."""
        return sum(
            _demand(task, context, self.worst_case).execution_time / task.period for task in self.tasks_in(context)
        )

    @property
    def context_of(self) -> dict[str, int]:
        """The context of each admitted task, by name (input of `PartitionedEdf`)."""
        return {guarantee.task.name: guarantee.context for guarantee in self.guarantees}


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """The decision on one task. `gpu` is the state after the decision."""

    accepted: bool
    code: str
    message: str
    gpu: GpuState


def admit(task: PeriodicTask, gpu: GpuState) -> AdmissionDecision:
    """Admit the task to the least used context that passes the schedulability test.

    Raises RealtimeError if the task's name is taken or its network has no worst-case times.
    O(contexts x test points x tasks).
    """
    if task.name in gpu.context_of:
        problem = f"is the name of a task that {gpu.name} has admitted; use another name"
        raise RealtimeError("DuplicateName", f"task {task.name}: name", problem)
    order = sorted(range(gpu.contexts), key=lambda number: (gpu.utilisation(number), number))
    failures: list[tuple[int, SchedulabilityResult]] = []
    for number in order:
        result = _test(task, number, gpu)
        if result.schedulable:
            message = (
                f"task {task.name} fits {gpu.name}, context {number}. Its utilisation rises from "
                f"{gpu.utilisation(number):.3f} to {result.utilisation:.3f} of 1. In the tightest interval "
                f"{1e3 * result.demand:.2f} ms of work are due within {1e3 * result.interval:.2f} ms."
            )
            admitted = replace(gpu, guarantees=(*gpu.guarantees, Guarantee(task, number)))
            return AdmissionDecision(True, "Admitted", message, admitted)
        failures.append((number, result))
    number, nearest = min(failures, key=lambda failure: failure[1].demand / failure[1].interval)
    message = (
        f"task {task.name} does not fit {gpu.name}. Context {number} comes closest ({nearest.code}): its utilisation "
        f"would be {nearest.utilisation:.3f}, and {1e3 * nearest.demand:.2f} ms of work would be due within "
        f"{1e3 * nearest.interval:.2f} ms. {_suggestion(task, gpu)}"
    )
    return AdmissionDecision(False, nearest.code, message, gpu)


def _test(task: PeriodicTask, context: int, gpu: GpuState) -> SchedulabilityResult:
    return processor_demand_test([_demand(other, context, gpu.worst_case) for other in (*gpu.tasks_in(context), task)])


def _demand(task: PeriodicTask, context: int, worst_case: WorstCaseTimes) -> TaskDemand:
    times = worst_case.get((task.network.name, context))
    if times is None:
        problem = f"{task.network.name} has no worst-case times in context {context}; profile it first"
        raise RealtimeError("NoProfile", f"task {task.name}: network", problem)
    return TaskDemand(task.period, task.deadline, sum(times), max(times))


def _suggestion(task: PeriodicTask, gpu: GpuState) -> str:
    """Suggest the shortest period and deadline that would fit, to 1 %, up to 16 times the requested ones."""
    low, high = 1.0, 16.0

    def fits(factor: float) -> bool:
        slower = replace(task, period=task.period * factor, deadline=task.deadline * factor)
        return any(_test(slower, number, gpu).schedulable for number in range(gpu.contexts))

    if not fits(high):
        return "It would not fit at a sixteenth of its rate either; use another GPU."
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    period, deadline = 1e3 * task.period * high, 1e3 * task.deadline * high
    return f"With a period of {period:.1f} ms and a deadline of {deadline:.1f} ms it would fit."
