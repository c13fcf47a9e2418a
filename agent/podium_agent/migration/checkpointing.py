"""A container of this node leaves it, whoever asks: what the API server and /proc say of it, then `move`.

Called by `python -m podium_agent.migration` and by the agent's task `departures`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from podium_agent.migration.facts import Node, Pod
from podium_agent.migration.gpu_state import OffGpus
from podium_agent.migration.kubelet import Container, Kubelet
from podium_agent.migration.move import Departed, Mover
from podium_agent.migration.open_files import opened_by
from podium_agent.migration.refusal import MoveError
from podium_agent.migration.registry import Registry
from podium_agent.migration.settings import MoveSettings
from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.base import Standing
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked_memory import Arrival, Parked
from podium_agent.suspension.processes import CudaProcesses
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, PODS


@dataclass(frozen=True, slots=True)
class Tools:
    """`processes`: blocking; raises MoveError where there is no driver."""

    freeze: Freeze
    parked: Parked
    processes: Callable[[], CudaProcesses]


def registry_of(settings: MoveSettings) -> Registry:
    return Registry(settings.registry, settings.registry_user, settings.registry_password)


async def pod_of(api: Api, container: Container) -> Pod:
    """By list: the agent's account may list pods, not get one. Raises MoveError, ApiError."""
    found = (await api.list(PODS, container.namespace, fields=f"metadata.name={container.pod}"))["items"]
    if not found:
        raise MoveError("ContainerNotRunning", f"there is no pod {container.pod} in namespace {container.namespace}")
    return Pod.model_validate(found[0])


async def leave(
    settings: MoveSettings,
    api: Api,
    tools: Tools,
    container: Container,
    freezer: Freezer,
    pod: Pod,
    target: str,
    noted: Callable[[str], None] = lambda _: None,
) -> tuple[Departed, Arrival | None]:
    """The image, and what it held on GPUs that the driver had moved it off; None: nothing. `target`: a node's name,
    empty: not decided yet; `noted`: is told the image before it is in the registry (blocking). Raises MoveError,
    ApiError, OSError; the container stands as before then."""
    source = await _node(api, pod.spec.node_name)
    there = await _node(api, target) if target else None
    held = _moved_off(tools, freezer)
    opened = await asyncio.to_thread(opened_by, freezer.processes(), settings.proc)
    off_gpus = None
    if held:
        processes = await asyncio.to_thread(tools.processes)
        # its agent gets it back when this is surely over, also if it was killed
        off_gpus = OffGpus(processes, tools.parked, freezer.path.name, 2 * settings.move_seconds + 60.0)
    mover = Mover(
        Kubelet(source.address, source.port, settings.kubelet_authority, settings.kubelet_token),
        registry_of(settings),
        tools.freeze,
        settings.checkpoints_dir,
        settings.move_seconds,
        off_gpus,
        noted,
    )
    subject = pod.subject(container.name, opened, off_gpu=bool(held))
    place = there.place(settings.restore_switched_on) if there else None
    departed = await mover.depart(container, freezer, subject, source.place(), place)
    return departed, Arrival(gpus=held, processes=departed.processes) if held else None


def _moved_off(tools: Tools, freezer: Freezer) -> dict[str, int]:
    """Bytes by GPU of one that stands still with its agent's note; empty: its memory lies where it worked."""
    still = tools.freeze.standing((freezer,)) is Standing.PARKED
    return dict(tools.parked.whole(freezer.path.name).left) if still else {}


async def _node(api: Api, name: str) -> Node:
    try:
        return Node.model_validate(await api.get(NODES, name))
    except ApiError as error:
        if not error.not_found:
            raise
        raise MoveError("NodeNotFound", f"there is no node {name}") from error
