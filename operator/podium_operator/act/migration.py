"""Live migration of a trial to another node (`container-checkpoint`). Pure.

This module decides the stored phase, what the agent is asked, and the pod in which the trial continues. The operator
asks by the annotation `podium.dev/migrate` on the pod (its value: the target node). The agent answers in the trial's
status (`containerCheckpoint`). The operator's own part is `status.migration`; `domain.migration` has the transitions.
The reconciler, actuator, snapshot and pod_manifest use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from podium_core.domain.actions import Migrate
from podium_core.domain.keys import TrialKey
from podium_core.domain.migration import (
    DRAIN_CANCELLED_MESSAGE,
    IN_PROGRESS,
    REBALANCING_RETRY_SECONDS,
    RETRIABLE_CODES,
    RETRY_SECONDS,
    TARGET_DRAINING,
    MigrationFacts,
    MigrationPhase,
    NewPodFacts,
    TargetFacts,
    next_step,
)
from podium_core.domain.phase import FINAL
from podium_core.domain.rebalancing import REBALANCING
from podium_core.schema.trial import ContainerCheckpoint, Migration
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import Observation
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.trial_state import TrialState

ENDED = ("Succeeded", "Failed")
TRANSIENT_REASONS = ("", "ErrImagePull")  # tried again at once; ImagePullBackOff follows if that does not help


@dataclass(frozen=True, slots=True)
class MigrationNews:
    """Facts about migrations that a reconcile knows in addition to the objects.

    - `requested`: migrations that the planner decided
    - `refused`: trials whose new pod the API server refused, with its message
    - `sent`: trials whose new pod was sent recently, so it may exist before the cluster state shows it
    - `slots_taken`: trials whose promised slots other pods use now
    """

    requested: Mapping[TrialKey, Migrate] = field(default_factory=dict)
    refused: Mapping[TrialKey, str] = field(default_factory=dict)
    sent: Collection[TrialKey] = ()
    slots_taken: Collection[TrialKey] = ()


def migrations_to_store(
    cluster: ClusterState, observations: Mapping[TrialKey, Observation], news: MigrationNews
) -> Mapping[TrialKey, Migration]:
    """Return the migrations to store now."""
    migrations: dict[TrialKey, Migration] = {}
    for trial in cluster.trials:
        key = trial_key(trial)
        stored = trial.status.migration
        if (
            stored is not None
            and stored.phase is MigrationPhase.IMAGE_PUSHED
            and key in news.sent
            and _new_pod(cluster, trial) is None
        ):
            after: Migration | None = stored  # a failure now would delete both pods
        else:
            after = _next_migration(cluster, trial, observations[key], news)
        if after is not None:
            migrations[key] = after
    return migrations


def annotation_changes(cluster: ClusterState) -> Iterator[tuple[PodState, str]]:
    """Yield the pods whose annotation has to change, with its new value; empty: remove it.

    The annotation is removed only where the migration failed: the agent then removes the image.
    """
    for trial in cluster.trials:
        stored = trial.status.migration
        for pod in cluster.pods_by_trial.get(trial_key(trial), ()):
            asked = stored is not None and stored.pod_uid == pod.uid and stored.phase is not MigrationPhase.FAILED
            wanted = stored.target_node if stored is not None and asked else ""
            if pod.migrate_to != wanted and (_is_live(pod) or (not wanted and pod.facts.phase not in ENDED)):
                yield pod, wanted


def migration_of_attempt(cluster: ClusterState, trial: TrialState, attempt: int) -> Migration | None:
    """Return the migration whose image this attempt continues from, or None."""
    stored = trial.status.migration
    if stored is None or stored.phase not in IN_PROGRESS:
        return None
    new = _new_pod(cluster, trial)
    if attempt == stored.attempt + 1 and new is not None and _rejected(new):
        return stored.model_copy(update={"attempt": attempt})
    if attempt != stored.attempt:
        return None
    answer = _agent_answer(trial, stored)
    if stored.phase is MigrationPhase.REQUESTED and answer is not None and answer.image:  # and the old pod is gone
        return stored.model_copy(update={"image": answer.image, "gpu_state": answer.gpu_state})
    return stored if stored.phase is MigrationPhase.IMAGE_PUSHED else None


def accepts_trials(cluster: ClusterState, node: str) -> bool:
    """Return True if the node accepts trials."""
    return any(one.metadata.name == node and not one.spec.draining for one in cluster.nodes)


def migration_of_pod(trial: TrialState, pod: PodState | None) -> tuple[MigrationPhase | None, bool]:
    """Return the migration phase of the trial's present pod, and whether the pod is the new one."""
    stored = trial.status.migration
    if stored is None or pod is None:
        return None, False
    if pod.uid == stored.pod_uid:
        return stored.phase, False
    # the attempt may be later by one: the first new pod was rejected, which is not stored yet
    if pod.migrated and pod.attempt >= stored.attempt and stored.phase is not MigrationPhase.RESTORED:
        return stored.phase, True
    return None, False


def _next_migration(
    cluster: ClusterState, trial: TrialState, observation: Observation, news: MigrationNews
) -> Migration | None:
    """Return the migration to store for one trial, or None."""
    stored, pod, requested = trial.status.migration, observation.pod, news.requested.get(trial_key(trial))
    if requested is not None and pod is not None:
        return Migration(
            phase=MigrationPhase.REQUESTED,
            since=_to_datetime(cluster.now),
            pod_uid=pod.uid,
            attempt=observation.attempts.number + 1,
            source_node=observation.node or "",
            target_node=requested.target,
            reason=requested.reason,
        )
    if stored is None:
        return None
    draining = _must_leave(cluster, stored)
    if stored.phase not in IN_PROGRESS:
        if stored.phase is not MigrationPhase.FAILED or pod is None or pod.uid != stored.pod_uid:
            return stored
        for_drain = stored.reason != REBALANCING
        rested = cluster.now - stored.since.timestamp() >= RETRY_SECONDS
        retry = not draining or (for_drain and stored.code in RETRIABLE_CODES and rested)
        # try again only after nothing is left of the failed migration: the agent's answer may name an image of an
        # earlier state of the trial
        if retry and not pod.migrate_to and _agent_answer(trial, stored) is None:
            return None
        cancelled = for_drain and not draining and stored.code not in RETRIABLE_CODES
        # stored, because the node may drain again before everything is cleared away: then the trial is tried again
        return (
            stored.model_copy(update={"code": "DrainCancelled", "message": DRAIN_CANCELLED_MESSAGE})
            if cancelled
            else stored
        )
    facts = _facts(cluster, trial, observation, stored, news)
    step = next_step(stored.phase, facts)
    if step is None:
        return stored
    answer = trial.status.container_checkpoint
    changes = {"code": step.code, "message": step.message}
    if stored.phase is MigrationPhase.REQUESTED and step.phase is MigrationPhase.IMAGE_PUSHED and answer is not None:
        changes |= {"image": answer.image, "gpu_state": answer.gpu_state}
    again = stored.phase is MigrationPhase.POD_CREATED and step.phase is MigrationPhase.IMAGE_PUSHED
    attempt = stored.attempt + 1 if again else stored.attempt
    return stored.model_copy(
        update={"phase": step.phase, "since": _to_datetime(cluster.now), "attempt": attempt, **changes}
    )


def _facts(
    cluster: ClusterState, trial: TrialState, observation: Observation, stored: Migration, news: MigrationNews
) -> MigrationFacts:
    """Return the facts that decide the next phase of a migration in progress."""
    pods = cluster.pods_by_trial.get(trial_key(trial), ())
    old = next((pod for pod in pods if pod.uid == stored.pod_uid), None)
    new = _new_pod(cluster, trial)
    answer, cursor = _agent_answer(trial, stored), trial.status.log_cursor
    refused = news.refused.get(trial_key(trial))
    refusal = None if refused is None else ("PodRefused", refused)
    if answer is not None and answer.code:
        refusal = (answer.code, answer.message)
    start_problem = ""
    if new is not None and new.facts.wait.container not in TRANSIENT_REASONS:
        start_problem = f"{new.facts.wait.container}: {new.facts.message}"
    return MigrationFacts(
        age=cluster.now - stored.since.timestamp(),
        trial_ended=observation.phase in FINAL,
        draining=_must_leave(cluster, stored),
        old_pod=old is not None and _is_live(old),
        refusal=refusal,
        image_pushed=answer is not None and bool(answer.image),
        new_pod=NewPodFacts(
            created=new is not None,
            live=new is not None and new.facts.phase != "Failed" and not new.facts.deleting,
            rejected=new is not None and _rejected(new),
            value_printed=new is not None
            and cursor is not None
            and cursor.pod_uid == new.uid
            and not cursor.awaiting_first_value,
            start_problem=start_problem,
            starting_seconds=cluster.now
            - max(stored.since.timestamp(), new.startable_since if new is not None else 0.0),
            bound=new is not None and new.facts.node is not None,
        ),
        target=TargetFacts(
            exists=any(one.metadata.name == stored.target_node for one in cluster.nodes),
            accepts=accepts_trials(cluster, stored.target_node),
            waiting_for_drain=stored.code == TARGET_DRAINING,
            slots_free=trial_key(trial) not in news.slots_taken,
        ),
    )


def _new_pod(cluster: ClusterState, trial: TrialState) -> PodState | None:
    """Return the new pod of the migration, or None."""
    stored = trial.status.migration
    if stored is None:
        return None
    return next((pod for pod in cluster.pods_by_trial.get(trial_key(trial), ()) if pod.attempt == stored.attempt), None)


def _rejected(pod: PodState) -> bool:
    """Return True if the kubelet rejected the pod: not even its gate ran."""
    return pod.facts.phase == "Failed" and pod.facts.gate == "Waiting"


def _agent_answer(trial: TrialState, stored: Migration) -> ContainerCheckpoint | None:
    """Return the agent's answer to this migration, or None."""
    answer = trial.status.container_checkpoint
    return answer if answer is not None and answer.pod_uid == stored.pod_uid else None


def _is_live(pod: PodState) -> bool:
    """Return True if the pod has not ended and is not being deleted."""
    return pod.facts.phase not in ENDED and not pod.facts.deleting


def _must_leave(cluster: ClusterState, stored: Migration) -> bool:
    """Return True if the trial still has to leave its node.

    A failed rebalancing is not tried again at once; a node that drains meanwhile takes precedence.
    """
    drains = _is_draining(cluster, stored.source_node)
    if stored.reason != REBALANCING:
        return drains
    if stored.phase in IN_PROGRESS:
        return True
    return not drains and cluster.now - stored.since.timestamp() < REBALANCING_RETRY_SECONDS


def _is_draining(cluster: ClusterState, node: str) -> bool:
    return any(one.metadata.name == node and one.spec.draining for one in cluster.nodes)


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
