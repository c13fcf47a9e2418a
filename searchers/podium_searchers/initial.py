"""Points of `search.initialTrials`: the values that an entry names, and the others drawn at random."""

from __future__ import annotations

import hashlib

import optuna

from podium_core.schema.job import JobSpec
from podium_core.schema.search.conditions import active_values, dependency_order, is_active
from podium_core.schema.search.membership import typed
from podium_searchers.base import Proposal
from podium_searchers.optuna_space import sample


def initial_point(spec: JobSpec, number: int) -> Proposal:
    """Return the parameters of initial trial `number`, which depend on the spec and the number alone."""
    entry = spec.search.initial_trials[number]
    given = {one.name: typed(one, entry[one.name]) for one in spec.parameters if one.name in entry}
    if all(one.name in given or not is_active(one, given) for one in dependency_order(spec.parameters)):
        return active_values(spec, given)
    # a stream of its own: the trials after the initial ones are drawn from the seed and their number
    digest = hashlib.sha256(f"{spec.search.seed}/initial/{number}".encode()).digest()
    sampler = optuna.samplers.RandomSampler(seed=int.from_bytes(digest[:4], "big"))
    return sample(spec, sampler, given=given)
