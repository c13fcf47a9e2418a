"""The gymnasium environment: an episode is one simulation, an action is the job that starts next.

There is no second model of the cluster: `step` calls `Simulation.start` and `Simulation.advance`. Make one with
`SchedulingEnv(distribution)`; no registration is needed. Trainers from other libraries can use it too
(Stable-Baselines3: MultiInputPolicy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.backlog import FEATURES, MAX_VISIBLE_JOBS, Backlog, feature_rows

WAIT_ACTION = MAX_VISIBLE_JOBS
Observation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpisodeDistribution:
    """The distribution of episodes: `jobs` jobs that offer `load` of the cluster.

    Three of four jobs are short (mean 60 s) and one is long (mean 600 s), both exponential. Widths are 1, 2, 4 and 8
    GPUs, and at most those of the cluster.
    """

    jobs: int = 60
    load: float = 1.1
    cluster: GpuCluster = field(default_factory=lambda: GpuCluster(2, 4))

    def __post_init__(self) -> None:
        for name in ("jobs", "load"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"InvalidSetting: {name} must be a finite number above 0 (got {value}).")

    def sample(self, generator: np.random.Generator) -> Workload:
        """Return a random workload."""
        duration = np.where(generator.random(self.jobs) < 0.75, 60.0, 600.0) * generator.exponential(1.0, self.jobs)
        gpus = np.minimum(generator.choice([1, 2, 4, 8], size=self.jobs, p=[0.6, 0.2, 0.15, 0.05]), self.cluster.gpus)
        gap = 195.0 * float(np.mean(gpus)) / (self.load * self.cluster.gpus)  # 195 s is the mean duration
        arrival = np.cumsum(generator.exponential(gap, self.jobs))
        return Workload(arrival, np.maximum(duration, 1.0), gpus.astype(np.int64))


class _EnvironmentPolicy:
    """The policy of an episode: it records the jobs, and the environment decides."""

    name = "driven"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> Backlog:
        """Return a new backlog."""
        return Backlog()


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """Scheduling as a Markov decision process.

    Observation: `rows` (MAX_VISIBLE_JOBS + 1, FEATURES), one for each waiting job (zeros if there are fewer) and one
    for the action to wait; `mask` (MAX_VISIBLE_JOBS + 1,), 1 for feasible actions. Action: the position of a visible
    job, or WAIT_ACTION. An infeasible action starts the oldest job that fits. Reward: minus the seconds that jobs spent
    in the system since the last action, divided by (jobs x mean duration). The return of an episode is thus minus the
    mean completion time in units of the mean duration.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (gymnasium defines the name and type)

    def __init__(self, distribution: EpisodeDistribution | None = None) -> None:
        self.distribution = distribution if distribution is not None else EpisodeDistribution()
        self.observation_space = spaces.Dict(
            {
                "rows": spaces.Box(0.0, 1.0, (MAX_VISIBLE_JOBS + 1, FEATURES), np.float64),
                "mask": spaces.MultiBinary(MAX_VISIBLE_JOBS + 1),
            }
        )
        self.action_space = spaces.Discrete(MAX_VISIBLE_JOBS + 1)
        self.simulation: Simulation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode from the seed, or with the jobs of `options={"workload": Workload}`."""
        super().reset(seed=seed)
        workload = (options or {}).get("workload")
        if workload is None:
            workload = self.distribution.sample(self.np_random)
        self.simulation = Simulation(workload, self.distribution.cluster, _EnvironmentPolicy())
        assert isinstance(self.simulation.scheduler, Backlog)
        self.backlog = self.simulation.scheduler
        self._scale = 1.0 / (len(workload) * float(np.mean(workload.duration)))
        self._advance()
        return self._observe(), {}

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Raises RuntimeError if no episode is running, and ValueError for an invalid action.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"InvalidAction: action must be a whole number from 0 to {WAIT_ACTION} (got {action!r}).")
        simulation = self.simulation
        if simulation is None or simulation.unfinished == 0:
            raise RuntimeError("EpisodeEnded: no episode is running; call reset().")
        reward = 0.0
        if action == WAIT_ACTION and self._mask[WAIT_ACTION]:
            reward = self._advance(once=True)
        else:
            position = int(action) if self._mask[action] else int(np.argmax(self._mask))
            self.backlog.start(simulation, self._jobs[position])
        if not self._fits():
            reward += self._advance()
        over = simulation.unfinished == 0
        info = {"mean_completion": simulation.result().mean_completion} if over else {}
        return self._observe(), reward, over, False, info

    def _advance(self, once: bool = False) -> float:
        """Advance to the next instant at which a job can start, or to the end; return the reward."""
        simulation, spent = self.simulation, 0.0
        assert simulation is not None
        while True:
            inside, before = len(self.backlog.waiting) + len(self.backlog.running), simulation.now
            if not simulation.advance():
                break
            spent += inside * (simulation.now - before)
            if once or self._fits():
                break
        return -spent * self._scale

    def _fits(self) -> bool:
        """Return whether a visible job fits into the free GPUs."""
        assert self.simulation is not None
        free = self.simulation.pool.free
        return free > 0 and any(job.gpus <= free for job in self.backlog.visible_jobs())

    def _observe(self) -> Observation:
        """Return the current observation."""
        assert self.simulation is not None
        self._jobs = self.backlog.visible_jobs()
        rows, self._mask = np.zeros((MAX_VISIBLE_JOBS + 1, FEATURES)), np.zeros(MAX_VISIBLE_JOBS + 1, dtype=np.int8)
        if self._jobs:
            features = feature_rows(self.simulation, self.backlog, self._jobs)
            rows[: len(self._jobs)], rows[WAIT_ACTION] = features[:-1], features[-1]
            self._mask[:] = action_mask(self.simulation, self._jobs)
        return {"rows": rows, "mask": self._mask.copy()}


def action_mask(simulation: Simulation, jobs: list[JobState]) -> NDArray[np.int8]:
    """Return the feasible actions, shape (MAX_VISIBLE_JOBS + 1,): 1 for jobs that fit now.

    Waiting is feasible while a job is running.
    """
    mask = np.zeros(MAX_VISIBLE_JOBS + 1, dtype=np.int8)
    free = simulation.pool.free
    for position, job in enumerate(jobs):
        mask[position] = job.gpus <= free
    mask[WAIT_ACTION] = simulation.running > 0
    return mask
