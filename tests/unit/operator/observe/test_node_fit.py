"""Whether a node would accept a trial's next pod, as the scheduler decides: a table of nodes, pods and templates."""

from __future__ import annotations

from typing import Any

import pytest

from podium_core.schema.pod import Pod
from podium_operator.observe.node_fit import CandidateNode, why_rejected, why_rejected_without_gpus

FREE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
SPREAD = {"topologySpreadConstraints": [{"maxSkew": 1}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
CLAIM = {"name": "ckpt", "persistentVolumeClaim": {"claimName": "shared"}}
PREFERRED = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}


def node(has: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> CandidateNode:
    made = {"metadata": {"name": "b", "labels": labels or {}}, "spec": spec, "status": {"allocatable": has or FREE}}
    return CandidateNode.model_validate(made)


def pod(cpu: str = "1", memory: str = "1Gi", **spec: Any) -> Pod:
    requests = {"cpu": cpu, "memory": memory, "podium.dev/gpu": "1"}
    return Pod.model_validate({"metadata": {}, "spec": {"containers": [{"resources": {"requests": requests}}], **spec}})


CASES: list[tuple[str, CandidateNode, list[Pod], Pod, dict[str, Any], str | None]] = [
    ("empty", node(), [], pod(), {}, None),
    ("just enough CPUs", node(), [pod("1500m"), pod("1500m")], pod(), {}, None),
    ("too few CPUs", node(), [pod("1500m"), pod("1501m")], pod(), {}, "node b has 0.999 cpu left, but the pod needs 1"),
    ("too little memory", node(), [pod(memory="7.5Gi")], pod(), {}, "memory left"),
    ("too many pods", node({**FREE, "pods": "1"}), [pod("0", "0")], pod(), {}, "node b has 0 pods left"),
    ("a resource that it lacks", node({"cpu": "4", "pods": "9"}), [], pod(), {}, "node b has 0 memory left"),
    ("cordoned", node(unschedulable=True), [], pod(), {}, "node b is cordoned"),
    ("selected", node(labels={"pool": "a"}), [], pod(), {"nodeSelector": {"pool": "a"}}, None),
    ("not selected", node(labels={"pool": "b"}), [], pod(), {"nodeSelector": {"pool": "a"}}, "requires the node label"),
    ("restricted by affinity", node(), [], pod(), {"affinity": AFFINITY}, "by required affinity"),
    ("only preferred", node(), [], pod(), {"affinity": PREFERRED}, None),
    ("restricted by a topology spread", node(), [], pod(**SPREAD), {}, "other pods"),
    ("restricted by other pods", node(), [], pod(affinity={"podAntiAffinity": {"x": []}}), {}, "other pods"),
    ("checkpoints on a claim", node(), [], pod(volumes=[CLAIM]), {}, None),
    ("not ready", node(taints=[NOT_READY]), [], pod(), {}, "taint node.kubernetes.io/not-ready"),
    ("tainted", node(taints=[TAINT]), [], pod(), {}, "has the taint gpu"),
    ("tolerated", node(taints=[TAINT]), [], pod(), {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, None),
    ("all tolerated", node(taints=[TAINT]), [], pod(), {"tolerations": [{"operator": "Exists"}]}, None),
    (
        "all of its key tolerated, an empty field beside it",
        node(taints=[TAINT]),
        [],
        pod(),
        {"tolerations": [{"key": "gpu", "operator": "Exists", "value": None}]},
        None,
    ),
    ("its value tolerated", node(taints=[TAINT]), [], pod(), {"tolerations": [{"key": "gpu", "value": "yes"}]}, None),
    (
        "another value tolerated",
        node(taints=[TAINT]),
        [],
        pod(),
        {"tolerations": [{"key": "gpu", "value": "no"}]},
        "has the taint gpu",
    ),
    (
        "another effect tolerated",
        node(taints=[TAINT]),
        [],
        pod(),
        {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        "has the taint gpu",
    ),
    ("a taint without effect on pods", node(taints=[TAINT | {"effect": "PreferNoSchedule"}]), [], pod(), {}, None),
]


@pytest.mark.parametrize(
    ("there", "pods", "mine", "template", "recorded"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_the_schedulers_answer(
    there: CandidateNode, pods: list[Pod], mine: Pod, template: dict[str, Any], recorded: str | None
) -> None:
    said = why_rejected(there, pods, mine, template)
    assert (said is None) is (recorded is None), said
    assert recorded is None or recorded in (said or "")


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


LABELS = {"pool": "a", "cores": "8"}
GPU_CASES: list[tuple[str, Pod, dict[str, Any], bool]] = [
    ("nothing special", pod(), {}, True),
    ("too few CPUs", pod("5"), {}, False),
    ("a label", pod(), {"nodeSelector": {"pool": "a"}}, True),
    ("another label", pod(), {"nodeSelector": {"pool": "b"}}, False),
    ("preferred affinity", pod(), {"affinity": PREFERRED}, True),
    ("affinity: In", pod(), affinity(needs("pool", "In", "a", "b")), True),
    ("affinity: not In", pod(), affinity(needs("pool", "In", "b")), False),
    ("one of two terms", pod(), affinity(needs("pool", "In", "b"), needs("cores", "Exists")), True),
    ("NotIn", pod(), affinity(needs("pool", "NotIn", "a")), False),
    ("DoesNotExist", pod(), affinity(needs("pool", "DoesNotExist")), False),
    ("Gt", pod(), affinity(needs("cores", "Gt", "4")), True),
    ("not Gt", pod(), affinity(needs("cores", "Gt", "8")), False),
    ("Lt", pod(), affinity(needs("cores", "Lt", "9")), True),
    ("Lt of a missing label", pod(), affinity(needs("age", "Lt", "9")), False),
    ("its name", pod(), affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}), True),
    ("another", pod(), affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}), False),
    ("an empty term matches nothing", pod(), affinity({}), False),
    ("other pods are not checked", pod(**SPREAD), {}, True),
]


@pytest.mark.parametrize(("waits", "spec", "accepted"), [case[1:] for case in GPU_CASES], ids=[c[0] for c in GPU_CASES])
def test_a_node_for_a_pod_that_waits_for_a_gpu(waits: Pod, spec: dict[str, Any], accepted: bool) -> None:
    gpu = {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    whole = waits.model_dump(by_alias=True)
    whole["spec"]["containers"] = [*whole["spec"]["containers"], gpu]
    why = why_rejected_without_gpus(node(labels=LABELS), [], Pod.model_validate(whole), spec, {"nvidia.com/gpu"})
    assert (why is None) is accepted, why


def test_a_comparison_with_what_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="'a'"):
        why_rejected_without_gpus(node(labels=LABELS), [], pod(), affinity(needs("pool", "Gt", "4")), ())
