"""Kubeflow's OptimizationJob (trainer.kubeflow.org/v1alpha1) as a HyperParamJob.

Its API is KEP-3562 of Kubeflow Trainer. A trial gets its parameters in variables KUBEFLOW_TRAINER_OPT_NAME.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podium_core.conversion.fields import Fields, Manifest, Report, number_of, shown
from podium_core.conversion.given import Given, job_of, metadata_of, metrics_of, policy_of, seed_of
from podium_core.conversion.ranges import Range, choices_of, parameter_of
from podium_core.conversion.workloads.pod_template import add_env
from podium_core.conversion.workloads.train_job import train_job
from podium_core.schema.search.spec import MAX_OBJECTIVES

GROUP, VERSION, KIND = "trainer.kubeflow.org", "v1alpha1", "OptimizationJob"
_TOOL = "OptimizationJob"
_DIRECTIONS = {"Minimize": "minimize", "Maximize": "maximize", "minimize": "minimize", "maximize": "maximize"}


def convert_optimization_job(source: Manifest, others: Sequence[Manifest], given: Given, report: Report) -> Manifest:
    """Return the job; what cannot be converted is in `report`. `others`: the file's other objects."""
    whole = Fields(source, "", report)
    whole.ignore("kind", "status")
    version = whole.raw("apiVersion")
    if version != f"{GROUP}/{VERSION}":
        report.refuse("apiVersion", f"{shown(version)} is not {GROUP}/{VERSION}: write the job in that version")
    metadata = metadata_of(whole.fields("metadata"), given)
    spec = whole.fields("spec", required=True)
    whole.finish(_TOOL)
    objectives, search = _objectives(spec), _search(spec)
    parameters = list(_parameters(spec))
    trials = {
        "max": given.max_trials or spec.whole("numTrials", 1) or 1,
        "parallel": spec.whole("parallelTrials", 1) or 1,
        "maxSteps": number_of(given.max_steps),
    }
    spec.ignore("numTrials")
    template = spec.fields("trainJobTemplate", required=True)
    template.ignore("metadata")
    train = template.fields("spec", required=True)
    template.finish(_TOOL)
    spec.finish(_TOOL)
    made = train_job(train, None, others)
    if made is None:
        return job_of(metadata, {})
    variables = {_variable(one["name"]): f"$(podium.params.{one['name']})" for one in parameters}
    add_env(made.template["spec"]["containers"][0], variables)
    gpus = made.gpus if given.gpus is None else given.gpus
    example = json.dumps({"step": 1, **dict.fromkeys((one["metric"] for one in objectives), 0.5)})
    text = "Podium reads the output of the trial, not the status of a TrainJob: let the script also print lines like"
    report.note("spec.objectives[0].metric", f"{text} {example}")
    return job_of(
        metadata,
        {
            **({"objective": objectives[0]} if len(objectives) == 1 else {"objectives": objectives}),
            "parameters": parameters,
            "search": search,
            "policy": _policy(len(objectives), gpus, given, report),
            "trials": {name: value for name, value in trials.items() if value is not None},
            "gpus": {"perTrial": gpus},
            "metrics": metrics_of("json", None, given),
            "template": made.template,
        },
    )


def _variable(name: str) -> str:
    return "KUBEFLOW_TRAINER_OPT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _objectives(spec: Fields) -> list[Manifest]:
    """Return the objectives in their order; phase 1 of the KEP allows one, and a later phase several."""
    made: list[Manifest] = []
    for source in spec.objects("objectives", required=True):
        metric, direction = source.text("metric", required=True), source.choice("direction", *_DIRECTIONS)
        source.finish(_TOOL)
        made.append({"metric": metric or "", "direction": _DIRECTIONS[direction or "Minimize"]})
    if len(made) > MAX_OBJECTIVES or (not made and spec.raw("objectives") is not None):
        text = f"{len(made)} objectives, but a job has one to {MAX_OBJECTIVES}: keep those that decide"
        spec.report.refuse(spec.at("objectives"), text)
    return made


def _policy(objectives: int, gpus: int, given: Given, report: Report) -> Manifest | None:
    """Return the policy: with several objectives, the one that ranks by all of them, if it can."""
    if objectives <= 1:
        return policy_of(None, gpus, "", given, report)
    if gpus == 0:
        return {"name": "fifo"}
    return {"name": "pareto"} if given.max_steps is not None else policy_of(None, gpus, "", given, report)


def _search(spec: Fields) -> Manifest:
    source = spec.fields("searchAlgorithm")
    random, grid = source.raw("random"), source.raw("grid")
    source.finish(_TOOL)
    if grid is not None:
        source.fields("grid").finish(_TOOL)
        if random is not None:
            spec.report.refuse(source.path, "random and grid are both given: keep one")
        return {"algorithm": "grid"}
    settings = source.fields("random")
    name = "randomState" if settings.raw("randomState") is not None else "seed"
    seed = settings.whole(name, 0)
    settings.ignore("seed")
    settings.finish(_TOOL)
    made: Manifest = {"algorithm": "random"}
    if seed is not None:
        made["seed"] = seed_of(seed, settings.at(name), spec.report)
    return made


def _parameters(spec: Fields) -> Iterator[Manifest]:
    for source in spec.objects("parameters", required=True):
        name, space = source.text("name", required=True), source.fields("searchSpace", required=True)
        given = [kind for kind in ("uniform", "logUniform", "categorical") if space.raw(kind) is not None]
        source.finish(_TOOL)
        space.finish(_TOOL)
        if name is None:
            continue
        if len(given) != 1:
            if isinstance(source.raw("searchSpace"), Mapping):
                text = f"needs exactly one of uniform, logUniform and categorical (given: {', '.join(given) or 'none'})"
                spec.report.refuse(space.path, f"{text}: write one", "InvalidValue")
            continue
        kind, inner = given[0], space.fields(given[0])
        made = _choices(name, inner) if kind == "categorical" else _range(name, inner, kind == "logUniform")
        inner.finish(_TOOL)
        if made is not None:
            yield made


def _range(name: str, space: Fields, log: bool) -> Manifest | None:
    low, high = space.number("min", required=True), space.number("max", required=True)
    whole = space.choice("type", "Int", "Float") == "Int"
    if low is None or high is None:
        return None
    if whole and not (isinstance(low, int) and isinstance(high, int)):
        text = f"type Int needs whole numbers, not {shown([low, high])}: correct them, or write Float"
        space.report.refuse(space.path, text, "InvalidValue")
        return None
    return parameter_of(Range(name, space.path, low, high, whole, None, log), space.report)


def _choices(name: str, space: Fields) -> Manifest | None:
    values: list[Any] = [text for _, text in space.texts("choices")]
    return choices_of(name, space.at("choices"), values, space.report)


def is_optimization_job(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is an OptimizationJob of Kubeflow of any version."""
    group = str(manifest.get("apiVersion", "")).partition("/")[0]
    return manifest.get("kind") == KIND and group.endswith("kubeflow.org")
