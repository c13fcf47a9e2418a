"""Checkpoint a container of this node to an image: read the facts about it, then run the `Checkpointer`.

`python -m podium_agent.migration` and the agent's migration controller call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from podium_agent.migration.checkpointer import Checkpointer, CheckpointImage
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.facts import NodeAddress, Pod
from podium_agent.migration.gpu_state import CheckpointedGpuState
from podium_agent.migration.kubelet import ContainerRef, Kubelet
from podium_agent.migration.open_files import open_files_of
from podium_agent.migration.registry import Registry
from podium_agent.migration.settings import MigrationSettings
from podium_agent.observe.cgroups import Freezer
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS
from podium_suspension.base import SuspensionState
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuState, GpuStateNotes
from podium_suspension.processes import CudaProcesses


@dataclass(frozen=True, slots=True)
class MigrationTools:
    """Tools of the node that a migration needs.

    `processes` blocks, and raises MigrationError without a driver.
    """

    freeze: Freeze
    notes: GpuStateNotes
    processes: Callable[[], CudaProcesses]


@dataclass(frozen=True, slots=True)
class MigrationSource:
    """The container to migrate, its cgroup and its pod."""

    container: ContainerRef
    freezer: Freezer
    pod: Pod


def registry_from(settings: MigrationSettings) -> Registry:
    """Return the registry of the settings."""
    return Registry(settings.registry, settings.registry_user, settings.registry_password)


async def get_pod(api: Api, container: ContainerRef) -> Pod:
    """Return the container's pod, by a list request, since the agent's account may only list pods.

    Raises MigrationError and ApiError.
    """
    pods = (await api.list(PODS, container.namespace, fields=f"metadata.name={container.pod}"))["items"]
    if not pods:
        raise MigrationError(
            "ContainerNotRunning", f"cannot find pod {container.pod} in namespace {container.namespace}"
        )
    return Pod.model_validate(pods[0])


async def checkpoint_container(
    settings: MigrationSettings,
    api: Api,
    tools: MigrationTools,
    source: MigrationSource,
    target: str,
    before_push: Callable[[str], None] = lambda _: None,
) -> tuple[CheckpointImage, GpuState | None]:
    """Checkpoint a container and push its image.

    Returns the image, and the GPU state if the driver had moved one off its GPUs. `target` is the name of the new node,
    empty if it is not decided yet. `before_push` is called with the image's reference before the push; it may block.
    Raises MigrationError, ApiError and OSError; the container is then in its original state.
    """
    container, freezer, pod = source.container, source.freezer, source.pod
    here = await _node(api, pod.spec.node_name)
    there = await _node(api, target) if target else None
    held = _held_bytes(tools, freezer)
    open_files = await asyncio.to_thread(open_files_of, freezer.processes(), settings.proc)
    gpu_state = None
    if held:
        processes = await asyncio.to_thread(tools.processes)
        # the agent takes the container over at this time, even if this process was killed
        takeover_seconds = 2 * settings.migration_step_seconds + 60.0
        gpu_state = CheckpointedGpuState(processes, tools.notes, freezer.name, takeover_seconds)
    checkpointer = Checkpointer(
        Kubelet(here.address, here.port, settings.kubelet_authority, settings.kubelet_token),
        registry_from(settings),
        tools.freeze,
        settings.checkpoints_dir,
        settings.migration_step_seconds,
        gpu_state,
    )
    container_facts = pod.container_facts(container.name, open_files, off_gpu=bool(held))
    target_facts = there.node_facts(settings.restore_enabled) if there else None
    image = await checkpointer.checkpoint(
        container, freezer, container_facts, here.node_facts(), target_facts, before_push
    )
    return image, GpuState(gpus=held, processes=image.processes) if held else None


def _held_bytes(tools: MigrationTools, freezer: Freezer) -> dict[str, int]:
    """Return the bytes by GPU of a suspended container with a note; empty if its memory is on its GPUs."""
    is_suspended = tools.freeze.suspension_state((freezer,)) is SuspensionState.SUSPENDED
    return dict(tools.notes.read(freezer.name).bytes_by_driver_gpu) if is_suspended else {}


async def _node(api: Api, name: str) -> NodeAddress:
    try:
        return NodeAddress.model_validate(await api.get(NODES, name))
    except ApiError as error:
        if not error.not_found:
            raise
        raise MigrationError("NodeNotFound", f"cannot find node {name}") from error
