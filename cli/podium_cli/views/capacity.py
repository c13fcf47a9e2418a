"""Output of `podium capacity`: a table of numbers of GPUs, and data.

The optimisers may not be installed, so only the type checker imports their types.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from podium_views import formatting

if TYPE_CHECKING:
    from podium_optimisers.queueing.capacity import CapacityPlan


def data(plan: CapacityPlan) -> dict[str, object]:
    """Return the plan for programs."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None  # JSON has no infinity

    rows = [
        {
            "gpus": row.gpus,
            "load": finite(row.load),
            "waitProbability": row.wait_probability,
            "meanWaitSeconds": finite(row.mean_wait),
            "tailWaitSeconds": finite(row.tail_wait),
            "lost": row.lost,
            "meets": row.meets,
        }
        for row in plan.rows
    ]
    return {
        "gpus": plan.gpus,
        "offered": plan.offered_load,
        "goal": plan.goal,
        "tailShare": plan.tail_share,
        "method": plan.method,
        "rows": rows,
    }


def as_text(plan: CapacityPlan, *, waits: bool) -> str:
    """Return the plan as a table, with columns for waiting jobs or (without `waits`) for rejected jobs."""
    answer = plan.answer
    tail = f"P{100 * plan.tail_share:g} WAIT"
    heads = ["GPUS", "LOAD", "WAITS", "MEAN WAIT", tail, ""] if waits else ["GPUS", "LOAD", "REJECTED", ""]
    lines = [heads]
    for row in plan.rows:
        cells = [str(row.gpus), f"{row.load:.3f}", f"{100 * (row.wait_probability if waits else row.lost):.3g} %"]
        if waits:
            cells += [_time(row.mean_wait), _time(row.tail_wait)]
        lines.append([*cells, ("<- enough" if row.gpus == plan.gpus else "") if row.meets else "too few"])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    busy = f"{plan.offered_load:.2f} busy on average, load {answer.load:.3f}"
    answer_line = f"{formatting.count(plan.gpus, 'GPU')} ({busy}): {plan.goal}."
    return "\n".join([answer_line, f"Method: {plan.method}.", "", *table])


def _time(seconds: float) -> str:
    return formatting.duration(seconds) if math.isfinite(seconds) else "unbounded"
