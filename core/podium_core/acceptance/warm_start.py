"""Choose the results of earlier searches with which a search starts (`search.warmStart`). Pure.

The operator calls it for jobs and for results that the job itself lists, local mode for the latter. What it returns is
stored in the job's status, and proposals depend on that copy alone. The command line and the Python API list results of
files and of searches in a job (`with_results`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from podium_core.domain.phase import TrialPhase
from podium_core.objectives.sorting import best_first, crowding_distances, non_dominated_fronts
from podium_core.objectives.values import directions, measured_of, objective_values, to_sort
from podium_core.schema.job import Direction, JobSpec, Objective, OneOfObjectives
from podium_core.schema.job_status import MAX_WARM_START_TRIALS, WarmStartStatus, WarmStartTrial
from podium_core.schema.search.conditions import point_problem
from podium_core.schema.search.settings import LEARNING
from podium_core.schema.trial import HyperParamTrial

GIVEN = "given-"  # names of the results that the job lists
_ENDED = (TrialPhase.SUCCEEDED, TrialPhase.EARLY_STOPPED)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class WarmStartError(ValueError):
    """Results do not suit a job; the message names the file or field, the value, and the cure."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def given_results(spec: JobSpec) -> list[WarmStartTrial]:
    """Return the results that the job itself lists, in their order."""
    given = () if spec.search.warm_start is None else spec.search.warm_start.results
    return [
        WarmStartTrial(
            trial=f"{GIVEN}{number}",
            parameters=dict(one.parameters),
            value=one.value,
            values=list(one.values),
            step=one.step,
            completed=one.completed,
        )
        for number, one in enumerate(given)
    ]


def ended_results(spec: JobSpec, trials: Iterable[HyperParamTrial]) -> list[WarmStartTrial]:
    """Return the results of the trials that have ended with values, the latest last."""
    ended = [trial for trial in trials if trial.status.phase in _ENDED]
    ended.sort(key=lambda trial: (trial.status.finished_at or _BEGINNING, trial.spec.job, trial.spec.number))
    results = [
        WarmStartTrial(
            trial=trial.metadata.name,
            parameters=dict(trial.spec.parameters),
            value=math.nan if trial.status.best is None else trial.status.best.value,
            values=[*objective_values(spec, measured_of(trial, trial.status.phase))],
            step=trial.status.last_step or 0.0,
            completed=trial.status.phase is TrialPhase.SUCCEEDED,
        )
        for trial in ended
    ]
    return [one for one in results if math.isfinite(one.value) and all(map(math.isfinite, one.values))]


def objectives_of(spec: JobSpec) -> str:
    """Return directions and metrics of a job's objectives, by which two jobs can be compared."""
    listed: Sequence[Objective | OneOfObjectives] = spec.objectives or [spec.objective]
    return ", ".join(f"{one.direction} {one.metric}" for one in listed)


def with_results(
    manifest: Mapping[str, Any], spec: JobSpec, ended: Sequence[WarmStartTrial], source: str
) -> tuple[dict[str, Any], str]:
    """Return the job with these results in `search.warmStart.results`, and a sentence about them.

    The sentence tells how many are used. `spec`: that of the manifest. Raises WarmStartError.
    """
    if spec.search.algorithm not in LEARNING:
        text = f"spec.search.algorithm is {spec.search.algorithm}, which does not learn from results; use one of "
        raise WarmStartError("WarmStartWithoutLearning", f"{text}{', '.join(LEARNING)}")
    chosen = choose(spec, [*given_results(spec), *ended], source)
    if not chosen.trials:
        text = f"{chosen.message} Give results of a search over the same parameters."
        raise WarmStartError("WarmStartWithoutResults", text)
    several = spec.objectives is not None
    results = [
        {
            "parameters": dict(one.parameters),
            "value": one.value,
            **({"values": list(one.values)} if several else {}),
            "step": one.step,
            "completed": one.completed,
        }
        for one in chosen.trials
    ]
    search = dict(manifest["spec"].get("search") or {})
    search["warmStart"] = {**(search.get("warmStart") or {}), "results": results}
    return {**manifest, "spec": {**manifest["spec"], "search": search}}, chosen.message


def choose(spec: JobSpec, ended: Sequence[WarmStartTrial], source: str) -> WarmStartStatus:
    """Return the results to use: those of this search space, at most 100.

    Of more, the best half and the latest of the others are used. `ended`: all results with a value, the latest last.
    `source`: their origin, for the message.
    """
    problems = [point_problem(spec, one.parameters) for one in ended]
    usable = [row for row, problem in enumerate(problems) if problem is None]
    kept = usable
    if len(usable) > MAX_WARM_START_TRIALS:
        best = {usable[row] for row in _best_first(spec, [ended[row] for row in usable])[: MAX_WARM_START_TRIALS // 2]}
        latest = [row for row in usable if row not in best][len(best) - MAX_WARM_START_TRIALS :]
        kept = sorted({*best, *latest})
    outside = {one.trial: problem for one, problem in zip(ended, problems, strict=True) if problem}
    return WarmStartStatus(
        used=len(kept),
        ended=len(ended),
        message=_message(len(kept), len(ended), outside, source),
        trials=[ended[row] for row in kept],
    )


def _best_first(spec: JobSpec, results: Sequence[WarmStartTrial]) -> list[int]:
    """Return the rows by value; with several objectives by front, then those in the sparsest regions."""
    if spec.objectives is None:
        sign = -1.0 if spec.objective.direction is Direction.MAXIMIZE else 1.0
        return sorted(range(len(results)), key=lambda row: sign * results[row].value)
    values = to_sort((tuple(one.values) for one in results), directions(spec))
    fronts = non_dominated_fronts(values)
    return [int(row) for row in best_first(fronts, crowding_distances(values, fronts))]


def _message(used: int, ended: int, outside: Mapping[str, str], source: str) -> str:
    text = f"Warm start: {used} of {ended} {source} are used."
    if outside:
        name, problem = next(iter(outside.items()))
        text += f" {len(outside)} lie outside this search space ({name}: {problem})."
    if used < ended - len(outside):
        text += f" A job uses at most {MAX_WARM_START_TRIALS}: the best half, and the latest of the others."
    return text
