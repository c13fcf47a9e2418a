"""Requests of several versions of kube-scheduler for the same scenes; all versions get the same responses.

tools/record_scheduler.py records them. `make test-older-scheduler` runs the extender's own tests with the older
version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_devcluster import versions
from podium_extender.verbs.node_selection import SCORED_NODES

FOLDER = Path(__file__).parents[2] / "golden" / "extender" / "schedulers"
RECORDED: Mapping[str, list[dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
VOLATILE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:]+Z")


def _name(call: Mapping[str, Any]) -> str:
    return f"{call['scene']}-{call['form']}-{call['verb']}"


def _filter_before(call: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the request to filter before a prioritize, whose scores are those among all nodes of that request."""
    if call["verb"] != "prioritize":
        return []
    same = (one for calls in RECORDED.values() if call in calls for one in calls if one["scene"] == call["scene"])
    return [("/filter", one["request"]) for one in same if (one["verb"], one["form"]) == ("filter", call["form"])]


CALLS = [pytest.param(call, id=f"{version}-{_name(call)}") for version, calls in RECORDED.items() for call in calls]


@pytest.mark.parametrize("call", CALLS)
def test_the_recorded_response_is_given_again(ask: Callable[..., httpx.Response], call: Mapping[str, Any]) -> None:
    known = call["objects"]
    objects = {GPUNODES: known["gpunodes"], PODS: known["pods"], TRIALS: known["trials"]}
    answer = ask(objects, f"/{call['verb']}", call["request"], before=_filter_before(call))
    assert answer.status_code == 200
    assert answer.json() == call["answer"]


def test_the_newer_and_the_older_version_are_recorded() -> None:
    assert set(RECORDED) == {versions.KUBERNETES, versions.OLDER_KUBERNETES}


def _said(call: Mapping[str, Any]) -> Any:
    """Return the response with names instead of uids, which differ from run to run."""
    text = json.dumps(_names_of_nodes(call["answer"]))
    for pod in call["objects"]["pods"]:
        text = text.replace(pod["metadata"]["uid"], pod["metadata"]["name"])
    assert not VOLATILE.search(text), text
    return json.loads(text)


def _names_of_nodes(answer: Any) -> Any:
    if isinstance(answer, dict) and answer.get("Nodes"):
        return answer | {"Nodes": [node["metadata"]["name"] for node in answer["Nodes"]["items"]]}
    return answer


def _fields(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}/{key}"
            yield from _fields(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner, f"{path}[]")


def test_the_bodies_differ_only_in_managed_fields() -> None:
    newer, older = (
        {_name(call): set(_fields(call["request"])) for call in RECORDED[version]}
        for version in (versions.KUBERNETES, versions.OLDER_KUBERNETES)
    )
    for name, fields in newer.items():
        assert {field for field in fields ^ older[name] if "/managedFields" not in field} == set(), name
        assert "/Pod/metadata/managedFields" in older[name] - fields, "the docs say so"


def test_all_versions_send_the_same_requests_and_get_the_same_responses() -> None:
    newer, older = (
        {_name(call): _said(call) for call in RECORDED[version]}
        for version in (versions.KUBERNETES, versions.OLDER_KUBERNETES)
    )
    assert newer == older
    assert {name.rpartition("-")[2] for name in newer} == {"filter", "prioritize", "preempt"}
    assert newer["urgent-names-preempt"] == newer["urgent-nodes-preempt"]
    victims = newer["urgent-names-preempt"]["NodeNameToMetaVictims"]["podium-golden-idle"]
    assert victims == {"Pods": [{"UID": "second"}], "NumPDBViolations": 0}


@pytest.mark.parametrize("version", RECORDED)
def test_the_best_of_many_nodes_are_selected_and_scored(version: str) -> None:
    calls = {call["verb"]: call for call in RECORDED[version] if call["scene"] == "crowded"}
    asked, left = calls["filter"]["request"]["NodeNames"], calls["filter"]["answer"]["NodeNames"]
    assert sorted(asked) == [f"podium-golden-n{i:02d}" for i in range(SCORED_NODES + 8)]
    assert left == [name for name in asked if name >= "podium-golden-n08"], "the least busy, in the order asked"
    assert calls["filter"]["answer"]["FailedNodes"] == calls["filter"]["answer"]["FailedAndUnresolvableNodes"] == {}
    assert calls["prioritize"]["request"]["NodeNames"] == left
    scores = {row["Host"]: row["Score"] for row in calls["prioritize"]["answer"]}
    assert max(scores, key=scores.__getitem__) == "podium-golden-n39"
    assert list(scores) == left
