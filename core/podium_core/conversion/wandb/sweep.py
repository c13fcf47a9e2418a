"""The configuration of a W&B sweep as a HyperParamJob.

A sweep says neither which image its trials run nor how many GPUs they need; the caller gives both.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from typing import Any

from podium_core.conversion.algorithms import WANDB, search_of
from podium_core.conversion.fields import Fields, Manifest, Report, number_of, shown
from podium_core.conversion.given import Given, job_of, metrics_of, policy_of, slug
from podium_core.conversion.wandb.command import wandb_command
from podium_core.conversion.wandb.parameters import Space, wandb_space

DEFAULT_ETA, MAX_RUNGS, MAX_TRIALS = 3, 10, 10_000


def convert_sweep(sweep: Manifest, given: Given, report: Report) -> Manifest:
    """Return the job for a sweep; what cannot be converted is in `report`."""
    whole = Fields(sweep, "", report)
    whole.ignore("kind", "apiVersion", "controller", "description")
    program = whole.text("program")
    name = _name(whole, program, given)
    image = given.image or whole.text("image_uri")
    whole.ignore("image_uri")
    if image is None:
        report.refuse("image_uri", "is missing, since a sweep names no image: give --image IMAGE", "Required")
    whole.unsupported("job", "give --image, and the command of the job as command")
    whole.unsupported("metrics", "W&B optimizes one metric: write it as metric, then list several in spec.objectives")
    whole.unsupported("scheduler", "choose method random, grid or bayes")
    method = whole.choice("method", *WANDB, "custom", required=True)
    if method == "custom":
        report.refuse("method", "custom is code that runs elsewhere: choose random, grid or bayes")
    search = {} if method not in WANDB else search_of(WANDB[str(method)], str(method), "method", report)
    objective = _objective(whole)
    names = whole.raw("parameters")
    listed = [key for key in names if isinstance(key, str)] if isinstance(names, Mapping) else []
    space = wandb_space(whole.fields("parameters", required=True), listed)
    if listed and not space.parameters and not report.refusals:
        report.refuse("parameters", "every parameter has one value, so there is nothing to search: give one several")
    command = wandb_command(whole, program, space)
    gpus = 1 if given.gpus is None else given.gpus
    policy, steps = _early_termination(whole, given)
    trials = {"max": _most(whole, method, space, given), "maxSteps": number_of(steps)}
    env = [
        {"name": f"WANDB_{key.upper()}", "value": text} for key in ("project", "entity") if (text := whole.text(key))
    ]
    whole.finish("W&B")
    metric = objective.get("metric", "loss")
    report.note(
        "metric.name",
        "Podium reads the output of the trial, not W&B's server: beside wandb.log, let the script print lines like "
        f'{{"step": 1, "{metric}": 0.5}}, and take its parameters from the command line, not from wandb.config',
    )
    container: Manifest = {"name": "train", "image": image or "", "command": command}
    if env:
        container["env"] = env
    return job_of(
        {"name": name},
        {
            "objective": objective,
            "parameters": space.parameters,
            "search": search,
            "policy": policy_of(policy, gpus, "early_terminate", Given(max_steps=steps), report),
            "trials": {key: value for key, value in trials.items() if value is not None},
            "gpus": {"perTrial": gpus},
            "metrics": metrics_of("json", None, given),
            "template": {"spec": {"containers": [container]}},
        },
    )


def _name(whole: Fields, program: str | None, given: Given) -> str:
    title = whole.text("name")
    if given.name is not None:
        return given.name
    text = title or posixpath.splitext(posixpath.basename(program or ""))[0]
    name = slug(text)
    if not name:
        whole.report.refuse("name", "is missing: give --name", "Required")
    elif title is not None and name != title:
        whole.report.note("name", f"{shown(title)} is not a name of Kubernetes: the job is called {name}")
    return name


def _objective(whole: Fields) -> Manifest:
    source = whole.fields("metric")
    if whole.raw("metric") is None:
        whole.report.refuse("metric", "is required, since Podium ranks trials by it: add name and goal", "Required")
        return {}
    metric, goal = source.text("name", required=True), source.choice("goal", "minimize", "maximize")
    target = source.number("target")
    source.ignore("impute", "impute_while_running")  # what a failed run counts: Podium's searchers decide it
    source.finish("W&B")
    made: Manifest = {"metric": metric or "", "direction": goal or "minimize"}
    return made if target is None else {**made, "target": target}


def _most(whole: Fields, method: str | None, space: Space, given: Given) -> int | None:
    """Return trials.max: the limit, or the number of points of a grid."""
    cap = whole.whole("run_cap", 1)
    if given.max_trials is not None:
        return given.max_trials
    if cap is not None:
        return cap
    points = [_points(one) for one in space.parameters]
    if method == "grid" and points and all(points):
        return min(math.prod(points), MAX_TRIALS)
    whole.report.refuse("run_cap", "is missing, which means no limit: add it, or give --max-trials N", "Required")
    return None


def _points(parameter: Manifest) -> int:
    """Return the number of points of a parameter in a grid; 0 for a range without points."""
    if "values" in parameter:
        return len(parameter["values"])
    step = parameter.get("step", 1 if parameter["type"] == "int" else None)
    if step is None or "scale" in parameter:
        return 0
    return int(min((parameter["max"] - parameter["min"]) / step + 1e-9, float(MAX_TRIALS))) + 1


def _early_termination(whole: Fields, given: Given) -> tuple[Manifest | None, float | None]:
    """Return the policy for `early_terminate`, and the step at which a trial is complete."""
    if whole.raw("early_terminate") is None:
        return None, given.max_steps
    source, report = whole.fields("early_terminate"), whole.report
    source.choice("type", "hyperband", required=True)
    eta, first = source.number("eta"), source.whole("min_iter", 1)
    last, brackets = source.whole("max_iter", 1), source.number("s")
    source.ignore("strict")
    source.finish("W&B")
    eta = DEFAULT_ETA if eta is None else eta
    if eta <= 1:
        report.refuse(source.at("eta"), f"must be greater than 1, not {shown(eta)}", "InvalidValue")
        return None, given.max_steps
    steps = given.max_steps if given.max_steps is not None else last
    rungs = brackets
    if first is not None and steps is not None:
        rungs = math.log(max(steps / first, 1.0)) / math.log(eta) + 1e-9
    elif first is None and brackets is None:
        report.refuse(source.path, "hyperband needs min_iter, or max_iter and s: add them", "Required")
        return None, steps
    settings = {"eta": eta, "rungs": int(max(1, min(MAX_RUNGS, rungs or 1))), "onCut": "stop"}
    text = "policy asha compares trials at rungs, as W&B's hyperband does at its brackets, and stops the others"
    report.note(source.path, f"{text}; with onCut: suspend they wait, and the best of them continue")
    return {"name": "asha", "settings": settings}, None if steps is None else float(steps)


def is_sweep(manifest: Mapping[str, Any]) -> bool:
    """Return whether a document looks like the configuration of a W&B sweep."""
    kind = manifest.get("kind")
    return kind in (None, "sweep") and "method" in manifest and ("parameters" in manifest or "program" in manifest)
