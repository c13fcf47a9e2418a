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

METHOD = "container-checkpoint"
ASKED_SECONDS = 1200.0  # for an agent to answer: it gives checkpoint and push 300 s each, and may be restarted
BROKEN_SECONDS = 60.0  # a new pod whose image or container is in trouble for so long will not start


class CarryPhase(StrEnum):
    """`Asked`: it gets no turn, is suspended, and its agent makes the image; `Pushed`: the image is in the registry;
    `Created`: its new pod is there and the old one goes; `Arrived`: it has printed a value there."""

    REQUESTED = "Requested"
    IMAGE_PUSHED = "ImagePushed"
    POD_CREATED = "PodCreated"
    RESTORED = "Restored"
    FAILED = "Failed"


# it may get no turn: what it computed after the checkpoint would be computed again
HELD: frozenset[CarryPhase] = frozenset({CarryPhase.REQUESTED, CarryPhase.IMAGE_PUSHED})
OPEN: frozenset[CarryPhase] = HELD | {CarryPhase.POD_CREATED}
NO_TROUBLE = frozenset({"TrialEnded", "DrainCancelled"})  # codes: it need not be carried any more
# codes of what passes: it is asked again while its node drains, once its agent has surely seen the end of this ask
PASSING = frozenset({"DrainCancelled", "TargetFull", "TargetUnavailable"})
REST_SECONDS = 5.0
LEVELS_AGAIN_SECONDS = 600.0  # after which one that fell back is carried again to level the GPUs
DRAINED_SECONDS = 1800.0  # for which an image, all that is left of the trial, waits for a node that drains
TARGET_DRAINING = "TargetDraining"  # code of `Pushed` while it does so: the phase is then as old as that
UNDONE = "Its node takes trials again: it goes on there."


@dataclass(frozen=True, slots=True)
class CarryFacts:
    """One look. `old_pod`, `new_pod`: it is there, has not ended and is not told to go; `made`: a pod of the new
    attempt is there in any state; `rejected`: its kubelet did not take it, so that nothing of it ever ran; `refusal`:
    (code, sentence) of the agent, or of the API server for the new pod; `pushed`: the agent named the image; `printed`:
    the new pod has printed a value; `broken`: why the new pod cannot start, empty: it can; `trying`: seconds for which
    its containers could begin; `target`: the node that it goes to is there; `takes`: and does not drain; `waits`: it is
    stored that it drains; `room`: and the share that it was promised there is no other's; `bound`: the new pod has its
    node; `age`: seconds since the phase began."""

    age: float = 0.0
    over: bool = False  # the trial has ended
    draining: bool = True
    old_pod: bool = True
    made: bool = False
    new_pod: bool = False
    rejected: bool = False
    refusal: tuple[str, str] | None = None
    pushed: bool = False
    printed: bool = False
    broken: str = ""
    trying: float = 0.0
    target: bool = True
    takes: bool = True
    waits: bool = False
    room: bool = True
    bound: bool = True


@dataclass(frozen=True, slots=True)
class Moved:
    """`code` and `message` say why, where it fell back or waits."""

    phase: CarryPhase
    code: str = ""
    message: str = ""


_Rule = Callable[[CarryFacts], Moved | None]
_BACK = CarryPhase.FAILED


def _back(code: str, message: str, when: Callable[[CarryFacts], bool]) -> _Rule:
    return lambda facts: Moved(_BACK, code, message) if when(facts) else None


def _to(phase: CarryPhase, when: Callable[[CarryFacts], bool]) -> _Rule:
    return lambda facts: Moved(phase) if when(facts) else None


def _drains(facts: CarryFacts) -> Moved | None:
    """The time for which it waits begins as its target drains, however long the image has been there."""
    if facts.takes is not facts.waits:
        return None
    told = () if facts.takes else (TARGET_DRAINING, "Its image waits for that node to take trials again.")
    return Moved(CarryPhase.IMAGE_PUSHED, *told)


def _refused(facts: CarryFacts) -> Moved | None:
    return None if facts.refusal is None else Moved(_BACK, *facts.refusal)


def _broken(facts: CarryFacts) -> Moved | None:
    if not facts.broken or facts.trying < BROKEN_SECONDS:
        return None
    return Moved(_BACK, "RestoreFailed", f"Its new pod does not start: {facts.broken}")


_OVER = _back("TrialEnded", "The trial ended meanwhile.", lambda f: f.over)
_STAYS = _back("DrainCancelled", UNDONE, lambda f: f.old_pod and not f.draining)
_GONE = _back("PodDeleted", "Its pod went before its image was made.", lambda f: not f.old_pod)
_SILENT = _back(
    "AgentTimeout",
    f"Its agent made no image within {ASKED_SECONDS:g} s: see the agent's log.",
    lambda f: f.age >= ASKED_SECONDS,
)
# with its old pod gone all that it did is in the image, which waits: for a drain to be undone, or for a share
_NO_TARGET = _back(
    "TargetUnavailable",
    "The node that it was to go to takes no trials any more.",
    lambda f: not f.takes and (f.old_pod or not f.target or (f.waits and f.age >= DRAINED_SECONDS)),
)
_FULL = _back(
    "TargetFull",
    "The shares that it was to get are gone (other pods have them, or a GPU is ill): it goes on where it is, and is "
    "tried again when some are free.",
    lambda f: f.old_pod and not f.room,
)
_NOWHERE = _back("RestoreFailed", "The node that its new pod waits for is gone.", lambda f: not (f.target or f.bound))
_LOST = _back("RestoreFailed", "Its new pod ended before it printed a value.", lambda f: not f.new_pod)

# the first rule that holds wins; none: the phase stands
TABLE: Mapping[CarryPhase, tuple[_Rule, ...]] = MappingProxyType(
    {
        CarryPhase.REQUESTED: (
            *(_OVER, _refused, _STAYS, _NO_TARGET, _FULL),
            # its agent lets it work no more from then on, whoever ends its pod
            *(_to(CarryPhase.IMAGE_PUSHED, lambda f: f.pushed), _GONE, _SILENT),
        ),
        # its old pod may be gone by now: the image is all that is needed
        CarryPhase.IMAGE_PUSHED: (
            _to(CarryPhase.POD_CREATED, lambda f: f.made),
            _OVER,
            _refused,
            _NO_TARGET,
            _FULL,
            _drains,
        ),
        CarryPhase.POD_CREATED: (
            *(_to(CarryPhase.RESTORED, lambda f: f.printed), _OVER),
            # the image is as it was: another pod goes on from it (its agent was away for a moment, say)
            *(_to(CarryPhase.IMAGE_PUSHED, lambda f: f.rejected), _LOST, _NOWHERE, _broken),
        ),
        CarryPhase.RESTORED: (),
        CarryPhase.FAILED: (),
    }
)


def follow(phase: CarryPhase, facts: CarryFacts) -> Moved | None:
    """Where it goes from here; None: it stays."""
    return next((moved for rule in TABLE[phase] if (moved := rule(facts)) is not None), None)
