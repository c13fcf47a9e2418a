"""Affinity terms of the pods on nodes, filed by what a pod must be to be meant. Kept by `preferences`.

A cluster may have a term for each of ten thousand StatefulSets: to go through them all for each pod takes 6 ms, to look
under the labels of the pod in question microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from podium_core.placement.affinity import AffinityTerm

# A namespace (None: any), a label's key and its value (None: any); without a key: whatever labels a pod has.
_Place = tuple[str | None, str | None, str | None]


class FiledTerms:
    """Each is there as often as it was added."""

    def __init__(self) -> None:
        self._counts: Counter[AffinityTerm] = Counter()
        self._places: dict[AffinityTerm, tuple[_Place, ...]] = {}
        self._filed: dict[_Place, dict[AffinityTerm, None]] = {}

    def add(self, term: AffinityTerm) -> None:
        self._counts[term] += 1
        if self._counts[term] == 1:
            self._places[term] = self._best(term)
            for place in self._places[term]:
                self._filed.setdefault(place, {})[term] = None

    def remove(self, term: AffinityTerm) -> None:
        self._counts[term] -= 1
        if self._counts[term] > 0:
            return
        del self._counts[term]
        for place in self._places.pop(term):
            del self._filed[place][term]
            if not self._filed[place]:
                del self._filed[place]

    def any_may_mean(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """O(labels + terms that are filed under one of them)."""
        return any(
            term.may_match(namespace, labels)
            for place in _places_of(namespace, labels)
            for term in self._filed.get(place, ())
        )

    def _best(self, term: AffinityTerm) -> tuple[_Place, ...]:
        """Under one of the labels that a pod must have to be meant: the one under which the fewest are."""
        must = [one for one in term.labels if one.operator in ("In", "Exists")]
        keys: list[list[tuple[str | None, str | None]]] = [
            [(one.key, value) for value in one.values] if one.operator == "In" else [(one.key, None)] for one in must
        ]
        spaces: tuple[str | None, ...] = (None,) if term.namespaces is None else tuple(term.namespaces)
        choices = [tuple((space, *key) for space in spaces for key in some) for some in keys or [[(None, None)]]]
        return min(choices, key=lambda places: sum(len(self._filed.get(place, ())) for place in places))


def _places_of(namespace: str, labels: Mapping[str, str]) -> Iterator[_Place]:
    for space in (namespace, None):
        yield space, None, None
        for key, value in labels.items():
            yield space, key, value
            yield space, key, None
