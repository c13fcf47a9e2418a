"""The queues of the benchmark in the simulated system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.queues.gpu_time import shares
from podium_core.domain.gpu_queue import QueueView
from podium_core.planning.job_view import job_view
from podium_core.schema.job import HyperParamJob
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, NodeSpec, Scenario, SimJob
from podium_simulator.traces.trace import RecordedTrial

WARM_UP = 0.0
STEP = 10.0  # seconds of a step


def simulated_shares(
    weights: Mapping[str, float], search: Callable[[str], dict[str, Any]], gpus: int, seconds: float
) -> dict[str, float]:
    """Return each queue's part of the GPU-seconds since the searches were created, on nodes of one GPU."""
    steps = int(seconds / STEP) + 1
    endless = RecordedTrial("t", {}, tuple(STEP * (i + 1) for i in range(steps)), (0.1,) * steps)
    jobs = []
    for number, name in enumerate(weights):
        manifest = HyperParamJob.model_validate(search(name))
        view = job_view(manifest, points=None, accepted=True, finished=False, suspendable=True)
        view = replace(view, uid=str(number), max_steps=steps, limits=replace(view.limits, deadline=seconds))
        jobs.append(SimJob(view, (endless,) * view.limits.max_trials, Method()))
    nodes = tuple(NodeSpec(f"node-{number + 1}", 1) for number in range(gpus))
    queues = tuple(QueueView(name, weight) for name, weight in weights.items())
    outcome = simulate(Scenario(nodes, tuple(jobs), queues=queues))
    used = dict.fromkeys(weights, 0.0)
    for span in outcome.spans:
        name = span.trial.name.rsplit("-", 1)[0]
        used[name] += max(0.0, min(span.end, seconds) - span.start)
    return shares(used)
