"""Whether a trial can go on elsewhere without losing what it did: one rule for the planner and for `podium drain`."""

from __future__ import annotations

from podium_core.domain.phase import LIVE, TrialPhase
from podium_core.domain.snapshot import CheckpointScope

UNSTARTED: frozenset[TrialPhase] = frozenset({TrialPhase.PENDING, TrialPhase.GATED, TrialPhase.REQUEUED})


def is_started(phase: TrialPhase, *, migrated: bool) -> bool:
    """Whether its pod holds anything that can be lost. `carried`: it goes on from a live trial's image, and has not
    printed a value yet: all that the trial did is in that pod, at its gate too."""
    return migrated or phase not in UNSTARTED


def is_relocatable(
    phase: TrialPhase,
    *,
    checkpointable: bool,
    checkpoint_scope: CheckpointScope,
    has_checkpoint: bool,
    migrated: bool = False,
) -> bool:
    """Whether any other node will do. `saves`: it saves when its pod is told to go; `saves_at`: where that is found.

    An attempt that has not begun has nothing to lose but the way to an older save.
    """
    if not is_started(phase, migrated=migrated):
        return checkpoint_scope != "node" or not has_checkpoint
    return checkpointable and checkpoint_scope == "anywhere"


def is_migratable(phase: TrialPhase, *, migratable: bool, supported: bool) -> bool:
    """Whether one that is not movable may leave alive, with all that it holds: asked of a job and of its node."""
    return phase in LIVE - UNSTARTED and migratable and supported
