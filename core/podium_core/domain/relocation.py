"""Whether a trial can go on elsewhere without losing what it did: one rule for the planner and for `podium drain`."""

from __future__ import annotations

from podium_core.domain.phase import LIVE, TrialPhase
from podium_core.domain.snapshot import SavesAt

NOT_BEGUN: frozenset[TrialPhase] = frozenset({TrialPhase.PENDING, TrialPhase.GATED, TrialPhase.REQUEUED})


def begun(phase: TrialPhase, *, carried: bool) -> bool:
    """Whether its pod holds anything that can be lost. `carried`: it goes on from a live trial's image, and has not
    printed a value yet: all that the trial did is in that pod, at its gate too."""
    return carried or phase not in NOT_BEGUN


def movable(phase: TrialPhase, *, saves: bool, saves_at: SavesAt, has_save: bool, carried: bool = False) -> bool:
    """Whether any other node will do. `saves`: it saves when its pod is told to go; `saves_at`: where that is found.

    An attempt that has not begun has nothing to lose but the way to an older save.
    """
    if not begun(phase, carried=carried):
        return saves_at != "node" or not has_save
    return saves and saves_at == "anywhere"


def carriable(phase: TrialPhase, *, carries: bool, node_carries: bool) -> bool:
    """Whether one that is not movable may leave alive, with all that it holds: asked of a job and of its node."""
    return phase in LIVE - NOT_BEGUN and carries and node_carries
