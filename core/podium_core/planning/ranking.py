"""Each unfinished trial's standing: its job, its policy and its rank. The one place where the planner calls
policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import repeat
from typing import NamedTuple

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.completion import Closing
from podium_core.policies.base import Admission, Policy, Ranked
from podium_core.policies.fifo import Fifo
from podium_core.policies.registry import PolicyError, create

_WORKING = frozenset({TrialPhase.RUNNING, TrialPhase.SUSPENDING, TrialPhase.RESUMING})


class RankingError(Exception):
    """A policy failed on the trials of `job`: a fault of ours, which the others need not suffer from."""

    def __init__(self, job: JobKey, policy: str) -> None:
        super().__init__(f"policy {policy} could not rank its trials")
        self.job = job


class Standing(NamedTuple):
    """A tuple, not a dataclass: a plan makes one for each unfinished trial."""

    trial: TrialView
    job: JobView
    policy: Policy
    ranked: Ranked

    @property
    def name(self) -> str:
        return self.trial.key.name

    @property
    def stops(self) -> bool:
        """Its policy ends it. A pin goes before the policy's word, and so does the end of its training."""
        return self.ranked.admission is Admission.STOP and not self.trial.pinned and not self._trained

    @property
    def paused(self) -> bool:
        """Its policy gives it no GPU now, not even an idle one. Without a pin, that is; and one that works and cannot
        be frozen goes on, last in rank, until somebody wants its place.
        """
        if self.ranked.admission is not Admission.WAIT or self.trial.pinned or self.job.gpus_per_trial == 0:
            return False
        return (self.job.suspendable or self.trial.phase not in _WORKING) and not self._trained

    @property
    def _trained(self) -> bool:
        """It has done maxSteps: there is no more to give up, and it may still save its model."""
        curve, steps = self.trial.curve, self.job.max_steps
        return steps is not None and bool(curve) and curve[-1].step >= steps


# as `Standing(*facts)` is, without a call of Python code for each
_standing: partial[Standing] = partial(tuple.__new__, Standing)


def standings(snapshot: Snapshot, closing: Closing) -> Mapping[TrialKey, Standing]:
    """The unfinished trials of unfinished jobs, by job key then rank. Raises RankingError. O(points + n log n)."""
    found: dict[TrialKey, Standing] = {}
    for job in sorted(snapshot.jobs, key=lambda j: j.key):
        mine = closing.live.get(job.key, ())
        if job.key in closing.jobs or not mine:
            continue
        policy = policy_of(job)
        by_key = {trial.key: trial for trial in mine}
        try:
            ranking = tuple(policy.rank(job, mine, snapshot))
        except Exception as error:
            raise RankingError(job.key, policy.name) from error
        keys = [ranked.trial for ranked in ranking]
        facts = zip(map(by_key.__getitem__, keys), repeat(job), repeat(policy), ranking)
        found.update(zip(keys, map(_standing, facts), strict=True))
    return found


def policy_of(job: JobView) -> Policy:
    """The job's policy; one that validation should have refused is run as fifo rather than stopping every other
    job's plan.
    """
    try:
        return create(job.policy, job.settings)
    except PolicyError:
        return Fifo()
