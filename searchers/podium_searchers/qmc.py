"""Quasi-random search: the scrambled Sobol sequence of scipy (Sobol 1967, Owen 1998), which fills the space evenly.

Trial k gets point k of the sequence, so a proposal depends on the seed and the number alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import active_values
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import seed_of
from podium_searchers.unit_cube import from_unit


class QmcSearcher:
    """Proposes the points of a scrambled Sobol sequence."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return point `number` of the sequence; the values of inactive parameters are left out."""
        from scipy.stats import qmc  # a second and 60 MB that the other searchers do not need

        engine = qmc.Sobol(len(spec.parameters), scramble=True, rng=seed_of(spec.search.seed, 0))
        if number:
            engine.fast_forward(number)
        shares = engine.random(1)[0]
        values = {one.name: from_unit(one, float(share)) for one, share in zip(spec.parameters, shares, strict=True)}
        return active_values(spec, values)

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None
