"""Forms and sign-in: which page sent a form, where the token may come from, and where a sign-in leads."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from dashboard_scene import DEADLINE, dashboard, write_objects
from starlette.datastructures import Headers

from podium_dashboard.pages.page import Kind, PageRef
from podium_dashboard.server.actions import Action, actions_of, parse_action
from podium_dashboard.server.forms import is_same_origin
from podium_dashboard.server.sign_in import _local, bearer_token, is_encrypted


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://a", "host": "a"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"origin": "http://a:80", "host": "a:80"}, True),
        ({"origin": "https://A.example", "host": "a.example"}, True),
        ({"origin": "http://a:81", "host": "a:80"}, False),
        ({"origin": "null", "host": "a"}, False),
        ({"origin": "null", "host": ""}, False),
        ({"origin": "", "host": ""}, False),
        ({"host": "a"}, False),
        ({"origin": "http://[", "host": "["}, True),
        ({"origin": "http://[::1", "host": "[::1]"}, False),
        ({"origin": "ftp://a", "host": "a"}, False),
    ],
)
def test_only_a_page_of_this_server_sends_forms(headers: dict[str, str], same: bool) -> None:
    assert is_same_origin(Headers(headers)) is same


TLS = {"x-forwarded-proto": "https"}


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, None),
        ({"authorization": "Bearer a.b"}, "a.b"),
        ({"authorization": "bearer a"}, "a"),
        ({"authorization": "Basic a"}, None),
        ({"authorization": "Bearer "}, None),
        ({"authorization": "Basic a", "cookie": "podium-dashboard=c"}, "c"),
        ({"authorization": "Bearer a", "cookie": "podium-dashboard=c"}, "a"),
        ({"cookie": "podium-dashboard=c"} | TLS, None),
        ({"cookie": "__Host-podium-dashboard=c"} | TLS, "c"),
        ({"cookie": "__Host-podium-dashboard=c"}, None),
        ({"cookie": "podium-dashboard="}, None),
    ],
)
def test_the_token_of_a_request(headers: dict[str, str], token: str | None) -> None:
    assert bearer_token(Headers(headers)) == token


@pytest.mark.parametrize(("value", "encrypted"), [("https", True), ("HTTPS, http", True), ("http, https", False)])
def test_the_first_proxy_says_whether_the_browser_has_tls(value: str, encrypted: bool) -> None:
    assert is_encrypted(Headers({"x-forwarded-proto": value})) is encrypted


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/gpus", "/gpus"),
        ("/searches/a/b?x=1", "/searches/a/b"),
        ("/trials/a/b%2Fc", "/trials/a/b%2Fc"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("searches/a/b", "/"),
        ("", "/"),
        ("/sign-out", "/"),
        ("/actions/stop/a/b", "/"),
    ],
)
def test_a_sign_in_leads_to_a_page_of_this_server(path: str, local: str) -> None:
    assert _local(path) == local


@pytest.mark.parametrize(
    "path",
    [
        "/actions/delete/a/b",
        "/actions/stop/a",
        "/actions/stop//b",
        "/actions/stop/a/",
        "/actions/stop/a/b/c",
        "/actions/stop/a/" + "x" * 300,
        "/actions/",
    ],
)
def test_paths_that_are_no_action(path: str) -> None:
    assert parse_action(path) is None


def test_every_action_of_a_page_has_a_path_of_its_own_and_leads_back() -> None:
    for kind, names in ((Kind.SEARCH, ["suspend", "resume"]), (Kind.TRIAL, ["pin", "unpin", "stop"])):
        found = actions_of(PageRef(kind, "a", "b/c"))
        assert [one.intent.name for one in found] == names
        assert [parse_action(one.path) for one in found] == found
        assert {one.ref for one in found} == {PageRef(kind, "a", "b/c")}
    assert actions_of(PageRef(Kind.GPUS)) == []
    assert parse_action("/actions/stop/a/b%2Fc") == Action(
        actions_of(PageRef(Kind.TRIAL, "a", "b"))[2].intent, "a", "b/c"
    )


def test_a_folder_says_that_nothing_can_be_changed_there(tmp_path: Path) -> None:
    write_objects(tmp_path)
    with dashboard(str(tmp_path)) as shown:
        page = shown.get("/searches/default/digits").text
        assert "nothing can be changed here. Ctrl-C in the terminal of <code>podium run</code>" in page
        assert "/actions/" not in page
        asked = shown.get("/actions/suspend/default/digits")
        assert (asked.status_code, "Ctrl-C" in asked.text) == (409, True)
        url, origin = f"{shown.base}/actions/suspend/default/digits", {"Origin": shown.base}
        for headers, code in (({}, 401), (shown.cookie, 403), (shown.cookie | origin, 409)):
            assert httpx.post(url, data={"uid": "x"}, headers=headers, timeout=DEADLINE).status_code == code
        assert httpx.post(url, content=b"{}", headers=shown.cookie | origin, timeout=DEADLINE).status_code == 415
        large = httpx.post(url, data={"uid": "x" * 20_000}, headers=shown.cookie | origin, timeout=DEADLINE)
        assert large.status_code == 413
        with pytest.raises(httpx.HTTPError):  # the server closes the connection
            httpx.post(url, data={"uid": "x" * 200_000}, headers=shown.cookie | origin, timeout=DEADLINE)
