"""A namespace or a job is deleted in the middle of a search, with and without an operator."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_checks import check_no_leaks
from bare_node import ROOT, BareNode

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, NAMESPACES

pytestmark = pytest.mark.integration
CHECKPOINTS = {"path": "/ckpt", "volume": {"hostPath": {"path": "/var/lib/none"}}}
FINALIZER = "podium.dev/checkpoints"
BY_HAND = "Delete a job without the operator"
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(binary: Callable[[str], Path], kubeconfig: Path) -> Kubectl:
    """A function that runs a command with `kubectl` on the path."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        path = f"{binary('kubectl').parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": path}
        return subprocess.run(
            ["bash", "-ec", command], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def exists(node: BareNode, call: Callable[[Api], Any]) -> bool:
    try:
        node.api(call)
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True


def job_exists(node: BareNode, job: str) -> bool:
    return exists(node, lambda api: api.get(JOBS, job, node.name))


def run_until_suspended(node: BareNode, **spec: Any) -> str:
    """Start a search without an end, and wait until one trial is frozen and another one runs."""
    job = node.search(trials=3, steps=100_000, seconds=0.1, **spec)
    node.until(lambda: node.suspensions(job) >= 2 and node.kubelet.frozen(), "trials are suspended")
    return job


def documented_commands(job: str, namespace: str) -> str:
    """Return the commands of docs/how-to/troubleshoot.md for this job."""
    page = (ROOT / "docs/how-to/troubleshoot.md").read_text()
    block = re.search(rf"{BY_HAND}.*?```sh\n(.*?)```", page, re.DOTALL)
    assert block is not None
    return block[1].replace("JOB", job).replace("NAMESPACE", namespace)


def test_a_deleted_namespace_goes_with_its_suspended_trials(bare_node: BareNode) -> None:
    """No finalizer holds it, although no cleanup pod can be created in it any more: the folder remains."""
    node = bare_node
    node.start()
    job = run_until_suspended(node, checkpoint=CHECKPOINTS)
    assert FINALIZER in node.job(job)["metadata"]["finalizers"]
    node.api(lambda api: api.delete(NAMESPACES, node.name))
    node.until(lambda: not exists(node, lambda api: api.get(NAMESPACES, node.name)), "the namespace is gone", 90)
    check_no_leaks(node)
    node.until(lambda: not any(gpu["runQueue"] for gpu in node.gpunode()["spec"]["gpus"]), "the run queue is empty")
    log = node.operators["one"].text()
    assert re.search(rf"job {node.name}/{job}: Folder \S+ of the checkpoint volume was not removed: .*Remove the", log)
    assert node.agent.code is None


def test_a_job_without_a_finalizer_is_deleted_without_an_operator(bare_node: BareNode, kubectl: Kubectl) -> None:
    node = bare_node
    node.start()
    job = run_until_suspended(node)
    node.operators["one"].kill()
    done = kubectl(f"kubectl delete hyperparamjob {job} --namespace {node.name} --timeout=30s")
    assert done.returncode == 0, done.stderr
    check_no_leaks(node)
    assert node.trials(job) == []


def test_a_job_with_a_finalizer_waits_for_the_operator(bare_node: BareNode, kubectl: Kubectl) -> None:
    """`kubectl delete` waits; the operator ends it when it is back. The documented commands end it without one."""
    node = bare_node
    node.start()
    operator = node.operators["one"]
    job = run_until_suspended(node, checkpoint=CHECKPOINTS)
    operator.kill()
    done = kubectl(f"kubectl delete hyperparamjob {job} --namespace {node.name} --timeout=3s")
    assert done.returncode != 0
    assert "timed out" in done.stderr
    assert node.job(job)["metadata"]["finalizers"] == [FINALIZER]
    operator.start()
    node.until(lambda: not job_exists(node, job), "the job is gone", 90)
    check_no_leaks(node)

    job = run_until_suspended(node, checkpoint=CHECKPOINTS)
    operator.kill()
    done = kubectl(documented_commands(job, node.name))
    assert done.returncode == 0, done.stderr
    assert not job_exists(node, job)
    check_no_leaks(node)
    assert node.trials(job) == []
    operator.start()
    node.until(operator.ready, "an operator that comes later has nothing to do")
    assert node.pods() == []
