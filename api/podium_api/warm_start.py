"""Start a search with the results of earlier ones: handles of searches, or files of curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podium_api.errors import SearchError
from podium_api.search import Search
from podium_core.acceptance.warm_start import WarmStartError, ended_results, objectives_of, with_results
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.job_status import WarmStartTrial
from podium_simulator.traces.warm_start import results_in

Earlier = str | Path | Search


def with_earlier(manifest: Mapping[str, Any], earlier: Earlier | Sequence[Earlier]) -> dict[str, Any]:
    """Return the job with the results of these searches and files. Raises SearchError."""
    given = [earlier] if isinstance(earlier, str | Path | Search) else list(earlier)
    if not given:
        return dict(manifest)
    spec = HyperParamJob.model_validate(manifest).spec
    try:
        results = [one for source in given for one in _results(spec, source)]
        names = ", ".join(one.name if isinstance(one, Search) else str(one) for one in given)
        made, _ = with_results(manifest, spec, results, f"trials of {names}")
    except WarmStartError as error:
        raise SearchError(error.code, f"warm_start: {error}") from error
    return made


def _results(spec: JobSpec, source: Earlier) -> list[WarmStartTrial]:
    if not isinstance(source, Search):
        return results_in(spec, [Path(source)])
    seen = source.read()
    mine, other = objectives_of(spec), objectives_of(seen.job.spec)
    if mine != other:
        text = f"search {source.name} has the objective {other}, but this one {mine}, so their values cannot be "
        raise WarmStartError("WarmStartObjectiveDiffers", f"{text}compared: name searches with the same objective")
    return ended_results(spec, seen.trials)
