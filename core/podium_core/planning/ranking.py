"""Standing of each unfinished trial: its job, policy and rank. The only place where the planner calls policies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import repeat
from typing import NamedTuple

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.completion import Closing
from podium_core.policies.base import Admission, Policy, Ranked
from podium_core.policies.fifo import Fifo
from podium_core.policies.registry import PolicyError, create

_WORKING = frozenset({TrialPhase.RUNNING, TrialPhase.SUSPENDING, TrialPhase.RESUMING})


class RankingError(Exception):
    """A policy failed on the trials of `job`: a bug in Podium, which must not affect other jobs."""

    def __init__(self, job: JobKey, policy: str) -> None:
        super().__init__(f"policy {policy} could not rank its trials")
        self.job = job


class Standing(NamedTuple):
    """A trial with its job, policy and rank.

    A tuple, not a dataclass: a plan creates one for each unfinished trial.
    """

    trial: TrialView
    job: JobView
    policy: Policy
    ranked: Ranked

    @property
    def name(self) -> str:
        """Return the name of the trial."""
        return self.trial.key.name

    @property
    def suspended_by_user(self) -> bool:
        """Return whether the user has suspended the trial or the job."""
        return self.trial.intent.suspend or self.job.state.suspended

    @property
    def stops(self) -> bool:
        """Return whether the policy ends the trial. A pin or the end of its training takes precedence."""
        return self.ranked.admission is Admission.STOP and not self.trial.intent.pinned and not self._trained

    @property
    def paused(self) -> bool:
        """Return whether the policy gives the trial no GPU now, not even an idle one.

        A pinned trial is never paused. A running trial that cannot be suspended continues, last in rank, until another
        trial needs its GPU.
        """
        if self.ranked.admission is not Admission.WAIT or self.trial.intent.pinned or self.job.gpus.per_trial == 0:
            return False
        return (self.job.abilities.suspendable or self.trial.phase not in _WORKING) and not self._trained

    @property
    def _trained(self) -> bool:
        """Return whether the trial has done maxSteps.

        Nothing can be saved by its end, and it may still write its model.
        """
        curve, steps = self.trial.curve, self.job.max_steps
        return steps is not None and bool(curve) and curve[-1].step >= steps


# Equal to `Standing(*facts)`, without a call of Python code for each.
_standing: partial[Standing] = partial(tuple.__new__, Standing)


def standings(snapshot: Snapshot, closing: Closing) -> Mapping[TrialKey, Standing]:
    """Return the unfinished trials of unfinished jobs, by job key, then rank.

    Raises RankingError. O(points + n log n).
    """
    result: dict[TrialKey, Standing] = {}
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
        result.update(zip(keys, map(_standing, facts), strict=True))
    return result


def policy_of(job: JobView) -> Policy:
    """Return the job's policy.

    An invalid policy, which validation should have refused, is replaced by fifo, so that the other jobs get their plan.
    """
    try:
        return create(job.policy, job.settings)
    except PolicyError:
        return Fifo()
