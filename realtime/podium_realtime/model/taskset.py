"""Parser of PeriodicTaskSet files: the tasks and the GPU partitions that they share.

`podium realtime admit` reads these files (YAML or JSON). Every error names the task and the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from podium_core.schema.base import API_VERSION, SpecModel
from podium_core.schema.error_messages import refusals
from podium_core.schema.rules import Refusal
from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.network import InferenceNetwork, Stage, resnet18
from podium_realtime.model.task import PeriodicTask, Priority, require_distinct

KIND = "PeriodicTaskSet"
Name = Annotated[str, Field(min_length=1, max_length=63)]
RelativeSize = Annotated[float, Field(gt=0, le=100)]


class StageSpec(SpecModel):
    """A stage. Work and launches are relative to ResNet-18 with batch 1: 0.5 is half its arithmetic."""

    name: Name
    work: RelativeSize
    launches: RelativeSize
    after: list[Name] = Field(default_factory=list)


class NetworkSpec(SpecModel):
    """A network as a list of stages in topological order."""

    name: Name
    stages: Annotated[list[StageSpec], Field(min_length=1, max_length=64)]


class TaskSpec(SpecModel):
    """A periodic task. Without `deadlineMs` the deadline is the period."""

    name: Name
    network: Name
    fps: Annotated[float, Field(ge=0.001, le=10_000)]
    deadline_ms: Annotated[float, Field(ge=0.001, le=1e6)] | None = None
    priority: Literal["high", "low"] = "low"


class GpuSpec(SpecModel):
    """The partitions of the simulated GPU (68 SMs, see `model.published`)."""

    name: Name = "gpu-0"
    contexts: Annotated[int, Field(ge=1, le=16)] = 3
    oversubscription: Annotated[float, Field(ge=1, le=16)] = 1.0
    processes: Literal["shared", "perContext"] = "perContext"


class TaskSetSpec(SpecModel):
    """The `spec` of a PeriodicTaskSet."""

    gpu: GpuSpec = GpuSpec()
    networks: list[NetworkSpec] = Field(default_factory=list)
    tasks: Annotated[list[TaskSpec], Field(min_length=1, max_length=1000)]


@dataclass(frozen=True, slots=True)
class TaskSet:
    """A parsed PeriodicTaskSet."""

    gpu: GpuSpec
    tasks: tuple[PeriodicTask, ...]

    @property
    def networks(self) -> tuple[InferenceNetwork, ...]:
        """The networks that the tasks use, each once."""
        return tuple({task.network.name: task.network for task in self.tasks}.values())


def parse(manifest: Mapping[str, Any]) -> TaskSet | tuple[Refusal, ...]:
    """Return the task set, or all errors in the manifest, each with its task and field."""
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = manifest.get(field, expected)
        if given != expected:
            return (Refusal("WrongKind", field, f"must be {expected} (got {given!r})"),)
    content = manifest.get("spec") or {}
    try:
        spec = TaskSetSpec.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        return tuple(_with_task_name(refusal, content) for refusal in refusals(error, TaskSetSpec, "spec"))
    networks = {"resnet18": resnet18()}
    try:
        for network in spec.networks:
            if network.name in networks:
                problem = "is already used (resnet18 is built in); give each network its own name"
                raise RealtimeError("DuplicateName", f"network {network.name}: name", problem)
            networks[network.name] = _network(network)
        tasks = tuple(_task(task, networks) for task in spec.tasks)
        require_distinct(tasks)
    except RealtimeError as error:
        return (Refusal(error.code, error.where, error.message),)
    return TaskSet(spec.gpu, tasks)


def _network(spec: NetworkSpec) -> InferenceNetwork:
    numbers = {stage.name: number for number, stage in enumerate(spec.stages)}
    stages = []
    for number, stage in enumerate(spec.stages):
        if numbers[stage.name] != number:
            where = f"network {spec.name}: stage {stage.name}: name"
            raise RealtimeError("DuplicateName", where, "is used more than once; give each stage its own name")
        where = f"network {spec.name}: stage {stage.name}: after"
        for before in stage.after:
            if before not in numbers:
                problem = f"stage {before} does not exist; use one of {', '.join(numbers)}"
                raise RealtimeError("UnknownStage", where, problem)
        stages.append(Stage(stage.name, stage.work, stage.launches, tuple(numbers[before] for before in stage.after)))
    return InferenceNetwork(spec.name, tuple(stages))


def _task(spec: TaskSpec, networks: Mapping[str, InferenceNetwork]) -> PeriodicTask:
    if spec.network not in networks:
        known = ", ".join(sorted(networks))
        problem = f"network {spec.network} does not exist; use one of {known}, or add it to spec.networks"
        raise RealtimeError("UnknownNetwork", f"task {spec.name}: network", problem)
    period = 1.0 / spec.fps
    deadline = period if spec.deadline_ms is None else spec.deadline_ms * 1e-3
    priority = Priority.HIGH if spec.priority == "high" else Priority.LOW
    return PeriodicTask(spec.name, networks[spec.network], period, deadline, priority)


def _with_task_name(refusal: Refusal, content: Any) -> Refusal:
    """Replace `spec.tasks[3].fps` by `task cam-3: fps` if the task has a name."""
    match = re.fullmatch(r"spec\.tasks\[(\d+)\]\.(.+)", refusal.field)
    if not match:
        return refusal
    task = content["tasks"][int(match.group(1))]  # exists, because pydantic reported an error in it
    name = task.get("name") if isinstance(task, Mapping) else None
    return Refusal(refusal.code, f"task {name}: {match.group(2)}", refusal.message) if name else refusal
