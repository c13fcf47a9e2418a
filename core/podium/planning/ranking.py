"""Each unfinished trial's standing: its job, its policy and its rank. The one place where the planner calls
policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podium.domain.phase import FINAL
from podium.domain.snapshot import JobKey, JobView, Snapshot, TrialKey, TrialView
from podium.planning.completion import Closing
from podium.policies.base import Policy, Ranked
from podium.policies.fifo import Fifo
from podium.policies.registry import PolicyError, create


@dataclass(frozen=True, slots=True)
class Standing:
    trial: TrialView
    job: JobView
    policy: Policy
    ranked: Ranked

    @property
    def name(self) -> str:
        return self.trial.key.name


def standings(snapshot: Snapshot, closing: Closing) -> Mapping[TrialKey, Standing]:
    """The unfinished trials of unfinished jobs, by job key then rank. O(points + n log n)."""
    trials: dict[JobKey, list[TrialView]] = {}
    for trial in snapshot.trials:
        if trial.phase not in FINAL and trial.key not in closing.trials:
            trials.setdefault(trial.job, []).append(trial)
    found: dict[TrialKey, Standing] = {}
    for job in sorted(snapshot.jobs, key=lambda j: j.key):
        if job.key in closing.jobs or job.key not in trials:
            continue
        policy = policy_of(job)
        by_key = {trial.key: trial for trial in trials[job.key]}
        for ranked in policy.rank(job, sorted(by_key.values(), key=lambda t: t.key), snapshot):
            found[ranked.trial] = Standing(by_key[ranked.trial], job, policy, ranked)
    return found


def policy_of(job: JobView) -> Policy:
    """The job's policy; one that validation should have refused is run as fifo rather than stopping every other
    job's plan.
    """
    try:
        return create(job.policy, job.settings)
    except PolicyError:
        return Fifo()
