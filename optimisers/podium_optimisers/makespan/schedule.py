"""The result of every method: machine and start of each task, makespan and certified bound.

A method returns a `MakespanPlan`; `build_schedule` turns it into a checked `MakespanSchedule`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats, Ints
from podium_optimisers.makespan.instance import MakespanError, MakespanInstance

TOLERANCE = 1e-9  # relative: the rounding of sums in different orders


class InfeasibleError(MakespanError):
    """A schedule that violates the rules of the problem."""

    code = "Infeasible"


class BoundViolatedError(MakespanError):
    """A lower bound above the makespan of a checked schedule: the method's certificate is wrong."""

    code = "BoundViolated"


@dataclass(frozen=True, slots=True, eq=False)
class MakespanPlan:
    """The result of a method. `machine_of`: shape (n,). `bound`: a proven lower bound, 0 if there is none.

    `starts` is given only if tasks do not simply follow one another.
    """

    machine_of: Ints
    starts: Floats | None = None
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class MakespanSchedule:
    """A checked schedule: `assignment[j]` is the machine and `starts[j]` the start (seconds) of task j.

    `lower_bound` is certified: no schedule ends before it. `seconds` is the run time of the method, which the caller
    may set.
    """

    method: str
    assignment: tuple[int, ...]
    starts: tuple[float, ...]
    makespan: float
    lower_bound: float
    seconds: float | None = None

    @property
    def ratio(self) -> float:
        """Return makespan / lower_bound: the makespan is at most this many times the optimum."""
        return self.makespan / self.lower_bound


def build_schedule(method: str, instance: MakespanInstance, plan: MakespanPlan, bound: float) -> MakespanSchedule:
    """Return the checked schedule of a plan. `bound` is a known lower bound from another source.

    Raises InfeasibleError, or BoundViolatedError if a lower bound exceeds the makespan by more than rounding.
    """
    starts = back_to_back_starts(instance, plan.machine_of) if plan.starts is None else plan.starts
    check_feasible(instance, plan.machine_of, starts)
    makespan = float((starts + instance.seconds_on(plan.machine_of)).max())
    lower = max(bound, plan.bound)
    if lower > makespan * (1 + TOLERANCE):
        text = f"{lower!r} s is above the {makespan!r} s of a feasible schedule"
        raise BoundViolatedError(f"bound: {text}; the proof of {method} is wrong: report the tasks, use another method")
    # a smaller excess is the rounding of sums in different orders
    lower = min(lower, makespan)
    return MakespanSchedule(method, tuple(plan.machine_of.tolist()), tuple(starts.tolist()), makespan, lower)


def back_to_back_starts(instance: MakespanInstance, machine_of: Ints) -> Floats:
    """Return the starts, shape (n,), if each machine runs its tasks without gaps, the longest first."""
    seconds = instance.seconds_on(machine_of)
    order = np.lexsort((np.arange(instance.n), -seconds, machine_of))
    machines, lengths = machine_of[order], seconds[order]
    ends = np.cumsum(lengths)
    first = np.searchsorted(machines, machines)  # position of the first task on the same machine
    starts = np.empty(instance.n)
    starts[order] = ends - lengths - (ends - lengths)[first]
    return starts


def check_feasible(instance: MakespanInstance, machine_of: Ints, starts: Floats) -> None:
    """Raise InfeasibleError unless each task runs once, where it can, and no machine runs two at once."""
    if machine_of.shape != (instance.n,) or starts.shape != (instance.n,):
        raise InfeasibleError(
            f"assignment: the shape is {machine_of.shape} for {instance.n} tasks; give each task one machine"
        )
    if machine_of.min() < 0 or machine_of.max() >= instance.machines:
        raise InfeasibleError(f"assignment: a machine number is outside 0..{instance.machines - 1}")
    seconds = instance.seconds_on(machine_of)
    if not np.isfinite(seconds).all():
        name = instance.names[int(np.argmax(~np.isfinite(seconds)))]
        raise InfeasibleError(f"assignment: task {name} is on a machine that cannot run it")
    order = np.lexsort((starts, machine_of))
    ends = (starts + seconds)[order]
    late = (ends[:-1] > starts[order][1:] + TOLERANCE * ends.max()) & (np.diff(machine_of[order]) == 0)
    if not starts.min() >= 0 or late.any():
        raise InfeasibleError("starts: a machine runs two tasks at once, or a task starts before time 0")
