"""State of a trial: its curve is converted to the core's points once for each version of the object."""

from __future__ import annotations

from functools import cached_property

from podium_core.curves.best_value import best_point
from podium_core.domain.snapshot import Point
from podium_core.domain.unsaved_work import UnsavedWork, unsaved_work
from podium_core.schema.trial import HyperParamTrial


class TrialState(HyperParamTrial):
    """A trial, created by the watch cache for each version of the object."""

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Curve of the trial."""
        return tuple(Point(p.step, p.value, p.time) for p in self.status.curve.points)

    def best(self, maximize: bool) -> Point | None:
        """Return the best point of the curve, or None."""
        return self._highest if maximize else self._lowest

    @property
    def unsaved(self) -> UnsavedWork:
        """Work that the trial would have to repeat if its pod ended now."""
        status = self.status
        return unsaved_work(
            last_step=status.last_step,
            checkpoint_step=status.checkpoint.step if status.checkpoint else 0.0,
            gpu_seconds=status.gpu_seconds,
            checkpoint_gpu_seconds=status.checkpoint.gpu_seconds if status.checkpoint else 0.0,
            accounted_gpu_seconds=status.lost_work.accounted_gpu_seconds,
        )

    @cached_property
    def _highest(self) -> Point | None:
        return best_point(self.points, maximize=True)

    @cached_property
    def _lowest(self) -> Point | None:
        return best_point(self.points, maximize=False)
