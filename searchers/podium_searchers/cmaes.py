"""CMA-ES (Hansen and Ostermeier 2001) by the package `cmaes`, for the ranges of a search; `tpe` chooses the rest.

The state of the optimizer is rebuilt from the trials at each proposal, so nothing is kept:

1. The best of the first `startupTrials` trials is the first mean.
2. The trials after them, in the order of their numbers, form generations. Each full one updates the state.
3. The proposal is drawn from a generator that the seed and the trial's number seed.

Trials that run at the same time may stem from an earlier state than the one that they update. CMA-ES allows that
(Hansen 2011, injected solutions). Only the order of the values matters, so unfinished trials can count behind the
completed ones. A parameter that was inactive counts with the present mean, which carries no information.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import active_values
from podium_core.schema.search.settings import cmaes_parameters, startup_trials
from podium_core.schema.search.spec import Parameter
from podium_searchers.base import Proposal, TrialResult
from podium_searchers.optuna_space import seed_of
from podium_searchers.random import RandomSearcher
from podium_searchers.results import best_first, values_shown, with_value
from podium_searchers.tpe import TpeSearcher
from podium_searchers.unit_cube import from_unit, to_unit

MAX_TRIALS = 1000  # the latest trials that count
SIGMA = 0.2  # first standard deviation, as a share of each range


class CmaesSearcher:
    """Proposes the ranges by CMA-ES and the other parameters by TPE."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return a proposal of `random` until `startupTrials` trials have a value, afterwards one of CMA-ES."""
        if values_shown(spec, tried) < startup_trials(spec):
            return RandomSearcher().propose(spec, number)
        own = cmaes_parameters(spec)
        others = TpeSearcher().propose(spec, number, tried) if len(own) < len(spec.parameters) else None
        trials = with_value(spec, tried)
        if not trials:
            return RandomSearcher().propose(spec, number)
        shares = _optimizer(spec, own, trials, seed_of(spec.search.seed, number)).ask()
        drawn = {one.name: from_unit(one, float(share)) for one, share in zip(own, shares, strict=True)}
        return active_values(spec, {**(others or {}), **drawn})

    def size(self, spec: JobSpec) -> int | None:
        """Return None: the number of trials is unlimited."""
        return None


def _optimizer(spec: JobSpec, own: Sequence[Parameter], trials: Sequence[TrialResult], seed: int) -> Any:
    """Return the optimizer after all full generations; `seed` is that of the next draw."""
    startup = startup_trials(spec)
    first, rest = trials[:startup], trials[startup:]
    middle = np.full(len(own), 0.5)
    optimizer = _new(_shares(own, best_first(spec, first)[0], middle), seed)
    size = optimizer.population_size
    skipped = max(0, -(-(len(rest) - MAX_TRIALS) // size)) * size  # whole generations, so that the others stay the same
    for start in range(skipped, len(rest) - size + 1, size):
        generation = best_first(spec, rest[start : start + size])
        if optimizer.should_stop():
            optimizer = _new(_shares(own, generation[0], middle), seed)
        mean = np.asarray(optimizer.mean)
        optimizer.tell([(_shares(own, one, mean), float(rank)) for rank, one in enumerate(generation)])
    return optimizer


def _new(mean: NDArray[np.float64], seed: int) -> Any:
    from cmaes import CMA  # other searchers work without the package

    bounds = np.tile([0.0, 1.0], (len(mean), 1))
    return CMA(mean=mean, sigma=SIGMA, bounds=bounds, seed=seed)


def _shares(own: Sequence[Parameter], one: TrialResult, missing: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a trial as a point of the unit cube; `missing`: the shares of its inactive parameters."""
    return np.array(
        [
            to_unit(parameter, one.parameters[parameter.name]) if parameter.name in one.parameters else share
            for parameter, share in zip(own, missing, strict=True)
        ]
    )
