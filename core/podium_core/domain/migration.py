"""A live trial is carried from a node that drains to another one (`container-checkpoint`, experimental): how far it is.

A table, pure. The operator follows it for each such trial (`podium_operator.act.migration`) and stores the phase in the
trial's status, so that an operator that starts anew goes on from there. Until the new pod exists every way out leaves
the trial where it was, with all it did; afterwards a failure means a new attempt without the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

CONTAINER_CHECKPOINT = "container-checkpoint"
REQUEST_TIMEOUT_SECONDS = (
    1200.0  # for an agent to answer: it gives checkpoint and push 300 s each, and may be restarted
)
START_TIMEOUT_SECONDS = 60.0  # a new pod whose image or container is in trouble for so long will not start


class MigrationPhase(StrEnum):
    """`Asked`: it gets no turn, is suspended, and its agent makes the image; `Pushed`: the image is in the registry;
    `Created`: its new pod is there and the old one goes; `Arrived`: it has printed a value there."""

    REQUESTED = "Requested"
    IMAGE_PUSHED = "ImagePushed"
    POD_CREATED = "PodCreated"
    RESTORED = "Restored"
    FAILED = "Failed"


# it may get no turn: what it computed after the checkpoint would be computed again
NOT_RESUMABLE: frozenset[MigrationPhase] = frozenset({MigrationPhase.REQUESTED, MigrationPhase.IMAGE_PUSHED})
IN_PROGRESS: frozenset[MigrationPhase] = NOT_RESUMABLE | {MigrationPhase.POD_CREATED}
CANCELLED_CODES = frozenset({"TrialEnded", "DrainCancelled"})  # codes: it need not be carried any more
# codes of what passes: it is asked again while its node drains, once its agent has surely seen the end of this ask
RETRIABLE_CODES = frozenset({"DrainCancelled", "TargetFull", "TargetUnavailable"})
RETRY_SECONDS = 5.0
REBALANCING_RETRY_SECONDS = 600.0  # after which one that fell back is carried again to level the GPUs
TARGET_DRAINING_SECONDS = 1800.0  # for which an image, all that is left of the trial, waits for a node that drains
TARGET_DRAINING = "TargetDraining"  # code of `Pushed` while it does so: the phase is then as old as that
DRAIN_CANCELLED_MESSAGE = "Its node takes trials again: it goes on there."


@dataclass(frozen=True, slots=True)
class MigrationFacts:
    """One look. `old_pod`, `new_pod`: it is there, has not ended and is not told to go; `made`: a pod of the new
    attempt is there in any state; `rejected`: its kubelet did not take it, so that nothing of it ever ran; `refusal`:
    (code, sentence) of the agent, or of the API server for the new pod; `pushed`: the agent named the image; `printed`:
    the new pod has printed a value; `broken`: why the new pod cannot start, empty: it can; `trying`: seconds for which
    its containers could begin; `target`: the node that it goes to is there; `takes`: and does not drain; `waits`: it is
    stored that it drains; `room`: and the share that it was promised there is no other's; `bound`: the new pod has its
    node; `age`: seconds since the phase began."""

    age: float = 0.0
    trial_ended: bool = False  # the trial has ended
    draining: bool = True
    old_pod: bool = True
    pod_created: bool = False
    new_pod: bool = False
    rejected: bool = False
    refusal: tuple[str, str] | None = None
    image_pushed: bool = False
    value_printed: bool = False
    start_problem: str = ""
    starting_seconds: float = 0.0
    target_exists: bool = True
    target_accepts: bool = True
    waiting_for_drain: bool = False
    slots_free: bool = True
    pod_bound: bool = True


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """`code` and `message` say why, where it fell back or waits."""

    phase: MigrationPhase
    code: str = ""
    message: str = ""


_Rule = Callable[[MigrationFacts], MigrationStep | None]
_BACK = MigrationPhase.FAILED


def _back(code: str, message: str, when: Callable[[MigrationFacts], bool]) -> _Rule:
    return lambda facts: MigrationStep(_BACK, code, message) if when(facts) else None


def _to(phase: MigrationPhase, when: Callable[[MigrationFacts], bool]) -> _Rule:
    return lambda facts: MigrationStep(phase) if when(facts) else None


def _drains(facts: MigrationFacts) -> MigrationStep | None:
    """The time for which it waits begins as its target drains, however long the image has been there."""
    if facts.target_accepts is not facts.waiting_for_drain:
        return None
    told = () if facts.target_accepts else (TARGET_DRAINING, "Its image waits for that node to take trials again.")
    return MigrationStep(MigrationPhase.IMAGE_PUSHED, *told)


def _refused(facts: MigrationFacts) -> MigrationStep | None:
    return None if facts.refusal is None else MigrationStep(_BACK, *facts.refusal)


def _broken(facts: MigrationFacts) -> MigrationStep | None:
    if not facts.start_problem or facts.starting_seconds < START_TIMEOUT_SECONDS:
        return None
    return MigrationStep(_BACK, "RestoreFailed", f"Its new pod does not start: {facts.start_problem}")


_OVER = _back("TrialEnded", "The trial ended meanwhile.", lambda f: f.trial_ended)
_STAYS = _back("DrainCancelled", DRAIN_CANCELLED_MESSAGE, lambda f: f.old_pod and not f.draining)
_GONE = _back("PodDeleted", "Its pod went before its image was made.", lambda f: not f.old_pod)
_SILENT = _back(
    "AgentTimeout",
    f"Its agent made no image within {REQUEST_TIMEOUT_SECONDS:g} s: see the agent's log.",
    lambda f: f.age >= REQUEST_TIMEOUT_SECONDS,
)
# with its old pod gone all that it did is in the image, which waits: for a drain to be undone, or for a share
_NO_TARGET = _back(
    "TargetUnavailable",
    "The node that it was to go to takes no trials any more.",
    lambda f: (
        not f.target_accepts
        and (f.old_pod or not f.target_exists or (f.waiting_for_drain and f.age >= TARGET_DRAINING_SECONDS))
    ),
)
_FULL = _back(
    "TargetFull",
    "The shares that it was to get are gone (other pods have them, or a GPU is ill): it goes on where it is, and is "
    "tried again when some are free.",
    lambda f: f.old_pod and not f.slots_free,
)
_NOWHERE = _back(
    "RestoreFailed", "The node that its new pod waits for is gone.", lambda f: not (f.target_exists or f.pod_bound)
)
_LOST = _back("RestoreFailed", "Its new pod ended before it printed a value.", lambda f: not f.new_pod)

# the first rule that holds wins; none: the phase stands
TABLE: Mapping[MigrationPhase, tuple[_Rule, ...]] = MappingProxyType(
    {
        MigrationPhase.REQUESTED: (
            *(_OVER, _refused, _STAYS, _NO_TARGET, _FULL),
            # its agent lets it work no more from then on, whoever ends its pod
            *(_to(MigrationPhase.IMAGE_PUSHED, lambda f: f.image_pushed), _GONE, _SILENT),
        ),
        # its old pod may be gone by now: the image is all that is needed
        MigrationPhase.IMAGE_PUSHED: (
            _to(MigrationPhase.POD_CREATED, lambda f: f.pod_created),
            _OVER,
            _refused,
            _NO_TARGET,
            _FULL,
            _drains,
        ),
        MigrationPhase.POD_CREATED: (
            *(_to(MigrationPhase.RESTORED, lambda f: f.value_printed), _OVER),
            # the image is as it was: another pod goes on from it (its agent was away for a moment, say)
            *(_to(MigrationPhase.IMAGE_PUSHED, lambda f: f.rejected), _LOST, _NOWHERE, _broken),
        ),
        MigrationPhase.RESTORED: (),
        MigrationPhase.FAILED: (),
    }
)


def next_step(phase: MigrationPhase, facts: MigrationFacts) -> MigrationStep | None:
    """Where it goes from here; None: it stays."""
    return next((moved for rule in TABLE[phase] if (moved := rule(facts)) is not None), None)
