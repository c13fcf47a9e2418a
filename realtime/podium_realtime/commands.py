"""What `podium realtime` can do, as functions on plain values: the only module of this room that the cli imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium_realtime.admission.door import Gpu
from podium_realtime.admission.door import admit as ask
from podium_realtime.model.published import DEVICE_SMS
from podium_realtime.model.refusal import RealtimeError, require_between, require_positive
from podium_realtime.model.taskset import parse
from podium_realtime.runtime.compare import Candidate, run_once
from podium_realtime.runtime.cuda import availability as cuda_availability
from podium_realtime.scheduling.reserved import reserved_pool
from podium_realtime.simulation import figures
from podium_realtime.simulation.figures import Scenario
from podium_realtime.simulation.fitted import FITTED
from podium_realtime.simulation.profiling import worst_times
from podium_realtime.simulation.scenarios import WARM_UP, Setting

MOST_TASKS = 1000  # simulated; the device serves some 36
__all__ = ["RealtimeError", "admit", "plot", "run", "simulate"]


def simulate(
    contexts: Sequence[int],
    oversubscriptions: Sequence[float],
    counts: Sequence[int],
    seconds: float,
    seed: int,
    say: Callable[[str], None],
) -> list[Scenario]:
    """The paper's figures: one table for each number of contexts, said as soon as it is there."""
    require_between(seconds, 2 * WARM_UP, 600.0, "--seconds")
    require_between(max(counts), 1, MOST_TASKS, "--tasks")
    for number in contexts:
        require_between(number, 1, 8, "--contexts")
    for factor in oversubscriptions:
        require_between(factor, 1.0, 8.0, "--oversubscription")
    found = []
    for number in contexts:
        scenario = figures.sweep(FITTED, number, oversubscriptions, counts, Setting(seconds, seed))
        say(f"\n{number} contexts (simulated): missed deadlines % / total fps\n")
        for line in figures.table(scenario):
            say(line)
        for series in scenario.series:
            say(f"{series.label}: no miss up to {series.last_zero or 'none of these'} tasks")
        found.append(scenario)
    return found


def plot(found: Sequence[Scenario], path: Path) -> None:
    figures.plot(found, path)


def admit(manifest: Mapping[str, Any]) -> list[tuple[bool, str]]:
    """For each task in turn: was it admitted, and the sentence with the numbers. Raises RealtimeError on a bad file."""
    parsed = parse(manifest)
    if isinstance(parsed, tuple):
        more = f" (and {len(parsed) - 1} more)" if len(parsed) > 1 else ""
        raise RealtimeError(parsed[0].code, parsed[0].field, f"{parsed[0].message}{more}")
    spec = parsed.gpu
    pool = reserved_pool(DEVICE_SMS, spec.contexts, spec.oversubscription)
    device = FITTED.gpu(shared_process=spec.processes == "shared")
    gpu = Gpu(spec.name, spec.contexts, worst_times(device, parsed.networks, pool))
    found = []
    for task in parsed.tasks:
        decision = ask(task, gpu)
        gpu = decision.gpu
        found.append((decision.accepted, f"{decision.code}: {decision.message}"))
    return found


def run(backend: str, policy: str, tasks: int, fps: float, seconds: float) -> list[str]:
    """Lines that say what really ran, or "not run" and why."""
    require_between(tasks, 1, 64, "--tasks")
    require_positive(fps, "--fps", "frames a second")
    require_between(seconds, 1.0, 600.0, "--seconds")
    if backend == "cuda":
        found = cuda_availability()
        if not found.runs:
            raise RealtimeError(found.code, "--backend cuda", found.message)
    summary = run_once(Candidate.named(policy, backend), tasks, fps, seconds)
    late = f"missed {100 * summary.missed:.2f} % of {summary.releases} deadlines"
    return [
        f"{tasks} tasks at {fps:g} fps under {policy} on {backend}: {summary.fps:.1f} frames a second,",
        f"{late}, 99th percentile of responses {1e3 * summary.p99_response:.1f} ms",
    ]
