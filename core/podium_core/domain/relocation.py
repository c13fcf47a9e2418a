"""Rule for whether a trial can continue elsewhere without losing work, for the planner and for `podium drain`."""

from __future__ import annotations

from podium_core.domain.phase import LIVE, TrialPhase
from podium_core.domain.snapshot import CheckpointScope

UNSTARTED: frozenset[TrialPhase] = frozenset({TrialPhase.PENDING, TrialPhase.GATED, TrialPhase.REQUEUED})


def is_started(phase: TrialPhase, *, migrated: bool) -> bool:
    """Return whether the pod of a trial holds work that can be lost.

    `migrated`: the pod continues from the image of a running trial and has not printed a value yet. Then all work of
    the trial is in that pod, even at its gate.
    """
    return migrated or phase not in UNSTARTED


def is_relocatable(
    phase: TrialPhase,
    *,
    checkpointable: bool,
    checkpoint_scope: CheckpointScope,
    has_checkpoint: bool,
    migrated: bool = False,
) -> bool:
    """Return whether the trial can continue on any other node.

    `checkpointable`: the trial checkpoints when its pod is deleted. `checkpoint_scope`: where the checkpoint can be
    read. An attempt that has not started can only lose the access to an older checkpoint.
    """
    if not is_started(phase, migrated=migrated):
        return checkpoint_scope != "node" or not has_checkpoint
    return checkpointable and checkpoint_scope == "anywhere"


def is_migratable(phase: TrialPhase, *, migratable: bool, supported: bool) -> bool:
    """Return whether a trial that is not relocatable can move alive.

    `migratable`: its job allows it. `supported`: its node supports it.
    """
    return phase in LIVE - UNSTARTED and migratable and supported
