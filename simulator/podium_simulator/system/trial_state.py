"""Parts of a simulated trial's state that concern no node: training, GPU time, switches, attempts, migration.

`state.Trial` holds them, and `pods` changes them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from podium_core.attempts.usage_ledger import MAX_RECENT
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.observe import retry_delay
from podium_core.domain.snapshot import Point, TrialUsage
from podium_core.domain.switch_costs import SwitchTotals, mean_switch
from podium_simulator.traces.trace import RecordedTrial


@dataclass(frozen=True, slots=True)
class WrittenStatus:
    """A trial's record in the API, as its agent wrote it at `at`.

    `totals`: what all its suspensions took. The switch seconds of `usage` are the mean of the newest suspensions and
    resumptions.
    """

    at: float = -math.inf
    curve: tuple[Point, ...] = ()
    usage: TrialUsage = field(default_factory=TrialUsage)
    totals: SwitchTotals = field(default_factory=SwitchTotals)


@dataclass(slots=True, eq=False)
class SimMigration:
    """Live migration from `node` to `target`.

    `attempt`: attempt of its pod there. `since`: start of the phase. `known_values`: number of values reported when
    that pod was created. `pushed`: its image is in the registry, with all of its training.
    """

    node: str
    target: str
    reason: str
    attempt: int
    since: float
    phase: MigrationPhase = MigrationPhase.REQUESTED
    code: str = ""
    known_values: int = 0
    pushed: bool = False


@dataclass(slots=True, eq=False)
class Training:
    """Training of a trial along its recorded curve.

    `steps`: step of each evaluation. `trained`: seconds until `trains_from`. `evaluations`: number reached; `points`:
    those reported. `checkpoint_seconds`: seconds of training that a later pod finds in the checkpoint.
    `checkpoints`: number of those for another trial or for its node; each is followed by a new pod. `lost_seconds`:
    training that is repeated.
    """

    curve: RecordedTrial
    steps: Sequence[float]
    trained: float = 0.0
    trains_from: float = 0.0
    evaluations: int = 0
    points: list[Point] = field(default_factory=list)
    checkpoint_seconds: float | None = None
    checkpoints: int = 0
    lost_seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Return whether the last evaluation was reached."""
        return self.evaluations >= len(self.curve.seconds)

    @property
    def checkpoint_step(self) -> float | None:
        """Return the step of the last evaluation in the checkpoint; None: there is no checkpoint."""
        saved = self.checkpoint_seconds
        if saved is None:
            return None
        return max((s for s, t in zip(self.steps, self.curve.seconds, strict=True) if t <= saved), default=0.0)

    def pause(self, now: float) -> None:
        """Count the training since `trains_from`."""
        self.trained += now - self.trains_from

    def evaluate(self, now: float) -> Point | None:
        """Reach the next evaluation; return its point, or None if an earlier attempt reported the step."""
        index = self.evaluations
        self.trained = self.curve.seconds[index]  # avoids accumulated rounding errors
        self.trains_from = now
        self.evaluations += 1
        if index != len(self.points):
            return None  # the trial repeats the step: the agent ignores steps that it has read before
        point = Point(self.steps[index], self.curve.values[index], now)
        self.points.append(point)
        return point

    def discard_unsaved(self, written: int, *, saves_evaluations: bool) -> None:
        """Discard the training since the last checkpoint.

        The `written` first values remain, as in the trial's status. `saves_evaluations`: the trial checkpoints at each
        evaluation.
        """
        kept_seconds = self.checkpoint_seconds or 0.0
        if saves_evaluations and self.evaluations:
            kept_seconds = max(kept_seconds, self.curve.seconds[self.evaluations - 1])
            self.checkpoint_seconds = kept_seconds
        self.lost_seconds += self.trained - kept_seconds
        self.trained = kept_seconds
        while self.evaluations and self.curve.seconds[self.evaluations - 1] > kept_seconds:
            self.evaluations -= 1
        del self.points[max(self.evaluations, written) :]


@dataclass(slots=True, eq=False)
class GpuTime:
    """GPU time of a trial.

    `seconds`: GPU-seconds of its ended allocations. `held_since`: start of the present one; None: there is none.
    `first_held`: start of the first one.
    """

    seconds: float = 0.0
    held_since: float | None = None
    first_held: float | None = None

    def charged(self, now: float, gpus: int) -> float:
        """Return the GPU-seconds until now of a trial that holds this number of GPUs."""
        held = 0.0 if self.held_since is None else (now - self.held_since) * gpus
        return self.seconds + held

    def start(self, now: float) -> None:
        """Start an allocation."""
        self.held_since = now
        self.first_held = now if self.first_held is None else self.first_held

    def stop(self, now: float, gpus: int) -> None:
        """End the present allocation, if there is one."""
        self.seconds, self.held_since = self.charged(now, gpus), None


@dataclass(slots=True, eq=False)
class Switches:
    """Completed suspensions and resumptions of a trial, with the seconds that they took.

    `recent`: seconds of each of the newest suspensions and, once it was resumed, of its resumption.
    """

    suspensions: int = 0
    suspend_seconds: float = 0.0
    resumptions: int = 0
    resume_seconds: float = 0.0
    recent: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))

    @property
    def totals(self) -> SwitchTotals:
        """Return the sums, as the agent writes them."""
        return SwitchTotals(self.suspensions, self.suspend_seconds, self.resumptions, self.resume_seconds)

    @property
    def mean_seconds(self) -> float | None:
        """Return the mean seconds of a suspension and resumption, as the operator reads them; None: unknown."""
        return mean_switch(self.recent)

    def suspended(self, seconds: float) -> None:
        """Record a suspension."""
        self.suspensions += 1
        self.suspend_seconds += seconds
        self.recent.append((seconds, None))

    def resumed(self, seconds: float) -> None:
        """Record the resumption after the last suspension."""
        self.resumptions += 1
        self.resume_seconds += seconds
        self.recent[-1] = (self.recent[-1][0], seconds)


@dataclass(slots=True, eq=False)
class SimAttempts:
    """Attempts of a trial.

    `number` of the present one. `failures` of the trial's own. `losses`: consecutive ones by the cluster without a new
    step, and the step known at the last one. `retry_at`: no new pod before this time. `migrations`: number of attempts
    that continued live on another node.
    """

    number: int = 0
    failures: int = 0
    losses: tuple[int, float | None] | None = None
    retry_at: float = 0.0
    migrations: int = 0

    def count_loss(self, now: float, step: float | None) -> None:
        """Delay a retry as the operator does (`domain.observe`): from the second loss without progress on.

        `step`: last known step.
        """
        before = self.losses
        if before is None or (step is not None and (before[1] is None or step > before[1])):
            self.losses = (1, step)
            return
        self.retry_at = now + retry_delay(before[0])
        self.losses = (before[0] + 1, step)
