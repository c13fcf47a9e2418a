"""Restarts of systemd, kubelet, containerd and agent while four trials are suspended: none ends, none is thawed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
TRIALS = ("runc-0", "runc-1", "crun-0", "crun-1")
AGENT = "app.kubernetes.io/component=agent"
KILL = "kill -s KILL $(systemctl show --property=MainPID --value containerd)"


@pytest.fixture
def unharmed(node: Any) -> Any:
    """Return a check: each trial has its pod and its frozen processes as before the test, and none was denied."""
    pods = {trial: node.pod(trial)["metadata"]["uid"] for trial in TRIALS}
    freezers = {trial: node.frozen(trial) for trial in TRIALS}
    denials = node.guest.denials()
    assert all(freezer and freezer.processes for freezer in freezers.values()), freezers

    def check() -> None:
        assert {trial: node.frozen(trial) for trial in TRIALS} == freezers
        assert {trial: node.pod(trial)["metadata"]["uid"] for trial in TRIALS} == pods
        assert [trial for trial in TRIALS if not node.in_phase(trial, "Suspended")] == []
        assert node.guest.denials() == denials

    return check


@pytest.mark.parametrize("command", ["daemon-reload", "daemon-reexec"])
def test_systemd_reads_its_units_again(node: Any, unharmed: Callable[[], None], command: str) -> None:
    node.machine.shell(f"systemctl {command}")
    node.until("systemd answers", lambda: node.machine.shell("systemctl is-system-running || true").strip(), 15)
    unharmed()


def test_the_kubelet_restarts(node: Any, unharmed: Callable[[], None]) -> None:
    registrations = node.guest.registrations()
    node.machine.shell("systemctl restart kubelet")
    node.until("the device plugin has registered again", lambda: node.guest.registrations() > registrations, 40)
    node.until("the node is Ready with its slots", node.is_usable, 40)
    # a pod that the kubelet has denied looks alive for its grace period
    holds(unharmed, max(node.pod(trial)["spec"]["terminationGracePeriodSeconds"] for trial in TRIALS) + 5)


@pytest.mark.parametrize("command", ["systemctl restart containerd", KILL], ids=["restart", "kill"])
def test_containerd_ends_and_starts(node: Any, unharmed: Callable[[], None], command: str) -> None:
    before = node.guest.main_process("containerd")
    node.machine.shell(command)

    def is_back() -> bool:
        return node.guest.main_process("containerd") not in (0, before) and bool(node.guest.containerd_answers())

    node.until("another containerd answers", is_back, 30)
    node.until("the node is Ready with its slots", node.is_usable, 40)
    unharmed()


def test_the_agent_restarts(node: Any, unharmed: Callable[[], None]) -> None:
    node.kubectl("delete", "pod", "-n", "podium-system", "-l", AGENT, "--timeout=120s", timeout=130)
    rollout = ("rollout", "status", "daemonset/podium-agent", "-n", "podium-system", "--timeout=180s")
    node.kubectl(*rollout, timeout=190)
    node.until("the node is Ready with its slots", node.is_usable, 40)
    unharmed()


@pytest.mark.parametrize("trial", ["runc-0", "crun-0"])
def test_a_trial_continues_in_its_process_after_all_restarts(node: Any, trial: str) -> None:
    before, step = node.frozen(trial), node.trial(trial)["status"]["lastStep"]
    node.set_suspended(False, trial)
    node.until("the trial continues", lambda: node.trial(trial)["status"]["lastStep"] > step, 40)
    node.set_suspended(True, trial)
    after = node.until("the trial is suspended again", lambda: node.frozen(trial), 20)
    assert after.path == before.path
    assert min(after.processes) == min(before.processes), "the same first process"
    assert node.attempt(trial) == 0


def holds(check: Callable[[], None], seconds: float) -> None:
    """Check again and again for this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check()
        time.sleep(1.0)
