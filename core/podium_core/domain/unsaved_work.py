"""What a trial does again if its pod ends now and it cannot save first: the figure that chooses who leaves, and that is
announced before it does.

Used by the extender (victims of a preemption) and the operator (requeues), from the same fields of a trial's status.
What was lost in the end is counted by the agent in the same way (`podium_agent.report.lost_work`).
"""

from __future__ import annotations

from dataclasses import dataclass

WILL_LOSE_WORK = "WorkAtRisk"  # reason of the Event


@dataclass(frozen=True, slots=True)
class UnsavedWork:
    """Since the last save: `steps` in the unit of the job's stepKey, `gpu_seconds` of all its GPUs."""

    steps: float = 0.0
    gpu_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        return f"If it cannot save first, {self.steps:g} steps and {self.gpu_seconds:.1f} GPU-seconds are lost."


def unsaved_work(
    *,
    last_step: float | None,
    checkpoint_step: float,
    gpu_seconds: float,
    checkpoint_gpu_seconds: float,
    accounted_gpu_seconds: float,
) -> UnsavedWork:
    """`saved_...`: of its newest save, 0 without one; `accounted_gpu_seconds`: gpuSeconds at its last loss, which is
    not lost again.
    """
    return UnsavedWork(
        steps=max(0.0, (last_step or 0.0) - checkpoint_step),
        gpu_seconds=max(0.0, gpu_seconds - max(checkpoint_gpu_seconds, accounted_gpu_seconds)),
    )
