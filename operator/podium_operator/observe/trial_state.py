"""State of a trial: its curve is converted to the core's points once for each version of the object.

Agents write parts of a trial's status. An image that the operator may not run is removed here, before any decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from podium_core.curves.best_value import best_point
from podium_core.domain.migration import IN_PROGRESS, MigrationPhase
from podium_core.domain.snapshot import Point
from podium_core.domain.unsaved_work import UnsavedWork, unsaved_work
from podium_core.schema.checkpoint_image import image_problem
from podium_core.schema.trial import HyperParamTrial

IMAGE_NOT_ACCEPTED = "ImageNotAccepted"


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


def parse_trial(payload: Mapping[str, Any], registry: str) -> TrialState:
    """Return the state of a trial.

    An image that the trial may not continue from becomes a refused migration. `registry` is the configured registry
    for checkpoint images, or empty. Raises ValueError (pydantic's).
    """
    trial = TrialState.model_validate(payload)
    meta, status = trial.metadata, trial.status
    changes: dict[str, Any] = {}
    answer, stored = status.container_checkpoint, status.migration
    if answer is not None and answer.image:
        problem = image_problem(answer.image, registry, meta.namespace, meta.name)
        if problem:
            refused = {"image": "", "gpu_state": "", "code": IMAGE_NOT_ACCEPTED, "message": problem}
            changes["container_checkpoint"] = answer.model_copy(update=refused)
    if stored is not None and stored.image and stored.phase in IN_PROGRESS:
        problem = image_problem(stored.image, registry, meta.namespace, meta.name)
        if problem:
            failed = {"phase": MigrationPhase.FAILED, "image": "", "code": IMAGE_NOT_ACCEPTED, "message": problem}
            changes["migration"] = stored.model_copy(update=failed)
    return trial.model_copy(update={"status": status.model_copy(update=changes)}) if changes else trial
