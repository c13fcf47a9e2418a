"""A container leaves: what is pushed, and that a step that fails leaves it as it was and no archive behind."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from migration_servers import DUMP, FakeKubelet, FakeRegistry, archive_bytes, sha256

from podium_agent.migration import kubelet
from podium_agent.migration.checkpointer import Checkpointer, CheckpointImage
from podium_agent.migration.eligibility import ContainerFacts, NodeRuntime
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.kubelet import ContainerRef, Kubelet, error_from_response
from podium_agent.migration.open_files import OpenFiles
from podium_agent.migration.registry import Registry
from podium_agent.observe.cgroups import Freezer
from podium_core.schema.checkpoint_image import ImageReference
from podium_devcluster.runtime import pki
from podium_suspension.freeze import Freeze

TRIAL = ContainerRef("team", "search-7-0", "train")
HERE, THERE = NodeRuntime("node-1", "containerd://2.1.9", "amd64"), NodeRuntime("node-2", "containerd://2.1.9", "amd64")
FIT = ContainerFacts(("train",), (), "registry/trial@sha256:1")
OTHERS = "checkpoint-search-7-0_team-train-logs-2026-11-22T04:52:25Z.tar"  # of a container named train-logs


@dataclass
class Scene:
    """A v1 freezer of plain files, which read back what was written as the kernel's do; a kubelet; a registry."""

    root: Path
    certificates: Path
    facts: ContainerFacts = FIT
    registry_is_there: bool = True
    seconds: float = 20.0
    authority: str = "ca.crt"
    kubelet: FakeKubelet = field(init=False)
    registry: FakeRegistry = field(default_factory=FakeRegistry)

    def __post_init__(self) -> None:
        cgroup, self.folder = self.root / "cgroup", self.root / "checkpoints"
        cgroup.mkdir()
        self.folder.mkdir()
        (cgroup / "cgroup.procs").write_text(f"{os.getpid()}\n")
        self.freezer = Freezer(cgroup, unified=False)
        self.freezer.ask(False)
        self.kubelet = FakeKubelet(self.folder, self.freezer)
        (self.root / "token").write_text("the-agents-own\n")
        (self.folder / OTHERS).touch()

    async def checkpoint(self) -> CheckpointImage:
        async with AsyncExitStack() as stack:
            kubelet_port = await stack.enter_async_context(self.kubelet.serve(self.certificates))
            registry = await stack.enter_async_context(self.registry.serve())
            if not self.registry_is_there:
                registry = 1  # no server listens at this port
            checkpointer = Checkpointer(
                Kubelet("127.0.0.1", kubelet_port, self.certificates / self.authority, self.root / "token"),
                Registry(f"127.0.0.1:{registry}"),
                Freeze(5.0),
                self.folder,
                self.seconds,
            )
            return await checkpointer.checkpoint(TRIAL, self.freezer, self.facts, HERE, THERE)

    @property
    def state(self) -> str:
        return (self.freezer.path / "freezer.state").read_text()

    @property
    def archives(self) -> list[str]:
        return [file.name for file in self.folder.iterdir()]


@pytest.fixture
def scene(tmp_path: Path, certificates: Path) -> Scene:
    return Scene(tmp_path, certificates)


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "suspended"])
def test_a_container_is_frozen_and_pushed_as_an_image(scene: Scene, suspended: bool) -> None:
    scene.freezer.ask(suspended)
    departed = asyncio.run(scene.checkpoint())

    assert scene.kubelet.asked == ["/checkpoint/team/search-7-0/train?timeout=20 Bearer the-agents-own"]
    assert scene.state == "FROZEN"
    assert scene.archives == [OTHERS], "its archive is removed, that of another container is not"
    name, _, digest = departed.reference.partition("@")
    assert name.endswith("/podium-checkpoints/team/search-7-0")
    manifest = json.loads(scene.registry.manifests[digest])
    assert manifest["annotations"]["org.criu.checkpoint.container.name"] == "train"
    layers = [layer["digest"] for layer in manifest["layers"]]
    assert json.loads(scene.registry.blobs[manifest["config"]["digest"]])["rootfs"]["diff_ids"] == layers
    whole, without = (scene.registry.blobs[layer] for layer in layers)
    assert whole == archive_bytes(DUMP)
    assert departed.bytes == len(whole)
    with tarfile.open(fileobj=io.BytesIO(without)) as layer:
        assert layer.getnames() == [".wh.container.log"]


def _change(name: str, value: object) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        owner, _, attribute = name.rpartition(".")
        setattr(getattr(scene, owner) if owner else scene, attribute, value)

    return change


FAULTS = {
    "ContainerNotRunning": [("kubelet.status", 404), ("kubelet.says", 'pod "search-7-0" not found')],
    "CheckpointAPIDisabled": [("kubelet.status", 404), ("kubelet.says", "404 page not found")],
    "CheckpointForbidden": [("kubelet.status", 403), ("kubelet.says", "Forbidden (subresource=checkpoint)")],
    "CheckpointFailed": [("kubelet.status", 500), ("kubelet.says", "checkpointing failed: DUMP errno 0")],
    "CRIUMissing": [("kubelet.status", 500), ("kubelet.says", "CRIU binary not found or too old (<31600)")],
    "CheckpointFailed ": [("kubelet.says", "<html>a proxy</html>")],
    "CheckpointTimeout": [("kubelet.deaf", True), ("seconds", 0.2)],
    "KubeletCertificateInvalid": [("authority", "../other/ca.crt")],
    "ArchiveModeInsecure": [("kubelet.mode", 0o644)],
    "InvalidArchive": [("kubelet.files", {name: text for name, text in DUMP.items() if "/" not in name})],
    "InvalidArchive ": [("kubelet.files", {**DUMP, "config.dump": "{}"})],
    "InvalidArchive  ": [("kubelet.files", {name: text for name, text in DUMP.items() if name != "spec.dump"})],
    "RegistryRefused": [("registry.broken", True)],
    "RegistryUnreachable": [("registry_is_there", False)],
    "GPUAttached": [("facts", replace(FIT, open_files=OpenFiles(frozenset({"/dev/nvidia0"}))))],
}


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "suspended"])
@pytest.mark.parametrize("code", FAULTS)
def test_a_failed_checkpoint_changes_nothing(
    scene: Scene, code: str, suspended: bool, monkeypatch: pytest.MonkeyPatch, certificates: Path
) -> None:
    if code == "KubeletCertificateInvalid":
        pki.create(certificates.parent / "other", ())
    if code == "CheckpointTimeout":
        monkeypatch.setattr(kubelet, "ANSWER_SECONDS", 0.2)
    for name, value in FAULTS[code]:
        _change(name, value)(scene)
    scene.freezer.ask(suspended)

    with pytest.raises(MigrationError) as failed:
        asyncio.run(scene.checkpoint())
    assert failed.value.code == code.strip()
    assert scene.state == ("FROZEN" if suspended else "THAWED")
    assert scene.archives == [OTHERS]
    assert not scene.registry.manifests


def test_a_cancelled_checkpoint_changes_nothing(scene: Scene) -> None:
    scene.kubelet.silent = True

    async def cut() -> None:
        moving = asyncio.ensure_future(scene.checkpoint())
        await scene.kubelet.written.wait()
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)

    asyncio.run(cut())
    assert scene.state == "THAWED"
    assert scene.archives == [OTHERS]


def test_a_late_archive_is_removed_by_the_next_checkpoint(scene: Scene) -> None:
    late = scene.folder / OTHERS.replace("train-logs", "train")
    late.touch()
    scene.kubelet.status = 500
    with pytest.raises(MigrationError):
        asyncio.run(scene.checkpoint())
    assert scene.archives == [OTHERS]


def test_an_empty_container_is_not_checkpointed(scene: Scene) -> None:
    (scene.freezer.path / "cgroup.procs").write_text("")
    with pytest.raises(MigrationError, match="ContainerNotRunning"):
        asyncio.run(scene.checkpoint())
    assert scene.kubelet.asked == []


def test_an_image_can_be_deleted_twice() -> None:
    registry, manifest = FakeRegistry(), b"{}"
    registry.manifests[sha256(manifest)] = manifest

    async def twice() -> None:
        async with registry.serve() as port:
            there = Registry(f"127.0.0.1:{port}")
            for _ in range(2):
                await there.delete(ImageReference.parse(f"127.0.0.1:{port}/podium-checkpoints/a/b@{sha256(manifest)}"))

    asyncio.run(twice())
    assert registry.manifests == {}


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("localhost", "http://localhost"),
        ("registry.example:5000", "https://registry.example:5000"),
        ("localhost.example", "https://localhost.example"),
        ("10.0.0.1:5000", "https://10.0.0.1:5000"),
    ],
)
def test_only_loopback_addresses_are_used_without_tls(address: str, url: str) -> None:
    assert Registry(address).url == url


def test_every_error_contains_the_answer_of_the_kubelet() -> None:
    for status in (401, 403, 404, 500):
        error = error_from_response(TRIAL, status, "the kubelet's own words")
        assert "the kubelet's own words" in str(error)
