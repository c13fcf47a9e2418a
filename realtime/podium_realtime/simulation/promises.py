"""Random task sets through the door and onto the simulated GPU: does every admitted task keep its promise?

`check(seed)` is one set, deterministic; the unit tests run some (10,000 when asked), the benchmark 10,000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_realtime.admission.door import Gpu, admit
from podium_realtime.model import published
from podium_realtime.model.network import Network, Stage
from podium_realtime.model.task import PeriodicTask
from podium_realtime.scheduling.reserved import Reserved, reserved_pool
from podium_realtime.scheduling.work import Outcome
from podium_realtime.simulation.engine import simulate
from podium_realtime.simulation.gpu import Interference, published_gpu
from podium_realtime.simulation.profiling import profile_networks, worst_times

PERIODS = 3.0  # of the longest task that are simulated
CANDIDATES = 12


@dataclass(frozen=True, slots=True)
class Check:
    """`missed`: releases of admitted tasks that did not finish in time; the promise is that there are none."""

    admitted: int
    refused: int
    releases: int
    missed: int
    utilisation: float  # of the fullest context, by worst times


def check(seed: int, belief: float = 1.0) -> Check:
    """One random device, pool and task set; every candidate asks the door, the admitted ones run together.

    `belief`: what the worst times are multiplied with before the door sees them; below 1 promises must break, which
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
    pool = reserved_pool(published.DEVICE_SMS, contexts, float(random.choice([1.0, 1.5, 2.0])))
    networks = [_network(random, f"net-{number}") for number in range(int(random.integers(1, 4)))]
    worst = worst_times(device, networks, pool)
    gpu = Gpu("gpu-0", contexts, {place: [belief * one for one in times] for place, times in worst.items()})
    refused = 0
    together = bool(random.integers(2))
    for number in range(CANDIDATES):
        decision = admit(_task(random, f"task-{number}", networks, together), gpu)
        gpu = decision.gpu
        refused += not decision.accepted
    tasks = [promise.task for promise in gpu.promises]
    if not tasks:
        return Check(0, refused, 0, 0, 0.0)
    seconds = PERIODS * max(task.period for task in tasks)
    profiles = profile_networks(device, networks, pool)
    run = simulate(device, tasks, pool, profiles, Reserved(gpu.homes), seconds, seed=seed)
    judged = [end for end in run.ends if end.job.deadline <= seconds]
    missed = sum(end.outcome is not Outcome.MET for end in judged)
    fullest = max(gpu.utilisation(context) for context in range(contexts))
    return Check(len(tasks), refused, len(judged), missed, fullest)


def _network(random: np.random.Generator, name: str) -> Network:
    """One to six stages; each follows one or two earlier ones, or is a root."""
    size = float(random.uniform(0.1, 2.0))
    stages = []
    count = int(random.integers(1, 7))
    for number in range(count):
        wanted = min(number, int(random.integers(0, 3)))
        before = random.choice(number, size=wanted, replace=False).tolist() if wanted else []
        work, launches = random.uniform(0.1, 1.0, size=2) * size / count
        stages.append(Stage(f"s{number}", float(work), float(launches), tuple(sorted(before))))
    return Network(name, tuple(stages))


def _task(random: np.random.Generator, name: str, networks: list[Network], together: bool) -> PeriodicTask:
    period = float(np.exp(random.uniform(np.log(0.008), np.log(0.08))))
    network = networks[int(random.integers(len(networks)))]
    offset = 0.0 if together else float(random.uniform(0.0, period))
    return PeriodicTask(name, network, period, period * float(random.uniform(0.4, 1.0)), offset=offset)
