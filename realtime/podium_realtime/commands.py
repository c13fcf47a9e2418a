"""Functions behind the subcommands of `podium realtime`. The CLI imports only this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium_realtime.admission import controller
from podium_realtime.admission.controller import GpuState
from podium_realtime.model.errors import RealtimeError, require_between, require_positive
from podium_realtime.model.published import DEVICE_SMS
from podium_realtime.model.taskset import parse
from podium_realtime.results.metrics import Summary
from podium_realtime.runtime import cuda
from podium_realtime.runtime.runner import SchedulerConfig, run_once
from podium_realtime.scheduling.partitioned_edf import partitioned_edf_pool
from podium_realtime.simulation import figures
from podium_realtime.simulation.calibration import CALIBRATED
from podium_realtime.simulation.figures import FigureData
from podium_realtime.simulation.profiling import worst_case_times
from podium_realtime.simulation.scenarios import WARM_UP, SimulationSettings

MAX_TASKS = 1000  # in a simulation; the simulated device can serve about 36
__all__ = ["Answer", "RealtimeError", "admit", "figure_data", "plot", "run", "simulate"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a task is admitted, with a code and a sentence with the numbers."""

    task: str
    accepted: bool
    code: str
    message: str


def simulate(
    contexts: Sequence[int],
    oversubscriptions: Sequence[float],
    counts: Sequence[int],
    seconds: float,
    seed: int,
    report: Callable[[str], None],
) -> list[FigureData]:
    """Simulate the figures of the SGPRS paper, one for each number of contexts.

    `counts`: numbers of tasks.
    `seconds`: virtual time of each point.
    `report`: receives each line of the tables when it is computed.
    """
    require_between(seconds, 2 * WARM_UP, 600.0, "--seconds")
    require_between(max(counts), 1, MAX_TASKS, "--tasks")
    for number in contexts:
        require_between(number, 1, 8, "--contexts")
    for factor in oversubscriptions:
        require_between(factor, 1.0, 8.0, "--oversubscription")
    simulated = []
    for number in contexts:
        settings = SimulationSettings(seconds, seed)
        figure = figures.simulate_figure(CALIBRATED, number, oversubscriptions, counts, settings)
        report(f"\n{number} contexts (simulated): missed deadlines % / total fps\n")
        for line in figures.table(figure):
            report(line)
        for series in figure.series:
            report(f"{series.label}: no miss up to {series.max_tasks_without_miss or 'none of these'} tasks")
        simulated.append(figure)
    return simulated


def plot(simulated: Sequence[FigureData], path: Path) -> None:
    """Draw the simulated figures into a file. Raises RealtimeError if matplotlib is missing."""
    figures.plot(simulated, path)


def figure_data(figure: FigureData) -> dict[str, Any]:
    """Return a simulated figure for programs."""
    return {
        "contexts": figure.contexts,
        "series": [
            {
                "label": series.label,
                "maxTasksWithoutMiss": series.max_tasks_without_miss,
                "points": [
                    {"tasks": count, "missed": point.missed, "framesPerSecond": point.fps}
                    for count, point in sorted(series.points.items())
                ],
            }
            for series in figure.series
        ],
    }


def admit(manifest: Mapping[str, Any]) -> list[Answer]:
    """Return the answer for each task.

    Raises RealtimeError if the manifest is invalid.
    """
    parsed = parse(manifest)
    if isinstance(parsed, tuple):
        more = f" (and {len(parsed) - 1} more)" if len(parsed) > 1 else ""
        raise RealtimeError(parsed[0].code, parsed[0].field, f"{parsed[0].message}{more}")
    spec = parsed.gpu
    pool = partitioned_edf_pool(DEVICE_SMS, spec.contexts, spec.oversubscription)
    device = CALIBRATED.gpu(shared_process=spec.processes == "shared")
    gpu = GpuState(spec.name, spec.contexts, worst_case_times(device, parsed.networks, pool))
    answers = []
    for task in parsed.tasks:
        decision = controller.admit(task, gpu)
        gpu = decision.gpu
        answers.append(Answer(task.name, decision.accepted, decision.code, decision.message))
    return answers


def run(backend: str, policy: str, tasks: int, fps: float, seconds: float) -> Summary:
    """Run real networks and return the result.

    Raises RealtimeError if the back-end is not available.
    """
    require_between(tasks, 1, 64, "--tasks")
    require_positive(fps, "--fps", "frames a second")
    require_between(seconds, 1.0, 600.0, "--seconds")
    if backend == "cuda":
        status = cuda.availability()
        if not status.available:
            raise RealtimeError(status.code, "--backend cuda", status.message)
    return run_once(SchedulerConfig.named(policy, backend), tasks, fps, seconds)
