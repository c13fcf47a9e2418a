"""Random search by Optuna's RandomSampler: trial k is drawn from a generator seeded by (seed, k) alone."""

from __future__ import annotations

from collections.abc import Sequence

import optuna

from podium_core.schema.job import JobSpec
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import sample, seed_of


class RandomSearcher:
    """Proposes random points."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a random point that depends only on the seed and the number."""
        sampler = optuna.samplers.RandomSampler(seed=seed_of(spec.search.seed, number))
        return sample(spec, sampler)

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None
