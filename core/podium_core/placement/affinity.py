"""Affinity terms of pods on nodes that refer to other pods.

kube-scheduler weighs the preferred affinities of existing pods (and, slightly, their required ones) for each new pod.
This module finds which pods such a term may match, not its weight. The extender asks whether any term may match the pod
that it places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from podium_core.schema.pod import Affinity, ApiModel


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement for a label: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the requirement.

        An unknown operator counts as met: offering kube-scheduler too many nodes does no harm.
        """
        if self.operator == "In":
            return labels.get(self.key) in self.values
        if self.operator == "NotIn":
            return labels.get(self.key) not in self.values
        if self.operator == "Exists":
            return self.key in labels
        return self.operator != "DoesNotExist" or self.key not in labels


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods with these labels in these namespaces.

    None: namespaces selected by labels, which are not known here.
    """

    namespaces: frozenset[str] | None
    labels: tuple[Requirement, ...]

    def may_match(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the term may match a pod of this namespace with these labels."""
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
    """Term of an affinity: without a selector it matches no pod; with an empty one it matches all."""

    label_selector: _Selector | None = None
    namespaces: list[str] = Field(default_factory=list)
    namespace_selector: dict[str, Any] | None = None


class _Weighted(ApiModel):
    pod_affinity_term: _Term


class _Terms(ApiModel):
    preferred: list[_Weighted] = Field(default_factory=list, alias="preferredDuringSchedulingIgnoredDuringExecution")
    required: list[_Term] = Field(default_factory=list, alias="requiredDuringSchedulingIgnoredDuringExecution")


def terms_about_other_pods(namespace: str, affinity: Affinity) -> tuple[AffinityTerm, ...]:
    """Return the terms by which a pod of `namespace`, once it is on a node, attracts or repels other pods.

    A term that cannot be read may match any pod.
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
    own_namespace = () if term.namespaces else (namespace,)
    labels = (Requirement(key, "In", frozenset({value})) for key, value in selector.match_labels.items())
    expressions = (Requirement(one.key, one.operator, frozenset(one.values)) for one in selector.match_expressions)
    namespaces = None if term.namespace_selector is not None else frozenset((*term.namespaces, *own_namespace))
    return AffinityTerm(namespaces, (*labels, *expressions))
