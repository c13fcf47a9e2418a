"""A pod template of another tool as the template of a job: the trial's container first, GPUs counted, no restarts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from podium_core.conversion.fields import Manifest, Report, number_of, shown
from podium_core.schema.template.rules import is_gpu_variable

GPU = "nvidia.com/gpu"
_DROPPED = {  # fields of a pod that Podium refuses, and what does the same
    "activeDeadlineSeconds": "it would also count while a trial is suspended; budget.deadline ends a search",
    "schedulerName": "Podium's scheduler places trials",
}
_PROBES = ("livenessProbe", "startupProbe")


class Workload(NamedTuple):
    """The pod of one trial: its template, its GPUs, and the attempts after a failure, if given."""

    template: Manifest
    gpus: int
    retries: int | None = None


def trial_template(template: Any, path: str, container: str | None, report: Report) -> Workload | None:
    """Return the template of the trials; None if it was refused. `container`: name of the one that trains."""
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        report.refuse(path, f"must be a pod template with a spec, not {shown(template)}", "InvalidValue")
        return None
    spec = dict(template["spec"])
    for kind in ("containers", "initContainers"):
        given = spec.get(kind)
        wrong = not isinstance(given, list) or not all(isinstance(one, dict) for one in given)
        if (given is not None or kind == "containers") and (wrong or (kind == "containers" and not given)):
            report.refuse(f"{path}.spec.{kind}", f"must be a list of containers, not {shown(given)}", "InvalidValue")
            return None
    containers = _first(spec["containers"], f"{path}.spec.containers", container, report)
    if containers is None:
        return None
    _restarts(spec, path, report)
    where = f"{path}.spec.containers"
    gpus = _gpus(containers[0], where, report)
    spec["containers"] = [_container(one, f"{where}[{one.get('name')}]", report) for one in containers]
    if "initContainers" in spec and spec["initContainers"] is not None:
        where = f"{path}.spec.initContainers"
        spec["initContainers"] = [
            _container(one, f"{where}[{one.get('name')}]", report) for one in spec["initContainers"]
        ]
    others = [*spec["containers"][1:], *(spec.get("initContainers") or [])]
    for other in others:
        if any(True for _ in gpus_asked(other)):
            text = f"container {shown(other.get('name'))} asks for {GPU}, but only the container that trains gets GPUs"
            report.refuse(f"{path}.spec", f"{text}: remove it there")
    made: Manifest = {}
    meta = template.get("metadata")
    if isinstance(meta, dict):
        made["metadata"] = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
    return Workload({name: value for name, value in {**made, "spec": spec}.items() if value}, gpus)


def _first(containers: list[Manifest], path: str, name: str | None, report: Report) -> list[Manifest] | None:
    """Return the containers, the one that trains first."""
    wanted = [one for one in containers if one.get("name") == name] if name is not None else containers[:1]
    if not wanted:
        names = ", ".join(str(one.get("name"))[:63] for one in containers[:8])
        text = f"has no container {shown(name)}: name the one that trains as primaryContainerName (containers: {names})"
        report.refuse(path, text)
        return None
    return [dict(one) for one in (wanted[0], *(one for one in containers if one is not wanted[0]))]


def _restarts(spec: Manifest, path: str, report: Report) -> None:
    policy = spec.pop("restartPolicy", None)
    if policy not in (None, "Never"):
        text = f"{shown(policy)} becomes Never, since a restart would lose steps unnoticed"
        report.note(f"{path}.spec.restartPolicy", f"{text}; trials.retries sets how often a failed trial is retried")
    for field, why in _DROPPED.items():
        if spec.get(field) is not None:
            report.note(f"{path}.spec.{field}", f"{shown(spec.pop(field))} is left out: {why}")


def gpus_asked(container: Manifest) -> Iterator[tuple[str, Any]]:
    """Yield the part, requests or limits, in which a container asks for GPUs, and the number."""
    resources = container.get("resources")
    for part in ("limits", "requests"):
        asked = resources.get(part) if isinstance(resources, dict) else None
        if isinstance(asked, dict) and asked.get(GPU) is not None:
            yield part, asked[GPU]


def _gpus(container: Manifest, path: str, report: Report) -> int:
    """Return the GPUs that the container asks for, and remove them from its resources."""
    found = 0
    for part, asked in list(gpus_asked(container)):
        number = number_of(asked)
        if not isinstance(number, int) or number < 0:
            where = f"{path}[{container.get('name')}].resources.{part}"
            text = f"{GPU}: {shown(asked)} is not a whole number: all trials of a job need equally many GPUs"
            report.refuse(where, f"{text}; write the number, or give --gpus")
        else:
            found = max(found, number)
    if any(True for _ in gpus_asked(container)):
        resources = {part: dict(one) if isinstance(one, dict) else one for part, one in container["resources"].items()}
        for part in ("limits", "requests"):
            if isinstance(resources.get(part), dict):
                resources[part].pop(GPU, None)
        container["resources"] = {part: one for part, one in resources.items() if one}
        if not container["resources"]:
            del container["resources"]
    return found


def _container(container: Manifest, path: str, report: Report) -> Manifest:
    """Return a container without what Podium refuses: probes that kill, and variables that choose GPUs."""
    made = dict(container)
    for probe in _PROBES:
        if made.pop(probe, None) is not None:
            report.note(f"{path}.{probe}", "is left out: it would kill a trial that is suspended")
    env = made.get("env")
    if isinstance(env, list):
        kept = [one for one in env if not (isinstance(one, dict) and is_gpu_variable(str(one.get("name"))))]
        if len(kept) < len(env):
            report.note(f"{path}.env", "variables that choose GPUs are left out: Podium chooses the GPUs of a trial")
        made["env"] = kept
    return made


def add_env(container: Manifest, variables: dict[str, str]) -> None:
    """Add variables to a container before its own, which win."""
    own = container.get("env") or []
    names = {str(one.get("name")) for one in own if isinstance(one, dict)} if isinstance(own, list) else set()
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in names]
    if isinstance(own, list) and added:
        container["env"] = [*added, *own]
