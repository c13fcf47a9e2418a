"""Short builders of pod manifests, for the tests of their content."""

from __future__ import annotations

from typing import Any

from operator_builders import make_job
from operator_builders import make_trial as trial_of

from podium_operator.act.pod_manifest import PodRules, make_pod

RULES = PodRules("podium", "podium.dev/gpu")


def pod(
    attempt: int = 0, parameters: dict[str, Any] | None = None, parameters_of: Any = None, **spec: Any
) -> dict[str, Any]:
    if parameters_of is not None:
        spec["parameters"] = parameters_of
    return make_pod(make_job(**spec), trial_of(parameters=parameters), attempt, RULES)


def template(*, spec: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **main: Any) -> Any:
    container = {"name": "main", "image": "i", "command": ["train", "$(podium.args)"], **main}
    return {"metadata": metadata or {}, "spec": {"containers": [container], **(spec or {})}}


def variables(manifest: dict[str, Any], container: int = 0) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in manifest["spec"]["containers"][container]["env"]}
