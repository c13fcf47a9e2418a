"""How attempts ended whose end no status has reported. Pure; called by `observation` for each trial.

A reconcile that observes a pod's end creates the next pod and stores Requeued. It may be unable to store that (another
writer changed the status, or the operator ended in between). Then the next reconcile sees the new pod beside a status
of the attempt before. The end is counted and reported from what is known of the ended pod.
"""

from __future__ import annotations

from podium_core.domain.observe import PodEnd, classify_end, classify_missing_pod
from podium_core.domain.phase import FINAL, TrialPhase
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.trial_state import TrialState


def unreported_ends(cluster: ClusterState, trial: TrialState, attempt: int) -> tuple[PodEnd, ...]:
    """Return the unreported ends of the attempts before the present one, `attempt`; the oldest first."""
    status = trial.status
    if attempt <= status.attempt or status.phase in FINAL:
        return ()
    pods = {pod.attempt: pod for pod in cluster.pods_by_trial.get(trial.metadata.uid, ())}
    if attempt in pods and pods[attempt].facts.migrated:
        return ()  # the attempt before continues in this pod
    deleted = cluster.deleted_pods.get(trial.metadata.uid)
    written = status.attempt + (status.phase is TrialPhase.REQUEUED)
    ends = []
    for number in range(written, attempt):
        reason = status.reason if number == status.attempt else ""
        last = deleted if deleted is not None and deleted.attempt == number else None
        ends.append(classify_end(pods[number].facts) if number in pods else _end_of_deleted_pod(last, reason))
    return tuple([end for end in ends if end.kind in ("Disrupted", "TrialFailure")])


def _end_of_deleted_pod(last: PodState | None, reason: str) -> PodEnd:
    """Return how a deleted pod ended.

    `last` is the pod's last observed state, None if it is unknown; `reason` is stored with the trial's phase.
    """
    if last is None:
        return classify_missing_pod(reason, "")
    end = classify_end(last.facts)
    return end if end.kind != "NotEnded" else classify_missing_pod(last.facts.requeue or reason, last.facts.disruption)
