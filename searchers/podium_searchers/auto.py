"""The recommended algorithm: the first trials fill the space evenly (`qmc`), the others learn from them (`tpe`)."""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import JobSpec
from podium_core.schema.search_settings import startup_trials
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.qmc import QmcSearcher
from podium_searchers.results import values_shown
from podium_searchers.tpe import TpeSearcher


class AutoSearcher:
    """Proposes points by `qmc` first and by `tpe` later."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a proposal of `qmc` until `startupTrials` trials have a value, afterwards one of `tpe`."""
        if values_shown(tried) < startup_trials(spec):
            return QmcSearcher().propose(spec, number)
        return TpeSearcher().propose(spec, number, tried)

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None
