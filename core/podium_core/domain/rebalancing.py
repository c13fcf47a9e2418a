"""Rules of levelling: a trial that waits on a crowded GPU goes to one with fewer trials (Hermes' migration).

Set by the operator's configuration or by a scenario of the simulator, carried by the snapshot, read by
`planning.levelling`.
"""

from __future__ import annotations

from dataclasses import dataclass

REBALANCING = "Rebalancing"  # reason of the requeue, and of the carrying
MIN_DIFFERENCE = (
    2  # trials by which the GPUs that it leaves have more, each of them: a smaller step would only swap the two
)
MIN_REMAINING_MOVES = 5.0  # training that is left, in moves: what a move gains is a part of that, and estimated
MAX_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class RebalancingRules:
    """`stay`: seconds that a trial stays in its pod at least; after each move of it twice as long as before."""

    min_stay: float = 120.0

    def min_stay_after(self, moves: int) -> float:
        """Seconds that a trial stays after `moves` moves. What the planner cannot know (a scheduler that puts it back)
        costs ever fewer moves that way."""
        return self.min_stay * 2.0 ** min(moves, MAX_DOUBLINGS)
