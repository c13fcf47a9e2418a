"""Render the chart with the real helm, and read the result."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "podium"
Tool = Callable[..., subprocess.CompletedProcess[str]]
Objects = list[Mapping[str, Any]]
EVERYTHING = (
    "gpus.mode=reservations,networkPolicy.enabled=true,scheduler.replicas=2,agent.driver.libraryPath=/opt/driver,"
    "imagePullSecrets[0].name=secret,commonLabels.team=vision,agent.extraEnv[0].name=A,agent.extraEnv[0].value=b,"
    "agent.extraVolumes[0].name=extra,agent.extraVolumes[0].hostPath.path=/extra,"
    "agent.extraVolumeMounts[0].name=extra,agent.extraVolumeMounts[0].mountPath=/extra,"
    "agent.trialMounts[0].hostPath=/opt/driver,agent.trialMounts[0].containerPath=/opt/driver,"
    "agent.runtimeClassName=nvidia,trials.runtimeClassName=nvidia,"
    "agent.trialEnv.LD_LIBRARY_PATH=/opt/driver,agent.checkpointRegistry=registry.example:5000,"
    "operator.extraEnv[0].name=A,operator.extraEnv[0].value=b,operator.nodeSelector.zone=a,"
    "operator.rebalancing.enabled=true,dashboard.enabled=true,dashboard.plainHTTP=true,"
    "dashboard.from[0].namespaceSelector.matchLabels.name=ingress"
)


def make_tool(binary: Callable[[str], Path], kubeconfig: Path) -> Tool:
    """Return a function that runs helm or kubectl; the caller checks the exit status."""

    def run(name: str, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(binary(name)), *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        )

    return run


def render(tool: Tool, values: str = "", *, namespace: str = "podium-system", version: str = "1.36.3") -> str:
    """Return the chart's objects as YAML."""
    done = tool(
        "helm",
        "template",
        "podium",
        str(CHART),
        f"--namespace={namespace}",
        f"--kube-version={version}",
        "--set",
        values,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def parse(text: str) -> Objects:
    """Return the objects of a YAML text."""
    return [item for item in yaml.safe_load_all(text) if item]


def one(objects: Objects, kind: str, name: str) -> Mapping[str, Any]:
    """Return the object of this kind and name."""
    return next(item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name)


def pod_specs(objects: Objects) -> dict[str, Mapping[str, Any]]:
    """Return the specs of all pods, by the name of the pod or of what creates it."""
    found = {}
    for item in objects:
        name = item["metadata"]["name"]
        if item["kind"] in ("Deployment", "DaemonSet", "Job"):
            found[name] = item["spec"]["template"]["spec"]
        elif item["kind"] == "Pod":
            found[name] = item["spec"]
    return found
