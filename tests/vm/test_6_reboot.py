"""The node reboots while a trial is suspended, and its Node object remains: no trial fails, none runs twice."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
TRIALS = ("runc-0", "runc-1")


def test_all_trials_continue_after_a_reboot(node: Any) -> None:
    boot, uid = node.guest.boot_id(), node.get("node", node.machine.name)["metadata"]["uid"]
    pods = {trial: node.pod(trial)["metadata"]["uid"] for trial in TRIALS}
    assert boot
    node.until("a trial is suspended", lambda: any(node.frozen(trial) for trial in TRIALS), 20)
    node.machine.shell("systemctl reboot --no-block")
    # systemd waits 90 s for a scope of frozen processes
    node.until("the machine has started again", lambda: node.guest.boot_id() not in ("", boot), 120)
    node.until("the node is Ready with its slots", node.is_usable, 122)
    assert node.get("node", node.machine.name)["metadata"]["uid"] == uid, "the Node object was kept"

    for trial in TRIALS:
        again = lambda trial=trial: has_worked(node, trial, pods[trial])  # noqa: E731
        node.until(f"{trial} has worked in another pod", again, 101)
    assert [node.trial(trial)["status"]["failures"] for trial in TRIALS] == [0, 0], "a reboot is not a failure"
    node.until("each trial has one pod and one slot", lambda: one_each(node), 40)


def has_worked(node: Any, trial: str, former: str) -> bool:
    """Return whether the trial has passed its gate in another pod than the former one."""
    pod = node.trial(trial)["status"].get("pod")
    found = [one for one in node.objects("pods") if one["metadata"]["name"] == pod]
    other = any(one["metadata"]["uid"] != former for one in found)
    return other and (node.in_phase(trial, "Running") or node.in_phase(trial, "Suspended"))


def one_each(node: Any) -> bool:
    """Return whether each trial has one living pod, and no slot is held by a pod of the former boot."""
    names = [pod["metadata"]["name"] for pod in node.pods_of_node()]
    living = sorted(name.rpartition("-")[0] for name in names if name.startswith(TRIALS))
    gpus = [gpu for one in node.objects("gpunodes") for gpu in one["status"]["gpus"]]
    return living == sorted(TRIALS) and sum(len(gpu.get("trials", [])) for gpu in gpus) == len(TRIALS)
