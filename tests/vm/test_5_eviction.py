"""Memory pressure: the kubelet evicts one trial and nothing else, and the trial continues in a new pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, TRIALS = "runc", ("runc-0", "runc-1")
FOLDER = "/run/pressure"
LEFT = 300  # megabytes; the kubelet's threshold is 400
# The kubelet counts free memory and inactive pages of files as available. The kernel makes active pages inactive under
# pressure, so one file is not enough.
PRESS = f"""
set -e
mkdir -p {FOLDER}
mountpoint -q {FOLDER} || mount -t tmpfs -o size=100% pressure {FOLDER}
kb=$(awk '/^MemFree:|^Inactive\\(file\\):/ {{ sum += $2 }} END {{ print sum }}' /proc/meminfo)
if [ $kb -gt $(( ({LEFT} + 5) * 1024 )) ]; then fallocate -l $(( kb - {LEFT} * 1024 ))K $(mktemp {FOLDER}/XXXXXX); fi
"""
RELEASE = f"if mountpoint -q {FOLDER}; then umount {FOLDER}; fi"


@pytest.fixture
def pressed_memory(node: Any) -> Iterator[None]:
    """Free the memory at the end, also if the test fails."""
    yield
    node.machine.shell(RELEASE)


def test_memory_pressure_evicts_one_trial_which_continues(node: Any, pressed_memory: None) -> None:
    node.delete("crun")
    assert [node.attempt(trial) for trial in TRIALS] == [0, 0]
    before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in node.pods_of_node()}

    def evicted() -> Any:
        node.machine.shell(PRESS)
        return node.evicted()

    pods = node.until("the kubelet evicts a pod", evicted, 40)
    node.machine.shell(RELEASE)  # at once: a trial's few megabytes do not end the pressure
    assert len(pods) == 1
    trial = pods[0].rpartition("-")[0]
    assert trial in TRIALS, "a trial is evicted before the agent and the driver"
    node.set_suspended(False, *TRIALS)
    again = lambda: node.attempt(trial) == 1 and node.in_phase(trial, "Suspended")  # noqa: E731
    node.until("the trial has worked in a new pod and is suspended", again, 101)
    assert node.trial(trial)["status"]["failures"] == 0, "an eviction is not a failure of the trial"
    assert node.evicted() == pods
    others = {uid for uid, name in before.items() if name not in pods}
    assert others <= {pod["metadata"]["uid"] for pod in node.pods_of_node()}
