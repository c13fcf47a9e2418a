"""State machine of a live migration (`container-checkpoint`, experimental), as a pure table.

A running trial moves from a draining node to another one. The operator follows the table for each such trial
(`podium_operator.act.migration`) and stores the phase in the trial's status, so that a restarted operator continues
from there. Until the new pod exists, every failure leaves the trial where it is, with all its work. Afterwards a
failure means a new attempt without the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

CONTAINER_CHECKPOINT = "container-checkpoint"
REQUEST_TIMEOUT_SECONDS = (
    1200.0  # for the agent to answer: checkpoint and push may take 300 s each, and the agent may restart
)
START_TIMEOUT_SECONDS = 60.0  # after which a new pod whose image or container has a problem is not expected to start


class MigrationPhase(StrEnum):
    """Phase of a live migration.

    - `Requested`: the trial gets no time slice, is suspended, and its agent creates the image.
    - `ImagePushed`: the image is in the registry.
    - `PodCreated`: the new pod exists and the old one is deleted.
    - `Restored`: the trial has printed a value on the target node.
    - `Failed`: the trial is not migrated.
    """

    REQUESTED = "Requested"
    IMAGE_PUSHED = "ImagePushed"
    POD_CREATED = "PodCreated"
    RESTORED = "Restored"
    FAILED = "Failed"


# The trial must not run: work after the checkpoint would have to be repeated.
NOT_RESUMABLE: frozenset[MigrationPhase] = frozenset({MigrationPhase.REQUESTED, MigrationPhase.IMAGE_PUSHED})
IN_PROGRESS: frozenset[MigrationPhase] = NOT_RESUMABLE | {MigrationPhase.POD_CREATED}
CANCELLED_CODES = frozenset({"TrialEnded", "DrainCancelled"})  # codes: the migration is not needed any more
# Codes of temporary failures: the migration is requested again while the node drains, once the agent has seen the end.
RETRIABLE_CODES = frozenset({"DrainCancelled", "TargetFull", "TargetUnavailable"})
RETRY_SECONDS = 5.0
REBALANCING_RETRY_SECONDS = 600.0  # after a failed migration, until the trial may be migrated again for rebalancing
TARGET_DRAINING_SECONDS = 1800.0  # for which an image, the only state of the trial, waits for a draining target
TARGET_DRAINING = "TargetDraining"  # code of `ImagePushed` while it waits; the phase is then as old as the wait
DRAIN_CANCELLED_MESSAGE = "The node accepts trials again: the trial continues there."


@dataclass(frozen=True, slots=True)
class NewPodFacts:
    """Observed facts about the new pod.

    - `created`: a pod of the new attempt exists, in any state.
    - `live`: it exists, has not ended and is not terminating.
    - `rejected`: the kubelet rejected it, so that no part of it ever ran.
    - `value_printed`: it has printed a value.
    - `start_problem`: why it cannot start; empty if it can.
    - `starting_seconds`: seconds for which its containers could have started.
    - `bound`: it has a node.
    """

    created: bool = False
    live: bool = False
    rejected: bool = False
    value_printed: bool = False
    start_problem: str = ""
    starting_seconds: float = 0.0
    bound: bool = True


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Observed facts about the target node.

    - `exists`: the node exists. `accepts`: it exists and does not drain.
    - `waiting_for_drain`: it is stored that the image waits for the node's drain.
    - `slots_free`: no other pod has the slots there that are promised to the trial.
    """

    exists: bool = True
    accepts: bool = True
    waiting_for_drain: bool = False
    slots_free: bool = True


@dataclass(frozen=True, slots=True)
class MigrationFacts:
    """Observed facts about a migration.

    - `age`: seconds since the phase began.
    - `trial_ended`: the trial has ended. `draining`: the source node is draining.
    - `old_pod`: the old pod exists, has not ended and is not terminating.
    - `refusal`: (code, sentence) of the agent, or of the API server for the new pod.
    - `image_pushed`: the agent reported the image.
    """

    age: float = 0.0
    trial_ended: bool = False
    draining: bool = True
    old_pod: bool = True
    refusal: tuple[str, str] | None = None
    image_pushed: bool = False
    new_pod: NewPodFacts = NewPodFacts()
    target: TargetFacts = TargetFacts()


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """The next phase; `code` and `message` give the reason of a failure or a wait."""

    phase: MigrationPhase
    code: str = ""
    message: str = ""


_Rule = Callable[[MigrationFacts], MigrationStep | None]
_FAILED = MigrationPhase.FAILED


def _fail(code: str, message: str, when: Callable[[MigrationFacts], bool]) -> _Rule:
    return lambda facts: MigrationStep(_FAILED, code, message) if when(facts) else None


def _to(phase: MigrationPhase, when: Callable[[MigrationFacts], bool]) -> _Rule:
    return lambda facts: MigrationStep(phase) if when(facts) else None


def _target_drains(facts: MigrationFacts) -> MigrationStep | None:
    """Start or end the wait. It starts when the target drains, however long the image has existed."""
    if facts.target.accepts is not facts.target.waiting_for_drain:
        return None
    reason = () if facts.target.accepts else (TARGET_DRAINING, "The image waits until the target accepts trials again.")
    return MigrationStep(MigrationPhase.IMAGE_PUSHED, *reason)


def _refused(facts: MigrationFacts) -> MigrationStep | None:
    return None if facts.refusal is None else MigrationStep(_FAILED, *facts.refusal)


def _broken(facts: MigrationFacts) -> MigrationStep | None:
    if not facts.new_pod.start_problem or facts.new_pod.starting_seconds < START_TIMEOUT_SECONDS:
        return None
    return MigrationStep(_FAILED, "RestoreFailed", f"The new pod does not start: {facts.new_pod.start_problem}")


_ENDED = _fail("TrialEnded", "The trial ended meanwhile.", lambda f: f.trial_ended)
_CANCELLED = _fail("DrainCancelled", DRAIN_CANCELLED_MESSAGE, lambda f: f.old_pod and not f.draining)
_POD_DELETED = _fail("PodDeleted", "The pod was deleted before its image was created.", lambda f: not f.old_pod)
_TIMEOUT = _fail(
    "AgentTimeout",
    f"The agent created no image within {REQUEST_TIMEOUT_SECONDS:g} s: read the agent's log.",
    lambda f: f.age >= REQUEST_TIMEOUT_SECONDS,
)
# Without the old pod the image holds all work of the trial. It waits for the end of a drain, or for a slot.
_NO_TARGET = _fail(
    "TargetUnavailable",
    "The target node no longer accepts trials.",
    lambda f: (
        not f.target.accepts
        and (f.old_pod or not f.target.exists or (f.target.waiting_for_drain and f.age >= TARGET_DRAINING_SECONDS))
    ),
)
_FULL = _fail(
    "TargetFull",
    "The promised slots are taken by other pods, or a GPU is unhealthy. The trial continues where it is, and is "
    "migrated when slots are free.",
    lambda f: f.old_pod and not f.target.slots_free,
)
_NODE_LOST = _fail(
    "RestoreFailed",
    "The target node of the new pod no longer exists.",
    lambda f: not (f.target.exists or f.new_pod.bound),
)
_POD_ENDED = _fail("RestoreFailed", "The new pod ended before it printed a value.", lambda f: not f.new_pod.live)

# The first rule that holds decides; if none holds, the phase remains.
TABLE: Mapping[MigrationPhase, tuple[_Rule, ...]] = MappingProxyType(
    {
        MigrationPhase.REQUESTED: (
            *(_ENDED, _refused, _CANCELLED, _NO_TARGET, _FULL),
            # From here on the agent does not resume the trial, whatever ends its pod.
            *(_to(MigrationPhase.IMAGE_PUSHED, lambda f: f.image_pushed), _POD_DELETED, _TIMEOUT),
        ),
        # The old pod may be deleted by now: only the image is needed.
        MigrationPhase.IMAGE_PUSHED: (
            _to(MigrationPhase.POD_CREATED, lambda f: f.new_pod.created),
            _ENDED,
            _refused,
            _NO_TARGET,
            _FULL,
            _target_drains,
        ),
        MigrationPhase.POD_CREATED: (
            *(_to(MigrationPhase.RESTORED, lambda f: f.new_pod.value_printed), _ENDED),
            # The image is unchanged, so another pod continues from it (the agent may have been away for a moment).
            *(_to(MigrationPhase.IMAGE_PUSHED, lambda f: f.new_pod.rejected), _POD_ENDED, _NODE_LOST, _broken),
        ),
        MigrationPhase.RESTORED: (),
        MigrationPhase.FAILED: (),
    }
)


def next_step(phase: MigrationPhase, facts: MigrationFacts) -> MigrationStep | None:
    """Return the next step of the migration; None if the phase remains."""
    return next((step for rule in TABLE[phase] if (step := rule(facts)) is not None), None)
