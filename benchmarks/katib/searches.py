"""The searches of the contenders as manifests: Experiments of Katib, and a HyperParamJob with the same points. Pure."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.digits_cluster import EXAMPLE_EPOCHS
from benchmarks.simulator.record import example
from podium_devcluster.runtime import nvidia

METRIC = "val_acc"
IMAGE = "localhost/podium-digits:dev"
SCRIPTS, FOLDER = "digits-start", "/scripts"  # the ConfigMap with start.py, and where containers find it
STATE = "/var/lib/podium-fake-driver"
CONTAINER = "train"
SLOTS = 4
DEFAULT_POLICY = "envelope"
LINE = r'"([\w-]+)":\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)'  # a name and a number in the trainer's lines

Point = Mapping[str, str]  # values by parameter, as Katib writes them


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a search: trials, whole GPUs, and the trainer's `--work`, which sets how long a trial takes."""

    trials: int
    gpus: int
    work: int


def scripts(namespace: str) -> dict[str, Any]:
    """Return the ConfigMap with the script that starts the trainer."""
    text = Path(__file__).with_name("start.py").read_text()
    metadata = {"name": SCRIPTS, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"start.py": text}}


def command(size: Size, values: Sequence[str]) -> list[str]:
    """Return the command of a trial; `values` are the arguments with its hyper-parameters."""
    return ["python3", f"{FOLDER}/start.py", f"--epochs={EXAMPLE_EPOCHS}", f"--work={size.work}", *values]


def experiment(name: str, namespace: str, algorithm: str, seed: int, size: Size, *, stops: bool) -> dict[str, Any]:
    """Return the Experiment: as many trials at a time as there are GPUs, each with a whole one.

    `stops`: with Katib's median stopping, in its default settings.
    """
    names = [one["name"] for one in _SPACE]
    pod = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": CONTAINER,
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": [*command(size, [f"--{one}=${{trialParameters.{one}}}" for one in names]), "--stamped"],
                "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
                "resources": {
                    "requests": {"cpu": "200m", "memory": "256Mi"},
                    "limits": {"memory": "512Mi", nvidia.RESOURCE: "1"},
                },
                "volumeMounts": [
                    {"name": "scripts", "mountPath": FOLDER},
                    {"name": "state", "mountPath": STATE},  # of the fake driver, which CDI does not mount
                ],
            }
        ],
        "volumes": [
            {"name": "scripts", "configMap": {"name": SCRIPTS}},
            {"name": "state", "hostPath": {"path": STATE, "type": "Directory"}},
        ],
    }
    settings = [{"name": "random_state", "value": str(seed)}]
    spec: dict[str, Any] = {
        "objective": {"type": "maximize", "objectiveMetricName": METRIC},
        "algorithm": {"algorithmName": algorithm, "algorithmSettings": settings},
        "parallelTrialCount": size.gpus,
        "maxTrialCount": size.trials,
        "maxFailedTrialCount": 1,
        "parameters": copy.deepcopy(_SPACE),
        "metricsCollectorSpec": {"collector": {"kind": "StdOut"}, "source": {"filter": {"metricsFormat": [LINE]}}},
        "trialTemplate": {
            "primaryContainerName": CONTAINER,
            # Katib reads the values of a trial that it stops from the database only while the trial's Job exists, and
            # asks for no further point while values are missing: with Jobs that it deletes, an Experiment hung here
            "retain": True,
            "trialParameters": [{"name": one, "reference": one} for one in names],
            "trialSpec": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "spec": {"backoffLimit": 0, "template": {"spec": pod}},
            },
        },
    }
    if stops:
        spec["earlyStopping"] = {"algorithmName": "medianstop"}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": metadata, "spec": spec}


def job(name: str, points: Sequence[Point], size: Size, policy: str = DEFAULT_POLICY) -> dict[str, Any]:
    """Return the example's job with these points and a policy in its default settings; it fills the slots."""
    manifest = example()
    manifest["metadata"]["name"] = name
    spec = manifest["spec"]
    spec["objective"] = {"metric": METRIC, "direction": "maximize"}
    spec["parameters"] = [
        {"name": "log_lr", "min": LOWEST, "max": HIGHEST},
        *(one for one in spec["parameters"] if one["name"] != "lr"),
    ]
    spec["search"] = {"algorithm": "random", "seed": 0, "initialTrials": [typed(point) for point in points]}
    spec["policy"] = {"name": policy}
    spec["trials"] = {"max": len(points), "parallel": SLOTS * size.gpus, "maxSteps": EXAMPLE_EPOCHS}
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    container["command"] = command(size, ["$(podium.args)"])
    container["volumeMounts"] = [{"name": "scripts", "mountPath": FOLDER}]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": SCRIPTS}}]
    return manifest


def typed(point: Point) -> dict[str, float | int | str]:
    """Return a point of Katib, which writes all values as texts, with the types of the job's parameters."""
    types = {"log_lr": float, "width": int, "batch_size": int, "activation": str}
    return {name: types[name](value) for name, value in point.items()}


LOWEST, HIGHEST = -3.0, round(math.log10(0.5), 6)  # of the learning rate's logarithm, as in the example
_SPACE: list[dict[str, Any]] = [
    {"name": "log_lr", "parameterType": "double", "feasibleSpace": {"min": str(LOWEST), "max": str(HIGHEST)}},
    {"name": "width", "parameterType": "int", "feasibleSpace": {"min": "16", "max": "96", "step": "16"}},
    {"name": "batch_size", "parameterType": "categorical", "feasibleSpace": {"list": ["16", "32", "64", "128"]}},
    {"name": "activation", "parameterType": "categorical", "feasibleSpace": {"list": ["relu", "tanh"]}},
]
