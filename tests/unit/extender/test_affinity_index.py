"""The affinity index matches like all of its terms, checked one by one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.affinity import AffinityTerm, Requirement
from podium_extender.state.affinity_index import AffinityIndex

WORDS = st.sampled_from(["a", "b", "c"])
SOME = st.frozensets(WORDS, max_size=2)
REQUIREMENTS = st.one_of(
    st.builds(Requirement, WORDS, st.sampled_from(["In", "NotIn"]), SOME),
    st.builds(Requirement, WORDS, st.sampled_from(["Exists", "DoesNotExist", "Later"])),
)
TERMS = st.builds(AffinityTerm, st.none() | SOME, st.lists(REQUIREMENTS, max_size=3).map(tuple))


@settings(deadline=None)
@given(terms=st.lists(TERMS, max_size=12), gone=st.data(), namespace=WORDS, labels=st.dictionaries(WORDS, WORDS))
def test_the_index_matches_like_all_terms_one_by_one(
    terms: list[AffinityTerm], gone: Any, namespace: str, labels: dict[str, str]
) -> None:
    filed, left = AffinityIndex(), Counter(terms)
    for term in terms:
        filed.add(term)
    for term in gone.draw(st.lists(st.sampled_from(terms), unique_by=id)) if terms else ():
        if left[term] > 0:
            filed.remove(term)
            left[term] -= 1
    expected = any(term.may_match(namespace, labels) for term in +left)
    assert filed.any_may_match(namespace, labels) is expected


@pytest.mark.parametrize("shared", [False, True], ids=["one label", "and one that all share with the pod"])
def test_few_of_ten_thousand_terms_are_checked(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Each StatefulSet has a term in the pod's namespace; checking all takes 6 ms for each pod."""
    all_share = (Requirement("team", "In", frozenset({"x"})),) if shared else ()
    filed = AffinityIndex()
    for i in range(10_000):
        filed.add(AffinityTerm(frozenset({"ns"}), (*all_share, Requirement("app", "In", frozenset({f"db-{i}"})))))
    looked: list[AffinityTerm] = []
    whole = AffinityTerm.may_match

    def counted(term: AffinityTerm, *asked: Any) -> bool:
        looked.append(term)
        return whole(term, *asked)

    monkeypatch.setattr(AffinityTerm, "may_match", counted)
    assert not filed.any_may_match("ns", {"team": "x", "podium.dev/trial": "t"})
    assert filed.any_may_match("ns", {"team": "x", "app": "db-7"})
    assert len(looked) < 10
