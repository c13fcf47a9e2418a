"""The file that people write: periodic tasks and the GPU they shall share. Parsed once, here, into frozen dataclasses.

`kind: PeriodicTaskSet` in YAML or JSON; read by `podium realtime admit`. Every refusal names the task and the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from podium_core.schema.base import API_VERSION, SpecModel
from podium_core.schema.error_messages import refusals
from podium_core.schema.rules import Refusal
from podium_realtime.model.network import Network, Stage, resnet18
from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import PeriodicTask, Priority, require_distinct

KIND = "PeriodicTaskSet"
Name = Annotated[str, Field(min_length=1, max_length=63)]
Share = Annotated[float, Field(gt=0, le=100)]


class StageSpec(SpecModel):
    """Shares are of ResNet-18, batch 1: a stage with work 0.5 has half its arithmetic."""

    name: Name
    work: Share
    launches: Share
    after: list[Name] = Field(default_factory=list)


class NetworkSpec(SpecModel):
    name: Name
    stages: Annotated[list[StageSpec], Field(min_length=1, max_length=64)]


class TaskSpec(SpecModel):
    name: Name
    network: Name
    fps: Annotated[float, Field(ge=0.001, le=10_000)]
    deadline_ms: Annotated[float, Field(ge=0.001, le=1e6)] | None = None
    priority: Literal["high", "low"] = "low"


class GpuSpec(SpecModel):
    """The simulated device: the published 68-SM one, in partitions."""

    name: Name = "gpu-0"
    contexts: Annotated[int, Field(ge=1, le=16)] = 3
    oversubscription: Annotated[float, Field(ge=1, le=16)] = 1.0
    processes: Literal["shared", "perContext"] = "perContext"


class TaskSetSpec(SpecModel):
    gpu: GpuSpec = GpuSpec()
    networks: list[NetworkSpec] = Field(default_factory=list)
    tasks: Annotated[list[TaskSpec], Field(min_length=1, max_length=1000)]


class TaskSet:
    """What the file says, as the schedulers want it."""

    def __init__(self, gpu: GpuSpec, tasks: tuple[PeriodicTask, ...]) -> None:
        self.gpu = gpu
        self.tasks = tasks

    @property
    def networks(self) -> tuple[Network, ...]:
        """Each network that a task uses, once."""
        return tuple({task.network.name: task.network for task in self.tasks}.values())


def parse(manifest: Mapping[str, Any]) -> TaskSet | tuple[Refusal, ...]:
    """The task set, or everything that is wrong with it, each with task and field."""
    for field, want in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = manifest.get(field, want)
        if given != want:
            return (Refusal("WrongKind", field, f"{given!r} is not what is read here; write {field}: {want}"),)
    content = manifest.get("spec") or {}
    try:
        spec = TaskSetSpec.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        return tuple(_named(one, content) for one in refusals(error, TaskSetSpec, "spec"))
    networks = {"resnet18": resnet18()}
    try:
        for network in spec.networks:
            if network.name in networks:
                told = "is there already (resnet18 is built in); names must differ"
                raise RealtimeError("DuplicateName", f"network {network.name}: name", told)
            networks[network.name] = _network(network)
        tasks = tuple(_task(task, networks) for task in spec.tasks)
        require_distinct(tasks)
    except RealtimeError as error:
        return (Refusal(error.code, error.where, error.message),)
    return TaskSet(spec.gpu, tasks)


def _network(spec: NetworkSpec) -> Network:
    numbers = {stage.name: number for number, stage in enumerate(spec.stages)}
    stages = []
    for number, stage in enumerate(spec.stages):
        if numbers[stage.name] != number:
            where = f"network {spec.name}: stage {stage.name}: name"
            raise RealtimeError("DuplicateName", where, "is used more than once; names must differ")
        where = f"network {spec.name}: stage {stage.name}: after"
        for before in stage.after:
            if before not in numbers:
                told = f"there is no stage {before}; there are {', '.join(numbers)}"
                raise RealtimeError("UnknownStage", where, told)
        stages.append(Stage(stage.name, stage.work, stage.launches, tuple(numbers[before] for before in stage.after)))
    return Network(spec.name, tuple(stages))


def _task(spec: TaskSpec, networks: Mapping[str, Network]) -> PeriodicTask:
    if spec.network not in networks:
        known = ", ".join(sorted(networks))
        told = f"there is no network {spec.network}; there are {known}, or add it to spec.networks"
        raise RealtimeError("UnknownNetwork", f"task {spec.name}: network", told)
    period = 1.0 / spec.fps
    deadline = period if spec.deadline_ms is None else spec.deadline_ms * 1e-3
    priority = Priority.HIGH if spec.priority == "high" else Priority.LOW
    return PeriodicTask(spec.name, networks[spec.network], period, deadline, priority)


def _named(refusal: Refusal, content: Any) -> Refusal:
    """`spec.tasks[3].fps` becomes `task cam-3: fps` where the task has a name."""
    found = re.fullmatch(r"spec\.tasks\[(\d+)\]\.(.+)", refusal.field)
    if not found:
        return refusal
    task = content["tasks"][int(found.group(1))]  # pydantic found a fault in it, so it is there
    name = task.get("name") if isinstance(task, Mapping) else None
    return Refusal(refusal.code, f"task {name}: {found.group(2)}", refusal.message) if name else refusal
