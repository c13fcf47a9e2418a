"""Holds a new attempt back until the agent has written the last words of the one before: how far it came (the next one
counts what is lost), and which save to go on from.

Used by the actuator. A pod that is told to go is often gone from the API before its last save is in the trial's status,
and a script that keeps one save only has removed the older one by then. The agent closes the trial's hold of its GPUs
in the same patch, so a hold that is still open means that more is to come. Never longer than LAST_WORDS_SECONDS.
"""

from __future__ import annotations

from podium_core.domain.observe import FINAL_REPORT_SECONDS
from podium_operator.observe.cluster_state import World
from podium_operator.observe.trial_state import SeenTrial


class Settling:
    """The only memory: since when each trial is waited for. An operator that starts anew waits anew."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def settled(self, world: World, trial: SeenTrial, now: float) -> bool:
        """Whether the next attempt may begin. `now`: seconds of a clock that only grows."""
        uid = trial.metadata.uid
        if not self._more_to_come(world, trial):
            self._since.pop(uid, None)
            return True
        return now - self._since.setdefault(uid, now) >= FINAL_REPORT_SECONDS

    def forget(self, world: World) -> None:
        there = {trial.metadata.uid for trial in world.trials}
        self._since = {uid: since for uid, since in self._since.items() if uid in there}

    def _more_to_come(self, world: World, trial: SeenTrial) -> bool:
        if not trial.status.allocations or trial.status.allocations[-1].end is not None:
            return False
        node = trial.status.allocations[-1].node
        return node not in world.silent and any(there.metadata.name == node for there in world.nodes)
