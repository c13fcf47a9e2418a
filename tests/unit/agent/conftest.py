"""Lets the tests of this folder import the `agent_*` modules beside it (there are no packages under tests)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `cuda_node`, shared by several folders of tests
sys.path.append(str(Path(__file__).parents[1] / "cluster"))  # `faulty_server`

from agent_builders import TrialServer
from agent_node import Node
from agent_writing import Writing
from cuda_node import cuda_machine, cuda_node, driver
from migration_scene import Scene
from nvml_stub import nvml

from podium_devcluster.runtime import pki

__all__ = ["cuda_machine", "cuda_node", "driver", "nvml"]


@pytest.fixture
def on_node(tmp_path: Path) -> Callable[[Callable[[Node], object]], None]:
    """Plays a scene on a node, inside an event loop."""

    def play(scene: Callable[[Node], object]) -> None:
        async def inside() -> None:
            node = Node(tmp_path)
            try:
                answer = scene(node)
                if asyncio.iscoroutine(answer):
                    await answer
            finally:
                node.forget()

        asyncio.run(inside())

    return play


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., TrialServer]:
    """Plays a scene with writers, against a trial whose status is given; gives the API server afterwards."""

    def run(scene: Callable[[Writing], Awaitable[None]], **status: Any) -> TrialServer:
        server = TrialServer(**status)

        async def inside() -> None:
            await scene(Writing(tmp_path, server))

        asyncio.run(inside())
        return server

    return run


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki") / "pki"
    pki.create(folder, ())
    return folder


@pytest.fixture
def scene(tmp_path: Path, certificates: Path) -> Scene:
    return Scene(tmp_path, certificates)
