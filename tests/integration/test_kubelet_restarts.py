"""Restarts of the real kubelet beside suspended trials: each trial stays suspended, or it writes a checkpoint.

A restarted kubelet admits all pods again. It exempts running containers, but not a gate that has ended. If the device
plugin has not registered by then, it denies the pod, and its processes get a SIGTERM. The plugin is faster as a rule;
on a machine that is busy enough it may be too late.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import NODE, Node, allocatable, node, until

__all__ = ["node"]
pytestmark = pytest.mark.integration
RESTARTS = 8
GRACE_SECONDS = 60  # for three trials, one after the other, also on a busy machine
DENIED = re.compile(r'"Pod admission denied".* pod="default/(count-\d+)-0"')
# a checkpoint on SIGTERM alone: a hook cannot enter a frozen container
SAVE_ON_SIGTERM = """cd /ckpt; i=0; save() { echo "{\\"step\\": $i}" > new; mv new podium-checkpoint.json; exit 0; }
trap save TERM
while :; do i=$((i+1)); echo "{\\"epoch\\": $i, \\"acc\\": 0.$i}"; sleep 0.05; done"""


def without_hook(pod: dict[str, Any]) -> None:
    pod["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    main = pod["spec"]["containers"][0]
    main["command"] = ["/bin/sh", "-c", SAVE_ON_SIGTERM]
    del main["lifecycle"]


def denied(node: Node) -> set[str]:
    """Return the trials whose pods the kubelet has denied, by its log: the API may show them as running for a while."""
    return set(DENIED.findall((node.cluster.logs / f"kubelet@{NODE}.log").read_text(errors="replace")))


def registrations(node: Node) -> int:
    return node.log.read_text().count("registered podium.dev/gpu with the kubelet")


def saved(node: Node, name: str) -> int:
    """Return the step of a trial's checkpoint on the node's disk; 0 without one."""
    place = node.cluster.node_root(NODE) / "var/lib/checkpoints" / name / "podium-checkpoint.json"
    return int(json.loads(place.read_text())["step"]) if place.exists() else 0


def start_trials(node: Node, folder: Path, first: int) -> tuple[str, str, str]:
    """Start three trials on the GPU, of which the first one runs and the others are suspended."""
    numbers = range(first, first + 3)
    for number in numbers:
        node.add_trial(number, folder, checkpoints=True, change=without_hook)
    one, two, three = (f"count-{number}" for number in numbers)
    until(lambda: [node.states().get(name) for name in (one, two, three)] == ["Gated"] * 3, "three gated trials")
    for holder, *rest in ((one, two, three), (two, one, three), (three, one, two), (one, two, three)):
        node.set_run_queue(holder, *rest)
        until(lambda holder=holder: node.states()[holder] == "Running", f"{holder} runs")
    until(lambda: node.frozen() == {f"{two}-0", f"{three}-0"}, "two suspended trials")
    return one, two, three


def wait_for_checkpoints(node: Node, names: set[str], steps: Mapping[str, int]) -> None:
    """Wait until the processes of these trials have ended, each with a checkpoint of its last step or a later one."""
    until(lambda: not names & node.states().keys(), f"{names} have ended", 2 * GRACE_SECONDS)
    checkpoints = {name: saved(node, name) for name in names}
    assert all(checkpoints[name] >= steps[name] > 0 for name in names), (checkpoints, steps)


def test_no_restart_of_the_kubelet_loses_a_step(node: Node, tmp_path: Path) -> None:
    until(lambda: allocatable(node) == "4", "4 slots")
    names = start_trials(node, tmp_path, 0)
    for number in range(RESTARTS):
        steps, registered = {name: node.printed(name)[-1] for name in names}, registrations(node)
        node.cluster.restart("kubelet", NODE)
        until(lambda registered=registered: registrations(node) > registered, "the plugin registers")
        until(lambda: allocatable(node) == "4", "4 slots")
        if ended := denied(node):
            print(f"restart {number}: the kubelet was faster than the plugin, and denied {ended}")
            wait_for_checkpoints(node, ended, steps)
            break
        assert node.frozen() == {f"{name}-0" for name in names[1:]}
        until(lambda before=steps[names[0]]: node.printed(names[0])[-1] > before, "the holder continues")
    assert "does not accept the plugin" not in node.log.read_text()
    node.set_run_queue()
    node.cluster.kubectl("delete", "pods", "--all", "--grace-period=5")


def test_a_denied_trial_is_thawed_and_writes_its_checkpoint(node: Node, tmp_path: Path) -> None:
    """The agent stands still while the kubelet admits the pods, so that the kubelet denies all three."""
    names = start_trials(node, tmp_path, 3)
    steps = {name: node.printed(name)[-1] for name in names}
    assert node.agent is not None
    node.agent.send_signal(signal.SIGSTOP)
    try:
        node.cluster.restart("kubelet", NODE)
        until(lambda: denied(node) >= set(names), "three denials")
    finally:
        node.agent.send_signal(signal.SIGCONT)
    wait_for_checkpoints(node, set(names), steps)
    assert node.frozen() == set()
