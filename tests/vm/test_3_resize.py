"""In-place resize of suspended trials: systemd changes the weight of a frozen scope, and the trial stays frozen."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
TRIALS = ("runc-0", "crun-0")
DOWNSIZED = 10  # thousandths of a CPU
FULL_WEIGHT = 17  # what the runtimes make of the trials' request of 100 thousandths


@pytest.mark.parametrize("trial", TRIALS)
def test_a_suspended_trial_has_a_small_cpu_weight(node: Any, trial: str) -> None:
    status = node.until("the kubelet has resized the pod", lambda: resized(node, trial), 26)
    assert status["resources"]["requests"]["cpu"] == f"{DOWNSIZED}m"
    assert weight(node, trial) < FULL_WEIGHT
    assert node.frozen(trial)


def resized(node: Any, trial: str) -> Any:
    """Return the container's status once its request is the small one."""
    status = node.pod(trial)["status"]["containerStatuses"][0]
    return status if status["resources"]["requests"]["cpu"] == f"{DOWNSIZED}m" else None


def weight(node: Any, trial: str) -> int:
    """Return the CPU weight of the container's scope."""
    scope = node.frozen(trial).path.removesuffix("/container")
    return int(node.machine.shell(f"cat {scope}/cpu.weight"))
