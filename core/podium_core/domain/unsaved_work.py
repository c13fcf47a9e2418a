"""Work that a trial would repeat if its pod ended now without a checkpoint.

The figure decides which pod is deleted, and it is announced before the deletion. The extender computes it for the
victims of a preemption, the operator for requeues, from the same fields of a trial's status. The agent counts the work
that was really lost in the same way (`podium_core.attempts.lost_work`).
"""

from __future__ import annotations

from dataclasses import dataclass

WILL_LOSE_WORK = "WorkAtRisk"  # reason of the Event


@dataclass(frozen=True, slots=True)
class UnsavedWork:
    """Work since the last checkpoint.

    `steps` in the unit of the job's stepKey, `gpu_seconds` over all its GPUs.
    """

    steps: float = 0.0
    gpu_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """Return the work at risk as a sentence."""
        return f"Without a new checkpoint, {self.steps:g} steps and {self.gpu_seconds:.1f} GPU-seconds are lost."


def unsaved_work(
    *,
    last_step: float | None,
    checkpoint_step: float,
    gpu_seconds: float,
    checkpoint_gpu_seconds: float,
    accounted_gpu_seconds: float,
) -> UnsavedWork:
    """Return the work since the newest checkpoint; the values of the checkpoint are 0 if there is none.

    `accounted_gpu_seconds` are the GPU-seconds at the last loss; they are not lost a second time.
    """
    return UnsavedWork(
        steps=max(0.0, (last_step or 0.0) - checkpoint_step),
        gpu_seconds=max(0.0, gpu_seconds - max(checkpoint_gpu_seconds, accounted_gpu_seconds)),
    )
