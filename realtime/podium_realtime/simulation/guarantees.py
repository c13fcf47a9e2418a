"""Checks the admission test by simulation: random task sets are admitted and run, and no deadline may be missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_realtime.admission.controller import GpuState, admit
from podium_realtime.model import published
from podium_realtime.model.network import InferenceNetwork, Stage
from podium_realtime.model.task import PeriodicTask
from podium_realtime.scheduling.jobs import JobOutcome
from podium_realtime.scheduling.partitioned_edf import PartitionedEdf, partitioned_edf_pool
from podium_realtime.simulation.engine import simulate
from podium_realtime.simulation.gpu import Interference, published_gpu
from podium_realtime.simulation.profiling import profile_networks, worst_case_times

PERIODS = 3.0  # simulated periods of the task with the longest period
CANDIDATES = 12  # tasks that request admission


@dataclass(frozen=True, slots=True)
class GuaranteeCheck:
    """Result for one random task set.

    `missed`: releases of admitted tasks that did not finish in time; the guarantee holds if there are none.
    `utilisation`: of the fullest context, by worst-case times.
    """

    admitted: int
    rejected: int
    releases: int
    missed: int
    utilisation: float


def check_guarantees(seed: int, time_scale: float = 1.0) -> GuaranteeCheck:
    """Request admission for the tasks of a random set, and simulate the admitted ones.

    `time_scale`: factor on the worst-case times that the controller receives. Below 1 deadlines must be missed, which
        shows that this check can fail.
    """
    random = np.random.default_rng(seed)
    interference = Interference(
        kappa=float(random.uniform(0.0, 0.3)),
        serial=float(random.uniform(0.5, 1.0)),
        threads=float(random.integers(1, 16)),
        convoy=float(random.uniform(0.0, 0.1)),
        jitter=float(random.uniform(0.0, 0.1)),
    )
    device = published_gpu(interference, shared_process=bool(random.integers(2)))
    contexts = int(random.integers(1, 5))
    pool = partitioned_edf_pool(published.DEVICE_SMS, contexts, float(random.choice([1.0, 1.5, 2.0])))
    networks = [_random_network(random, f"net-{number}") for number in range(int(random.integers(1, 4)))]
    worst_case = worst_case_times(device, networks, pool)
    scaled = {key: [time_scale * time for time in times] for key, times in worst_case.items()}
    gpu = GpuState("gpu-0", contexts, scaled)
    rejected = 0
    together = bool(random.integers(2))
    for number in range(CANDIDATES):
        decision = admit(_random_task(random, f"task-{number}", networks, together), gpu)
        gpu = decision.gpu
        rejected += not decision.accepted
    tasks = [guarantee.task for guarantee in gpu.guarantees]
    if not tasks:
        return GuaranteeCheck(0, rejected, 0, 0, 0.0)
    seconds = PERIODS * max(task.period for task in tasks)
    profiles = profile_networks(device, networks, pool)
    trace = simulate(device, tasks, pool, profiles, PartitionedEdf(gpu.context_of), seconds, seed=seed)
    judged = [result for result in trace.jobs if result.job.deadline <= seconds]
    missed = sum(result.outcome is not JobOutcome.MET for result in judged)
    fullest = max(gpu.utilisation(context) for context in range(contexts))
    return GuaranteeCheck(len(tasks), rejected, len(judged), missed, fullest)


def _random_network(random: np.random.Generator, name: str) -> InferenceNetwork:
    """Return a graph of one to six stages, each a root or with one or two predecessors."""
    size = float(random.uniform(0.1, 2.0))
    stages = []
    count = int(random.integers(1, 7))
    for number in range(count):
        wanted = min(number, int(random.integers(0, 3)))
        before = random.choice(number, size=wanted, replace=False).tolist() if wanted else []
        work, launches = random.uniform(0.1, 1.0, size=2) * size / count
        stages.append(Stage(f"s{number}", float(work), float(launches), tuple(sorted(before))))
    return InferenceNetwork(name, tuple(stages))


def _random_task(
    random: np.random.Generator, name: str, networks: list[InferenceNetwork], together: bool
) -> PeriodicTask:
    """Return a task with a period of 8 to 80 ms; `together` sets its first release to 0."""
    period = float(np.exp(random.uniform(np.log(0.008), np.log(0.08))))
    network = networks[int(random.integers(len(networks)))]
    offset = 0.0 if together else float(random.uniform(0.0, period))
    return PeriodicTask(name, network, period, period * float(random.uniform(0.4, 1.0)), offset=offset)
