"""What observer, conductor and carrier make of pods, /proc and freezers; the latter two are folders of ours."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from podium.domain.snapshot import TrialKey
from podium.schema.gpunode import GPUNode, TrialState
from podium_agent.arbiter import Entry, Grant, Orders, Suspend, decide
from podium_agent.book import Book
from podium_agent.carrier import Carrier
from podium_agent.cgroups import Container, Freezer
from podium_agent.conductor import Conductor
from podium_agent.gate import Gates
from podium_agent.metrics import Metrics
from podium_agent.observer import Observer
from podium_agent.pods import TrialPod, parse
from podium_agent.settings import AgentSettings
from podium_agent.suspension.freeze import Freeze
from podium_agent.trials import Acting
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS
from podium_cluster.watch import WatchCache

TRAIN, SIDECAR = "ab" * 32, "cd" * 32


def pod(name: str = "a", **changes: object) -> TrialPod:
    base = TrialPod(
        key=TrialKey("demo", name, f"uid-{name}"),
        name=f"{name}-0",
        uid=f"pod-{name}",
        containers=("train",),
        running=frozenset(),
        ended=False,
        gate_running=False,
        gate_passed=True,
        deadline=None,
        memory=0,
        reading=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


class Node:
    """A machine made of folders: running a container writes its freezer, and its process into /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = AgentSettings(
            node_name="n",
            proc=folder / "proc",
            cgroup_root=folder / "cgroup",
            pod_resources_socket=folder / "none.sock",
        )
        settings.proc.mkdir()
        method = Freeze(1.0)
        self.gates = Gates(settings.proc, lambda: None)
        self.observer = Observer(settings, self.gates, method, lambda: None)
        self.books: dict[str, Book] = {}
        self.carrier = Carrier(
            self.observer, self.gates, method, Metrics(), 5.0, self.books.get, changed=lambda: self.settled.set()
        )
        self.settled = asyncio.Event()

    def run(self, container: str, pid: int) -> Freezer:
        place = self.folder / "cgroup" / "freezer" / container
        place.mkdir(parents=True)
        (place / "freezer.state").write_text("THAWED")
        (place / "cgroup.procs").write_text(f"{pid}\n")
        process = self.folder / "proc" / str(pid)
        process.mkdir()
        (process / "cgroup").write_text(f"6:freezer:/{container}\n")
        return Freezer(place, unified=False)

    def state(self, *pods: TrialPod) -> TrialState | None:
        """Of the first one, found anew: the observer looks for containers at most twice a second."""
        for one in self.observer.records():
            one.searched = 0.0
        trials = self.observer.look(pods, 1.0)
        return trials[0].state if trials else None


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
                node.observer.look((), 2.0)  # closes what it watches

        asyncio.run(inside())

    return play


def test_a_trial_without_a_gpu_stands_in_nobodys_way(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        node.run(TRAIN, os.getpid())
        cpu = pod("cpu", gated=False, running=frozenset({TRAIN}))
        waiting = pod("b", gate_passed=False)
        assert node.state(cpu) is None
        assert node.observer._asking is None, "the kubelet is asked for devices that it will never have"
        node.observer.look((cpu, waiting), 1.0)
        record = node.observer.record(waiting.uid)
        assert record is not None
        record.gpus = ("G",)
        node.gates._sessions[waiting.uid] = None  # type: ignore[assignment] # it waits at its gate
        trials = node.observer.look((cpu, waiting), 1.0)
        steps = decide(Orders(1, {"G": (Entry(waiting.key),)}), trials, 1.0)
        assert [type(step) for step in steps] == [Grant]

    on_node(scene)


def test_the_book_of_a_trial_without_a_gpu_is_open_until_its_pod_ends(on_node: Callable[..., None]) -> None:
    """Ended too soon, its status would be patched with every line instead of every two seconds."""

    def scene(node: Node) -> None:
        pods = WatchCache(cast(Api, None), PODS, parse)
        nodes = WatchCache(cast(Api, None), GPUNODES, GPUNode.model_validate)
        conductor = Conductor(AgentSettings(node_name="n"), pods, nodes, Metrics(), lambda one: Book(one, "n"))
        cpu = pod("cpu", gated=False)
        for ended in (False, True):
            node.observer.look((replace(cpu, ended=ended),), 1.0)
            conductor._keep_books(node.observer, 1.0)
            book = conductor.books[cpu.uid]
            assert (book.ended, book.closed) == (ended, ended)

    on_node(scene)


def test_a_trial_is_starting_until_all_of_its_containers_are_there(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        node.run(TRAIN, os.getpid())
        both = pod(containers=("train", "sidecar"))
        one = replace(both, running=frozenset({TRAIN}), starting=True)
        assert node.state(one) is TrialState.STARTING
        two = replace(both, running=frozenset({TRAIN, SIDECAR}))
        assert node.state(two) is TrialState.STARTING, "running, but its processes are not found yet"
        node.run(SIDECAR, os.getppid())
        assert node.state(two) is TrialState.RUNNING
        assert node.state(one) is TrialState.RUNNING, "it has been whole once"

    on_node(scene)


def test_a_container_whose_image_never_comes_is_not_waited_for(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        freezer = node.run(TRAIN, os.getpid())
        stuck = pod(containers=("train", "sidecar"), running=frozenset({TRAIN}), starting=False)
        assert node.state(stuck) is TrialState.RUNNING
        shutil.rmtree(freezer.path)
        assert node.state(stuck) is TrialState.STARTING, "nothing is there to suspend, but the pod has not ended"

    on_node(scene)


def test_a_freezer_that_cannot_be_read_changes_no_state(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        freezer = node.run(TRAIN, os.getpid())
        running = pod(running=frozenset({TRAIN}))
        assert node.state(running) is TrialState.RUNNING
        freezer.ask(True)
        assert node.state(running) is TrialState.SUSPENDED
        (freezer.path / "freezer.state").unlink()
        (freezer.path / "freezer.state").mkdir()
        assert node.state(running) is TrialState.SUSPENDED
        (freezer.path / "freezer.state").rmdir()
        assert node.state(running) is None, "removed: that is an end"

    on_node(scene)


def test_a_method_that_crashes_leaves_no_trial_in_between(on_node: Callable[..., None]) -> None:
    async def scene(node: Node) -> None:
        (node.folder / "cgroup.events").write_text("populated\n")  # no number: dict() raises ValueError
        trials = node.observer.look((pod(),), 1.0)
        record = node.observer.record("pod-a")
        assert record is not None
        record.containers["x"] = Container("x", os.getpid(), Freezer(node.folder, unified=True))
        assert node.carrier.carry([Suspend(trials[0], "Ranked")])
        assert record.acting is Acting.SUSPENDING
        await asyncio.wait_for(node.settled.wait(), 5)
        assert record.acting is Acting.NOTHING
        assert record.trouble.startswith("Crashed: ValueError")
        assert record.retry_at > 0.0

    on_node(scene)
