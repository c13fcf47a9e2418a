"""Stages of a trial's pod, with the phase and the use of the GPU of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from podium_core.domain.phase import TrialPhase
from podium_simulator.system.results.outcome import TRAINING


class PodStage(Enum):
    """State of a trial's pod, as its node knows it."""

    PLACING = auto()  # no node yet
    CREATING = auto()
    GATED = auto()
    STARTING = auto()  # its gate is open
    LOADING = auto()  # its agent has found its processes: it can be suspended from here on
    RUNNING = auto()
    CHECKPOINTING = auto()
    SUSPENDING = auto()
    SUSPENDED = auto()
    MAKING_IMAGE = auto()  # suspended, and written to an image from which it continues on another node
    RESTORING = auto()  # on the other node: its gate is open
    RESUMING = auto()
    ENDED = auto()  # its process has ended; its pod does not report it yet


OCCUPIES = frozenset(
    {
        *(PodStage.STARTING, PodStage.LOADING, PodStage.RUNNING, PodStage.CHECKPOINTING),
        *(PodStage.SUSPENDING, PodStage.RESTORING, PodStage.RESUMING),
    }
)
PHASES: Mapping[PodStage, TrialPhase] = {
    PodStage.PLACING: TrialPhase.PENDING,
    PodStage.CREATING: TrialPhase.PENDING,
    PodStage.GATED: TrialPhase.GATED,
    PodStage.STARTING: TrialPhase.RUNNING,
    PodStage.LOADING: TrialPhase.RUNNING,
    PodStage.RUNNING: TrialPhase.RUNNING,
    PodStage.CHECKPOINTING: TrialPhase.RUNNING,
    PodStage.SUSPENDING: TrialPhase.SUSPENDING,
    PodStage.SUSPENDED: TrialPhase.SUSPENDED,
    PodStage.MAKING_IMAGE: TrialPhase.SUSPENDED,
    PodStage.RESTORING: TrialPhase.RUNNING,
    PodStage.RESUMING: TrialPhase.RESUMING,
    PodStage.ENDED: TrialPhase.RUNNING,
}

# Use of the GPU in each state, for people.
USES: Mapping[PodStage, str] = {
    PodStage.STARTING: "starting",
    PodStage.LOADING: "loading",
    PodStage.RUNNING: TRAINING,
    PodStage.CHECKPOINTING: "saving",
    PodStage.SUSPENDING: "suspending",
    PodStage.RESTORING: "restoring",
    PodStage.RESUMING: "resuming",
}
