"""Command `podium explain pod NAME`: score or refusal of each node for a pod, as the extender computes them.

It calls the extender's pure functions with the same objects and shows the terms of the score with their weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_node, parse_trial
from podium_cli.session import Session, fetch
from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, LEASES, NODES, PODS, TRIALS, Page, Resource
from podium_core.placement.fit import STALE_AFTER, refuse
from podium_core.placement.free_cpus import cpu_request_of, node_cpus_of, others_selector
from podium_core.placement.load_terms import TERMS
from podium_core.placement.needs import GPU_RESOURCE, TRIAL_LABEL, InvalidPodError, need_of
from podium_core.placement.node_parser import (
    LEASE_PREFIX,
    PlacedPod,
    TrialName,
    current_gpus,
    node_report,
    node_view,
    placed_pod,
)
from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.policies.load_balance import term_means
from podium_core.placement.scores import score_nodes
from podium_core.placement.typical_pods import typical_needs
from podium_core.placement.views import NodeView, PodNeed
from podium_core.schema.pod import Pod
from podium_views import formatting

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """A pod, its placement policy and the nodes; `nodes` is None if Podium does not place the pod."""

    pod: Pod
    policy: PlacementPolicy
    need: PodNeed
    head: tuple[str, ...]
    nodes: tuple[ScoredNode, ...] | None
    now: float

    def __rich__(self) -> RenderableType:
        """Return the lines and the table of nodes."""
        if self.nodes is None:
            return Text("\n".join(self.head))
        return Group(Text("\n".join([*self.head, ""])), _table(self.need, self.nodes, self.now))

    def data(self) -> dict[str, Any]:
        """Return the explanation for programs; the score of a refused node is null."""
        return {
            "namespace": self.pod.metadata.namespace,
            "pod": self.pod.metadata.name,
            "scheduler": self.pod.spec.scheduler_name,
            "policy": self.policy.name,
            "placedOn": self.pod.spec.node_name or None,
            "needs": {"gpus": self.need.gpus, "memory": self.need.memory, "products": list(self.need.products)},
            "nodes": [self._node(one) for one in self.nodes or ()],
        }

    def _node(self, one: ScoredNode) -> dict[str, Any]:
        fresh, reported = not one.node.stale(self.now, STALE_AFTER), one.node.reported_at
        values = [value for _, value in term_means(self.need, one.node)] if fresh else None
        return {
            "node": one.node.name,
            "score": one.score,
            "terms": values and {term.name: value for term, value in zip(TERMS, values, strict=True)},
            "reportedSecondsAgo": None if reported is None else max(0.0, self.now - reported),
            "why": one.why,
        }


@dataclass(frozen=True, slots=True)
class ScoredNode:
    """One node with its score and reason, or with the reason for its refusal."""

    node: NodeView
    score: int | None
    why: str


async def pod_explanation(
    session: Session, name: str, policy: PlacementPolicy, podium_namespace: str
) -> PodExplanation:
    """Read the cluster and return the explanation for one pod."""
    async with session.api() as api:
        pod = parse(await fetch(api, PODS, name, session.namespace))
        scheduler = f"spec.schedulerName={pod.spec.scheduler_name}"
        nodes = await _all(api, GPUNODES)
        pods = [placed_pod(parse(item)) for item in await _all(api, PODS, fields=scheduler)]
        trials = await _all(api, TRIALS)
        leases = await _all(api, LEASES, namespace=podium_namespace)
        free_cpus = await _free_cpus(api, pod.spec.scheduler_name)
    now = clock.now()
    views = views_of(nodes, pods, trials, leases, now, free_cpus)
    return explanation(pod, views, policy, now, pods, cpus=free_cpus is not None)


def parse(payload: Payload) -> Pod:
    """Return the pod, or raise CliError with the first field that is wrong."""
    try:
        return Pod.model_validate(payload)
    except ValidationError as error:
        raise CliError(Exit.CLUSTER, "ObjectUnreadable", f"Pod: {error.errors()[0]['msg']}") from error


def views_of(
    nodes: Iterable[Payload],
    pods: Iterable[PlacedPod],
    trials: Iterable[Payload],
    leases: Iterable[Payload],
    now: float,
    free_cpus: Mapping[str, int] | None = None,
) -> list[NodeView]:
    """Return the nodes as the extender observes them, as far as the caller may read the objects.

    `free_cpus`: thousandths of a CPU that pods of other schedulers leave free on each node; None if not known. The time
    of a heartbeat comes from the clock of its node.
    """
    parsed = [parse_trial(item) for item in trials]
    ranks: dict[TrialName, int] = {
        (trial.metadata.namespace, trial.metadata.name): trial.status.rank
        for trial in parsed
        if trial.status.rank is not None
    }
    beats = {item["metadata"]["name"]: _moment((item.get("spec") or {}).get("renewTime")) for item in leases}
    views = []
    for node in (parse_node(item) for item in nodes):
        name, known = node.metadata.name, node_report(node)
        here = [one for one in pods if one.node == name]
        beat = beats.get(LEASE_PREFIX + name)
        left = None if free_cpus is None else free_cpus.get(name)
        cpu_free = None if left is None else left - sum(one.need_with_cpus.cpu for one in here)
        heard = beat and min(beat, now)
        views.append(node_view(name, current_gpus(known, here, ranks), known.written_at, heard, now, cpu_free))
    return views


def evaluate(
    question: PlacementQuery, nodes: Sequence[NodeView], policy: PlacementPolicy, now: float
) -> list[ScoredNode]:
    """Score the nodes that are not refused; best first, refused nodes last, ties by name."""
    refused = {node.name: refuse(question.need, node, now) for node in nodes}
    left = [node for node in nodes if refused[node.name] is None]
    scores = {score.node: score for score in score_nodes(policy, question, left, now)}
    scored = []
    for node in nodes:
        refusal = refused[node.name]
        if refusal is not None:
            scored.append(ScoredNode(node, None, f"{refusal.code}: {refusal.message}"))
        else:
            scored.append(ScoredNode(node, scores[node.name].value, scores[node.name].message))
    return sorted(scored, key=lambda one: (one.score is None, -(one.score or 0), one.node.name))


def explanation(
    pod: Pod,
    nodes: Sequence[NodeView],
    policy: PlacementPolicy,
    now: float,
    pods: Iterable[PlacedPod] = (),
    *,
    cpus: bool = False,
) -> PodExplanation:
    """Return the score or the refusal of each node.

    `pods` are those of the same scheduler; the typical pods come from them. `cpus`: the nodes' free CPUs are known.
    """
    meta = pod.metadata
    try:
        need = need_of(pod)
    except InvalidPodError as error:
        raise CliError(Exit.FAILED, error.code, f"pod {meta.namespace}/{meta.name}: {error}") from error
    head = [f"pod     {meta.namespace}/{meta.name} of scheduler {pod.spec.scheduler_name}", f"needs   {_needs(need)}"]
    typical = typical_needs(Counter(one.need_with_cpus if cpus else one.need for one in pods))
    question = PlacementQuery(need, meta.uid, typical, is_trial=bool(meta.labels.get(TRIAL_LABEL)), cpus_known=cpus)
    suited = policy.resolve(question)
    if cpus and suited.uses_cpus:
        question = replace(question, need=placed_pod(pod).need_with_cpus)
    chosen = "" if suited is policy else f" ({policy.name})"
    head.append(f"policy  {suited.name}{chosen}: {suited.summary}")
    if suited.uses_cpus and not cpus:
        head.append(
            "CPUs    of the nodes are not known (no permission to read all nodes and pods): only GPUs count here"
        )
    if pod.spec.node_name:
        head.append(f"placed  on {pod.spec.node_name}, where it is counted: the table is for another pod like it")
    if need.gpus == 0:
        head.append("Podium does not place this pod: it requests none of Podium's GPUs")
        return PodExplanation(pod, suited, need, tuple(head), None, now)
    return PodExplanation(pod, suited, need, tuple(head), tuple(evaluate(question, nodes, suited, now)), now)


def _table(need: PodNeed, scored: Sequence[ScoredNode], now: float) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    heads = [f"{term.name.upper()}\n{term.weight:.2f}" for term in TERMS]
    for head in ("NODE", "SCORE\n0-10", *heads, "REPORTED"):
        table.add_column(head, no_wrap=True, justify="left" if head == "NODE" else "right")
    table.add_column("WHY")
    for one in scored:
        fresh = not one.node.stale(now, STALE_AFTER)
        values = [value for _, value in term_means(need, one.node)] if fresh else []
        terms = [f"{value:.2f}" for value in values] or [formatting.NOTHING] * len(TERMS)
        reported = one.node.reported_at
        score = Text("refused", style="red") if one.score is None else Text(str(one.score))
        age = Text(
            "never" if reported is None else f"{max(0.0, now - reported):.0f} s", style="" if fresh else "yellow"
        )
        table.add_row(Text(one.node.name), score, *(Text(value) for value in terms), age, Text(one.why))
    return table


async def _free_cpus(api: Api, scheduler: str) -> Mapping[str, int] | None:
    """Return the free thousandths of a CPU by node; None if the caller may not read all nodes and pods."""
    try:
        left = {item["metadata"]["name"]: node_cpus_of(item).cpu async for item in _pages(api, NODES)}
        async for item in _pages(api, PODS, others_selector(scheduler)):
            request = cpu_request_of(item)
            if request.node in left:
                left[request.node] -= request.cpu
    except ApiError as error:
        if error.status != 403:
            raise
        return None
    return left


async def _pages(api: Api, resource: Resource, fields: str | None = None) -> AsyncIterator[Payload]:
    after: str | None = ""
    while after is not None:
        answer = await api.list(resource, fields=fields, page=Page(after=after))
        for item in answer["items"]:
            yield item
        after = answer["metadata"].get("continue") or None


def _needs(need: PodNeed) -> str:
    parts = [f"{GPU_RESOURCE}: {need.gpus}"]
    if need.memory is not None:
        parts.append(f"{formatting.gibibytes(need.memory)} GiB of memory on each")
    if need.products:
        parts.append(f"one of: {', '.join(need.products)}")
    return ", ".join(parts)


def _moment(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None


async def _all(
    api: Api, resource: Resource, *, namespace: str | None = None, fields: str | None = None
) -> Sequence[Payload]:
    """Return every object of a kind, or an empty list if the caller may not read that kind."""
    try:
        items: Sequence[Payload] = (await api.list(resource, namespace, fields=fields))["items"]
    except ApiError as error:
        if error.status != 403:
            raise
        return ()
    return items
