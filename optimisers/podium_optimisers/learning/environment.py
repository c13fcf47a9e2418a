"""The gymnasium environment: an episode is one simulation of the engine, an action is the job that starts next.

Not a model of the simulator but the simulator: `step` calls `Simulation.start` and `Simulation.advance`. Register-free:
`SchedulingEnv(settings)`. Called by the trainers, and by anybody's own (Stable-Baselines3: MultiInputPolicy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import JobState, Simulation
from podium_optimisers.engine.workload import Workload
from podium_optimisers.learning.backlog import FEATURES, SLOTS, Backlog, rows_of

WAIT = SLOTS  # the last action
Observation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Episodes:
    """What episodes are drawn from: `jobs` jobs that offer `load` of the cluster, three of four short (mean 60 s), one
    of four long (mean 600 s), exponential around both; gangs of 1, 2, 4 and 8 as far as the cluster allows.
    """

    jobs: int = 60
    load: float = 1.1
    cluster: Cluster = field(default_factory=lambda: Cluster(2, 4))

    def __post_init__(self) -> None:
        for name in ("jobs", "load"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"InvalidSetting: {name} is {value}; give a finite number above 0.")

    def draw(self, generator: np.random.Generator) -> Workload:
        duration = np.where(generator.random(self.jobs) < 0.75, 60.0, 600.0) * generator.exponential(1.0, self.jobs)
        gpus = np.minimum(generator.choice([1, 2, 4, 8], size=self.jobs, p=[0.6, 0.2, 0.15, 0.05]), self.cluster.gpus)
        gap = 195.0 * float(np.mean(gpus)) / (self.load * self.cluster.gpus)  # 195 s: the mean duration
        arrival = np.cumsum(generator.exponential(gap, self.jobs))
        return Workload(arrival, np.maximum(duration, 1.0), gpus.astype(np.int64))


class _Driven:
    """The policy of an episode: the backlog is kept, the environment decides."""

    name = "driven"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> Backlog:
        return Backlog()


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """Observation: `rows` (SLOTS + 1, FEATURES) of what waits (zeros where nothing is) and of waiting for the next
    event, `mask` (SLOTS + 1,): 1 where the action can be done. Action: a slot, or WAIT. An action that cannot be done
    starts the job that came first among those that fit. Reward: minus the seconds that jobs spent in the system since
    the last action, over (jobs x mean duration): an episode's return is minus the mean completion time, in means.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (the name and type are gymnasium's)

    def __init__(self, episodes: Episodes | None = None) -> None:
        self.episodes = episodes if episodes is not None else Episodes()
        self.observation_space = spaces.Dict(
            {
                "rows": spaces.Box(0.0, 1.0, (SLOTS + 1, FEATURES), np.float64),
                "mask": spaces.MultiBinary(SLOTS + 1),
            }
        )
        self.action_space = spaces.Discrete(SLOTS + 1)
        self.simulation: Simulation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new episode, drawn from the seed; `options={"workload": Workload}` gives the jobs instead."""
        super().reset(seed=seed)
        workload = (options or {}).get("workload")
        if workload is None:
            workload = self.episodes.draw(self.np_random)
        self.simulation = Simulation(workload, self.episodes.cluster, _Driven())
        assert isinstance(self.simulation.decider, Backlog)
        self.backlog = self.simulation.decider
        self._scale = 1.0 / (len(workload) * float(np.mean(workload.duration)))
        self._advance()
        return self._observe(), {}

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Errors: RuntimeError when the episode is over or was not begun; ValueError for what is no action."""
        if not self.action_space.contains(action):
            raise ValueError(f"InvalidAction: action is {action!r}; give a whole number from 0 to {WAIT}.")
        simulation = self.simulation
        if simulation is None or simulation.unfinished == 0:
            raise RuntimeError("EpisodeEnded: no episode is running; call reset().")
        reward = 0.0
        if action == WAIT and self._mask[WAIT]:
            reward = self._advance(once=True)
        else:
            slot = int(action) if self._mask[action] else int(np.argmax(self._mask))
            self.backlog.start(simulation, self._jobs[slot])
        if not self._fits():
            reward += self._advance()
        over = simulation.unfinished == 0
        info = {"mean_completion": simulation.outcome().mean_completion} if over else {}
        return self._observe(), reward, over, False, info

    def _advance(self, once: bool = False) -> float:
        """To the next instant at which a job can start, or the end; the reward of the time that passes."""
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
        assert self.simulation is not None
        free = self.simulation.pool.free
        return free > 0 and any(job.gpus <= free for job in self.backlog.seen())

    def _observe(self) -> Observation:
        assert self.simulation is not None
        self._jobs = self.backlog.seen()
        rows, self._mask = np.zeros((SLOTS + 1, FEATURES)), np.zeros(SLOTS + 1, dtype=np.int8)
        if self._jobs:
            found = rows_of(self.simulation, self.backlog, self._jobs)
            rows[: len(self._jobs)], rows[WAIT] = found[:-1], found[-1]
            self._mask[:] = mask_of(self.simulation, self._jobs)
        return {"rows": rows, "mask": self._mask.copy()}


def mask_of(simulation: Simulation, jobs: list[JobState]) -> NDArray[np.int8]:
    """Shape (SLOTS + 1,): 1 for slots whose job fits now; waiting is for when something runs that will end."""
    mask = np.zeros(SLOTS + 1, dtype=np.int8)
    free = simulation.pool.free
    for slot, job in enumerate(jobs):
        mask[slot] = job.gpus <= free
    mask[WAIT] = simulation.running > 0
    return mask
