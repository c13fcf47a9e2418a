"""The agent makes live trials images when asked to, answers in the trial's status, and undoes what is asked no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agent_builders import TrialServer, pod, pod_uid
from agent_writing import Writing, kill, started
from grouped_values import change
from migration_scene import LATE, MINE, Scene, answered, settled

from podium_agent.migration.controller import RETRY_SECONDS
from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.pods import TrialPod
from podium_core.schema.gpunode import SlotState
from podium_core.schema.trial import ContainerCheckpoint
from podium_suspension.base import SuspensionOutcome
from podium_suspension.freeze import Freeze


def test_a_suspended_trial_becomes_an_image_once(scene: Scene) -> None:
    answer = answered(scene)
    assert answer.image.startswith(f"{scene.address}/{MINE}@sha256:")
    assert (answer.gpu_state, answer.code) == ('{"gpus":{"GPU-1":64},"processes":1}', "")
    assert (scene.state, scene.archives, scene.notes.read("c1").migrating_until) == ("FROZEN", [], 0.0)
    assert answered(scene) == answer
    assert len(scene.kubelet.asked) == 1


REFUSALS = {
    "RegistryUnreachable": ("registry_is_there", False),
    "RestoreUnsupported": ("runtimes", {"n": "containerd://2.1.9", "there": "containerd://2.4.0"}),
    "NodeNotFound": ("runtimes", {"n": "containerd://2.1.9"}),
    "ContainerNotRunning": ("record", None),
    "MethodNotEnabled": (
        "pod",
        pod(migration__to="there", containers__main="c1", settings__methods=("cuda-checkpoint",)),
    ),
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_migration_is_reported_and_changes_nothing(scene: Scene, code: str) -> None:
    setattr(scene, *REFUSALS[code])
    answer = answered(scene)
    assert (answer.code, answer.image, answer.pod_uid) == (code, "", pod_uid())
    assert answer.message
    assert (scene.state, scene.archives) == ("FROZEN", [])
    assert not scene.registry.manifests


@pytest.mark.parametrize(
    ("pod_change", "record_change"),
    [
        ({}, {"state": SlotState.RUNNING}),
        ({}, {"state": SlotState.SUSPENDING}),
        ({}, {"ledger": None}),
        ({"migration__to": ""}, {}),
        ({"termination__deadline": 1.0}, {}),
        ({"status__ended": True}, {}),
    ],
)
def test_trials_that_are_not_checkpointed_yet(
    scene: Scene, pod_change: dict[str, Any], record_change: dict[str, Any]
) -> None:
    scene.pod = change(scene.pod, **pod_change)
    for name, value in record_change.items():
        setattr(scene.trial_record, name, value)

    async def ask() -> None:
        async with scene.agent() as migration_controller:
            await settled(migration_controller)

    asyncio.run(ask())
    assert (scene.trial_record.container_checkpoint.result, scene.kubelet.asked) == (None, [])


def test_a_migration_cancelled_during_the_checkpoint_changes_nothing(scene: Scene) -> None:
    scene.kubelet.silent = True

    async def take_back() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)
            await scene.kubelet.written.wait()
            scene.pod = change(scene.pod, migration__to="")
            await settled(migration_controller)

    asyncio.run(take_back())
    assert (scene.state, scene.archives, scene.trial_record.container_checkpoint.result) == ("FROZEN", [], None)


def test_an_archive_written_after_the_cancellation_is_removed(scene: Scene) -> None:
    """The runtime ends what it has begun. Much later it is another's: one that is written by hand."""
    scene.kubelet.silent = True
    left: list[list[str]] = []

    async def take_back() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)
            await scene.kubelet.written.wait()
            scene.pod = change(scene.pod, migration__to="")
            await settled(migration_controller)
            for moment in (1.0, 1e4):
                (scene.folder / LATE).touch()
                await migration_controller.reconcile(moment)
                left.append(scene.archives)

    asyncio.run(take_back())
    assert left == [[], [LATE]]


class Slow(Freeze):
    """Freezes when it is let."""

    def __init__(self) -> None:
        super().__init__(5.0)
        self.started, self.may = asyncio.Event(), asyncio.Event()

    async def suspend(self, targets: tuple[Freezer, ...]) -> SuspensionOutcome:
        self.started.set()
        await self.may.wait()
        return await super().suspend(targets)


def test_undoing_is_not_interrupted_by_the_next_reconcile(scene: Scene) -> None:
    scene.kubelet.silent = True
    scene.freeze = slow = Slow()

    async def take_back() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)
            await scene.kubelet.written.wait()
            scene.pod = change(scene.pod, migration__to="")
            await migration_controller.reconcile(0.0)
            await slow.started.wait()
            for _ in range(3):
                await migration_controller.reconcile(0.0)
                await asyncio.sleep(0)
            slow.may.set()
            await settled(migration_controller)

    asyncio.run(take_back())
    assert (scene.state, scene.archives) == ("FROZEN", [])


def test_the_image_of_a_cancelled_migration_is_removed(scene: Scene) -> None:
    async def take_back() -> None:
        async with scene.agent() as migration_controller:
            await settled(migration_controller)
            assert scene.registry.manifests
            scene.pod = change(scene.pod, migration__to="")
            await settled(migration_controller)

    asyncio.run(take_back())
    assert (scene.trial_record.container_checkpoint.result, scene.state) == (None, "FROZEN")
    assert not scene.registry.manifests


WORKS: list[tuple[str, dict[str, Any], SlotState, bool]] = [
    ("it stands still", {}, SlotState.SUSPENDED, False),
    ("it works", {}, SlotState.RUNNING, True),
    ("it is let work", {}, SlotState.RESUMING, True),
    ("it works, its pod goes", {"termination__deadline": 1.0}, SlotState.RUNNING, False),
]


@pytest.mark.parametrize(("about", "state", "taken_back"), [w[1:] for w in WORKS], ids=[w[0] for w in WORKS])
def test_the_image_of_a_trial_that_runs_again_is_replaced(
    scene: Scene, about: dict[str, Any], state: SlotState, taken_back: bool
) -> None:
    """`podium thaw` lets all work. The image itself is removed once no status names it."""

    async def thawed() -> None:
        async with scene.agent() as migration_controller:
            await settled(migration_controller)
            assert scene.record.migration.image_complete is True
            scene.pod, scene.trial_record.state = change(scene.pod, **about), state
            await migration_controller.reconcile(0.0)

    asyncio.run(thawed())
    answer = scene.trial_record.container_checkpoint.result
    assert answer is not None
    assert (answer.code, not answer.image) == (("TrialResumed", True) if taken_back else ("", False))
    assert scene.record.migration.image_complete is not taken_back
    assert scene.registry.manifests


def test_a_pod_deleted_before_its_image_exists_remains_unchanged(scene: Scene) -> None:
    """It is to save then, if it can."""
    scene.kubelet.silent = True

    async def deletion_meanwhile() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)
            assert scene.record.migration.image_complete is False
            await scene.kubelet.written.wait()
            scene.pod = change(scene.pod, termination__deadline=1.0)
            await settled(migration_controller)

    asyncio.run(deletion_meanwhile())
    assert (scene.state, scene.trial_record.container_checkpoint.result, scene.record.migration.image_complete) == (
        "FROZEN",
        None,
        False,
    )


def test_an_image_completed_after_the_deletion_of_its_pod_is_not_reported(scene: Scene) -> None:
    async def deletion_meanwhile() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)
            scene.pod = change(scene.pod, termination__deadline=1.0)
            await asyncio.gather(*migration_controller._tasks.values())

    asyncio.run(deletion_meanwhile())
    assert scene.registry.manifests
    assert (scene.trial_record.container_checkpoint.result, scene.record.migration.image_complete) == (None, False)


def test_the_next_agent_completes_an_unfinished_checkpoint(scene: Scene) -> None:
    """It died when the archive was there: the container is thawed, and noted as migrating."""
    scene.notes.set_migrating_until("c1", 4e9)
    scene.freezer.ask(False)
    (scene.folder / LATE).touch()
    assert answered(scene).image
    assert (scene.state, scene.archives) == ("FROZEN", [])


def test_a_leftover_archive_is_removed_without_a_request(scene: Scene) -> None:
    (scene.folder / LATE).touch()
    scene.pod = change(scene.pod, migration__to="")

    async def look() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)

    asyncio.run(look())
    assert scene.archives == []


def test_the_checkpoint_is_retried_when_the_api_server_is_away(scene: Scene) -> None:
    scene.api_is_there = False

    async def again() -> None:
        async with scene.agent() as migration_controller:
            await settled(migration_controller)
            assert (scene.trial_record.container_checkpoint.result, scene.state) == (None, "FROZEN")
            scene.api_is_there = True
            await settled(migration_controller, RETRY_SECONDS / 2)
            assert scene.kubelet.asked == []
            await settled(migration_controller, RETRY_SECONDS)

    asyncio.run(again())
    assert scene.trial_record.container_checkpoint.result is not None
    assert scene.trial_record.container_checkpoint.result.image


def test_the_retry_pause_starts_at_the_failure(scene: Scene) -> None:
    """What was asked before may have taken minutes."""
    scene.api_is_there = False

    async def again() -> None:
        async with scene.agent() as migration_controller:
            await migration_controller.reconcile(0.0)
            await migration_controller.reconcile(100.0)
            await asyncio.gather(*migration_controller._tasks.values())
            scene.api_is_there = True
            await settled(migration_controller, 100.0 + RETRY_SECONDS / 2)
            assert (scene.trial_record.container_checkpoint.result, scene.kubelet.asked) == (None, [])
            await settled(migration_controller, 100.0 + RETRY_SECONDS)

    asyncio.run(again())
    assert scene.trial_record.container_checkpoint.result is not None


CAME: list[tuple[str, dict[str, Any], str, bool]] = [
    ("it runs", {"containers__running": frozenset({"c2"})}, MINE, True),
    ("it waits at its gate", {}, MINE, False),
    ("it goes before it ran", {"termination__deadline": 1.0}, MINE, True),
    ("its kubelet rejected it", {"containers__main": "", "status__ended": True}, MINE, False),
    ("that pod is deleted", {"containers__main": "", "status__ended": True, "termination__deadline": 1.0}, MINE, False),
    ("it has ended", {"status__ended": True}, MINE, True),
    (
        "the image is another namespace's",
        {"containers__running": frozenset({"c2"})},
        "podium-checkpoints/other/a-0",
        False,
    ),
    (
        "the image is another repository's",
        {"containers__running": frozenset({"c2"})},
        f"{MINE}/../../../team/model",
        False,
    ),
    ("the image is not a checkpoint", {"containers__running": frozenset({"c2"})}, "team/model", False),
]


@pytest.mark.parametrize(("state", "repository", "removed"), [c[1:] for c in CAME], ids=[c[0] for c in CAME])
def test_the_image_is_removed_once_the_new_node_has_it(
    scene: Scene, state: dict[str, Any], repository: str, removed: bool
) -> None:
    digest = f"sha256:{'1' * 64}"
    scene.registry.manifests[digest] = b"{}"

    async def look() -> None:
        async with scene.agent() as migration_controller:
            image = f"{scene.address}/{repository}@{digest}"
            came: TrialPod = pod(
                "a", 1, migration__migrated=True, migration__image=image, **({"containers__main": "c2"} | state)
            )
            scene.pod = came
            await migration_controller.reconcile(0.0)

    asyncio.run(look())
    assert (digest not in scene.registry.manifests) is removed


def test_the_result_remains_in_the_status_until_another_pod_writes_it(tmp_path: Path) -> None:
    server = TrialServer()
    writing = Writing(tmp_path, server)
    answer = ContainerCheckpoint(pod_uid=pod_uid(), image="registry/a@sha256:1", gpu_state="{}")

    async def lives() -> None:
        trial_record = started(pod())
        writer = writing.start(trial_record)
        await writing.until(lambda: trial_record.writing.owned, "the status is its own")
        trial_record.set_container_checkpoint(answer)
        await writing.until(lambda: server.parsed.container_checkpoint == answer, "the result is in the status")
        await kill(writer)
        again = started(pod())
        writer = writing.start(again)
        await writing.until(lambda: again.container_checkpoint.result == answer, "the next agent knows of it")
        await kill(writer)
        server.status |= {"attempt": 1, "lastStep": 7.0}
        server.status["logCursor"]["step"] = 7.0
        successor = started(pod(attempt=1, migration__migrated=True))  # of one that held nothing on a GPU yet
        writer = writing.start(successor)
        await writing.until(lambda: successor.writing.owned, "the next attempt writes")
        await kill(writer)

    asyncio.run(lives())
    assert (server.parsed.container_checkpoint, server.parsed.lost_work.steps) == (None, 0.0)
