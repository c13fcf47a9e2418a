"""The next agent knows which pods were admitted, whatever the API has forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from agent_builders import key, pod, pod_uid
from agent_node import Node, order

from podium_agent.metrics import Metrics
from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import parse
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.node_reconciler import NodeReconciler
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS, Selection
from podium_cluster.watch import WatchCache
from podium_core.attempts.local_scheduler import decide
from podium_core.schema.gpunode import GPUNode

TRAIN = "ab" * 32


def test_a_pod_deleted_by_force_just_after_its_admission_without_an_agent(on_node: Callable[..., None]) -> None:
    """Found by the model: GPUNode.status does not name it yet, or is gone itself; the API knows it no more; it works
    until the kubelet ends it.
    """

    def scene(node: Node) -> None:
        first, second = pod("a", gate__passed=False), pod("b", gate__passed=False)
        node.waits_at_its_gate(first)
        assert node.executor.execute(decide(order("a", "b"), node.look(first), 1.0))
        freezer = node.run(first, TRAIN, os.getpid())
        node.restart_agent()
        no_nodes = WatchCache(cast(Api, None), Selection(GPUNODES), GPUNode.model_validate)
        no_pods = WatchCache(cast(Api, None), Selection(PODS), parse)
        NodeReconciler(node.settings(), no_pods, no_nodes, Metrics(), lambda one: TrialRecord(one, "n"))._hint(
            node.observer
        )
        node.waits_at_its_gate(second)
        assert node.steps(order("b"), second) == {"wait b-0 GPUInUse"}
        (freezer.path / "cgroup.procs").write_text("")
        assert node.steps(order("b"), second) == {"admit b-0 FirstInRunQueue"}
        assert Admissions(node.settings().admissions_dir).read() == {}

    on_node(scene)


def test_a_note_outlives_the_agent_until_it_is_removed(tmp_path: Path) -> None:
    Admissions(tmp_path / "notes").note(pod(), ("G", "H"))
    assert Admissions(tmp_path / "notes").read() == {pod_uid(): Hint(key(), "a-0", ("G", "H"))}
    Admissions(tmp_path / "notes").forget(pod_uid())
    assert Admissions(tmp_path / "notes").read() == {}
    Admissions(tmp_path / "notes").forget(pod_uid())


@pytest.mark.parametrize(("name", "text"), [(".half", "{"), ("torn", "{"), ("other", "[]"), ("bytes", "\udcff")])
def test_an_unreadable_note_is_skipped(tmp_path: Path, name: str, text: str) -> None:
    Admissions(tmp_path).note(pod(), ("G",))
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    assert list(Admissions(tmp_path).read()) == [pod_uid()]


@pytest.mark.parametrize("content", [b"", b"\0" * 80])
def test_a_note_without_its_content_is_removed(tmp_path: Path, content: bytes) -> None:
    """The notes are not synced: after a power failure a file may be empty, or as long as it was."""
    Admissions(tmp_path).note(pod(), ("G",))
    (tmp_path / "lost").write_bytes(content)
    assert list(Admissions(tmp_path).read()) == [pod_uid()]
    assert [file.name for file in tmp_path.iterdir()] == [pod_uid()]


def test_a_folder_that_cannot_be_written_stops_no_trial(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    notes = Admissions(tmp_path / "file")
    notes.note(pod(), ("G",))
    notes.forget(pod_uid())
    assert notes.read() == {}
    assert ["a-0" in caplog.messages[0], pod_uid() in caplog.messages[1]] == [True, True]
