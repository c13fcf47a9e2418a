"""State of a trial in compact form: its curve is one array, and of long histories only what decides is kept.

Agents write parts of a trial's status. An image that the operator may not run is removed here, before any decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import ConfigDict

from podium_core.curves.best_value import best_point
from podium_core.curves.packed_curve import PackedCurve, pack
from podium_core.domain.migration import IN_PROGRESS, MigrationPhase
from podium_core.domain.snapshot import Point
from podium_core.domain.switch_costs import SwitchTotals, mean_switch
from podium_core.domain.unsaved_work import UnsavedWork, unsaved_work
from podium_core.schema.checkpoint_image import image_problem
from podium_core.schema.trial import HyperParamTrial, SuspensionRecord, Suspensions

IMAGE_NOT_ACCEPTED = "ImageNotAccepted"


class TrialState(HyperParamTrial):
    """A trial, created by `parse_trial` for each version of the object.

    `status` lacks what the other fields hold: the curve, recent suspensions, and all GPU allocations but the last.

    - `points`: the curve
    - `switch_seconds`: mean of the recent suspensions by the method that was used last, or None
    - `switches`: totals of all suspensions
    - `allocated_nodes`: nodes of the GPU allocations
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    points: PackedCurve
    switch_seconds: float | None
    switches: SwitchTotals
    allocated_nodes: frozenset[str]

    def best(self, maximize: bool) -> Point | None:
        """Return the best point of the curve, or None."""
        return self._highest if maximize else self._lowest

    @cached_property
    def _highest(self) -> Point | None:
        return best_point(self.points, maximize=True)

    @cached_property
    def _lowest(self) -> Point | None:
        return best_point(self.points, maximize=False)

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


def parse_trial(payload: Mapping[str, Any], registry: str = "") -> TrialState:
    """Return the state of a trial.

    An image that the trial may not continue from becomes a refused migration. `registry` is the configured registry
    for checkpoint images, or empty. Raises ValueError (pydantic's).
    """
    given = dict(payload.get("status") or {})
    curve = given.pop("curve", None) or {}
    points = pack(curve.get("points") or ())
    trial = HyperParamTrial.model_validate({**payload, "status": given})
    status, past = trial.status, trial.status.suspensions
    changes: dict[str, Any] = _refused_images(trial, registry)
    changes["suspensions"] = past.model_copy(update={"recent": []})
    changes["allocations"] = status.allocations[-1:]
    return TrialState.model_construct(
        metadata=trial.metadata,
        spec=trial.spec,
        status=status.model_copy(update=changes),
        points=points,
        switch_seconds=_switch_seconds(past.recent),
        switches=_switch_totals(past),
        allocated_nodes=frozenset(allocation.node for allocation in status.allocations),
    )


def _switch_seconds(recent: Sequence[SuspensionRecord]) -> float | None:
    """Return the mean switch time of the method that was used last."""
    return mean_switch([(one.suspend_seconds, one.resume_seconds) for one in recent if one.method == recent[-1].method])


def _switch_totals(past: Suspensions) -> SwitchTotals:
    """Return the totals of suspensions; those without a resumption (yet) are among the recent ones."""
    suspended = sum(one.resume_seconds is None for one in past.recent)
    return SwitchTotals(past.count, past.suspend_seconds, past.count - suspended, past.resume_seconds)


def _refused_images(trial: HyperParamTrial, registry: str) -> dict[str, Any]:
    """Return the parts of the status that name an image which the trial may not continue from, without it."""
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
    return changes
