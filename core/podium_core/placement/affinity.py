"""What pods on nodes say of other pods: kube-scheduler weighs their preferred affinities (and what they require, a
little) for each pod that comes. Here: whom they may mean, not how much.

Read where pods are read (`cpus`, `readings`); the extender asks whether any of them means the pod in question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from podium_core.schema.pod import Affinity, ApiModel


@dataclass(frozen=True, slots=True)
class Requirement:
    """Of a label: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """An operator that is not known holds: too many nodes for kube-scheduler to choose among are no harm."""
        if self.operator == "In":
            return labels.get(self.key) in self.values
        if self.operator == "NotIn":
            return labels.get(self.key) not in self.values
        if self.operator == "Exists":
            return self.key in labels
        return self.operator != "DoesNotExist" or self.key not in labels


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods of these labels in these namespaces. None: in namespaces of certain labels, which are not known here."""

    namespaces: frozenset[str] | None
    labels: tuple[Requirement, ...]

    def may_match(self, namespace: str, labels: Mapping[str, str]) -> bool:
        there = self.namespaces is None or namespace in self.namespaces
        return there and all(one.holds(labels) for one in self.labels)


ANY_POD = AffinityTerm(None, ())


class _Expression(ApiModel):
    key: str
    operator: str
    values: list[str] = Field(default_factory=list)


class _Selector(ApiModel):
    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: list[_Expression] = Field(default_factory=list)


class _Term(ApiModel):
    """Without a selector it means no pod; one that is empty means all."""

    label_selector: _Selector | None = None
    namespaces: list[str] = Field(default_factory=list)
    namespace_selector: dict[str, Any] | None = None


class _Weighted(ApiModel):
    pod_affinity_term: _Term


class _Terms(ApiModel):
    preferred: list[_Weighted] = Field(default_factory=list, alias="preferredDuringSchedulingIgnoredDuringExecution")
    required: list[_Term] = Field(default_factory=list, alias="requiredDuringSchedulingIgnoredDuringExecution")


def terms_about_other_pods(namespace: str, affinity: Affinity) -> tuple[AffinityTerm, ...]:
    """Those by which a pod of `namespace`, once it is on a node, makes that place better or worse for other pods. What
    cannot be read may mean any.
    """
    if not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return ()
    try:
        return tuple(dict.fromkeys(_read(namespace, affinity)))
    except ValidationError:
        return (ANY_POD,)


def _read(namespace: str, affinity: Affinity) -> Iterator[AffinityTerm]:
    near = _Terms.model_validate(affinity.pod_affinity or {})
    away = _Terms.model_validate(affinity.pod_anti_affinity or {})
    preferred = (one.pod_affinity_term for terms in (near, away) for one in terms.preferred)
    for term in (*preferred, *near.required):
        if term.label_selector is not None:
            yield _term(namespace, term, term.label_selector)


def _term(namespace: str, term: _Term, selector: _Selector) -> AffinityTerm:
    own = () if term.namespaces else (namespace,)
    alike = (Requirement(key, "In", frozenset({value})) for key, value in selector.match_labels.items())
    rest = (Requirement(one.key, one.operator, frozenset(one.values)) for one in selector.match_expressions)
    meant = None if term.namespace_selector is not None else frozenset((*term.namespaces, *own))
    return AffinityTerm(meant, (*alike, *rest))
