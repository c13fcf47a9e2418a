"""Restarts of the real kubelet beside suspended trials: none ends, however late the device plugin registers.

A restarted kubelet admits all pods again. It exempts running containers, but not a gate with a slot that has ended, as
operators of earlier releases created it. If the device plugin has not registered by then, it denies the pod, and its
processes get a SIGTERM. Such a trial writes a checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
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


def start_trials(node: Node, folder: Path, first: int, gate_slots: Sequence[bool]) -> tuple[str, str, str]:
    """Start three trials on the GPU, of which the first one runs and the others are suspended.

    `gate_slots`: whether their gates have slots.
    """
    numbers = range(first, first + 3)
    for number, slot in zip(numbers, gate_slots, strict=True):
        node.add_trial(number, folder, checkpoints=True, change=without_hook, gate_slot=slot)
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
    names = start_trials(node, tmp_path, 0, (False, False, False))
    for _ in range(RESTARTS):
        steps, registered = {name: node.printed(name)[-1] for name in names}, registrations(node)
        node.cluster.restart("kubelet", NODE)
        until(lambda registered=registered: registrations(node) > registered, "the plugin registers")
        until(lambda: allocatable(node) == "4", "4 slots")
        assert node.frozen() == {f"{name}-0" for name in names[1:]}
        until(lambda before=steps[names[0]]: node.printed(names[0])[-1] > before, "the holder continues")
    assert denied(node) == set()
    assert "does not accept the plugin" not in node.log.read_text()
    end_trials(node)


@contextlib.contextmanager
def still_agent(node: Node) -> Iterator[None]:
    """Stop the agent's process, and let it continue."""
    assert node.agent is not None
    node.agent.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.agent.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def no_agent(node: Node) -> Iterator[None]:
    """Kill the agent, and start another one."""
    node.kill()
    try:
        yield
    finally:
        node.start()


@pytest.mark.parametrize(("late", "first"), [(still_agent, 3), (no_agent, 6)])
def test_a_restart_ends_no_trial_if_the_plugin_registers_late(
    node: Node, tmp_path: Path, late: Callable[[Node], AbstractContextManager[None]], first: int
) -> None:
    """The third trial's gate has a slot. Its denial shows that the kubelet admitted the pods without the plugin.

    The kubelet may take a denied pod for one that it does not know, whose processes it kills after two seconds. A new
    agent may start later than that, so only the agent that continues can save the trial's last step.
    """
    holder, suspended, older = names = start_trials(node, tmp_path, first, (False, False, True))
    steps = {name: node.printed(name)[-1] for name in names}
    with late(node):
        node.cluster.restart("kubelet", NODE)
        until(lambda: older in denied(node), "the kubelet has admitted the pods")
    if late is still_agent:
        wait_for_checkpoints(node, {older}, steps)
    until(lambda: older not in node.states(), f"{older} has ended", 2 * GRACE_SECONDS)
    until(lambda: allocatable(node) == "4", "4 slots")
    assert denied(node) & set(names) == {older}
    assert node.frozen() == {f"{suspended}-0"}
    until(lambda: node.printed(holder)[-1] > steps[holder], "the holder continues")
    node.set_run_queue(suspended, holder)
    until(lambda: node.states() == {suspended: "Running", holder: "Suspended"}, "the two trials switch")
    until(lambda: node.printed(suspended)[-1] > steps[suspended], "the suspended trial continues")
    for name in (holder, suspended):
        printed = node.printed(name)
        assert printed == list(range(1, len(printed) + 1)), f"{name} lost or repeated a step"
    end_trials(node)


def test_a_denied_trial_is_thawed_and_writes_its_checkpoint(node: Node, tmp_path: Path) -> None:
    """The agent stands still while the kubelet admits the pods, so that the kubelet denies all three."""
    names = start_trials(node, tmp_path, 9, (True, True, True))
    steps = {name: node.printed(name)[-1] for name in names}
    with still_agent(node):
        node.cluster.restart("kubelet", NODE)
        until(lambda: denied(node) >= set(names), "three denials")
    wait_for_checkpoints(node, set(names), steps)
    assert node.frozen() == set()


def end_trials(node: Node) -> None:
    node.set_run_queue()
    node.cluster.kubectl("delete", "pods", "--all", "--grace-period=5")
    until(lambda: node.states() == {}, "no trial is left")
