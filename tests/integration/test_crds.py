"""The CRDs on a real API server: invalid jobs, the examples, immutable fields and printed columns."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_core.schema.generation.crd import KINDS, files
from podium_core.schema.gpunode import GPUNode, GpuNodeStatus, GpuStatus
from podium_core.schema.job import HyperParamJob
from podium_core.schema.manifests import read_manifests
from podium_core.schema.validation import check, parse_job

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
EXAMPLES = [*sorted((ROOT / "crds/examples").glob("*.yaml")), ROOT / "examples/digits/job.yaml"]
NAMESPACE = f"crds-{uuid.uuid4().hex[:8]}"


TABLE: Any = load(ROOT / "tests/unit/schema/bad_jobs.py")
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def kubectl(kubeconfig: Path, binary: Callable[[str], Path]) -> Iterator[Kubectl]:
    program = binary("kubectl")

    def call(*arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        text = None if stdin is None else json.dumps(stdin)
        command = [str(program), "--kubeconfig", str(kubeconfig), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    # the current CRDs, even if PODIUM_TEST_KUBECONFIG names a server with older ones
    for kind in KINDS:
        done = call("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / f"crds/{kind.plural}.yaml"))
        assert done.returncode == 0, done.stderr
        done = call("wait", "--for=condition=Established", f"crd/{kind.plural}.podium.dev", "--timeout=20s")
        assert done.returncode == 0, done.stderr
    call("create", "namespace", NAMESPACE)
    yield call
    for kind in KINDS:
        call("delete", kind.plural, "-l", "test=crds", "-n", NAMESPACE, "--wait=false")
    call("delete", "namespace", NAMESPACE, "--wait=false")


def in_test_namespace(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"test": "crds"}}
    return {**manifest, "metadata": {**manifest.get("metadata", {}), **metadata}}


def namespace_of(path: Path) -> str:
    return str(read_manifests([path])[0]["metadata"].get("namespace", NAMESPACE))


def test_a_valid_job_is_accepted(kubectl: Kubectl) -> None:
    done = kubectl("create", "--dry-run=server", "-f", "-", stdin=TABLE.good())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("job", TABLE.bad(), ids=lambda job: job.name)
def test_invalid_jobs_are_refused_at_apply_or_by_the_operator(kubectl: Kubectl, job: Any) -> None:
    done = kubectl("create", "--dry-run=server", "-f", "-", stdin=job.manifest)
    if job.apply is None:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode != 0, "the API server accepted it"
    assert job.apply in done.stderr
    assert job.field in done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_apply_cleanly(kubectl: Kubectl, path: Path) -> None:
    for command in (["create"], ["apply", "--server-side"]):
        done = kubectl(*command, "--dry-run=server", "-n", namespace_of(path), "-f", str(path))
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_servers_defaults_are_those_of_the_models(kubectl: Kubectl, path: Path) -> None:
    done = kubectl("create", "--dry-run=server", "-n", namespace_of(path), "-o", "json", "-f", str(path))
    stored = json.loads(done.stdout)
    read_locally = parse_job(read_manifests([path])[0])
    read_from_server = parse_job(stored)
    assert isinstance(read_locally, HyperParamJob)
    assert isinstance(read_from_server, HyperParamJob)
    assert read_from_server.spec == read_locally.spec
    assert check(read_from_server.spec) == check(read_locally.spec)


def test_kubectl_and_podium_read_a_manifest_alike(kubectl: Kubectl) -> None:
    odd = ROOT / "tests/unit/schema/odd.yaml"
    for path in [odd, *EXAMPLES]:
        options = ("-n", namespace_of(path), "-f", str(path))
        done = kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", *options)
        assert done.returncode == 0, done.stderr
        own = read_manifests([path])
        own[0]["metadata"].setdefault("namespace", NAMESPACE)  # kubectl adds it
        assert own == [json.loads(done.stdout)]


CHANGES: list[tuple[str, dict[str, Any], str | None]] = [
    ("objective", {"objective": {"target": 0.5}}, "objective is immutable"),
    ("parameters", {"parameters": [{"name": "lr", "min": 1e-4, "max": 1e-2}]}, "parameters is immutable"),
    ("values", {"parameters": [{"name": "bs", "values": [64, 256]}]}, "parameters is immutable"),
    ("search", {"search": {"seed": 1}}, "search is immutable"),
    ("gpus", {"gpus": {"perTrial": 2}}, "gpus is immutable"),
    ("metrics", {"metrics": {"stepKey": "epoch"}}, "metrics is immutable"),
    ("maxSteps", {"trials": {"maxSteps": 20}}, "maxSteps is immutable"),
    ("maxSteps removed", {"policy": {"name": "fifo"}, "trials": {"maxSteps": None}}, "maxSteps is immutable"),
    ("checkpoint", {"checkpoint": {"path": "/c", "volume": {"emptyDir": {}}}}, "checkpoint is immutable"),
    ("pod field", {"template": {"spec": {"nodeSelector": {"a": "c"}}}}, "template is immutable"),
    ("pod field added", {"template": {"spec": {"priority": 3}}}, "template is immutable"),
    ("pod field replaced", {"template": {"spec": {"nodeSelector": None, "priority": 3}}}, "template is immutable"),
    ("container field", {"template": {"spec": {"containers": [{"name": "train", "image": "x"}]}}}, "template is"),
    ("max", {"trials": {"max": 8}}, None),
    ("parallel", {"trials": {"parallel": "auto"}}, None),
    ("maxFailed", {"trials": {"maxFailed": 9}}, None),
    ("suspend", {"suspend": True}, None),
    ("policy", {"policy": {"name": "fifo"}}, None),
]


def merged(old: Any, new: Any) -> Any:
    """Apply a merge patch to `old`; lists of named entries merge by name, as in server-side apply."""
    if isinstance(old, dict) and isinstance(new, dict):
        joined = {**old, **{key: merged(old.get(key), one) for key, one in new.items()}}
        return {key: one for key, one in joined.items() if one is not None}
    if isinstance(old, list) and isinstance(new, list) and all(isinstance(one, dict) for one in [*old, *new]):
        wanted = {one["name"]: one for one in new}
        return [merged(one, wanted.get(one["name"], {})) for one in old]
    return copy.deepcopy(new)


@pytest.fixture(scope="module")
def existing_job(kubectl: Kubectl) -> dict[str, Any]:
    job = in_test_namespace(TABLE.good(), "living")
    job["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    done = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=job)
    assert done.returncode == 0, done.stderr
    return job


@pytest.mark.parametrize(("change", "words"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_changes_of_a_job(
    kubectl: Kubectl, existing_job: dict[str, Any], change: dict[str, Any], words: str | None
) -> None:
    wanted = {**existing_job, "spec": merged(existing_job["spec"], change)}
    done = kubectl("replace", "--dry-run=server", "-f", "-", stdin=wanted)
    if words is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode != 0
        assert words in done.stderr


def trial() -> dict[str, Any]:
    spec = {"job": "living", "number": 0, "parameters": {"lr": 0.1, "bs": 64, "act": "relu", "bias": True}}
    return in_test_namespace({"apiVersion": "podium.dev/v1alpha1", "kind": "HyperParamTrial", "spec": spec}, "living-0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": {"lr": 0.2}}, "parameters is immutable"),
        ({"parameters": {"lr": None, "rate": 0.1}}, "parameters is immutable"),
        ({"parameters": {"bs": "64"}}, "parameters is immutable"),
        ({"number": 1}, "number is immutable"),
        ({"job": "other"}, "job is immutable"),
        ({"pinned": True}, None),
        ({"stopped": True}, None),
        ({"suspend": True}, None),
    ],
    ids=str,
)
def test_the_parameters_of_a_trial_cannot_change(kubectl: Kubectl, change: dict[str, Any], words: str | None) -> None:
    done = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=trial())
    assert done.returncode == 0, done.stderr
    done = kubectl("replace", "--dry-run=server", "-f", "-", stdin=merged(trial(), {"spec": change}))
    assert (done.returncode == 0) == (words is None), done.stderr
    assert (words or "") in done.stderr


def test_an_epoch_never_decreases(kubectl: Kubectl) -> None:
    node = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUNode", "spec": {"epoch": 3}}
    node["metadata"] = {"name": "crds-node", "labels": {"test": "crds"}}
    assert kubectl("apply", "--server-side", "-f", "-", stdin=node).returncode == 0
    done = kubectl("replace", "--dry-run=server", "-f", "-", stdin={**node, "spec": {"epoch": 2}})
    assert "epoch must not decrease" in done.stderr
    assert kubectl("delete", "gpunode", "crds-node").returncode == 0


def status(kubectl: Kubectl, manifest: dict[str, Any], report: dict[str, Any], manager: str) -> None:
    """Write one writer's part of a status by server-side apply, as operator and agent do."""
    kind = {key: manifest[key] for key in ("apiVersion", "kind")}
    name = {key: one for key, one in manifest["metadata"].items() if key in ("name", "namespace")}
    part = {**kind, "metadata": name, "status": report}
    arguments = ("apply", "--server-side", "--subresource=status", f"--field-manager={manager}", "-f", "-")
    done = kubectl(*arguments, stdin=part)
    assert done.returncode == 0, done.stderr


def columns(kubectl: Kubectl, *what: str) -> dict[str, str]:
    """Return the columns of `kubectl get` for one object. Two or more spaces separate columns."""
    head, line = kubectl("get", *what).stdout.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", head)]
    ends = [*starts[1:], None]
    return {head[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}


def test_columns_of_a_job(kubectl: Kubectl, existing_job: dict[str, Any]) -> None:
    report = {
        "phase": "Running",
        "trials": {"running": 2, "suspended": 3},
        "done": "1/4",
        "best": {"trial": "living-0", "value": 0.25, "step": 3, "parameters": {"lr": 0.1}},
        "gpuHours": 1.5,
        "eta": "2030-01-01T00:00:00Z",
    }
    status(kubectl, existing_job, report, "podium-operator")
    row = columns(kubectl, "hpj", "living", "-n", NAMESPACE)
    assert list(row) == ["NAME", "PHASE", "RUNNING", "SUSPENDED", "DONE/MAX", "BEST", "GPU-H", "ETA", "AGE"]
    assert list(row.values())[:8] == ["living", "Running", "2", "3", "1/4", "0.25", "1.5", "2030-01-01T00:00:00Z"]


def test_columns_of_a_trial_whose_status_has_two_writers(kubectl: Kubectl) -> None:
    done = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=trial())
    assert done.returncode == 0, done.stderr
    report = {
        "phase": "Running",
        "reason": "Convergence",
        "rank": 1,
        "gpus": ["GPU-1"],
        "best": {"step": 3, "value": 0.5},
    }
    status(kubectl, trial(), {**report, "predicted": {"value": 0.4, "low": 0.3, "high": 0.5}}, "podium-operator")
    points = [{"step": step, "value": 1 / step, "time": 1.5e9 + step} for step in range(1, 257)]
    status(kubectl, trial(), {"curve": {"points": points}, "lastStep": 256, "lastValue": 0.25}, "podium-agent")
    row = columns(kubectl, "hpt", "living-0", "-n", NAMESPACE)
    assert list(row) == ["NAME", "PHASE", "RANK", "STEP", "VALUE", "BEST", "PREDICTED", "GPU", "WHY", "AGE"]
    shown = ["living-0", "Running", "1", "256", "0.25", "0.5", "0.4", "GPU-1", "Convergence"]
    assert list(row.values())[:9] == shown


def test_columns_of_a_node(kubectl: Kubectl) -> None:
    node = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": "crds-gpus"}}
    assert kubectl("apply", "--server-side", "-f", "-", stdin=node).returncode == 0
    gpus = [
        GpuStatus(
            uuid="GPU-1", index=0, health="Healthy", sm_utilization=97.6, memory_total=24 << 30, memory_used=6 << 30
        ),
        GpuStatus(uuid="GPU-2", index=1, health="Unhealthy", health_reason="Xid 79", memory_total=24 << 30),
    ]
    report = GpuNodeStatus(gpus=gpus, observed_epoch=4).model_dump(mode="json", by_alias=True, exclude_none=True)
    status(kubectl, node, report, "podium-agent")
    row = columns(kubectl, "gpun", "crds-gpus")
    assert list(row) == ["NAME", "GPUS", "HOLDER", "UTIL", "MEMORY", "HEALTH", "EPOCH", "AGE"]
    assert list(row.values())[1:7] == ["2", "-,-", "98%,0%", "6/24Gi,0/24Gi", "1: Xid 79", "4"]
    stored = json.loads(kubectl("get", "gpun", "crds-gpus", "-o", "json").stdout)
    assert GPUNode.model_validate(stored).status.gpus == gpus
    assert kubectl("delete", "gpunode", "crds-gpus").returncode == 0


def test_all_kinds_are_in_one_category_and_have_descriptions(kubectl: Kubectl) -> None:
    served = kubectl("api-resources", "--categories=podium", "-o", "name").stdout.split()
    assert sorted(served) == sorted(f"{kind.plural}.podium.dev" for kind in KINDS)
    assert "start" not in kubectl("explain", "hpj.spec.trials").stderr
    assert "Number of trials that are started" in kubectl("explain", "hpj.spec.trials.parallel").stdout


def test_the_crds_folder_contains_exactly_the_installed_kinds() -> None:
    assert {path for path in files() if path.parent == Path("crds")} == {
        Path(f"crds/{kind.plural}.yaml") for kind in KINDS
    }
