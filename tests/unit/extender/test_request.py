"""Parsing a request in parts and as a whole gives the same request, or the same error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from podium_extender.verbs.request import NodeRequest, RequestParser, parse_whole
from podium_extender.verbs.wire import RequestError

MARK = ',"Nodes":null,"NodeNames":["'
POD = '{"metadata":{"name":"p","uid":"u"},"spec":{"containers":[]}}'
ODD = st.sampled_from(
    ["a", "node-b", 'quo"te', "back\\slash", "ü", "", "\n", "a,b", "]}", '"]}', MARK, '","', " ", "\x1f"]
)
TEXTS = st.lists(ODD, max_size=4)
PODS = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": ODD, "labels": st.dictionaries(ODD, ODD, max_size=2)})},
    optional={"spec": st.just({"containers": []}), "NodeNames": TEXTS, "Nodes": st.none()},
)


def result_of(read: Any, body: bytes) -> Any:
    try:
        asked: NodeRequest = read(body)
    except RequestError as error:
        return error.status, str(error)
    if asked.names_json is not None:
        assert tuple(json.loads(asked.names_json)) == asked.names
    return asked.pod, asked.names, asked.nodes


@settings(deadline=None)
@given(pod=PODS, names=TEXTS, loose=st.booleans())
def test_requests_in_the_schedulers_form_are_parsed_equally(pod: Any, names: list[str], loose: bool) -> None:
    separators = None if loose else (",", ":")
    question = {"Pod": pod, "Nodes": None, "NodeNames": names}
    body = json.dumps(question, separators=separators, ensure_ascii=False).encode()
    assert result_of(RequestParser().parse, body) == result_of(parse_whole, body)


@settings(deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            ['{"Pod":', POD, MARK, "a", '"', '","', "\\", "\\u0041", "é", "\t", '"]}', "null", "{", "}", " "]
        ),
        max_size=9,
    )
)
@example(['{"Pod":', POD, MARK, "a", '","', "b", '"]}'])
@example(['{"Pod":', POD, MARK, '"]}'])
@example(['{"Pod":', POD, MARK, "]}"])
@example(['{"Pod":', POD, MARK, '"', ',"', '"]}'])
@example(['{"Pod":', POD, MARK, "a", '"]}', MARK, "b", '"]}'])
@example(['{"Pod":', "null", MARK, "a", '"]}'])
def test_other_bodies_are_parsed_equally(parts: list[str]) -> None:
    body = "".join(parts).encode()
    assert result_of(RequestParser().parse, body) == result_of(parse_whole, body)


def question(uid: str, *names: str) -> bytes:
    pod = {"metadata": {"uid": uid}, "spec": {}}
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()


def test_the_same_names_and_the_same_pod_are_the_same_objects() -> None:
    reader = RequestParser()
    first, again = reader.parse(question("u", "a", "b")), reader.parse(question("u", "a", "b"))
    assert again.pod is first.pod
    assert again.names is first.names
    other = reader.parse(question("v", "a"))
    assert (other.pod.metadata.uid, other.names, other.names_json) == ("v", ("a",), b'["a"]')


def test_the_names_of_a_response_are_recognised_in_the_next_request() -> None:
    reader = RequestParser()
    reader.parse(question("u", "a", "b", "c"))
    passed = ("a", "c")
    reader.write_names(passed)
    assert reader.parse(question("u", *passed)).names is passed
    assert reader.parse(question("u", "a", "b", "c")).names == ("a", "b", "c")


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")])
def test_names_are_written_as_the_scheduler_writes_them(names: tuple[str, ...]) -> None:
    assert RequestParser().write_names(names) == json.dumps(names, separators=(",", ":")).encode()


def test_names_that_repeat_for_every_pod_are_parsed_once() -> None:
    """The request to filter contains all nodes, the next one those that filter selected."""
    reader = RequestParser()
    every = reader.parse(question("p0", "a", "b", "c")).names
    for i in range(3):
        few = ("a", "bc"[i % 2])
        assert reader.parse(question(f"p{i}", "a", "b", "c")).names is every
        reader.write_names(few)
        assert reader.parse(question(f"p{i}", *few)).names is few
