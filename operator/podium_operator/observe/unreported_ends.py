"""How attempts ended of which no status ever said so. Pure; called by `observed` for each trial.

A cycle that finds a pod at its end makes the next one and stores Requeued. Where that status was somebody else's to
write just then, or the operator died in between, the next cycle sees the new pod beside a status of the attempt before:
the end is then counted and told from what is left of the dead pod.
"""

from __future__ import annotations

from podium_core.domain.observe import PodEnd, classify_end, classify_missing_pod
from podium_core.domain.phase import FINAL, TrialPhase
from podium_operator.observe.cluster_state import World
from podium_operator.observe.pod_state import SeenPod
from podium_operator.observe.trial_state import SeenTrial


def unwritten(world: World, trial: SeenTrial, attempt: int) -> tuple[PodEnd, ...]:
    """Of the attempts before `attempt`, the present one; the oldest first."""
    status = trial.status
    if attempt <= status.attempt or status.phase in FINAL:
        return ()
    pods = {pod.attempt: pod for pod in world.pods_of.get(trial.metadata.uid, ())}
    if attempt in pods and pods[attempt].facts.migrated:
        return ()  # the attempt before it goes on there
    gone = world.gone.get(trial.metadata.uid)
    written = status.attempt + (status.phase is TrialPhase.REQUEUED)
    found = []
    for number in range(written, attempt):
        reason = status.reason if number == status.attempt else ""
        last = gone if gone is not None and gone.attempt == number else None
        found.append(classify_end(pods[number].facts) if number in pods else _gone(last, reason))
    return tuple([end for end in found if end.kind in ("Disrupted", "TrialFailure")])


def _gone(last: SeenPod | None, reason: str) -> PodEnd:
    """`last`: the pod as it was when it was last seen, None: nobody knows; `reason`: stored with its trial's phase."""
    if last is None:
        return classify_missing_pod(reason, "")
    end = classify_end(last.facts)
    return end if end.kind != "NotEnded" else classify_missing_pod(last.facts.requeue or reason, last.facts.disruption)
