"""CPU downsizing: the annotation by which the operator passes a trial's CPU requests to the agent.

A pod with CPU downsizing starts with DOWNSIZED_MILLICPUS for each container that requests more. The annotation holds
the request of each container for the time in which the trial runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, TypeAdapter

CPU_ANNOTATION = "podium.dev/cpu"
DOWNSIZED_MILLICPUS = 10  # thousandths of a CPU: the scheduler still spreads the pods, and the cgroup has a weight

_CPU: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, Annotated[int, Field(gt=DOWNSIZED_MILLICPUS)]])


def to_annotation(cpu: Mapping[str, int]) -> str:
    """Return the value of the annotation for these requests: container name to thousandths of a CPU."""
    return _CPU.dump_json(dict(cpu)).decode()


def from_annotation(text: str) -> Mapping[str, int]:
    """Return the requests by container name, in thousandths of a CPU.

    Raises pydantic's ValueError for a value that the operator does not write.
    """
    return _CPU.validate_json(text)
