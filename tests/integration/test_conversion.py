"""Converted searches on a real API server: a dry run of every job that `podium convert` makes of Katib's examples."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from podium_core.conversion.convert import convert
from podium_core.conversion.given import Given
from podium_core.schema.generation.crd import KINDS
from podium_core.schema.manifests import read_manifests

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/unit/conversion"
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def kubectl(kubeconfig: Path, binary: Callable[[str], Path]) -> Kubectl:
    program = binary("kubectl")

    def call(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(program), "--kubeconfig", str(kubeconfig), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)

    for kind in KINDS:
        done = call("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / f"crds/{kind.plural}.yaml"))
        assert done.returncode == 0, done.stderr
        done = call("wait", "--for=condition=Established", f"crd/{kind.plural}.podium.dev", "--timeout=60s")
        assert done.returncode == 0, done.stderr
    return call


def test_all_converted_searches_are_accepted(kubectl: Kubectl) -> None:
    templates = [DATA / "trial-templates.yaml", DATA / "kubeflow/runtime.yaml"]
    examples = [*sorted((DATA / "katib").glob("*.yaml"))]
    others = [*sorted((DATA / "wandb").glob("*.yaml")), DATA / "kubeflow/optimization-job.yaml"]
    given = Given(image="example.invalid/train:1")
    jobs = []
    for path in [*examples, *others]:
        (result,) = convert(read_manifests([path, *templates]), given)
        if result.job is not None:
            jobs.append({**result.job, "metadata": {"name": result.job["metadata"]["name"], "namespace": "default"}})
    assert len(jobs) >= 27 + len(others)
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs})
    done = kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", text=items)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created (server dry run)") == len(jobs)
