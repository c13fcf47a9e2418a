"""The next agent of a node removes what a killed agent left, except what a trial still needs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from agent_builders import key
from grouped_values import change
from migration_scene import LATE, MINE, Scene, settled
from migration_servers import DUMP

from podium_agent.migration.artifacts import ArtifactRecords
from podium_agent.migration.garbage_collection import GarbageCollector, MigrationChecks
from podium_cluster.client import Api
from podium_core.schema.trial import ContainerCheckpoint

OTHERS = "sha256:of-another-node"
SOON, LATER = 0.0, 3600.0


def after_the_end(scene: Scene, then: Callable[[Scene, str], None], age: float = SOON) -> str:
    """An agent makes the image; then another one is there, and sweeps. Gives the image."""
    images: list[str] = []

    async def both() -> None:
        async with scene.agent() as first:
            await settled(first)
            assert scene.trial_record.container_checkpoint.result is not None
            images.append(scene.trial_record.container_checkpoint.result.image)
            then(scene, images[0])
            next_agent = scene.migration_controller()
            await next_agent._garbage_collector.collect()
            if age:
                next_agent._records._clock = lambda: time.monotonic() + age
                await next_agent._garbage_collector.collect()

    scene.registry.manifests[OTHERS] = b"{}"
    asyncio.run(both())
    assert scene.registry.manifests.pop(OTHERS) == b"{}", "no note of this node names it"
    return images[0]


def way(phase: str, image: str, **more: Any) -> dict[str, Any]:
    about = {
        "since": "2026-11-22T04:00:00Z",
        "podUid": "uid-a-0",
        "attempt": 1,
        "sourceNode": "n",
        "targetNode": "there",
    }
    return {"migration": about | {"phase": phase, "image": image}, **more}


def unheard(scene: Scene, _: str) -> None:
    """It was killed before the answer was written."""
    scene.trial_record.container_checkpoint.result = None


def unheard_and_gone(scene: Scene, _: str) -> None:
    scene.here = False


def fallen_back(scene: Scene, image: str) -> None:
    """The pod is here, the migration was cancelled, and the agent has removed its result."""
    scene.trial_record.container_checkpoint.result, scene.trial = None, way("Failed", image)


def on_its_way(scene: Scene, image: str) -> None:
    """Its old pod is still here, and its answer is not counted on any more."""
    scene.trial_record.container_checkpoint.result, scene.trial = None, way("PodCreated", image)


def heard(scene: Scene, _: str) -> None:
    """The answer is in the status."""


def not_known_yet(scene: Scene, _: str) -> None:
    scene.trial_record.container_checkpoint.result = scene.trial_record.ledger = None


def gone_with(phase: str, *, named: bool = True, image_reported: bool = False) -> Callable[[Scene, str], None]:
    """Its old pod is gone; the trial's status is this."""

    def then(scene: Scene, image: str) -> None:
        answer = ContainerCheckpoint(pod_uid="uid-a-0", image=image if image_reported else "").model_dump(by_alias=True)
        scene.here, scene.trial = False, way(phase, image if named else "", containerCheckpoint=answer)

    return then


def another_of_its_name(scene: Scene, image: str) -> None:
    gone_with("PodCreated")(scene, image)
    scene.pod = change(scene.pod, key=key("a")._replace(uid="another"))


CASES: list[tuple[Callable[[Scene, str], None], bool]] = [
    (unheard, True),
    (unheard_and_gone, True),
    (heard, False),
    (fallen_back, True),
    (on_its_way, False),
    (not_known_yet, False),
    (gone_with("ImagePushed"), False),
    (gone_with("PodCreated"), False),
    (gone_with("Requested", named=False, image_reported=True), False),
    (gone_with("Requested", named=False), True),
    (gone_with("Restored"), True),
    (gone_with("Failed"), True),
    (another_of_its_name, True),
]


@pytest.mark.parametrize(("then", "removed"), CASES)
def test_an_image_is_removed_when_no_trial_needs_it(
    scene: Scene, then: Callable[[Scene, str], None], removed: bool
) -> None:
    image = after_the_end(scene, then)
    assert (image.partition("@")[2] not in scene.registry.manifests) is removed
    assert [file.name for file in (scene.root / "traces").iterdir()] == [scene.pod.uid]


@pytest.mark.parametrize(("age", "kept"), [(SOON, True), (LATER, False)])
def test_the_record_is_removed_when_no_late_archive_is_possible(scene: Scene, age: float, kept: bool) -> None:
    after_the_end(scene, unheard_and_gone, age)
    assert any((scene.root / "traces").iterdir()) is kept


@pytest.mark.parametrize("jump", [LATER, -LATER])
def test_the_record_remains_when_the_wall_clock_jumps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The runtime may still write an archive, which only the record names; the file's time is the wall clock's, too."""

    def jumps(scene: Scene, _: str) -> None:
        scene.here = False
        moment = time.time() - jump
        os.utime(scene.root / "traces" / scene.pod.uid, (moment, moment))
        monkeypatch.setattr(time, "time", lambda: moment + 2 * jump)

    after_the_end(scene, jumps)
    assert any((scene.root / "traces").iterdir())


def test_the_record_is_kept_long_enough_for_each_agent(scene: Scene) -> None:
    """An agent counts from when it wrote the record, or from when it first read that of an earlier agent."""
    now = [1000.0]
    first = ArtifactRecords(scene.root / "traces", lambda: now[0])
    first.begin(scene.pod)
    now[0] += 60.0
    second = ArtifactRecords(scene.root / "traces", lambda: now[0])
    assert (first.age(scene.pod.uid), second.age(scene.pod.uid)) == (60.0, 0.0)
    second.read()
    now[0] += 5.0
    assert (first.age(scene.pod.uid), second.age(scene.pod.uid)) == (65.0, 5.0)
    second.add_image(scene.pod.uid, "another")
    assert second.age(scene.pod.uid) == 0.0


def test_the_record_remains_while_a_trial_needs_the_image(scene: Scene) -> None:
    after_the_end(scene, gone_with("PodCreated"), LATER)
    assert any((scene.root / "traces").iterdir())


def test_the_archive_of_a_deleted_pod_is_removed(scene: Scene) -> None:
    def dies_over_it(scene: Scene, _: str) -> None:
        scene.here = False
        for name in (LATE, LATE.replace("a-0_demo", "b-0_demo")):
            (scene.folder / name).touch(0o600)

    after_the_end(scene, dies_over_it)
    assert scene.archives == [LATE.replace("a-0_demo", "b-0_demo")], "another container's is another's"


def test_an_unfinished_image_is_not_collected(scene: Scene) -> None:
    """Killed once over it, it is made again: the first image goes, the second stays."""

    async def twice() -> None:
        async with scene.agent() as first:
            await settled(first)
            scene.trial_record.container_checkpoint.result = None
            scene.kubelet.files = DUMP | {"checkpoint/pages-1.img": "a step later"}
            scene.kubelet.silent = True
            scene.kubelet.written.clear()
            second = scene.migration_controller()
            await second.reconcile(0.0)
            await scene.kubelet.written.wait()
            await second._garbage_collector.collect()
            assert scene.archives == [LATE]
            await second.end()
            scene.kubelet.silent = False
            await settled(third := scene.migration_controller())
            assert len(scene.registry.manifests) == 2
            await third._garbage_collector.collect()

    asyncio.run(twice())
    assert scene.trial_record.container_checkpoint.result is not None
    assert list(scene.registry.manifests) == [scene.trial_record.container_checkpoint.result.image.partition("@")[2]]


def test_the_record_of_an_earlier_trial_of_the_same_name_keeps_the_new_archive(scene: Scene) -> None:
    """Its job was deleted and created again, so the archives of both have the same name."""

    async def made_anew() -> None:
        scene.kubelet.silent = True
        async with scene.agent() as agent:
            await agent.reconcile(0.0)
            await scene.kubelet.written.wait()
            notes = scene.root / "traces"
            (notes / "earlier").write_text((notes / scene.pod.uid).read_text())
            await agent._garbage_collector.collect()
            assert scene.archives == [LATE]

    asyncio.run(made_anew())


def test_an_unreadable_trial_does_not_block_the_others(scene: Scene) -> None:
    def unreadable(scene: Scene, _: str) -> None:
        scene.here, scene.trial = False, {"curve": 3}

    image = after_the_end(scene, unreadable)
    assert image.partition("@")[2] in scene.registry.manifests, "it is unknown whether the image is needed"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_images_recorded_during_a_collection_remain_recorded(scene: Scene, at: int) -> None:
    """Another image is begun: before the look, while the API is asked, while the first one is removed."""
    looks: list[str] = []

    async def meanwhile() -> None:
        async with scene.agent() as first:
            await settled(first)
            scene.trial_record.container_checkpoint.result = None
            records = first._records

            def is_migrating(uid: str) -> bool:
                looks.append(uid)
                if len(looks) == at:
                    records.add_image(uid, "another")
                return len(looks) >= at

            checks = MigrationChecks(lambda _: True, is_migrating, lambda _: False)
            api, settings = cast(Api, scene), first._settings
            collector = GarbageCollector(settings, api, records, checks, lambda _: scene.trial_record)
            await collector.collect()
            assert records.read()[scene.pod.uid].images[-1] == "another"

    asyncio.run(meanwhile())
    assert len(looks) == at


def test_garbage_is_collected_later_when_the_api_server_is_away(scene: Scene) -> None:
    """Without the API server it is unknown whether the trial of a deleted pod needs the image."""
    counts: list[int] = []

    async def away() -> None:
        async with scene.agent() as first:
            await settled(first)
            scene.here = scene.api_is_there = False
            collector = scene.migration_controller()._garbage_collector
            for scene.api_is_there in (False, True):
                await collector.collect()
                counts.append(len(scene.registry.manifests))

    asyncio.run(away())
    assert counts == [1, 0]


def test_an_invalid_record_is_skipped(scene: Scene) -> None:
    (scene.root / "traces").mkdir()
    (scene.root / "traces" / "x").write_text("{")
    image = after_the_end(scene, unheard)
    assert image.partition("@")[2] not in scene.registry.manifests
    assert image.startswith(f"{scene.address}/{MINE}@")
