"""Actions that are postponed to a later reconcile: after a refusal of the API server, or until a final report.

A refused action is tried again after a growing pause. The next attempt of a trial waits until the agent has reported
how far the attempt before came.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from podium_core.domain.backoff import backoff_pause
from podium_core.domain.observe import FINAL_REPORT_SECONDS, is_denial
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.trial_state import TrialState

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


class PostponedError(Exception):
    """An action is not tried in this reconcile: it counts neither as carried out nor as refused."""


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """Action that the API server refused (a quota, Pod Security, a webhook) `failures` times in sequence.

    One operator acts at a time, in reconciles: its pauses need no jitter.
    """

    message: str
    failures: int
    retry_at: float

    @property
    def in_backoff(self) -> bool:
        """Whether the pause has not ended."""
        return time.monotonic() < self.retry_at


def refused_again(before: RefusedAction | None, message: str) -> RefusedAction:
    """Return the refusal after `before`, which backs off twice as long."""
    failures = 1 if before is None else before.failures + 1
    return RefusedAction(message, failures, time.monotonic() + backoff_pause(failures, FIRST_PAUSE, LONGEST_PAUSE))


def exceeds_quota(message: str) -> bool:
    """Return True if the API server refused an object because of a ResourceQuota, by its message."""
    return "exceeded quota" in message


class FinalReportWait:
    """Wait of a new attempt until the agent has written its final report of the attempt before.

    That report says how far the attempt came (the next one counts the lost work) and which checkpoint to continue from.
    A deleted pod is often gone from the API before its last checkpoint is in the trial's status. A script that keeps
    one checkpoint only has removed the older one by then. The agent closes the trial's GPU allocation in the same
    patch, so an open allocation means that the report is outstanding. The wait takes at most FINAL_REPORT_SECONDS.
    Only its start is remembered: a new operator starts to wait again.

    A restarted kubelet may deny a pod whose processes run, or are suspended without an allocation. They end later and
    write a checkpoint first. The agent lists the pod until then. The wait may last for its grace period in addition.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def may_continue(self, cluster: ClusterState, trial: TrialState, now: float) -> bool:
        """Return True if the next attempt may start. `now`: seconds of a monotonic clock."""
        uid = trial.metadata.uid
        grace = self._grace_of_denied(cluster, trial)
        if grace is None and not self._is_outstanding(cluster, trial):
            self._since.pop(uid, None)
            return True
        return now - self._since.setdefault(uid, now) >= FINAL_REPORT_SECONDS + (grace or 0.0)

    def forget(self, cluster: ClusterState) -> None:
        """Forget trials that do not exist any more."""
        there = {trial.metadata.uid for trial in cluster.trials}
        self._since = {uid: since for uid, since in self._since.items() if uid in there}

    def _is_outstanding(self, cluster: ClusterState, trial: TrialState) -> bool:
        """Return True if an agent that responds has not closed the trial's last GPU allocation."""
        if not trial.status.allocations or trial.status.allocations[-1].end is not None:
            return False
        return _has_agent(cluster, trial.status.allocations[-1].node)

    def _grace_of_denied(self, cluster: ClusterState, trial: TrialState) -> float | None:
        """Return the grace period of a denied pod whose agent still sees its processes; None without one."""
        pod, job = cluster.latest_pod.get(trial_key(trial)), cluster.job_by_key.get(job_key(trial))
        if pod is None or job is None or pod.uid not in cluster.gpus_by_pod or not _has_agent(cluster, pod.facts.node):
            return None
        denied = pod.facts.phase == "Failed" and is_denial(pod.facts.reason)
        return float(job.spec.suspension.grace_period_seconds) if denied else None


def _has_agent(cluster: ClusterState, node: str | None) -> bool:
    """Return True if the agent of this node responds."""
    return node not in cluster.unresponsive and any(there.metadata.name == node for there in cluster.nodes)
