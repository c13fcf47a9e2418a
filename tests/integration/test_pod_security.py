"""Pod Security admission of a real API server: the chart's pods and the pods that the operator creates.

The chart's pods and the reservation pod are sent as dry runs. The pods of trials and of clean-ups are the operator's
own, in a tenant's namespace.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from chart_rendering import EVERYTHING, Tool, make_tool, parse, pod_specs, render
from operator_stage import Play, Stage, running

from podium_cluster.resources import JOBS, NAMESPACES, PODS
from podium_core.planning.slots.gpu_reservations import Pool
from podium_operator.reservations.reservation_pod import ReservationRules, make_reservation_pod

pytestmark = pytest.mark.integration
LEVELS = ("restricted", "baseline", "privileged")
ENFORCE = "pod-security.kubernetes.io/enforce"
RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
ON_CLAIM: dict[str, Any] = {"claimName": "runs"}
ON_NODE: dict[str, Any] = {"hostPath": {"path": "/srv/runs"}}


@pytest.fixture(scope="module")
def tool(binary: Callable[[str], Path], kubeconfig: Path) -> Tool:
    return make_tool(binary, kubeconfig)


@pytest.fixture(scope="module", params=["", EVERYTHING])
def chart(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def levels(tool: Tool, chart: str) -> Iterator[dict[str, str]]:
    """A namespace for each level, with what the admission of the chart's pods requires besides."""
    names = {level: f"{level}-{uuid.uuid4().hex[:6]}" for level in LEVELS}
    required = [item for item in parse(render(tool, chart)) if item["kind"] in ("ServiceAccount", "PriorityClass")]
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}]
    accounts += [{**item, "metadata": {"name": item["metadata"]["name"]}} for item in required if "value" not in item]
    classes: list[dict[str, Any]] = [item for item in required if "value" in item]
    # the agent's, with the optional values: a pod of a class that does not exist is refused
    classes.append(
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
    )
    for level, name in names.items():
        assert tool("kubectl", "create", "namespace", name).returncode == 0
        assert tool("kubectl", "label", "namespace", name, f"{ENFORCE}={level}").returncode == 0
        for items, where in ((accounts, [f"--namespace={name}"]), (classes, [])):
            done = tool("kubectl", "apply", "--server-side", *where, "-f", "-", given=yaml.safe_dump_all(items))
            assert done.returncode == 0, done.stderr
    yield names
    for name in names.values():
        tool("kubectl", "delete", "namespace", name, "--wait=false")
    tool("kubectl", "delete", "--ignore-not-found", "-f", "-", given=yaml.safe_dump_all(classes))


def admit(tool: Tool, namespace: str, pod: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    return tool("kubectl", "create", "--dry-run=server", f"--namespace={namespace}", "-f", "-", given=json.dumps(pod))


def test_every_pod_of_the_chart_but_the_agents_runs_in_a_restricted_namespace(
    tool: Tool, levels: dict[str, str], chart: str
) -> None:
    specs = pod_specs(parse(render(tool, chart)))
    assert len(specs) == 7, "with the slot test of the mode `dedicated`, or with the dashboard"
    for name, spec in specs.items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        done = admit(tool, levels["restricted"], pod)
        if name != "podium-agent":
            assert done.returncode == 0, (name, done.stderr)
            continue
        assert 'violates PodSecurity "restricted' in done.stderr
        done = admit(tool, levels["baseline"], pod)
        for reason in ("host namespaces (hostPID=true)", "hostPath volumes", "privileged (container"):
            assert reason in done.stderr, "the reasons that docs/how-to/secure.md gives"
        done = admit(tool, levels["privileged"], pod)
        assert done.returncode == 0, done.stderr


def test_a_reservation_pod_runs_in_a_restricted_namespace(tool: Tool, levels: dict[str, str]) -> None:
    rules = ReservationRules("podium:1", "system-node-critical", "uid")
    pool = Pool(levels["restricted"], "queue", ("NVIDIA-H100",))
    pod = make_reservation_pod("reserved", pool, rules, grace_seconds=30, nodes=("a",), spread="together")
    done = admit(tool, levels["restricted"], pod)
    assert done.returncode == 0, done.stderr


def job(context: Mapping[str, Any], volume: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job adds to the default: most of what makes the operator extend a trial's pod."""
    container = {"name": "main", "image": "i", "command": ["t"], "securityContext": dict(context)}
    container["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}
    return {
        "gpus": {"perTrial": 1, "memory": "2Gi"},
        "suspension": {"methods": ["cuda-checkpoint", "app-checkpoint"], "downsizeCpu": True},
        "checkpoint": {"path": "/c", "volume": dict(volume)},
        "template": {"spec": {"containers": [container]}},
    }


@pytest.mark.parametrize(
    ("level", "context", "volume"),
    [
        ("restricted", RESTRICTED, ON_CLAIM),
        ("restricted", RESTRICTED, {"emptyDir": {}}),
        ("baseline", {}, ON_CLAIM),
        ("privileged", {}, ON_NODE),
    ],
    ids=["restricted-claim", "restricted-emptyDir", "baseline-claim", "privileged-hostPath"],
)
def test_a_namespace_admits_trials_and_clean_ups_at_the_level_of_their_template(
    perform: Callable[[Play], None], level: str, context: dict[str, Any], volume: dict[str, Any]
) -> None:
    async def play(stage: Stage) -> None:
        await enforce(stage, level)
        more = job(context, volume)
        if "emptyDir" in volume:
            more["suspension"]["methods"] = ["cuda-checkpoint"]
        await stage.submit(**more | {"gpus": more["gpus"] | {"products": [stage.product]}})
        await stage.until("two trials are on the GPU", lambda: running(stage, "sweep-0", "sweep-1"))
        spec = (await stage.pods())["sweep-0-0"]["spec"]
        (gate,) = spec["initContainers"]
        assert gate["name"] == "podium-gate"
        assert not [part for part in gate["resources"].values() if "podium.dev/gpu" in part]
        assert {"name": "podium-gate", "emptyDir": {}} in spec["volumes"]
        await stage.api.delete(JOBS, "sweep", stage.name)
        if "emptyDir" in volume:
            return

        async def cleans_up() -> bool:
            pods = await stage.pods()
            return await stage.trials() == {} and [name[:14] for name in pods] == ["sweep-cleanup-"]

        await stage.until("the clean-up pod is admitted", cleans_up)
        (pod,) = await stage.pods()
        done = {"status": {"phase": "Succeeded"}}
        await stage.api.patch(PODS, pod, stage.name, done, manager="kubelet", subresource="status")

        async def gone() -> bool:
            return not (await stage.api.list(JOBS, stage.name))["items"]

        await stage.until("the job is gone", gone, play=False)

    perform(play)


@pytest.mark.parametrize(
    ("level", "context", "volume", "reason"),
    [
        ("restricted", {}, ON_CLAIM, 'violates PodSecurity "restricted'),
        ("baseline", RESTRICTED, ON_NODE, "hostPath volumes"),
    ],
)
def test_a_template_that_the_namespace_refuses_is_reported_on_its_trials(
    perform: Callable[[Play], None], level: str, context: dict[str, Any], volume: dict[str, Any], reason: str
) -> None:
    async def play(stage: Stage) -> None:
        await enforce(stage, level)
        more = job(context, volume)
        await stage.submit(**more | {"gpus": more["gpus"] | {"products": [stage.product]}})

        async def refused() -> bool:
            status = (await stage.trials()).get("sweep-0", {}).get("status", {})
            return status.get("reason") == "PodRefused" and reason in status["message"]

        await stage.until("the trial says why", refused)
        assert await stage.pods() == {}

    perform(play)


async def enforce(stage: Stage, level: str) -> None:
    """Label the stage's namespace, and create the claim that checkpoints use."""
    await stage.api.patch(NAMESPACES, stage.name, None, {"metadata": {"labels": {ENFORCE: level}}}, manager="test")
    await stage.claim("runs", "ReadWriteMany")
