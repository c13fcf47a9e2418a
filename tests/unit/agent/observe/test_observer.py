"""Observer, node reconciler and executor on pods, /proc and freezers; the latter two are folders of the test."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agent_builders import key, pod
from agent_node import Node, order
from grouped_values import change

from podium_agent.metrics import Metrics
from podium_agent.observe.cgroups import Container, Freezer
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod, parse
from podium_agent.report.pod_conditions import patch
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.node_reconciler import NodeReconciler
from podium_agent.settings import AgentSettings
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS, Selection
from podium_cluster.watch import WatchCache
from podium_core.attempts.local_scheduler import Suspend, Wait, decide
from podium_core.attempts.local_trial import Acting
from podium_core.schema.gpunode import GPUNode, SlotState
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.gpu_state_notes import GpuState

TRAIN, SIDECAR = "ab" * 32, "cd" * 32


def test_a_trial_without_a_gpu_blocks_no_other(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid())
        cpu = pod("cpu", gate__present=False, containers__running=frozenset({TRAIN}))
        waiting = pod("b", gate__passed=False)
        assert node.state(cpu) is None
        assert node.observer._asking is None, "the kubelet is asked for devices that it will never have"
        node.waits_at_its_gate(waiting)
        assert node.steps(order("b"), cpu, waiting) == {"admit b-0 FirstInRunQueue"}

    on_node(scene)


def test_the_record_of_a_trial_without_a_gpu_is_open_until_its_pod_ends(on_node: Callable[..., None]) -> None:
    """Ended too soon, its status would be patched with every line instead of every two seconds."""

    def scene(node: Node) -> None:
        pods = WatchCache(cast(Api, None), Selection(PODS), parse)
        nodes = WatchCache(cast(Api, None), Selection(GPUNODES), GPUNode.model_validate)
        node_reconciler = NodeReconciler(
            AgentSettings(node_name="n"), pods, nodes, Metrics(), lambda one: TrialRecord(one, "n")
        )
        cpu = pod("cpu", gate__present=False)
        for ended in (False, True):
            node.observer.observe((change(cpu, status__ended=ended),), 1.0)
            node_reconciler._update_trial_records(node.observer, 1.0)
            trial_record = node_reconciler.trial_records[cpu.uid]
            assert (trial_record.life.ended, trial_record.life.closed) == (ended, ended)

    on_node(scene)


def test_a_trial_is_starting_until_all_of_its_containers_are_there(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid())
        both = pod(containers__names=("train", "sidecar"))
        one = change(both, containers__running=frozenset({TRAIN}), containers__starting=True)
        assert node.state(one) is SlotState.STARTING
        two = change(both, containers__running=frozenset({TRAIN, SIDECAR}))
        assert node.state(two) is SlotState.STARTING, "running, but its processes are not found yet"
        node.run(pod(), SIDECAR, os.getppid())
        assert node.state(two) is SlotState.RUNNING
        assert node.state(one) is SlotState.RUNNING, "it has been whole once"

    on_node(scene)


def test_a_container_without_its_image_is_not_waited_for(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        freezer = node.run(pod(), TRAIN, os.getpid())
        stuck = pod(
            containers__names=("train", "sidecar"), containers__running=frozenset({TRAIN}), containers__starting=False
        )
        assert node.state(stuck) is SlotState.RUNNING
        shutil.rmtree(freezer.path)
        assert node.state(stuck) is SlotState.STARTING, "nothing is there to suspend, but the pod has not ended"

    on_node(scene)


def test_a_freezer_that_cannot_be_read_changes_no_state(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        freezer = node.run(pod(), TRAIN, os.getpid())
        running = pod(containers__running=frozenset({TRAIN}))
        assert node.state(running) is SlotState.RUNNING
        freezer.ask(True)
        assert node.state(running) is SlotState.SUSPENDED
        (freezer.path / "freezer.state").unlink()
        (freezer.path / "freezer.state").mkdir()
        assert node.state(running) is SlotState.SUSPENDED
        (freezer.path / "freezer.state").rmdir()
        assert node.state(running) is None, "removed: that is an end"

    on_node(scene)


@pytest.mark.parametrize(
    ("migrate_to", "image_complete", "heeds"),
    [("", None, True), ("", True, True), ("node-b", None, False), ("node-b", True, False), ("node-b", False, True)],
)
def test_a_trial_deleted_during_its_migration_may_save_without_an_image(
    on_node: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    migrate_to: str,
    image_complete: bool | None,
    heeds: bool,
) -> None:
    """The cause of the deletion does not matter: without the operator the request is not withdrawn."""
    monkeypatch.setattr("podium_agent.observe.observer.handles_sigterm", lambda *_: True)

    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid()).ask(True)
        asked = pod(containers__running=frozenset({TRAIN}), migration__to=migrate_to)
        node.look(asked)
        record = node.observer.record(asked.uid)
        assert record is not None
        record.migration.image_complete = image_complete
        (trial,) = node.look(change(asked, termination__deadline=1e10))
        assert (trial.termination.deleting, trial.termination.handles_sigterm) == (True, heeds)

    on_node(scene)


def test_a_crashed_method_leaves_a_defined_state(on_node: Callable[..., None]) -> None:
    async def scene(node: Node) -> None:
        (node.folder / "cgroup.events").write_text("populated\n")  # no number: dict() raises ValueError
        trials = node.observer.observe((pod(),), 1.0)
        record = node.observer.record(pod().uid)
        assert record is not None
        record.processes.containers["x"] = Container("x", os.getpid(), Freezer(node.folder, unified=True))
        assert node.executor.execute([Suspend(trials[0], "Ranked")])
        assert record.act.current is Acting.SUSPENDING
        await asyncio.wait_for(node.settled.wait(), 300)
        assert record.act.current is Acting.NOTHING
        assert record.act.trouble.startswith("Crashed: ValueError")
        assert record.suspension.failed == {"freeze"}, "another method comes first from now on, if there is one"
        assert record.act.retry_at > 0.0

    on_node(scene)


def test_the_record_of_an_ended_pod_closes_with_its_last_process(on_node: Callable[..., None]) -> None:
    """Until then its last save is still to be seen."""

    def scene(node: Node) -> None:
        freezer = node.run(pod(), TRAIN, os.getpid())
        pods = WatchCache(cast(Api, None), Selection(PODS), parse)
        nodes = WatchCache(cast(Api, None), Selection(GPUNODES), GPUNode.model_validate)
        node_reconciler = NodeReconciler(
            AgentSettings(node_name="n"), pods, nodes, Metrics(), lambda one: TrialRecord(one, "n")
        )
        node.look(pod(containers__running=frozenset({TRAIN}), containers__main=TRAIN))
        node_reconciler._update_trial_records(node.observer, 1.0)
        trial_record = node_reconciler.trial_records[pod().uid]
        assert trial_record.main is not None
        assert trial_record.life.started
        node.look(pod(status__ended=True))
        node_reconciler._update_trial_records(node.observer, 1.0)
        assert (trial_record.life.ended, trial_record.life.closed) == (False, False)
        (freezer.path / "cgroup.procs").write_text("")
        node.look(pod(status__ended=True))
        node_reconciler._update_trial_records(node.observer, 1.0)
        assert (trial_record.life.ended, trial_record.life.closed) == (True, True)

    on_node(scene)


def test_after_a_reboot_the_record_of_a_denied_pod_is_only_closed(on_node: Callable[..., None]) -> None:
    """The kubelet does not report that its gate was passed, and none of its processes is left."""

    def scene(node: Node) -> None:
        pods = WatchCache(cast(Api, None), Selection(PODS), parse)
        nodes = WatchCache(cast(Api, None), Selection(GPUNODES), GPUNode.model_validate)
        node_reconciler = NodeReconciler(
            AgentSettings(node_name="n"), pods, nodes, Metrics(), lambda one: TrialRecord(one, "n")
        )
        node.look(pod(status__ended=True, status__denied=True, gate__passed=False))
        node_reconciler._update_trial_records(node.observer, 1.0)
        life = node_reconciler.trial_records[pod().uid].life
        assert (life.orphaned, life.started, life.ended, life.closed) == (True,) * 4

    on_node(scene)


def test_a_pod_that_ended_without_an_agent_gets_a_record_that_is_only_closed(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        opened: list[TrialRecord] = []
        pods = WatchCache(cast(Api, None), Selection(PODS), parse)
        nodes = WatchCache(cast(Api, None), Selection(GPUNODES), GPUNode.model_validate)

        def open_trial_record(one: TrialPod) -> TrialRecord:
            opened.append(TrialRecord(one, "n"))
            return opened[-1]

        node_reconciler = NodeReconciler(AgentSettings(node_name="n"), pods, nodes, Metrics(), open_trial_record)
        node.observer.hint({pod().uid: Hint(key(), "a-0", ("G",))})
        for _ in range(2):
            node.observer.observe((), 1.0)
            node_reconciler._update_trial_records(node.observer, 1.0)
        assert [
            (trial_record.life.orphaned, trial_record.life.started, trial_record.life.ended, trial_record.life.closed)
            for trial_record in opened
        ] == [(True,) * 4]
        assert node_reconciler.trial_records == {}

    on_node(scene)


def test_until_the_kubelet_answers_the_last_agents_gpus_are_only_reported(
    on_node: Callable[..., None],
) -> None:
    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid())
        node.observer.hint({pod().uid: Hint(key(), "a-0", ("G",))})
        running = pod(containers__running=frozenset({TRAIN}))
        (first,) = node.observer.observe((running,), 1.0)
        assert (first.state, first.gpus, first.seen_on) == (SlotState.RUNNING, (), ("G",))
        (step,) = decide(order("b"), (first,), 1.0)
        assert isinstance(step, Wait)
        assert step.reason == "DevicesUnknown"
        assert node.steps(order("b"), running) == {"suspend a-0 NotInRunQueue"}

    on_node(scene)


def test_memory_on_several_hinted_gpus_is_counted_as_before(
    on_node: Callable[..., None],
) -> None:
    """Memory that the driver moves is claimed once for all trials of a GPU; the driver does not move that of these."""

    def scene(node: Node) -> None:
        cuda = SimpleNamespace(name="cuda-checkpoint")
        node.observer._methods.adopt(cast(CudaCheckpoint, cuda), "not several GPUs at once")
        wide, narrow = (
            pod(name, gate__passed=False, requests__gpu_memory=8, settings__methods=(cuda.name,)) for name in "ab"
        )
        node.observer.hint(
            {wide.uid: Hint(wide.key, wide.name, ("G", "H")), narrow.uid: Hint(narrow.key, "b-0", ("G",))}
        )
        hinted_gpus = node.observer.observe((wide, narrow), 1.0)
        assert [(one.seen_on, one.memory.moves) for one in hinted_gpus] == [(("G", "H"), False), (("G",), True)]

    on_node(scene)


def test_the_end_of_a_grace_period_by_this_nodes_clock(on_node: Callable[..., None]) -> None:
    """The API server's may be hours ahead: a deleted pod has no more than its grace from when we heard of it."""

    def scene(node: Node) -> None:
        doomed = pod(termination__deadline=5000.0, termination__grace=30.0)
        assert [trial.termination.deadline for trial in node.look(doomed, now=100.0)] == [130.0]
        assert [trial.termination.deadline for trial in node.look(doomed, now=110.0)] == [130.0]
        sooner = change(doomed, termination__deadline=4971.0, termination__grace=1.0)  # deleted again, with less
        assert [trial.termination.deadline for trial in node.look(sooner, now=110.0)] == [111.0]

    on_node(scene)


def test_a_sigterm_sent_to_a_frozen_trial_shows_its_termination(on_node: Callable[..., None]) -> None:
    """By a kubelet of its own accord: the API does not say so before all is over. No longer than its grace period."""

    def scene(node: Node) -> None:
        frozen = pod("a", termination__grace=30.0, containers__running=frozenset({TRAIN}))
        (node.run(frozen, TRAIN, os.getpid()).path / "freezer.state").write_text("FROZEN")
        status = node.folder / "proc" / str(os.getpid()) / "status"
        status.write_text("SigCgt:\t0000000000004000\nSigIgn:\t0\nNSpid:\t4321 1\nSigPnd:\t0\nShdPnd:\t0\n")
        assert [trial.termination.deleting for trial in node.look(frozen, now=100.0)] == [False]
        status.write_text(status.read_text().replace("ShdPnd:\t0", "ShdPnd:\t0000000000004000"))
        assert [(trial.termination.deleting, trial.termination.deadline) for trial in node.look(frozen, now=101.0)] == [
            (True, 131.0)
        ]
        assert node.steps(order("b"), frozen, now=102.0) == {"resume a-0 Deleted"}
        status.write_text(status.read_text().replace("ShdPnd:\t0000000000004000", "ShdPnd:\t0"))
        assert [trial.termination.deleting for trial in node.look(frozen, now=130.0)] == [True], "it hears it now"
        assert [trial.termination.deleting for trial in node.look(frozen, now=131.0)] == [False], (
            "it did not heed it, and lives"
        )

    on_node(scene)


def test_a_frozen_prestop_hook_shows_the_termination(on_node: Callable[..., None]) -> None:
    """The kubelet sends no SIGTERM before its hook has ended, and the hook is frozen with the trial."""

    def scene(node: Node) -> None:
        caught = pod("a", termination__grace=30.0, containers__running=frozenset({TRAIN}))
        place = node.run(caught, TRAIN, os.getpid()).path
        node.process(place, b"python3\0train.py\0")
        assert [trial.termination.deleting for trial in node.look(caught, now=99.0)] == [False]
        node.process(place, b"/podium/podium-gate\0hook\0")
        (place / "freezer.state").write_text("FROZEN")
        assert [(trial.termination.deleting, trial.termination.deadline) for trial in node.look(caught, now=100.0)] == [
            (True, 130.0)
        ]
        assert node.steps(order("b"), caught, now=101.0) == {"resume a-0 Deleted"}

    on_node(scene)


def test_an_earlier_failure_does_not_delay_a_termination(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        frozen = pod("a", termination__grace=30.0, containers__running=frozenset({TRAIN}))
        (node.run(frozen, TRAIN, os.getpid()).path / "freezer.state").write_text("FROZEN")
        node.look(frozen, now=100.0)
        node.observer.records()[0].act.retry_at = 105.0
        assert node.steps(order("a"), frozen, now=101.0) == {"wait a-0 ResumeFailed"}
        deleted = change(frozen, termination__deadline=132.0)
        assert node.steps(order("a"), deleted, now=102.0) == {"resume a-0 Deleted"}

    on_node(scene)


def test_a_suspended_trial_without_memory_on_the_gpu_is_marked(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        one = pod("a", containers__running=frozenset({TRAIN}))
        freezer = node.run(one, TRAIN, os.getpid())
        (freezer.path / "freezer.state").write_text("FROZEN")
        assert not node.look(one)[0].memory.is_checkpointed, "frozen with its memory on the GPU"
        node.notes.write_held(freezer.name, {"G": 7})
        assert node.look(one)[0].memory.is_checkpointed

    on_node(scene)


def test_a_migrated_trial_is_noted_with_its_gpu_on_this_node(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        beside = node.run(pod(), SIDECAR, os.getppid())
        gpu_state = GpuState(gpus={"GPU-of-there": 7}, processes=1)
        came = pod(
            containers__names=("train", "logs"),
            containers__running=frozenset({SIDECAR}),
            migration__gpu_state=gpu_state,
        )
        node.look(came)
        freezer = node.run(pod(), TRAIN, os.getpid())
        came = change(came, containers__running=frozenset({SIDECAR, TRAIN}), containers__main=TRAIN)
        assert node.state(came) is SlotState.RUNNING
        assert not node.notes.has(beside.name), "it began here"
        note = node.notes.read(freezer.name)
        assert (note.held, note.gpu_map) == ({"G": 7}, {"GPU-of-there": "G"})
        node.notes.remove(freezer.name)
        node.look(came)
        assert not node.notes.has(freezer.name), "it was brought back: it does not come twice"

    on_node(scene)


META: dict[str, Any] = {
    "name": "a-1",
    "namespace": "demo",
    "uid": "p",
    "labels": {"podium.dev/trial": "a"},
    "annotations": {"podium.dev/gpu-state": '{"gpus": {"GPU-a": 7}, "processes": 1}'},
    "ownerReferences": [
        {"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamTrial", "name": "a", "uid": "u", "controller": True}
    ],
}


def test_the_gpu_state_of_a_pod_is_parsed() -> None:
    assert parse({"metadata": META}).migration.gpu_state == GpuState(gpus={"GPU-a": 7}, processes=1)
    assert parse({"metadata": {**META, "annotations": {}}}).migration.gpu_state is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "gpus: Field required"),
        ('{"gpus": {"GPU-a": 7}, "processes": 0}', "processes: Input should be greater than or equal to 1"),
        ("nonsense", "value: Invalid JSON"),
    ],
)
def test_an_unreadable_gpu_state_is_reported_and_the_pod_is_kept(text: str, said: str) -> None:
    came = parse({"metadata": {**META, "annotations": {"podium.dev/gpu-state": text}}})
    assert came.migration.gpu_state is None
    assert came.migration.gpu_state_trouble.startswith(f"InvalidGPUState: annotation podium.dev/gpu-state: {said}")
    shown = patch(SlotState.RUNNING, {}, "now", trouble=came.migration.gpu_state_trouble)
    assert shown is not None
    assert {entry["reason"] for entry in shown["status"]["conditions"]} == {"InvalidGPUState"}
    assert all(said in entry["message"] for entry in shown["status"]["conditions"])
