"""Settings of rebalancing: a trial that waits on a crowded GPU moves to a less crowded one (Hermes' migration).

The operator's configuration or a scenario of the simulator sets them, the snapshot carries them, and
`planning.slots.rebalancing` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

REBALANCING = "Rebalancing"  # reason of the requeue or migration
MIN_DIFFERENCE = 2  # in trials, between each GPU that is left and each one that is taken: less would only swap the two
MIN_REMAINING_MOVES = 5.0  # remaining training in multiples of the cost of a move, since the gain is uncertain
MAX_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class RebalancingRules:
    """Settings of rebalancing.

    `min_stay`: seconds that a trial remains in its pod at least. The time doubles after each move of the trial.
    """

    min_stay: float = 120.0

    def min_stay_after(self, moves: int) -> float:
        """Return the seconds that a trial remains in its pod after `moves` moves.

        The doubling bounds the cost of causes that the planner cannot know, such as a scheduler that moves the trial
        back.
        """
        return self.min_stay * 2.0 ** min(moves, MAX_DOUBLINGS)
