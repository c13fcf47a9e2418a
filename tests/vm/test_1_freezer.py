"""Suspension by the freezer on a node with systemd, cgroup version 2 and runc."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, TRIALS = "runc", ("runc-0", "runc-1")


def test_the_node_has_systemd_and_cgroup_version_2(node: Any) -> None:
    assert node.machine.shell("cat /proc/1/comm").strip() == "systemd"
    assert node.machine.shell("stat -f -c %T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert "cgroupDriver" in node.machine.shell("cat /etc/kubelet.json")
    assert node.get("node", node.machine.name)["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd")


def test_two_trials_take_turns_on_the_gpu(node: Any) -> None:
    node.search(JOB)
    node.until("both trials were suspended", lambda: node.all_suspended_once(JOB), 101)
    assert {trial["metadata"]["name"] for trial in node.trials(JOB)} == set(TRIALS)
    assert [node.attempt(trial) for trial in TRIALS] == [0, 0]


def test_a_suspended_trial_is_frozen_in_its_scope(node: Any) -> None:
    node.set_suspended(True, *TRIALS)
    for trial in TRIALS:
        node.until(f"{trial} is suspended", lambda trial=trial: node.in_phase(trial, "Suspended"), 20)
        freezer = node.until(f"{trial} is frozen", lambda trial=trial: node.frozen(trial), 20)
        parent, scope = freezer.path.rsplit("/", 2)[-2:]
        assert parent.startswith("kubepods-burstable-pod")
        assert parent.endswith(".slice")
        assert scope.startswith("cri-containerd-")
        assert scope.endswith(".scope")
