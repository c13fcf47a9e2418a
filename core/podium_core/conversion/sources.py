"""The tools whose searches `podium convert` reads, and how their documents are recognised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podium_core.conversion.katib.experiment import is_experiment
from podium_core.conversion.optimization_job import is_optimization_job
from podium_core.conversion.wandb.sweep import is_sweep

SOURCES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "an Experiment of Katib": is_experiment,
    "an OptimizationJob of Kubeflow": is_optimization_job,
    "a sweep of W&B": is_sweep,
}


def tool_of(manifest: Mapping[str, Any]) -> str | None:
    """Return which tool's search a document is; None if it is none."""
    return next((name for name, recognises in SOURCES.items() if recognises(manifest)), None)
