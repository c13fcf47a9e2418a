"""Findings about a job that may not work, and jobs like it without a finding."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from podium_core.acceptance.findings import findings, local_warnings_of

JOB: dict[str, Any] = {
    "apiVersion": "podium.dev/v1alpha1",
    "kind": "HyperParamJob",
    "metadata": {"name": "vit", "namespace": "default"},
    "spec": {
        "objective": {"metric": "val_acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 1e-4, "max": 1e-1, "scale": "log"}],
        "trials": {"max": 4, "maxSteps": 10},
        "template": {"spec": {"containers": [{"name": "train", "image": "x:1", "args": ["$(podium.args)"]}]}},
    },
}


def job(container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    made = copy.deepcopy(JOB)
    made["spec"] |= spec
    made["spec"]["template"]["spec"] |= pod or {}
    made["spec"]["template"]["spec"]["containers"][0] |= container or {}
    return made


def target(metric: str, direction: str, value: float) -> dict[str, Any]:
    return job(objective={"metric": metric, "direction": direction, "target": value})


def ranged(**parameter: Any) -> dict[str, Any]:
    return job(parameters=[{"name": "lr", **parameter}])


def said(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.code, one.severity) for one in findings(manifest)]


TWO = [{"name": "lr", "values": [0.1, 0.2]}, {"name": "batch_size", "values": [16, 32]}]
VOLUME = {"path": "/ckpt", "volume": {"claimName": "runs"}}
POPULATION = {
    "checkpoint": VOLUME,
    "search": {"algorithm": "pbt", "settings": {"interval": 2, "population": 4}},
    "suspension": {"methods": ["freeze"]},
}
WITHOUT_GPUS = {key: value for key, value in POPULATION.items() if key != "suspension"} | {"gpus": {"perTrial": 0}}
WORKERS = {"trials": {"max": 4, "maxSteps": 10, "workers": 2}, "gpus": {"perTrial": 2}}
MIGRATES = {"methods": ["freeze", "cuda-checkpoint", "container-checkpoint"]}
WARNINGS = [
    (target("val_acc", "maximize", 1.5), "TargetUnreachable"),
    (target("accuracy", "maximize", 120), "TargetUnreachable"),
    (target("val/F1", "maximize", 0), "TargetTrivial"),
    (target("val_loss", "minimize", -0.5), "TargetUnreachable"),
    (job(objective={"metric": "val_loss", "direction": "maximize"}), "DirectionUnusual"),
    (job(objective={"metric": "valAccuracy", "direction": "minimize"}), "DirectionUnusual"),
    (ranged(min=1.0, max=1.0 + 1e-12), "RangeNarrow"),
    (ranged(min=0, max=1, step=0.3), "StepMissesMax"),
    (ranged(values=[1]), "SingleValue"),
    (ranged(values=[1, 2]), "FewerPoints"),
    (job(checkpoint=VOLUME), "CheckpointWithoutMethod"),
    (job({"args": ["--lr=0.1"]}), "ParameterNotUsed"),
    (job({"args": ["--lr", "0.1"]}), "ParameterNotUsed"),
    (job({"command": ["sh", "-c", "python t.py lr=0.1"], "args": []}), "ParameterNotUsed"),
    (job({"args": ["--lr=$(podium.params.lr)"]}, parameters=TWO), "ParameterNotUsed"),
    (job({"args": ["--batch-size=32"]}, parameters=TWO), "ParameterNotUsed"),
    (job(suspension={"methods": ["cuda-checkpoint"]}, gpus={"memory": "1Gi"}), "NodesWithoutMethod"),
    (job({"args": ["$(podium.args)", "--alpha=${optim.lr}"]}), "ForeignPlaceholder"),
    (job({"command": ["sh", "-c", "train $(podium.args) --x ${lr}"], "args": []}), "ForeignPlaceholder"),
    (job({"args": ["$(podium.args)", "<lr>"]}), "ForeignPlaceholder"),
    (job({"envFrom": [{"secretRef": {"name": "s"}}]}), "VariablesUnknown"),
    (job({"command": ["sh", "-c", "CUDA_VISIBLE_DEVICES=0 python t.py $(podium.args)"]}), "GPUVariable"),
    (job({"securityContext": {"privileged": True}}), "GPUsNotIsolated"),
    (job(pod={"volumes": [{"name": "d", "hostPath": {"path": "/dev"}}]}), "GPUsNotIsolated"),
    (job({"resources": {"limits": {"nvidia.com/gpu": 1}}}, gpus={"perTrial": 0}), "GPUResource"),
    (job({"resources": {"claims": [{"name": "gpu"}]}}), "DeviceClaim"),
    (
        job(
            pod={"terminationGracePeriodSeconds": 5},
            checkpoint=VOLUME,
            suspension={"methods": ["freeze", "app-checkpoint"]},
        ),
        "GracePeriodTooShort",
    ),
    (job(**POPULATION, policy={"name": "fifo"}), "PopulationApart"),
    (job(**POPULATION, trials={"max": 8, "maxSteps": 10, "parallel": 3}), "PopulationNotParallel"),
    (job(**WITHOUT_GPUS), "PopulationWithoutAgent"),
    (
        job(
            **WORKERS,
            checkpoint={"path": "/c", "volume": {"hostPath": {"path": "/runs"}}},
            suspension={"methods": ["freeze"]},
        ),
        "CheckpointOfOneWorker",
    ),
]


@pytest.mark.parametrize(("manifest", "code"), WARNINGS, ids=[f"{i}-{row[1]}" for i, row in enumerate(WARNINGS)])
def test_what_may_not_work_is_a_warning(manifest: dict[str, Any], code: str) -> None:
    assert (code, "warning") in said(manifest)
    assert {severity for _, severity in said(manifest)} == {"warning"}


CLUSTER_ONLY = {
    "CheckpointOfOneWorker",
    "DeviceClaim",
    "GPUResource",
    "GPUsNotIsolated",
    "NodesWithoutMethod",
    "PopulationWithoutAgent",
    "VariablesUnknown",
}


def test_warnings_about_pods_and_nodes_are_for_clusters_only() -> None:
    for manifest, code in WARNINGS:
        local = {one.code for one in local_warnings_of(findings(manifest))}
        assert (code in local) is (code not in CLUSTER_ONLY), code


ERRORS = [
    (job({"env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]}), "GPUVariable"),
    (job({"env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {}}]}), "GPUVariable"),
    (job({"resources": {"limits": {"amd.com/gpu": 1}}}), "GPUResource"),
    (job({"resources": {"limits": {"gpu.intel.com/i915": 1}}}), "GPUResource"),
    (job({"resources": {"requests": {"podium.dev/gpu": 1}}}), "Reserved"),
    (job({"args": ["--lr=${lr}"]}), "ForeignPlaceholder"),
    (job({"args": ["--lr=$(lr)"]}), "ForeignPlaceholder"),
    (job({"args": ["$(trialParameters.learningRate)"]}), "ForeignPlaceholder"),
    (job({"args": ["${args}"]}), "ForeignPlaceholder"),
    (job({"env": [{"name": "LR", "value": "{{ params.lr }}"}]}), "ForeignPlaceholder"),
    (job({"image": "reg/{{ .Values.image }}:1"}), "ForeignPlaceholder"),
    (job({"args": ["--lr={{$.inputs.parameters['rate']}}"]}), "ForeignPlaceholder"),
    (job({"args": ["{{ params.rate.as_arg }}"]}), "ForeignPlaceholder"),
    (job(checkpoint=VOLUME | {"path": "/ckpt/${trialParameters.lr}"}), "ForeignPlaceholder"),
    (job(checkpoint=VOLUME | {"resumeArgs": ["--from=${trialSpec.Name}"]}), "ForeignPlaceholder"),
    (job(metrics={"source": "file", "path": "/logs/{{inputs.parameters.lr}}.log"}), "ForeignPlaceholder"),
    (job(pod={"ephemeralContainers": [{"name": "debug", "image": "x:1"}]}), "EphemeralContainers"),
    (job(pod={"resources": {"limits": {"nvidia.com/gpu": 1}}}), "GPUResource"),
    (job(pod={"resources": {"requests": {"podium.dev/gpu": 1}}}, gpus={"perTrial": 0}), "GPUResource"),
    (job(pod={"resources": [1]}), "InvalidValue"),
    (ranged(min=-1.7e308, max=1.7e308), "RangeTooLarge"),
    (ranged(min=0, max=1e160, scale="linear"), "RangeTooLarge"),
    (ranged(min=1e-310, max=1.0, scale="log"), "RangeTooNarrow"),
    (ranged(type="int", min=0, max=2**60), "IntegerTooLarge"),
    (job(metrics={"format": "text", "filter": r"(?P<name>acc)\s(?P<value>\S+)"}), "FilterWithoutMetric"),
    (
        job(**WORKERS | {"gpus": {"perTrial": 2, "memory": "1Gi"}}, suspension=MIGRATES),
        "WorkersNotMigratable",
    ),
    (job(**POPULATION | WORKERS), "WorkersInPopulation"),
    (job(**WORKERS) | {"metadata": {"name": "2vit", "namespace": "default"}}, "WorkersName"),
    (job(**WORKERS) | {"metadata": {"name": "v.it", "namespace": "default"}}, "WorkersName"),
]


@pytest.mark.parametrize(("manifest", "code"), ERRORS, ids=[f"{i}-{row[1]}" for i, row in enumerate(ERRORS)])
def test_what_cannot_work_is_an_error(manifest: dict[str, Any], code: str) -> None:
    assert (code, "error") in said(manifest)
    assert {severity for _, severity in said(manifest)} == {"error"}


HUGE = 10**400
NOT_STORABLE = [
    (ranged(values=[1, HUGE]), "spec.parameters[0].values[1]", "one of 1329 bits"),
    (ranged(values=[-(2**63) - 1, 1]), "spec.parameters[0].values[0]", "-9223372036854775809"),
    (job(policy={"name": "asha", "settings": {"eta": HUGE}}), "spec.policy.settings.eta", "one of 1329 bits"),
    (job(**POPULATION | {"search": {"algorithm": "pbt", "settings": {"interval": HUGE}}}), "", "one of 1329 bits"),
    (job(search={"algorithm": "tpe", "initialTrials": [{"lr": HUGE}]}), "", "one of 1329 bits"),
    (job({"ports": [{"containerPort": 2**64}]}), "spec.template.spec.containers[0].ports[0].containerPort", "64 bits"),
    (ranged(values=["a\0b", "c"]), "spec.parameters[0].values[0]", "contains a NUL"),
    (job({"args": ["$(podium.args)", "\ud800"]}), "spec.template.spec.containers[0].args[1]", "surrogate pair"),
    (JOB | {"metadata": {"name": "a", "labels": {"b": "\udfff"}}}, "metadata.labels.b", "surrogate pair"),
    (job({"x\ud800": 1}), "spec.template.spec.containers[0].x\\ud800", "surrogate pair"),
]


@pytest.mark.parametrize(("manifest", "field", "words"), NOT_STORABLE, ids=range(len(NOT_STORABLE)))
def test_values_that_kubernetes_or_a_process_cannot_take_are_errors(
    manifest: dict[str, Any], field: str, words: str
) -> None:
    (found,) = findings(manifest)
    assert (found.code, found.severity) == ("InvalidValue", "error")
    assert found.field == field or not field
    assert words in found.message
    found.message.encode()


NOTHING = [
    ranged(values=[-(2**63), 2**63 - 1, 1e308, "größe", 0.5]),
    job(pod={"resources": {"limits": {"cpu": 2, "memory": "4Gi", "hugepages-2Mi": "2Mi"}}}),
    job(
        checkpoint=VOLUME | {"path": "/ckpt", "resumeArgs": ["--from=$(podium.checkpoint)"]},
        suspension={"methods": ["freeze"]},
    ),
    target("val_acc", "maximize", 0.9),
    target("neg_loss", "maximize", -0.1),
    target("reward", "maximize", 250),
    target("roadmap_score", "minimize", -5),
    ranged(min=0, max=0.3, step=0.1),
    ranged(min=-5, max=5),
    job({"args": [], "command": ["sh", "-c", "python t.py --lr $PODIUM_PARAM_LR"]}),
    job({"env": [{"name": "lr", "value": "$(podium.params.lr)"}], "args": ["--lr=$(lr)"]}),
    job({"command": ["bash", "-c", 'lr=$PODIUM_PARAM_LR; for f in a; do t --lr "${lr}" $f $(date) ${HOME}; done']}),
    job({"args": ["$(podium.args)", "$$(lr)", "{{}}", "$(HOSTNAME)", "{'a': {'b': 1}}", "a<b>c", "100%"]}),
    job({"env": [{"name": "NVIDIA_TF32_OVERRIDE", "value": "0"}, {"name": "CUDA_LAUNCH_BLOCKING", "value": "1"}]}),
    job({"resources": {"limits": {"cpu": 1, "memory": "1Gi", "rdma/hca": 1, "nvidia.com/hostdev": 1}}}),
    job(
        pod={"volumes": [{"name": "d", "hostPath": {"path": "/data"}}, {"name": "s", "emptyDir": {"medium": "Memory"}}]}
    ),
    job(metrics={"format": "text", "filter": r"(?P<name>\w+)\s(?P<value>\S+)"}),
    job(metrics={"format": "text"}, objective={"metric": "val acc", "direction": "maximize"}),
    job(checkpoint=VOLUME, suspension={"methods": ["freeze", "app-checkpoint"]}),
    job(checkpoint=VOLUME, suspension={"methods": ["cuda-checkpoint", "app-checkpoint"]}, gpus={"memory": "1Gi"}),
    job(checkpoint=VOLUME, suspension={"methods": ["freeze"]}),
    job(**WORKERS, checkpoint=VOLUME, suspension={"methods": ["freeze", "app-checkpoint"]}),
    job(**POPULATION),
    job(**POPULATION, policy={"name": "round_robin"}, trials={"max": 8, "maxSteps": 10, "parallel": 4}),
    job({"args": []}),  # podium.trial.params reads the parameters from the environment
    job({"args": ["--lrate=0.1", "--epochs", "lr"]}),
]


@pytest.mark.parametrize("manifest", NOTHING, ids=range(len(NOTHING)))
def test_jobs_that_work_have_no_finding(manifest: dict[str, Any]) -> None:
    assert findings(manifest) == ()


def test_reserved_gpus_need_a_method_that_frees_memory() -> None:
    (found,) = findings(JOB, reserved_gpus=True)
    assert (found.code, found.severity, found.field) == ("GPUMemoryNotMovable", "error", "spec.suspension.methods")
