"""Manifest of a trial's pod, feature by feature."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operator_builders import make_job, make_node
from operator_builders import make_trial as trial_of
from pod_manifests import RULES, pod, template, variables

from podium_core.schema.metrics.config import METRICS_ANNOTATION, MetricsConfig
from podium_operator.act.pod_manifest import (
    PodOrigin,
    PodRules,
    make_pod,
    make_trial,
)
from podium_operator.act.pod_resources import GPU_MEMORY_LIMIT as LIMIT
from podium_operator.act.pod_resources import WholeGpu, gate_needs_slot, smallest_whole_gpu


def test_names_labels_and_owner_are_deterministic() -> None:
    made = pod(attempt=2)
    assert made["metadata"]["name"] == "sweep-0-2"
    assert made["metadata"]["namespace"] == "lab"
    labels = made["metadata"]["labels"]
    assert labels["podium.dev/job"] == "sweep"
    assert labels["podium.dev/trial"] == "sweep-0"
    owner = made["metadata"]["ownerReferences"]
    assert [(o["kind"], o["name"], o["uid"], o["controller"]) for o in owner] == [
        ("HyperParamTrial", "sweep-0", "uid-sweep-0", True)
    ]
    assert made == pod(attempt=2)


def test_the_gate_is_the_last_init_container_with_the_trials_image_and_user_but_no_slot() -> None:
    security = {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    made = pod(
        template=template(
            spec={"initContainers": [{"name": "fetch", "image": "f"}]},
            securityContext=security,
            imagePullPolicy="IfNotPresent",
            resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        ),
        gpus={"perTrial": 2},
    )
    fetch, gate = made["spec"]["initContainers"]
    main = made["spec"]["containers"][0]
    assert fetch["name"] == "fetch"
    assert gate["name"] == "podium-gate"
    assert gate["command"] == ["/podium/podium-gate", "gate"]
    assert (gate["image"], gate["securityContext"], gate["imagePullPolicy"]) == ("i", security, "IfNotPresent")
    assert gate["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert main["resources"] == {
        "requests": {"cpu": "1", "podium.dev/gpu": "2"},
        "limits": {"cpu": "2", "podium.dev/gpu": "2"},
    }
    assert gate["volumeMounts"] == [{"name": "podium-gate", "mountPath": "/podium", "readOnly": True}]
    assert made["spec"]["volumes"] == [{"name": "podium-gate", "emptyDir": {}}]
    assert made["spec"]["schedulerName"] == "podium"
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["readinessGates"] == [{"conditionType": "podium.dev/holds-gpu"}]


def test_a_gate_has_slots_while_an_agent_of_an_earlier_release_serves_a_node() -> None:
    old = make_node()
    new = old.model_copy(update={"status": old.status.model_copy(update={"agent": "1", "gate_volume": True})})
    silent = old.model_copy(update={"status": old.status.model_copy(update={"agent": ""})})
    old = old.model_copy(update={"status": old.status.model_copy(update={"agent": "0"})})
    assert gate_needs_slot([new, old])
    assert not gate_needs_slot([new, silent])
    made = make_pod(make_job(), trial_of(), 0, RULES, PodOrigin(gate_slot=True))["spec"]
    (gate,), (main,) = made["initContainers"], made["containers"]
    assert gate["resources"] == main["resources"]
    assert gate["resources"]["limits"]["podium.dev/gpu"] == "1"
    assert "volumes" not in made
    assert "volumeMounts" not in gate


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({}, str(16 << 30), None),
        ({"requests": {"memory": "2Gi"}}, str(18 << 30), None),
        ({"requests": {"memory": "1e9"}, "limits": {"memory": "4Gi"}}, str((16 << 30) + 10**9), str(20 << 30)),
        ({"limits": {"memory": "4Gi"}}, None, str(20 << 30)),
    ],
)
def test_a_pod_has_memory_for_what_is_moved_off_its_gpus(
    given: dict[str, Any], requests: str | None, limits: str | None
) -> None:
    gpus = {"perTrial": 2, "memory": "8Gi"}
    how = {"gpus": gpus, "template": template(resources=given)}
    plain = pod(**how)["spec"]["containers"][0]["resources"]
    made = pod(**how, suspension={"methods": ["freeze", "cuda-checkpoint"]})["spec"]
    resources = made["containers"][0]["resources"]
    assert (resources["requests"].get("memory"), resources["limits"].get("memory")) == (requests, limits)
    gate = made["initContainers"][0]["resources"]
    for kind in ("requests", "limits"):  # the gate's cost nothing: a pod counts the larger
        assert gate.get(kind, {}).get("memory") == resources[kind].get("memory")
    for kind in ("requests", "limits"):
        assert plain[kind].get("memory") == given.get(kind, {}).get("memory")


def test_the_retry_after_insufficient_gpu_memory_declares_a_whole_gpu() -> None:
    job = make_job(gpus={"memory": "8Gi"}, suspension={"methods": ["cuda-checkpoint", "freeze"]})
    made = make_pod(job, trial_of(), 1, RULES, PodOrigin(whole_gpu=WholeGpu(24 << 30, ("A10", "L4"))))
    annotations = made["metadata"]["annotations"]
    assert annotations["podium.dev/whole-gpu"] == "true"
    assert annotations["podium.dev/gpu-memory"] == variables(made)["PODIUM_GPU_MEMORY_BYTES"] == str(24 << 30)
    assert annotations["podium.dev/gpu-products"] == "A10,L4"
    assert annotations["podium.dev/methods"] == "freeze"
    main = made["spec"]["containers"][0]
    assert "memory" not in main["resources"]["requests"]
    assert main["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert "podium.dev/whole-gpu" not in pod(gpus={"memory": "8Gi"})["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("gpus", "alone"),
    [
        ({"A10": 24, "A100": 40, "K80": 4}, WholeGpu(24 << 30, ("A10",))),  # an A100 would be shared
        ({"A10": 24, "L4": 25}, WholeGpu(24 << 30, ("A10", "L4"))),
        ({"A10": 24, "": 24}, WholeGpu(24 << 30)),
        ({"K80": 4}, None),
        ({}, None),
    ],
)
def test_the_retry_gets_the_smallest_whole_gpu_that_fits(gpus: dict[str, int], alone: WholeGpu | None) -> None:
    node = make_node()
    there = [
        node.status.gpus[0].model_copy(update={"product": product, "memory_total": size << 30})
        for product, size in gpus.items()
    ]
    node = node.model_copy(update={"status": node.status.model_copy(update={"gpus": there})})
    drains = node.model_copy(update={"spec": node.spec.model_copy(update={"draining": True})})
    wanted = make_job(gpus={"memory": "8Gi"}).spec.gpus
    assert smallest_whole_gpu(wanted, [node]) == alone
    assert smallest_whole_gpu(wanted, [drains]) is None


def test_the_kubelet_refuses_what_it_cannot_provide_before_the_gate() -> None:
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "typo", "key": "k"}}}
    given = template(
        spec={"volumes": [{"name": "data", "emptyDir": {}}]},
        env=[secret],
        envFrom=[{"configMapRef": {"name": "typo"}}],
        volumeMounts=[{"name": "data", "mountPath": "/data", "subPath": "a"}],
    )
    made = pod(template=given, checkpoint={"path": "/ckpt", "volume": {"emptyDir": {}}})["spec"]
    (gate,), (main,) = made["initContainers"], made["containers"]
    assert secret in gate["env"]
    assert gate["env"] == [*main["env"], {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert gate["envFrom"] == main["envFrom"]
    assert gate["volumeMounts"][:-1] == main["volumeMounts"]


def test_only_the_first_container_gets_the_slot() -> None:
    both = template()
    both["spec"]["containers"].append({"name": "logger", "image": "l"})
    logger = pod(template=both)["spec"]["containers"][1]
    assert "resources" not in logger
    assert variables(pod(template=both), 1)["PODIUM_TRIAL"] == "sweep-0"


def test_a_trial_without_gpu_has_no_gate_and_any_scheduler() -> None:
    made = pod(gpus={"perTrial": 0})
    assert "schedulerName" not in made["spec"]
    assert not made["spec"].get("initContainers")
    assert "readinessGates" not in made["spec"]
    assert "podium.dev/gpu" not in json.dumps(made)


def visible(container: dict[str, Any]) -> str | None:
    """Return the container's NVIDIA_VISIBLE_DEVICES in the manifest."""
    (value,) = [one["value"] for one in container.get("env", []) if one["name"] == "NVIDIA_VISIBLE_DEVICES"] or [None]
    return value


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_container_without_a_gpu_sees_none(gpus: int) -> None:
    """An image with CUDA sets NVIDIA_VISIBLE_DEVICES=all, and NVIDIA's runtime follows it."""
    given = template(spec={"initContainers": [{"name": "fetch", "image": "cuda"}]})
    given["spec"]["containers"].append({"name": "logger", "image": "cuda", "resources": {"limits": {"cpu": "1"}}})
    made = pod(template=given, gpus={"perTrial": gpus})["spec"]
    seen = {one["name"]: visible(one) for one in [*made["initContainers"], *made["containers"]]}
    # the device plugin sets it for the slots of the trial
    assert seen == {"fetch": "void", "logger": "void"} | (
        {"podium-gate": "void", "main": None} if gpus else {"main": "void"}
    )


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"])
def test_a_gpu_of_another_plugin_remains_visible(resource: str) -> None:
    given = template(resources={"limits": {resource: "1"}})
    assert visible(pod(template=given, gpus={"perTrial": 0})["spec"]["containers"][0]) is None


def test_environment() -> None:
    made = pod(
        parameters={"lr": 0.01, "batch-size": 32},
        gpus={"perTrial": 1, "memory": "4Gi"},
        checkpoint={"path": "/ckpt", "volume": {"emptyDir": {}}},
        template=template(
            env=[{"name": "PYTHONUNBUFFERED", "value": "0"}, {"name": "D", "value": "$(podium.checkpoint)"}]
        ),
    )
    assert variables(made) == {
        "PYTHONUNBUFFERED": "0",
        "D": "/ckpt",
        "PODIUM_JOB": "sweep",
        "PODIUM_TRIAL": "sweep-0",
        "PODIUM_ATTEMPT": "0",
        "PODIUM_PARAMS": '{"lr": 0.01, "batch-size": 32}',
        "PODIUM_METRIC": "acc",
        "PODIUM_STEP_KEY": "step",
        "PODIUM_PYTHON": "/podium/python",
        "PODIUM_PARAM_LR": "0.01",
        "PODIUM_PARAM_BATCH_SIZE": "32",
        "PODIUM_CHECKPOINT": "/ckpt",
        "PODIUM_CHECKPOINT_KEEP": "1",
        "PODIUM_GRACE_SECONDS": "30",
        "PODIUM_GPU_MEMORY_BYTES": str(4 * 2**30),
    }
    assert variables(pod())["PYTHONUNBUFFERED"] == "1"


def test_the_metrics_annotation_describes_how_to_read_the_log() -> None:
    made = pod(metrics={"format": "text", "stepKey": "epoch", "filter": "(?P<name>a)(?P<value>b)"})
    reading = MetricsConfig.model_validate_json(made["metadata"]["annotations"][METRICS_ANNOTATION])
    assert (reading.metric, reading.step_key, reading.format, reading.container) == ("acc", "epoch", "text", "main")
    assert reading.direction == "maximize"
    assert reading.filter == "(?P<name>a)(?P<value>b)"
    assert reading.additional == ()
    more = pod(objective={"metric": "acc", "direction": "maximize", "additionalMetrics": ["loss", "f1"]})
    reading = MetricsConfig.model_validate_json(more["metadata"]["annotations"][METRICS_ANNOTATION])
    assert (reading.metric, reading.additional) == ("acc", ("loss", "f1"))


def test_annotations_for_the_extender() -> None:
    notes = pod(gpus={"memory": "1Gi", "products": ["H100", "A100"]})["metadata"]["annotations"]
    assert notes["podium.dev/gpu-memory"] == str(2**30)
    assert notes["podium.dev/gpu-products"] == "H100,A100"
    assert not {"podium.dev/gpu-memory", "podium.dev/gpu-products"} & set(pod()["metadata"]["annotations"])


def test_the_users_own_settings_are_kept() -> None:
    given = template(
        metadata={"labels": {"team": "vision", "podium.dev/trial": "forged"}, "annotations": {"a": "b"}},
        spec={
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsUser": 1000},
            "terminationGracePeriodSeconds": 7,
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    made = pod(template=given, checkpoint={"path": "/ckpt", "volume": {"emptyDir": {}}})
    assert made["metadata"]["labels"]["team"] == "vision"
    assert made["metadata"]["labels"]["podium.dev/trial"] == "sweep-0"
    assert made["metadata"]["annotations"]["a"] == "b"
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert made["spec"]["securityContext"] == {"runAsUser": 1000}
    assert made["spec"]["terminationGracePeriodSeconds"] == 7
    assert [v["name"] for v in made["spec"]["volumes"]] == ["data", "podium-checkpoint", "podium-gate"]
    assert [m["mountPath"] for m in made["spec"]["containers"][0]["volumeMounts"]] == ["/data", "/ckpt"]


def test_annotations_for_the_agent() -> None:
    methods = {"suspension": {"methods": ["freeze", "app-checkpoint"]}}
    notes = pod(checkpoint={"path": "/ckpt", "volume": {"claimName": "c"}}, **methods)["metadata"]["annotations"]
    assert notes["podium.dev/methods"] == "freeze,app-checkpoint"
    assert notes["podium.dev/checkpoint"] == "/ckpt"
    assert "podium.dev/checkpoint" not in pod()["metadata"]["annotations"]
    assert "podium.dev/methods" not in pod(gpus={"perTrial": 0})["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("given", "rules", "name"),
    [({}, "trials", "trials"), ({"priorityClassName": "own"}, "trials", "own"), ({}, None, None)],
)
def test_priority_class(given: dict[str, Any], rules: str | None, name: str | None) -> None:
    job = make_job(template=template(spec=given))
    made = make_pod(job, trial_of(), 0, PodRules("podium", "podium.dev/gpu", rules))
    assert made["spec"].get("priorityClassName") == name


@pytest.mark.parametrize(
    ("given", "gpus", "name"),
    [
        ({}, 1, "nvidia"),
        ({"runtimeClassName": "own"}, 1, "own"),
        ({}, 0, None),
        ({"runtimeClassName": "own"}, 0, "own"),
    ],
)
def test_runtime_class(given: dict[str, Any], gpus: int, name: str | None) -> None:
    """A node without GPUs may not have the runtime class."""
    job = make_job(template=template(spec=given), gpus={"perTrial": gpus})
    rules = PodRules("podium", "podium.dev/gpu", runtime_class="nvidia")
    assert make_pod(job, trial_of(), 0, rules)["spec"].get("runtimeClassName") == name
    assert "runtimeClassName" not in make_pod(make_job(), trial_of(), 0, PodRules("podium", "podium.dev/gpu"))["spec"]


@pytest.mark.parametrize(
    ("memory", "limit"), [("64Mi", "64"), ("1.5Gi", "1536"), ("100M", "95"), ("1k", "1"), (None, None)]
)
def test_the_driver_may_limit_the_declared_memory(memory: str | None, limit: str | None) -> None:
    job = make_job(gpus={"memory": memory} if memory else {}, template=template(env=[{"name": LIMIT, "value": "9"}]))
    rules = PodRules("podium", "podium.dev/gpu", limits_gpu_memory=True)
    assert variables(make_pod(job, trial_of(), 0, rules))[LIMIT] == (limit or "9")
    whole = make_pod(job, trial_of(), 1, rules, PodOrigin(whole_gpu=WholeGpu(1 << 30)))
    assert variables(whole)[LIMIT] == "9", "a retry on a whole GPU has no limit"
    assert variables(make_pod(job, trial_of(), 0, PodRules("podium", "podium.dev/gpu")))[LIMIT] == "9"


def test_parameters_keep_the_types_of_their_axes() -> None:
    axes = [{"name": "lr", "min": 0.5, "max": 2}, {"name": "n", "type": "int", "min": 1, "max": 4}]
    axes += [{"name": "act", "values": ["relu", "1"]}, {"name": "deep", "type": "boolean"}]
    given = {"lr": 1, "n": 2, "act": "1", "deep": True}
    shown = variables(pod(parameters=given, parameters_of=axes))["PODIUM_PARAMS"]
    assert shown == '{"lr": 1.0, "n": 2, "act": "1", "deep": true}', "the API server stores 1.0 as 1"


def test_creating_a_pod_does_not_change_the_template() -> None:
    job = make_job(template=template(env=[{"name": "A", "value": "$(podium.params.lr)"}]))
    before = json.dumps(job.spec.template)
    make_pod(job, trial_of(), 0, RULES)
    assert json.dumps(job.spec.template) == before


def test_a_trial_is_owned_by_exactly_its_job() -> None:
    job = make_job(uid="u-7")
    made = make_trial(job, 4, {"lr": 0.5})
    assert made["metadata"]["name"] == "sweep-4"
    assert made["metadata"]["labels"]["podium.dev/job"] == "sweep"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u-7"
    assert made["spec"] == {"job": "sweep", "number": 4, "parameters": {"lr": 0.5}}


@pytest.mark.parametrize(
    ("resources", "made", "taken"),
    [
        ({"requests": {"cpu": "1500m", "memory": "1Gi"}}, {"cpu": "10m", "memory": "1Gi"}, 1500),
        ({"requests": {"cpu": 2}, "limits": {"cpu": "4"}}, {"cpu": "10m"}, 2000),
        ({"limits": {"cpu": "2"}}, {"cpu": "10m"}, 1999),
        ({"requests": {"cpu": "2000m"}, "limits": {"cpu": "2"}}, {"cpu": "10m"}, 1999),
        ({"requests": {"cpu": "10m"}}, {"cpu": "10m"}, None),
        ({"requests": {"memory": "1Gi"}}, {"memory": "1Gi"}, None),
    ],
    ids=["requested", "below its limit", "a limit alone", "as much as its limit", "almost nothing", "no CPU"],
)
def test_cpu_requests_are_downsized(resources: dict[str, Any], made: dict[str, Any], taken: int | None) -> None:
    """The gate's requests, too: a pod requests the larger of the two."""
    downsized = pod(template=template(resources=resources), suspension={"downsizeCpu": True})
    for container in (downsized["spec"]["containers"][0], downsized["spec"]["initContainers"][-1]):
        requests = {name: value for name, value in container["resources"]["requests"].items() if "gpu" not in name}
        assert requests == made
    annotation = downsized["metadata"]["annotations"].get("podium.dev/cpu")
    assert annotation == (None if taken is None else f'{{"main":{taken}}}')
