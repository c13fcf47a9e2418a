"""Live migration of a trial to another node (`container-checkpoint`). Pure.

This module decides the stored phase, what the agent is asked, and the pod in which the trial continues. The operator
asks by the annotation `podium.dev/migrate` on the pod (its value: the target node). The agent answers in the trial's
status (`containerCheckpoint`). The operator's own part is `status.migration`; `domain.migration` has the transitions.
Used by reconciler, actuator, snapshot and pod_manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from podium_core.domain.actions import Migrate
from podium_core.domain.migration import (
    DRAIN_CANCELLED_MESSAGE,
    IN_PROGRESS,
    REBALANCING_RETRY_SECONDS,
    RETRIABLE_CODES,
    RETRY_SECONDS,
    TARGET_DRAINING,
    MigrationFacts,
    MigrationPhase,
    next_step,
)
from podium_core.domain.phase import FINAL
from podium_core.domain.rebalancing import REBALANCING
from podium_core.domain.snapshot import TrialKey
from podium_core.schema.trial import ContainerCheckpoint, Migration
from podium_operator.observe.cluster_state import World, trial_key
from podium_operator.observe.observation import Sight
from podium_operator.observe.pod_state import SeenPod
from podium_operator.observe.trial_state import SeenTrial

ENDED = ("Succeeded", "Failed")
TRANSIENT_REASONS = ("", "ErrImagePull")  # tried again at once; ImagePullBackOff follows if that does not help


def carryings(
    world: World,
    sights: Mapping[TrialKey, Sight],
    asked: Mapping[TrialKey, Migrate],
    refused: Mapping[TrialKey, str],
    sent: Collection[TrialKey] = (),
    crowded_out: Collection[TrialKey] = (),
) -> Mapping[TrialKey, Migration]:
    """Return the migrations to store now.

    `asked`: as the planner decided; `refused`: new pods that the API server refused, with its message; `sent`: trials
    whose new pod was sent recently, so it may exist before `world` shows it; `crowded_out`: trials whose promised slots
    are used by other pods now.
    """
    found: dict[TrialKey, Migration] = {}
    for trial in world.trials:
        key = trial_key(trial)
        stored = trial.status.migration
        if (
            stored is not None
            and stored.phase is MigrationPhase.IMAGE_PUSHED
            and key in sent
            and _new(world, trial) is None
        ):
            after: Migration | None = stored  # a failure now would delete both pods
        else:
            room = key not in crowded_out
            after = _after(world, trial, sights[key], asked.get(key), refused.get(key), room=room)
        if after is not None:
            found[key] = after
    return found


def asks(world: World) -> Iterator[tuple[SeenPod, str]]:
    """Yield the pods whose annotation has to change, with its new value; empty: remove it.

    The annotation is removed only where the migration failed: the agent then removes the image.
    """
    for trial in world.trials:
        stored = trial.status.migration
        for pod in world.pods_of.get(trial.metadata.uid, ()):
            leaves = stored is not None and stored.pod_uid == pod.uid and stored.phase is not MigrationPhase.FAILED
            wanted = stored.target_node if stored is not None and leaves else ""
            if pod.carry != wanted and (_lives(pod) or (not wanted and pod.facts.phase not in ENDED)):
                yield pod, wanted


def arrival(world: World, trial: SeenTrial, attempt: int) -> Migration | None:
    """Return the migration whose image this attempt continues from, or None."""
    stored = trial.status.migration
    if stored is None or stored.phase not in IN_PROGRESS:
        return None
    new = _new(world, trial)
    if attempt == stored.attempt + 1 and new is not None and _rejected(new):
        return stored.model_copy(update={"attempt": attempt})
    if attempt != stored.attempt:
        return None
    answer = _answer(trial, stored)
    if stored.phase is MigrationPhase.REQUESTED and answer is not None and answer.image:  # and the old pod is gone
        return stored.model_copy(update={"image": answer.image, "gpu_state": answer.gpu_state})
    return stored if stored.phase is MigrationPhase.IMAGE_PUSHED else None


def takes(world: World, node: str) -> bool:
    """Return True if the node accepts trials."""
    return any(one.metadata.name == node and not one.spec.draining for one in world.nodes)


def standing(trial: SeenTrial, pod: SeenPod | None) -> tuple[MigrationPhase | None, bool]:
    """Return the migration phase of the trial's present pod, and whether the pod is the new one."""
    stored = trial.status.migration
    if stored is None or pod is None:
        return None, False
    if pod.uid == stored.pod_uid:
        return stored.phase, False
    # the attempt may be later by one: the first new pod was rejected, which is not stored yet
    if pod.carried and pod.attempt >= stored.attempt and stored.phase is not MigrationPhase.RESTORED:
        return stored.phase, True
    return None, False


def _after(
    world: World, trial: SeenTrial, sight: Sight, asked: Migrate | None, refused: str | None, *, room: bool
) -> Migration | None:
    """Return the migration to store for one trial, or None."""
    stored, pod = trial.status.migration, sight.pod
    if asked is not None and pod is not None:
        return Migration(
            phase=MigrationPhase.REQUESTED,
            since=_moment(world.now),
            pod_uid=pod.uid,
            attempt=sight.attempt + 1,
            source_node=sight.node or "",
            target_node=asked.target,
            reason=asked.reason,
        )
    if stored is None:
        return None
    draining = _wanted(world, stored)
    if stored.phase not in IN_PROGRESS:
        if stored.phase is not MigrationPhase.FAILED or pod is None or pod.uid != stored.pod_uid:
            return stored
        drained = stored.reason != REBALANCING
        rested = world.now - stored.since.timestamp() >= RETRY_SECONDS
        anew = not draining or (drained and stored.code in RETRIABLE_CODES and rested)
        # try again only after nothing is left of the failed migration: the agent's answer may name an image of an
        # earlier state of the trial
        if anew and not pod.carry and _answer(trial, stored) is None:
            return None
        undone = drained and not draining and stored.code not in RETRIABLE_CODES
        # stored, because the node may drain again before everything is cleared away: then the trial is tried again
        return (
            stored.model_copy(update={"code": "DrainCancelled", "message": DRAIN_CANCELLED_MESSAGE})
            if undone
            else stored
        )
    facts = _facts(world, trial, sight, stored, draining=draining, refused=refused, room=room)
    moved = next_step(stored.phase, facts)
    if moved is None:
        return stored
    departure = trial.status.container_checkpoint
    said = {"code": moved.code, "message": moved.message}
    if (
        stored.phase is MigrationPhase.REQUESTED
        and moved.phase is MigrationPhase.IMAGE_PUSHED
        and departure is not None
    ):
        said |= {"image": departure.image, "gpu_state": departure.gpu_state}
    again = stored.phase is MigrationPhase.POD_CREATED and moved.phase is MigrationPhase.IMAGE_PUSHED
    attempt = stored.attempt + 1 if again else stored.attempt
    return stored.model_copy(update={"phase": moved.phase, "since": _moment(world.now), "attempt": attempt, **said})


def _facts(
    world: World, trial: SeenTrial, sight: Sight, stored: Migration, *, draining: bool, refused: str | None, room: bool
) -> MigrationFacts:
    """Return the facts that decide the next phase of a migration in progress."""
    pods = world.pods_of.get(trial.metadata.uid, ())
    old = next((pod for pod in pods if pod.uid == stored.pod_uid), None)
    new = _new(world, trial)
    answer, reader = _answer(trial, stored), trial.status.log_cursor
    refusal = None if refused is None else ("PodRefused", refused)
    if answer is not None and answer.code:
        refusal = (answer.code, answer.message)
    broken = ""
    if new is not None and new.facts.waiting_reason not in TRANSIENT_REASONS:
        broken = f"{new.facts.waiting_reason}: {new.facts.message}"
    return MigrationFacts(
        age=world.now - stored.since.timestamp(),
        trial_ended=sight.phase in FINAL,
        draining=draining,
        old_pod=old is not None and _lives(old),
        pod_created=new is not None,
        new_pod=new is not None and new.facts.phase != "Failed" and not new.facts.deleting,
        rejected=new is not None and _rejected(new),
        refusal=refusal,
        image_pushed=answer is not None and bool(answer.image),
        value_printed=new is not None
        and reader is not None
        and reader.pod_uid == new.uid
        and not reader.awaiting_first_value,
        start_problem=broken,
        starting_seconds=world.now - max(stored.since.timestamp(), new.tries_since if new is not None else 0.0),
        target_exists=any(one.metadata.name == stored.target_node for one in world.nodes),
        target_accepts=takes(world, stored.target_node),
        waiting_for_drain=stored.code == TARGET_DRAINING,
        slots_free=room,
        pod_bound=new is not None and new.facts.node is not None,
    )


def _new(world: World, trial: SeenTrial) -> SeenPod | None:
    """Return the new pod of the migration, or None."""
    stored = trial.status.migration
    if stored is None:
        return None
    return next((pod for pod in world.pods_of.get(trial.metadata.uid, ()) if pod.attempt == stored.attempt), None)


def _rejected(pod: SeenPod) -> bool:
    """Return True if the kubelet rejected the pod: not even its gate ran."""
    return pod.facts.phase == "Failed" and pod.facts.gate == "Waiting"


def _answer(trial: SeenTrial, stored: Migration) -> ContainerCheckpoint | None:
    """Return the agent's answer to this migration, or None."""
    departure = trial.status.container_checkpoint
    return departure if departure is not None and departure.pod_uid == stored.pod_uid else None


def _lives(pod: SeenPod) -> bool:
    """Return True if the pod has not ended and is not being deleted."""
    return pod.facts.phase not in ENDED and not pod.facts.deleting


def _wanted(world: World, stored: Migration) -> bool:
    """Return True if the trial still has to leave its node.

    A failed rebalancing is not tried again at once; a node that drains meanwhile takes precedence.
    """
    drains = _drains(world, stored.source_node)
    if stored.reason != REBALANCING:
        return drains
    if stored.phase in IN_PROGRESS:
        return True
    return not drains and world.now - stored.since.timestamp() < REBALANCING_RETRY_SECONDS


def _drains(world: World, node: str) -> bool:
    return any(one.metadata.name == node and one.spec.draining for one in world.nodes)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
