"""Checks of Podium's own parts: chart, CRDs, workloads, versions and priority classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podium_cli.doctor.check_table import Result, error, ok, skipped, warning
from podium_cli.doctor.facts import AGENT, OPERATOR, SCHEDULER, ClusterFacts, CrdFacts, Unread, Workload
from podium_core.schema.generation.crd import KINDS, crd

NOT_INSTALLED = "Podium is not installed"
EXPECTED_CRDS = {definition["metadata"]["name"]: definition["spec"]["versions"] for definition in map(crd, KINDS)}
WORKLOADS = (("Operator", OPERATOR), ("Scheduler", SCHEDULER), ("Agents", AGENT))
# Variables of the operator that name the priority class of pods that it creates.
CLASS_VARIABLES = ("PODIUM_TRIAL_PRIORITY_CLASS", "PODIUM_RESERVATION_PRIORITY_CLASS")


def installation_results(facts: ClusterFacts) -> Iterator[Result]:
    """Yield the results of the checks of the installation."""
    yield _chart(facts)
    yield from _crds(facts)
    yield from _components(facts)
    yield from _versions(facts)
    yield from _priority_classes(facts)


def _chart(facts: ClusterFacts) -> Result:
    code, workloads = "ChartInstalled", facts.workloads
    if isinstance(workloads, Unread):
        return skipped(code, "cluster", workloads.reason)
    releases = sorted({f"{one.namespace}/{one.release}" for one in workloads})
    if not releases:
        return warning(code, "cluster", f"{NOT_INSTALLED} yet")
    if len(releases) > 1:
        message = f"there are {len(releases)} releases, which compete for the same trials: {', '.join(releases)}"
        return error(code, "cluster", message)
    return ok(code, f"release {releases[0]}", f"version {workloads[0].version}, gpus.mode {facts.mode or 'not known'}")


def _crds(facts: ClusterFacts) -> Iterator[Result]:
    code, crds = "CRDs", facts.crds
    if isinstance(crds, Unread):
        yield skipped(code, "cluster", crds.reason)
        return
    there, operator = {one.name: one for one in crds}, facts.workload(OPERATOR)
    if not there and operator is None:
        yield skipped(code, "cluster", f"{NOT_INSTALLED}, and the CRDs come with the chart")
        return
    for name, versions in EXPECTED_CRDS.items():
        one = there.get(name)
        if one is None:
            yield error(code, name, "this CRD is missing")
        elif not one.established:
            yield error(code, name, "the API server does not serve this CRD: its condition Established is not true")
        elif operator is not None and operator.version != facts.cli_version:
            message = (
                f"it exists; it cannot be compared, because this command has version {facts.cli_version} and the "
                f"chart {operator.version}"
            )
            yield skipped(code, name, message)
        elif not same_schema(one, versions):
            yield error(code, name, f"its schema is not that of version {facts.cli_version}")
        else:
            yield ok(code, name, f"it is that of version {facts.cli_version}")


def same_schema(one: CrdFacts, versions: list[Mapping[str, Any]]) -> bool:
    """Return whether a CRD of the cluster has these versions with these schemas and columns.

    The API server adds defaults to a stored CRD, so only the fields that Podium writes are compared.
    """
    by_name = {version.get("name"): version for version in one.versions}
    wanted = {version["name"]: version for version in versions}
    return by_name.keys() == wanted.keys() and all(
        by_name[name].get(key) == value for name, version in wanted.items() for key, value in version.items()
    )


def _components(facts: ClusterFacts) -> Iterator[Result]:
    if isinstance(facts.workloads, Unread):
        yield from (skipped(code, "cluster", facts.workloads.reason) for code, _ in WORKLOADS)
        return
    for code, component in WORKLOADS:
        workloads = [one for one in facts.workloads if one.component == component]
        if workloads:
            yield from (_component(facts, code, one) for one in workloads)
        elif facts.workloads:
            yield error(code, f"component {component}", "the chart is installed without it: it was deleted")
        else:
            yield skipped(code, "cluster", NOT_INSTALLED)


def _component(facts: ClusterFacts, code: str, one: Workload) -> Result:
    subject, ready = f"{one.namespace}/{one.name}", f"{one.ready} of {one.desired} pods are ready"
    if one.desired == 0:
        if one.component == AGENT:
            return error(code, subject, "no node is selected, or none admits its pods")
        return error(code, subject, "it is scaled to 0 pods")
    if one.ready >= one.desired:
        return ok(code, subject, ready)
    troubles: list[str] = []
    if isinstance(facts.pods, Unread):
        troubles = [f"the pods are not known ({facts.pods.reason})"]
    else:
        pods = [pod for pod in facts.pods if pod.component == one.component and pod.trouble]
        troubles = [f"{pod.name}{f' on {pod.node}' if pod.node else ''}: {pod.trouble}" for pod in pods[:3]]
    message = "; ".join([ready, *troubles]) if troubles else f"{ready}, and the other pods were not created"
    return (
        error(code, subject, message) if one.ready == 0 or one.component == AGENT else warning(code, subject, message)
    )


def _versions(facts: ClusterFacts) -> Iterator[Result]:
    code, workloads = "ComponentVersions", facts.workloads
    if isinstance(workloads, Unread):
        yield skipped(code, "cluster", workloads.reason)
        return
    operator = facts.workload(OPERATOR)
    if operator is None:
        yield skipped(code, "cluster", NOT_INSTALLED if not workloads else "there is no operator to compare with")
        return
    wrong = False
    for subject, version in _reported_versions(facts, operator):
        if version != operator.version:
            wrong = True
            yield warning(code, subject, f"it has version {version}, and the operator {operator.version}")
    image = operator.images.get("operator", "")
    for subject, other in _images(facts):
        if image and other != image:
            wrong = True
            yield warning(code, subject, f"it runs image {other}, and the chart names {image}")
    if not wrong:
        yield ok(code, "all components", f"version {operator.version}, image {image}")


def _reported_versions(facts: ClusterFacts, operator: Workload) -> Iterator[tuple[str, str]]:
    """Yield the versions of the other parts, as labels and agents report them."""
    yield "this command", facts.cli_version
    for one in facts.workloads if not isinstance(facts.workloads, Unread) else ():
        if one is not operator:
            yield f"{one.namespace}/{one.name}", one.version
    if not isinstance(facts.gpu_nodes, Unread):
        for name, node in sorted(facts.gpu_nodes.items()):
            if node.status.agent and (not facts.only or name == facts.only):
                yield f"agent on {name}", node.status.agent


def _images(facts: ClusterFacts) -> Iterator[tuple[str, str]]:
    """Yield the images of Podium's own containers, in the workloads and in the pods that run."""
    own = (OPERATOR, "extender", AGENT)
    for one in facts.workloads if not isinstance(facts.workloads, Unread) else ():
        yield from ((f"{one.namespace}/{one.name}", one.images[name]) for name in own if name in one.images)
    for pod in facts.pods if not isinstance(facts.pods, Unread) else ():
        yield from ((f"pod {pod.name}", pod.images[name]) for name in own if name in pod.images)


def _priority_classes(facts: ClusterFacts) -> Iterator[Result]:
    code, classes, workloads = "PriorityClasses", facts.priority_classes, facts.workloads
    if isinstance(workloads, Unread):
        yield skipped(code, "cluster", workloads.reason)
        return
    if isinstance(classes, Unread):
        yield skipped(code, "cluster", classes.reason)
        return
    if not workloads:
        yield skipped(code, "cluster", NOT_INSTALLED)
        return
    operator = facts.workload(OPERATOR)
    environment = {} if operator is None else operator.environment
    low = {environment[name] for name in CLASS_VARIABLES if environment.get(name)}
    for name in sorted(low | {one.priority_class for one in workloads if one.priority_class}):
        if name not in classes:
            yield error(code, f"class {name}", "pods name it, and it does not exist, so they are refused")
        elif name in low and classes[name] >= 0:
            message = f"its value is {classes[name]}: pods without a class, which have 0, do not come first"
            yield warning(code, f"class {name}", message)
        else:
            yield ok(code, f"class {name}", f"value {classes[name]}")
