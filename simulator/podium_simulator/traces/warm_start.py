"""Results of earlier searches for `search.warmStart`, read from curve files of Podium or of another tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from podium_core.acceptance.warm_start import WarmStartError, objectives_of
from podium_core.curves.non_finite import diverged
from podium_core.schema.job import Direction, JobSpec
from podium_core.schema.job_status import WarmStartTrial
from podium_simulator.traces.event_files import Report, ignore
from podium_simulator.traces.sources import ReadOptions, needs_goal, needs_metric, read_all
from podium_simulator.traces.trace import RecordedTrial, Trace, TraceError

MAX_FILES = 64
COMPLETE = 1.0 - 1e-9  # share of trials.maxSteps at which a recorded trial counts as completed


def results_in(spec: JobSpec, files: Sequence[Path], report: Report = ignore) -> list[WarmStartTrial]:
    """Return the results of all trials in these files and folders, in their order.

    `report` receives what was left out. Raises WarmStartError.
    """
    if len(files) > MAX_FILES:
        raise WarmStartError("TooManyFiles", f"{len(files)} files to start from are too many; give at most {MAX_FILES}")
    if spec.objectives is not None:
        text = "the job has several objectives, and a file has one value a trial; write spec.search.warmStart.results"
        raise WarmStartError("WarmStartObjectiveDiffers", text)
    results: list[WarmStartTrial] = []
    for file in files:
        for trace in _read(file, spec, report):
            results += _ended(trace, spec.trials.max_steps)
    return results


def _read(file: Path, spec: JobSpec, report: Report) -> tuple[Trace, ...]:
    maximize, metric = spec.objective.direction is Direction.MAXIMIZE, spec.objective.metric
    try:
        traces = read_all([file], ReadOptions(maximize, metric if needs_metric([file]) else None), report)
        silent = needs_goal([file])  # a table states neither metric nor direction
    except TraceError as error:
        raise WarmStartError(error.code, str(error)) from error
    except OSError as error:
        text = f"{error.filename or file}: {error.strerror or error}; name a file of curves, or a folder of them"
        raise WarmStartError("FileUnreadable", text) from error
    for trace in traces:
        if not silent and f"{trace.goal} {trace.metric}" != objectives_of(spec):
            text = f"{file} has the objective {trace.goal} {trace.metric}, but the job {objectives_of(spec)}, so their "
            raise WarmStartError("WarmStartObjectiveDiffers", f"{text}values cannot be compared: name other files")
    return traces


def _ended(trace: Trace, max_steps: float | None) -> Iterator[WarmStartTrial]:
    better = max if trace.maximize else min
    for trial in trace.trials:
        finite = [value for value in trial.values if not diverged(value)]
        if finite:
            yield WarmStartTrial(
                trial=trial.name,
                parameters=dict(trial.hparams),
                value=better(finite),
                step=trial.steps[-1] if trial.steps else 0.0,
                completed=_completed(trial, max_steps),
            )


def _completed(trial: RecordedTrial, max_steps: float | None) -> bool:
    """Return whether the trial was trained to its end; without steps or `maxSteps` every recorded trial was."""
    return not trial.steps or max_steps is None or trial.steps[-1] >= COMPLETE * max_steps
