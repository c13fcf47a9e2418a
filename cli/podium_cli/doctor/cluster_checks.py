"""Checks of the whole cluster: version, webhooks, Pod Security, runtime classes, dynamic resources, nodes with GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podium_cli.doctor.check_table import NEWEST, OLDEST, Result, error, ok, skipped, warning
from podium_cli.doctor.facts import AGENT, ClusterFacts, Unread
from podium_core.placement.announced_gpus import NVIDIA_GPU

ENFORCE = "pod-security.kubernetes.io/enforce"
NVIDIA_CLASS = "nvidia"
_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})")


def minor_version(text: str) -> tuple[int, int] | None:
    """Return major and minor number of a version such as v1.36.3-gke.1; None for another text."""
    found = _VERSION.match(text)
    return None if found is None else (int(found[1]), int(found[2]))


def cluster_results(facts: ClusterFacts) -> Iterator[Result]:
    """Yield the results of the checks of the whole cluster."""
    yield _kubernetes_version(facts)
    yield from _webhooks(facts)
    yield _pod_security(facts)
    yield _runtime_classes(facts)
    yield _dynamic_resources(facts)
    yield from _kueue_queue(facts)
    yield _gpu_nodes(facts)


def _kubernetes_version(facts: ClusterFacts) -> Result:
    code, text = "KubernetesVersion", facts.server_version
    if isinstance(text, Unread):
        return skipped(code, "API server", text.reason)
    version, supported = minor_version(text), f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if version is None:
        return skipped(code, "API server", f"{text!r} is not a version of Kubernetes")
    if version < OLDEST:
        return error(code, "API server", f"{text} is too old: Podium supports {supported}")
    if version > NEWEST:
        return warning(code, "API server", f"{text} is newer than the versions that Podium supports, {supported}")
    return ok(code, "API server", f"{text}; supported: {supported}")


def _webhooks(facts: ClusterFacts) -> Iterator[Result]:
    code, hooks = "PodWebhooks", facts.webhooks
    if isinstance(hooks, Unread):
        yield skipped(code, "cluster", hooks.reason)
        return
    if not hooks:
        yield ok(code, "cluster", "no webhook with failurePolicy Fail intercepts pods")
    for hook in hooks:
        subject = f"{hook.configuration}/{hook.name}"
        if not hook.service:
            yield skipped(code, subject, f"it is at {hook.url}, which cannot be looked at through the API server")
        elif isinstance(hook.endpoints, Unread):
            yield skipped(code, subject, f"endpoints of service {hook.service}: {hook.endpoints.reason}")
        elif hook.endpoints == 0:
            message = f"service {hook.service} has no ready endpoint, so pods that the webhook intercepts are refused"
            yield error(code, subject, message)
        else:
            yield ok(code, subject, f"service {hook.service} has ready endpoints: {hook.endpoints}")


def _pod_security(facts: ClusterFacts) -> Result:
    code, labels, subject = "NamespacePodSecurity", facts.namespace_labels, f"namespace {facts.namespace}"
    if isinstance(labels, Unread):
        return skipped(code, subject, labels.reason)
    if labels is None:
        return skipped(code, subject, "the namespace does not exist yet")
    level = labels.get(ENFORCE)
    if level is None:
        return ok(code, subject, f"no label {ENFORCE}: the cluster's default applies, which usually admits all pods")
    if level != "privileged":
        return error(code, subject, f"{ENFORCE} is {level}, so the API server refuses the agent's pods")
    return ok(code, subject, f"{ENFORCE} is {level}")


def _runtime_classes(facts: ClusterFacts) -> Result:
    code, classes = "RuntimeClasses", facts.runtime_classes
    if isinstance(classes, Unread):
        return skipped(code, "cluster", classes.reason)
    agent = facts.workload(AGENT)
    if agent is not None and agent.runtime_class:
        subject = f"class {agent.runtime_class}"
        if agent.runtime_class not in classes:
            there = ", ".join(sorted(classes)) or "none"
            return error(code, subject, f"the agent's pods name it, and it does not exist; there are: {there}")
        return ok(code, subject, f"the agent's pods use it; handler: {classes[agent.runtime_class]}")
    if NVIDIA_CLASS in classes:
        return ok(code, f"class {NVIDIA_CLASS}", f"it exists; handler: {classes[NVIDIA_CLASS]}")
    message = (
        f"there is no RuntimeClass {NVIDIA_CLASS}: the node's default runtime must provide the driver, or a folder "
        "that the chart's values name"
    )
    return ok(code, "cluster", message)


def _dynamic_resources(facts: ClusterFacts) -> Result:
    code, classes = "DynamicResources", facts.device_classes
    if isinstance(classes, Unread):
        return skipped(code, "cluster", classes.reason)
    named = sorted(name for name, resource in classes.items() if resource == NVIDIA_GPU)
    if not named:
        return ok(code, "cluster", f"no DeviceClass stands for {NVIDIA_GPU}")
    subject = f"DeviceClass {named[0]}"
    if len(named) > 1:
        message = f"{', '.join(named)} stand for {NVIDIA_GPU}: the scheduler uses the newest one"
        return warning(code, subject, message)
    if facts.mode == "reservations":
        message = f"it stands for {NVIDIA_GPU}: Podium itself gives up a reservation that a waiting pod needs"
        return ok(code, subject, message)
    return ok(code, subject, f"it stands for {NVIDIA_GPU}; this matters in the mode reservations only")


def _kueue_queue(facts: ClusterFacts) -> Iterator[Result]:
    code, name, queues = "KueueQueue", facts.reservation_queue, facts.local_queues
    if isinstance(facts.workloads, Unread):
        yield skipped(code, "cluster", facts.workloads.reason)
    elif not name:
        yield ok(code, "cluster", "the chart names no LocalQueue of Kueue")
    elif isinstance(queues, Unread) and queues.status == 404:
        yield warning(code, f"LocalQueue {name}", "Kueue 0.17 or newer is not installed, so reservations have no quota")
    elif isinstance(queues, Unread):
        yield skipped(code, f"LocalQueue {name}", queues.reason)
    elif not queues:
        yield error(code, f"LocalQueue {name}", "no namespace has it, so no GPU reservation is admitted")
    else:
        for one in queues:
            subject = f"LocalQueue {one.namespace}/{name}"
            if one.trouble:
                yield error(code, subject, f"it admits no GPU reservation: {one.trouble}")
            else:
                yield ok(code, subject, f"it is active; ClusterQueue: {one.cluster_queue}")


def _gpu_nodes(facts: ClusterFacts) -> Result:
    code = "GPUNodes"
    if isinstance(facts.nodes, Unread):
        return skipped(code, "cluster", facts.nodes.reason)
    if facts.only:
        return ok(code, f"node {facts.only}", "named by the caller")
    count = len(facts.checked_nodes)
    if count == 0:
        return warning(code, "cluster", f"none of the {len(facts.nodes)} nodes shows a GPU by a resource or a label")
    return ok(code, "cluster", f"nodes with GPUs: {count} of {len(facts.nodes)}")
