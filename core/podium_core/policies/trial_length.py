"""How long a trial is, for policies that plan by it: the declared number of steps, or what can be seen of it."""

from __future__ import annotations

from podium_core.curves.curve_table import Board
from podium_core.domain.snapshot import JobView


def horizon(job: JobView, board: Board) -> float:
    """Steps of a whole trial: maxSteps; without one the longest trial that has completed; before that twice the longest
    seen, as if everybody had half of the way to go. Above 0.
    """
    if job.max_steps is not None and job.max_steps > 0.0:
        return job.max_steps
    complete = board.step[board.complete]
    if len(complete) and complete.max() > 0.0:
        return float(complete.max())
    longest = float(board.step.max(initial=0.0))
    return 2.0 * longest if longest > 0.0 else 1.0
