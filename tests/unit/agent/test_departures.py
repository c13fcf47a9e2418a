"""The agent makes live trials images when asked to, answers in the trial's status, and undoes what is asked no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from agent_builders import FIRST_PID, TrialServer, pod, pod_uid
from agent_writing import Writing, begun, kill
from moving_servers import FakeKubelet, FakeRegistry

from podium.domain.carrying import METHOD
from podium.schema.gpunode import TrialState
from podium.schema.trial import Departure
from podium_agent.account import Account
from podium_agent.book import Book
from podium_agent.cgroups import Container, Freezer
from podium_agent.moving.departures import AGAIN_SECONDS, Departures
from podium_agent.moving.leave import Tools
from podium_agent.moving.settings import MoveSettings
from podium_agent.pods import TrialPod
from podium_agent.records import Record
from podium_agent.suspension.base import Outcome
from podium_agent.suspension.cuda import ProcessState
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked import Parked
from podium_agent.suspension.processes import CudaProcesses
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import NODES, Resource
from podium_devcluster import pki

LATE = "checkpoint-a-0_demo-train-2026-11-22T04:52:25Z.tar"
MINE = "podium-checkpoints/demo/a-0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki") / "pki"
    pki.create(folder, ())
    return folder


class Driver:
    """Calls every process checkpointed."""

    async def of(self, targets: tuple[Freezer, ...]) -> dict[int, ProcessState]:
        return {FIRST_PID: ProcessState.CHECKPOINTED}


@dataclass
class Scene:
    """One suspended trial of node n, of whose GPU memory there is a note; its agent is asked to carry it to `there`."""

    root: Path
    certificates: Path
    there: str = "there"
    runtimes: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("n", "there"), "containerd://2.1.9"))
    registry_is_there: bool = True
    api_is_there: bool = True
    freeze: Freeze = field(default_factory=lambda: Freeze(5.0))
    registry: FakeRegistry = field(default_factory=FakeRegistry)

    def __post_init__(self) -> None:
        cgroup, self.folder = self.root / "c1", self.root / "checkpoints"
        cgroup.mkdir()
        self.folder.mkdir()
        (cgroup / "cgroup.procs").write_text(f"{FIRST_PID}\n")
        self.freezer = Freezer(cgroup, unified=False)
        self.freezer.ask(True)
        self.kubelet = FakeKubelet(self.folder, self.freezer)
        (self.root / "token").write_text("t")
        self.parked = Parked(self.root / "parked")
        self.parked.note("c1", {"GPU-1": 64})
        self.pod = pod(carry=self.there, methods=("cuda-checkpoint", METHOD), main="c1", running=frozenset({"c1"}))
        self.record = Record(self.pod, containers={"c1": Container("c1", FIRST_PID, self.freezer)})
        self.book = Book(self.pod, "n", state=TrialState.SUSPENDED, account=Account())
        self.port = 0

    async def list(self, *_: Any, **__: Any) -> dict[str, Any]:
        if not self.api_is_there:
            raise ApiError(0, "Unreachable", "the API server is away")
        running = {"name": "train", "containerID": "containerd://c1", "imageID": "registry/trial@sha256:1"}
        spec = {"nodeName": "n", "containers": [{"name": "train"}]}
        return {"items": [{"metadata": {"name": "a-0"}, "spec": spec, "status": {"containerStatuses": [running]}}]}

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        assert resource is NODES
        if name not in self.runtimes:
            raise ApiError(404, "NotFound", name)
        status = {
            "nodeInfo": {"containerRuntimeVersion": self.runtimes[name], "architecture": "amd64"},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }
        return {"metadata": {"name": name}, "status": status}

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Departures]:
        async with AsyncExitStack() as stack:
            self.port = await stack.enter_async_context(self.kubelet.serve(self.certificates))
            port = await stack.enter_async_context(self.registry.serve())
            self.address = f"127.0.0.1:{port if self.registry_is_there else 1}"  # nobody listens at so low a port
            settings = MoveSettings(
                registry=self.address,
                kubelet_authority=self.certificates / "ca.crt",
                kubelet_token=self.root / "token",
                checkpoints_dir=self.folder,
                proc=self.root,
            )
            tools = Tools(self.freeze, self.parked, lambda: cast(CudaProcesses, Driver()))
            departures = Departures(
                settings, cast(Api, self), tools, lambda: [self.pod], lambda _: self.record, lambda _: self.book
            )
            try:
                yield departures
            finally:
                await departures.end()

    @property
    def state(self) -> str:
        return (self.freezer.path / "freezer.state").read_text()

    @property
    def archives(self) -> list[str]:
        return [file.name for file in self.folder.glob("*.tar")]


@pytest.fixture
def scene(tmp_path: Path, certificates: Path) -> Scene:
    return Scene(tmp_path, certificates)


async def settled(departures: Departures, now: float = 0.0) -> None:
    """A look, and the end of what it began."""
    await departures.look(now)
    await asyncio.gather(*departures._leaving.values(), return_exceptions=True)
    await departures.look(now)


def answered(scene: Scene) -> Departure:
    async def ask() -> None:
        async with scene.agent() as departures:
            await settled(departures)

    asyncio.run(ask())
    assert scene.book.departure is not None
    return scene.book.departure


def test_a_suspended_trial_becomes_an_image_once(scene: Scene) -> None:
    answer = answered(scene)
    assert answer.image.startswith(f"{scene.address}/{MINE}@sha256:")
    assert (answer.arrives, answer.code) == ('{"gpus":{"GPU-1":64},"processes":1}', "")
    assert (scene.state, scene.archives, scene.parked.whole("c1").leaving) == ("FROZEN", [], 0.0)
    assert answered(scene) == answer
    assert len(scene.kubelet.asked) == 1


REFUSALS = {
    "RegistryUnreachable": ("registry_is_there", False),
    "RestoreGone": ("runtimes", {"n": "containerd://2.1.9", "there": "containerd://2.4.0"}),
    "NodeGone": ("runtimes", {"n": "containerd://2.1.9"}),
    "ContainerGone": ("record", None),
    "NotAllowed": ("pod", pod(carry="there", main="c1", methods=("cuda-checkpoint",))),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_what_cannot_be_carried_is_answered_and_stands_as_it_stood(scene: Scene, code: str) -> None:
    setattr(scene, *REFUSALS[code])
    answer = answered(scene)
    assert (answer.code, answer.image, answer.pod_uid) == (code, "", pod_uid())
    assert answer.message
    assert (scene.state, scene.archives) == ("FROZEN", [])
    assert not scene.registry.manifests


@pytest.mark.parametrize(
    ("pod_change", "book_change"),
    [
        ({}, {"state": TrialState.RUNNING}),
        ({}, {"state": TrialState.SUSPENDING}),
        ({}, {"account": None}),
        ({"carry": ""}, {}),
        ({"deadline": 1.0}, {}),
        ({"ended": True}, {}),
    ],
)
def test_who_does_not_leave_yet(scene: Scene, pod_change: dict[str, Any], book_change: dict[str, Any]) -> None:
    scene.pod = replace(scene.pod, **pod_change)
    for name, value in book_change.items():
        setattr(scene.book, name, value)

    async def ask() -> None:
        async with scene.agent() as departures:
            await settled(departures)

    asyncio.run(ask())
    assert (scene.book.departure, scene.kubelet.asked) == (None, [])


def test_asked_no_more_while_it_is_written_it_stands_as_it_stood(scene: Scene) -> None:
    scene.kubelet.silent = True

    async def take_back() -> None:
        async with scene.agent() as departures:
            await departures.look(0.0)
            await scene.kubelet.written.wait()
            scene.pod = replace(scene.pod, carry="")
            await settled(departures)

    asyncio.run(take_back())
    assert (scene.state, scene.archives, scene.book.departure) == ("FROZEN", [], None)


def test_an_archive_that_comes_when_nobody_waits_any_more_is_removed(scene: Scene) -> None:
    """The runtime ends what it has begun. Much later it is another's: one that is written by hand."""
    scene.kubelet.silent = True
    left: list[list[str]] = []

    async def take_back() -> None:
        async with scene.agent() as departures:
            await departures.look(0.0)
            await scene.kubelet.written.wait()
            scene.pod = replace(scene.pod, carry="")
            await settled(departures)
            for moment in (1.0, 1e4):
                (scene.folder / LATE).touch()
                await departures.look(moment)
                left.append(scene.archives)

    asyncio.run(take_back())
    assert left == [[], [LATE]]


class Slow(Freeze):
    """Freezes when it is let."""

    def __init__(self) -> None:
        super().__init__(5.0)
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def suspend(self, targets: tuple[Freezer, ...]) -> Outcome:
        self.begun.set()
        await self.may.wait()
        return await super().suspend(targets)


def test_what_is_undone_is_not_broken_off_by_the_next_look(scene: Scene) -> None:
    scene.kubelet.silent = True
    scene.freeze = slow = Slow()

    async def take_back() -> None:
        async with scene.agent() as departures:
            await departures.look(0.0)
            await scene.kubelet.written.wait()
            scene.pod = replace(scene.pod, carry="")
            await departures.look(0.0)
            await slow.begun.wait()
            for _ in range(3):
                await departures.look(0.0)
                await asyncio.sleep(0)
            slow.may.set()
            await settled(departures)

    asyncio.run(take_back())
    assert (scene.state, scene.archives) == ("FROZEN", [])


def test_asked_no_more_its_image_is_removed(scene: Scene) -> None:
    async def take_back() -> None:
        async with scene.agent() as departures:
            await settled(departures)
            assert scene.registry.manifests
            scene.pod = replace(scene.pod, carry="")
            await settled(departures)

    asyncio.run(take_back())
    assert (scene.book.departure, scene.state) == (None, "FROZEN")
    assert not scene.registry.manifests


def test_what_an_agent_left_half_done_is_done_by_the_next(scene: Scene) -> None:
    """It died when the archive was there: the container is thawed, and noted as leaving."""
    scene.parked.leave("c1", 4e9)
    scene.freezer.ask(False)
    (scene.folder / LATE).touch()
    assert answered(scene).image
    assert (scene.state, scene.archives) == ("FROZEN", [])


def test_an_archive_that_an_agent_left_is_removed_if_nobody_asks_any_more(scene: Scene) -> None:
    (scene.folder / LATE).touch()
    scene.pod = replace(scene.pod, carry="")

    async def look() -> None:
        async with scene.agent() as departures:
            await departures.look(0.0)

    asyncio.run(look())
    assert scene.archives == []


def test_with_the_api_away_it_is_tried_again(scene: Scene) -> None:
    scene.api_is_there = False

    async def again() -> None:
        async with scene.agent() as departures:
            await settled(departures)
            assert (scene.book.departure, scene.state) == (None, "FROZEN")
            scene.api_is_there = True
            await settled(departures, AGAIN_SECONDS / 2)
            assert scene.kubelet.asked == []
            await settled(departures, AGAIN_SECONDS)

    asyncio.run(again())
    assert scene.book.departure is not None
    assert scene.book.departure.image


CAME: list[tuple[str, dict[str, Any], str, bool]] = [
    ("it runs", {"running": frozenset({"c2"})}, MINE, True),
    ("it waits at its gate", {}, MINE, False),
    ("it goes before it ran", {"deadline": 1.0}, MINE, True),
    ("the image is another namespace's", {"running": frozenset({"c2"})}, "podium-checkpoints/other/a-0", False),
]


@pytest.mark.parametrize(("state", "repository", "removed"), [c[1:] for c in CAME], ids=[c[0] for c in CAME])
def test_the_image_goes_when_its_new_node_has_it(
    scene: Scene, state: dict[str, Any], repository: str, removed: bool
) -> None:
    scene.registry.manifests["sha256:1"] = b"{}"

    async def look() -> None:
        async with scene.agent() as departures:
            image = f"{scene.address}/{repository}@sha256:1"
            came: TrialPod = pod("a", 1, carried=True, image=image, main="c2", **state)
            scene.pod = came
            await departures.look(0.0)

    asyncio.run(look())
    assert ("sha256:1" not in scene.registry.manifests) is removed


def test_the_answer_is_in_the_status_until_another_pod_writes_there(tmp_path: Path) -> None:
    server = TrialServer()
    writing = Writing(tmp_path, server)
    answer = Departure(pod_uid=pod_uid(), image="registry/a@sha256:1", arrives="{}")

    async def lives() -> None:
        book = begun(pod())
        writer = writing.start(book)
        await writing.until(lambda: book.owned, "the status is its own")
        book.depart(answer)
        await writing.until(lambda: server.parsed.departure == answer, "it is told")
        await kill(writer)
        again = begun(pod())
        writer = writing.start(again)
        await writing.until(lambda: again.departure == answer, "the next agent knows of it")
        await kill(writer)
        server.status |= {"attempt": 1, "lastStep": 7.0}
        server.status["reader"]["step"] = 7.0
        successor = begun(pod(attempt=1, carried=True))  # of one that held nothing on a GPU yet
        writer = writing.start(successor)
        await writing.until(lambda: successor.owned, "the next attempt writes")
        await kill(writer)

    asyncio.run(lives())
    assert (server.parsed.departure, server.parsed.losses.steps) == (None, 0.0)
