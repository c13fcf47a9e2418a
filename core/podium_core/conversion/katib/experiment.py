"""Katib's Experiment (kubeflow.org/v1beta1) as a HyperParamJob."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from podium_core.conversion.fields import Fields, Manifest, Report, number_of, shown, too_large
from podium_core.conversion.given import Given, job_of, metadata_of, policy_of
from podium_core.conversion.katib.metrics import Collected, katib_collector, katib_objective
from podium_core.conversion.katib.parameters import katib_parameters, parameter_names
from podium_core.conversion.katib.placeholders import fill, replacements, trial_name_in_env
from podium_core.conversion.katib.search import KatibSearch, katib_search
from podium_core.conversion.workloads.kinds import workload_of
from podium_core.conversion.workloads.pod_template import Workload
from podium_core.schema.manifests import ManifestError, parse_manifests

GROUP, VERSION, KIND = "kubeflow.org", "v1beta1", "Experiment"
DEFAULT_PARALLEL = 3
LONGEST_TEMPLATE = 1 << 18  # characters of a template in a ConfigMap
_METRICS_VOLUME, _SCRATCH_VOLUME = "katib-metrics", "katib-trial"


def convert_experiment(experiment: Manifest, others: Sequence[Manifest], given: Given, report: Report) -> Manifest:
    """Return the job for an Experiment; what cannot be converted is in `report`.

    `others`: the other objects of the file.
    """
    whole = Fields(experiment, "", report)
    whole.ignore("kind", "status")
    version = whole.raw("apiVersion")
    if version != f"{GROUP}/{VERSION}":
        text = (
            f"{shown(version)} is not {GROUP}/{VERSION}: read the Experiment from a current Katib (kubectl get -o yaml)"
        )
        report.refuse("apiVersion", text)
    metadata = metadata_of(whole.fields("metadata"), given)
    spec = whole.fields("spec", required=True)
    whole.finish("Katib")
    search = katib_search(spec, given)
    if search is None:
        return job_of(metadata, {})
    spec.unsupported("nasConfig", "Podium does not search architectures: list the choices as parameters")
    grid = search.search.get("algorithm") == "grid"
    parameters = list(katib_parameters(spec, search.fixed, grid=grid))
    objective = katib_objective(spec)
    collected = katib_collector(spec, objective.get("metric"), given)
    trials = _trials(spec, given, search.size)
    resume = spec.choice("resumePolicy", "Never", "LongRunning", "FromVolume")
    if resume not in (None, "Never"):
        text = "has no counterpart: the state of a search is in its objects, and an ended job is not continued"
        report.note(spec.at("resumePolicy"), f"{resume} {text}")
    texts = {name: f"$(podium.params.{name})" for name in parameter_names(spec)}
    texts |= {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in search.fixed.items()}
    workload = _workload(spec, others, metadata.get("namespace"), texts, report)
    spec.finish("Katib")
    if workload is None:
        return job_of(metadata, {})
    _volumes(workload.template, search, collected, report)
    gpus = workload.gpus if given.gpus is None else given.gpus
    steps = given.max_steps if given.max_steps is not None else search.max_steps
    if workload.retries is not None:
        trials["retries"] = workload.retries
    if steps is not None:
        trials["maxSteps"] = number_of(steps)
    known = Given(max_steps=steps)
    return job_of(
        metadata,
        {
            "objective": objective,
            "parameters": parameters,
            "search": search.search,
            "policy": policy_of(search.policy, gpus, search.policy_path, known, report),
            "trials": trials,
            "gpus": {"perTrial": gpus},
            "metrics": collected.metrics,
            "checkpoint": _checkpoint(search, metadata, spec.at("algorithm.algorithmSettings"), report),
            "template": workload.template,
        },
    )


def _checkpoint(search: KatibSearch, metadata: Manifest, where: str, report: Report) -> Manifest | None:
    """Return the checkpoints of a population, in the folder in which its trials expect them."""
    if search.checkpoints is None:
        return None
    claim = f"{metadata.get('name')}-checkpoints"
    text = (
        f"create the PersistentVolumeClaim {claim} (ReadWriteMany), or set checkpoint.volume: it has a folder for "
        f"each trial, mounted at {search.checkpoints}. After each checkpoint there, the script must write "
        'podium-checkpoint.json, such as {"step": 5}; a child starts with a copy of its parent\'s'
    )
    report.note(where, text)
    return {"path": search.checkpoints, "volume": {"claimName": claim}}


def _trials(spec: Fields, given: Given, together: int) -> Manifest:
    """Return `trials`. Without maxTrialCount, Katib has no limit; Podium needs one.

    `together`: trials of a population, which train side by side.
    """
    most = spec.whole("maxTrialCount", 1)
    failed, parallel = spec.whole("maxFailedTrialCount", 0), spec.whole("parallelTrialCount", 1)
    most = given.max_trials or most
    if most is None:
        text = "is missing, which means no limit in Katib: add it, or give --max-trials N"
        spec.report.refuse(spec.at("maxTrialCount"), text, "Required")
        return {}
    parallel = min(DEFAULT_PARALLEL, most) if parallel is None else parallel
    if parallel < together:
        text = f"{parallel} becomes {together}: the members of a population train side by side, in turn on each GPU"
        spec.report.note(spec.at("parallelTrialCount"), text)
    return {
        "max": most,
        "parallel": max(parallel, together),
        "maxFailed": min(most, 10_000) if failed is None else failed,
    }


def _workload(
    spec: Fields, others: Sequence[Manifest], namespace: str | None, texts: Mapping[str, str], report: Report
) -> Workload | None:
    """Return the pod of a trial from `trialTemplate`."""
    source = spec.fields("trialTemplate", required=True)
    container = source.text("primaryContainerName", required=bool(source.path))
    source.ignore("successCondition", "failureCondition", "primaryPodLabels")
    if source.raw("retain") is True:
        text = "true has no counterpart: keep the curves with podium report or podium export, and the logs elsewhere"
        report.note(source.at("retain"), text)
    trial, path = source.raw("trialSpec"), source.at("trialSpec")
    if trial is None and source.raw("configMap") is not None:
        path = source.at("configMap")
        trial = _from_config_map(source.fields("configMap"), namespace, others)
        if trial is None:
            source.ignore("trialParameters")
            return None
    source.ignore("configMap")
    if not isinstance(trial, dict):
        report.refuse(path, f"must be the manifest of a trial, not {shown(trial)}", "InvalidValue")
        source.ignore("trialParameters")
        return None
    filled = fill(trial, path, replacements(source, trial, namespace, texts), report)
    source.finish("Katib")
    made = workload_of(filled, path, container, others, report)
    if made is not None:
        trial_name_in_env(made.template, path, report)
    return made


def _from_config_map(source: Fields, namespace: str | None, others: Sequence[Manifest]) -> Any:
    """Return the trial's manifest from a ConfigMap of the file; None if it was refused."""
    name, key = source.text("configMapName", required=True), source.text("templatePath", required=True)
    wanted = source.text("configMapNamespace") or namespace
    source.finish("Katib")
    report = source.report
    for one in others:
        meta = one.get("metadata")
        same = isinstance(meta, Mapping) and meta.get("name") == name and meta.get("namespace", wanted) == wanted
        if one.get("kind") != "ConfigMap" or not same:
            continue
        data = one.get("data")
        text = data.get(key) if isinstance(data, Mapping) else None
        if not isinstance(text, str) or len(text) > LONGEST_TEMPLATE:
            report.refuse(source.at("templatePath"), f"ConfigMap {name} has no template {shown(key)}: correct the path")
            return None
        try:
            found = parse_manifests(text, f"ConfigMap {name}")
        except ManifestError as error:
            report.refuse(source.at("templatePath"), f"{error}: correct the template")
            return None
        if len(found) == 1 and not too_large(found):
            return found[0]
        text = f"{key} must have one document, of the size of a manifest (got {len(found)}): correct it"
        report.refuse(source.at("templatePath"), text)
        return None
    command = f"kubectl get configmap {name} -n {wanted or 'NAMESPACE'} -o yaml"
    report.refuse(source.at("configMapName"), f"ConfigMap {shown(name)} is not in the file: add it ({command})")
    return None


def _volumes(template: Manifest, search: KatibSearch, collected: Collected, report: Report) -> None:
    """Add the folders that Katib mounts, and let the file of the values be the standard output."""
    container = template["spec"]["containers"][0]
    if search.scratch is not None:
        _scratch(template, container, _SCRATCH_VOLUME, posixpath.normpath(search.scratch))
    if collected.file is None:
        return
    command, args = container.get("command"), container.get("args")
    if not isinstance(command, list) or not command or (args is not None and not isinstance(args, list)):
        text = (
            f"{collected.file}: the container {container.get('name')} has no command, so Podium cannot prepare the file"
        )
        report.refuse(collected.file_path, f"{text}: write the command of the image, or print the values instead")
        return
    folder = posixpath.dirname(posixpath.normpath(collected.file))
    if not collected.file.startswith("/") or len(folder) < 2:
        text = f"{shown(collected.file)} must be a path such as /katib/metrics.log: move the file into a folder"
        report.refuse(collected.file_path, text)
        return
    _scratch(template, container, _METRICS_VOLUME, folder)
    link = f'ln -sf /dev/stdout {_quoted(collected.file)} && exec "$0" "$@"'
    container["command"] = ["sh", "-c", link, *command]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _scratch(template: Manifest, container: Manifest, name: str, path: str) -> None:
    """Mount an empty folder at `path`, unless the container mounts something there."""
    mounts, volumes = container.get("volumeMounts") or [], template["spec"].get("volumes") or []
    if not isinstance(mounts, list) or not isinstance(volumes, list):
        return  # the validation of the job refuses it
    if any(isinstance(one, dict) and one.get("mountPath") == path for one in mounts):
        return
    container["volumeMounts"] = [*mounts, {"name": name, "mountPath": path}]
    template["spec"]["volumes"] = [*volumes, {"name": name, "emptyDir": {}}]


def is_experiment(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is a Katib Experiment of any version."""
    return manifest.get("kind") == KIND and str(manifest.get("apiVersion", "")).startswith(f"{GROUP}/")
