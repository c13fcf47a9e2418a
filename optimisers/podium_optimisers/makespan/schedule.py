"""What every method gives: which machine and when for each task, the makespan, and how far from the optimum at most.

`Plan` is what a method decides; `finish` turns it into a `Schedule`, filling in starts and the area bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.makespan.instance import Floats, Instance, Ints, MakespanError

TOLERANCE = 1e-9  # relative: sums of floats in another order


class InfeasibleError(MakespanError):
    code = "Infeasible"


class BoundViolatedError(MakespanError):
    """A method "proved" more than a schedule that was checked: its certificate is wrong, and so is the method."""

    code = "BoundViolated"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A method's own answer. `machine_of`: shape (n,). `starts`: only if tasks do not simply follow one another.
    `bound`: a lower bound of the optimum that the method proved on its way (0 if none).
    """

    machine_of: Ints
    starts: Floats | None = None
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """`assignment[j]` and `starts[j]` (seconds) of task j; `lower_bound` is certified: no schedule ends before it.

    `ratio` = makespan / lower_bound: the makespan is at most that many times the optimum. `seconds` is how long the
    method took, set by the caller, who has a clock.
    """

    method: str
    assignment: tuple[int, ...]
    starts: tuple[float, ...]
    makespan: float
    lower_bound: float
    seconds: float | None = None

    @property
    def ratio(self) -> float:
        return self.makespan / self.lower_bound


def finish(method: str, instance: Instance, plan: Plan, bound: float) -> Schedule:
    """The `Schedule` of a plan, checked; `bound` is what is known of the optimum from elsewhere.

    Errors: InfeasibleError; BoundViolatedError where a lower bound is above the makespan by more than rounding.
    """
    starts = back_to_back(instance, plan.machine_of) if plan.starts is None else plan.starts
    check(instance, plan.machine_of, starts)
    makespan = float((starts + instance.seconds_on(plan.machine_of)).max())
    lower = max(bound, plan.bound)
    if lower > makespan * (1 + TOLERANCE):
        text = f"{lower!r} s is above the {makespan!r} s of a schedule that keeps all rules"
        raise BoundViolatedError(
            f"bound: {text}; the proof of {method} is wrong: report the tasks, take another method"
        )
    # below that, sums of floats in another order passed the makespan of an optimal schedule by their last bits
    lower = min(lower, makespan)
    return Schedule(method, tuple(plan.machine_of.tolist()), tuple(starts.tolist()), makespan, lower)


def back_to_back(instance: Instance, machine_of: Ints) -> Floats:
    """Starts, shape (n,), when each machine runs its tasks without gaps, the longest first."""
    seconds = instance.seconds_on(machine_of)
    order = np.lexsort((np.arange(instance.n), -seconds, machine_of))
    machines, lengths = machine_of[order], seconds[order]
    ends = np.cumsum(lengths)
    first = np.searchsorted(machines, machines)  # where the machine of each place begins in the order
    starts = np.empty(instance.n)
    starts[order] = ends - lengths - (ends - lengths)[first]
    return starts


def check(instance: Instance, machine_of: Ints, starts: Floats) -> None:
    """Raises InfeasibleError unless each task runs once, where it can, and no machine runs two at once."""
    if machine_of.shape != (instance.n,) or starts.shape != (instance.n,):
        raise InfeasibleError(f"assignment: {machine_of.shape} places for {instance.n} tasks; give each task one")
    if machine_of.min() < 0 or machine_of.max() >= instance.machines:
        raise InfeasibleError(f"assignment: a machine outside 0..{instance.machines - 1}")
    seconds = instance.seconds_on(machine_of)
    if not np.isfinite(seconds).all():
        name = instance.names[int(np.argmax(~np.isfinite(seconds)))]
        raise InfeasibleError(f"assignment: task {name} was put where it cannot run")
    order = np.lexsort((starts, machine_of))
    ends = (starts + seconds)[order]
    late = (ends[:-1] > starts[order][1:] + TOLERANCE * ends.max()) & (np.diff(machine_of[order]) == 0)
    if not starts.min() >= 0 or late.any():
        raise InfeasibleError("starts: a machine runs two tasks at once, or one before time 0")
