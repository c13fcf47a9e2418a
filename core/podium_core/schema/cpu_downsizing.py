"""CPU parking: what the operator tells the agent of a trial's CPU requests, on the trial's pod.

A pod that parks its CPUs is made with PARKED thousandths for each container that wants more; the annotation says what
each is to request while the trial is at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, TypeAdapter

CPU_ANNOTATION = "podium.dev/cpu"
PARKED = 10  # thousandths of a CPU: enough for the scheduler to spread by, and for a cgroup to have a weight

_CPU: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, Annotated[int, Field(gt=PARKED)]])


def to_annotation(cpu: Mapping[str, int]) -> str:
    return _CPU.dump_json(dict(cpu)).decode()


def from_annotation(text: str) -> Mapping[str, int]:
    """By container: thousandths of a CPU. Raises ValueError (pydantic's) for what the operator does not write."""
    return _CPU.validate_json(text)
