"""crun on cgroup version 2 puts the processes into a cgroup `container` inside the scope; that one is frozen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podium_devcluster.shell import CommandError

pytestmark = pytest.mark.e2e
JOB, TRIALS = "crun", ("crun-0", "crun-1")
CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "crun"},
    "handler": "crun",
}


def test_the_gates_of_two_trials_open(node: Any) -> None:
    node.kubectl("apply", "-f", "-", stdin=json.dumps(CLASS))
    node.search(JOB, "crun")
    node.until("both trials were suspended", lambda: node.all_suspended_once(JOB), 101)


def test_the_inner_cgroup_is_frozen(node: Any) -> None:
    node.set_suspended(True, *TRIALS)
    for trial in TRIALS:
        node.until(f"{trial} is suspended", lambda trial=trial: node.in_phase(trial, "Suspended"), 20)
        freezer = node.until(f"{trial} is frozen", lambda trial=trial: node.frozen(trial), 20)
        scope, inner = freezer.path.rsplit("/", 2)[-2:]
        assert inner == "container"
        assert scope.startswith("cri-containerd-")
        assert node.machine.shell(f"cat {freezer.path.removesuffix('/container')}/cgroup.freeze").strip() == "0"


def test_crun_refuses_a_command_in_a_suspended_trial_at_once(node: Any) -> None:
    before = node.frozen(TRIALS[0])
    pod = node.pod(TRIALS[0])["metadata"]["name"]
    with pytest.raises(CommandError, match="paused"):
        node.kubectl("exec", pod, "-c", "train", "--", "/bin/true", timeout=60)
    assert node.frozen(TRIALS[0]) == before, "the command left no process in the container"
