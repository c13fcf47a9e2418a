"""The recommended algorithm: what measured best for the space and the number of results (`bench-searchers`).

- Ranges only: `qmc` until `startupTrials` trials have a value, then `tpe`; from `CMAES_FROM` values on, `cmaes`.
- With choices or conditions: `tpe`.
- With several objectives: `tpe` in place of `cmaes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import has_conditions
from podium_core.schema.search.membership import is_range
from podium_core.schema.search.settings import startup_trials
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.cmaes import CmaesSearcher
from podium_searchers.qmc import QmcSearcher
from podium_searchers.results import values_shown
from podium_searchers.tpe import TpeSearcher

CMAES_FROM = 50  # trials with a value: by then tpe has found a good region, in which cmaes converges faster


class AutoSearcher:
    """Proposes points by the algorithm that suits the space and the number of results."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a proposal of `qmc`, `tpe` or `cmaes`."""
        if has_conditions(spec) or not all(map(is_range, spec.parameters)):
            return TpeSearcher().propose(spec, number, tried)
        shown, startup = values_shown(spec, tried), startup_trials(spec)
        if shown < startup:
            return QmcSearcher().propose(spec, number)
        one_objective = spec.objectives is None
        learner = CmaesSearcher() if one_objective and shown >= max(CMAES_FROM, startup) else TpeSearcher()
        return learner.propose(spec, number, tried)

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None
