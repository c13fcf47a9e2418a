"""Access to the pages: the token, the Host header, the methods, and the headers of every response."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from dashboard_scene import DEADLINE, Dashboard, dashboard, write_objects

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_dashboard.server.access import host_name


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("saved")
    write_objects(folder)
    with dashboard(str(folder)) as running:
        yield running


def plain(shown: Dashboard, path: str, **headers: str) -> httpx.Response:
    return httpx.get(shown.base + path, headers=headers, timeout=DEADLINE)


PATHS = ("/", "/gpus", "/searches/default/digits", "/live/", "/assets/style.css", "/nothing")


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_shown(shown: Dashboard, path: str) -> None:
    answer = plain(shown, path)
    assert answer.status_code == 401
    assert "digits" not in answer.text
    assert "token" in answer.text
    assert shown.token not in answer.text


@pytest.mark.parametrize("token", ["x", "é", "x" * 5000, "%00"])
def test_a_wrong_token_is_refused(shown: Dashboard, token: str) -> None:
    assert plain(shown, f"/?token={token}").status_code == 403
    assert plain(shown, "/", Cookie=f"podium-dashboard-{shown.port}=wrong").status_code == 401
    assert plain(shown, "/", Authorization="Bearer wrong").status_code == 401


def test_the_address_with_the_token_gives_a_cookie_and_hides_the_token(shown: Dashboard) -> None:
    with httpx.Client(timeout=DEADLINE) as browser:
        first = browser.get(f"{shown.base}/searches/default/digits?token={shown.token}")
        assert first.status_code == 303
        assert first.headers["location"] == "/searches/default/digits"
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert browser.get(f"{shown.base}/searches/default/digits").status_code == 200
    assert plain(shown, "/", Authorization=f"Bearer {shown.token}").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "///evil.example"])
def test_the_redirect_stays_on_this_server(shown: Dashboard, path: str) -> None:
    with socket.create_connection(("127.0.0.1", shown.port), timeout=DEADLINE) as raw:
        head = f"GET {path}?token={shown.token} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        raw.sendall(head.encode())
        answer = b""
        while chunk := raw.recv(1 << 16):
            answer += chunk
    assert b" 303 " in answer
    assert b"location: /evil.example" in answer


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
def test_a_name_that_another_site_chose_is_refused(shown: Dashboard, host: str) -> None:
    """A page of another site can point its own name at 127.0.0.1; the Host header then has that name."""
    answer = shown.get("/", Host=host)
    assert answer.status_code == 421
    assert "digits" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:99", "LOCALHOST:8265"])
def test_loopback_names_are_accepted_with_any_port(shown: Dashboard, host: str) -> None:
    assert shown.get("/", Host=host).status_code == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:80", "a"), ("[::1]:80", "[::1]"), ("::1", "::1"), ("a", "a"), ("a:b", "a:b"), ("", ""), ("a:", "a:")],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_served(shown: Dashboard, method: str) -> None:
    answer = httpx.request(method, shown.base + "/", headers=shown.cookie, timeout=DEADLINE)
    assert answer.status_code == 405


@pytest.mark.parametrize("path", ["/", "/nothing", "/assets/live.js", "/searches/default/none"])
def test_every_response_has_the_security_headers(shown: Dashboard, path: str) -> None:
    for answer in (shown.get(path), plain(shown, path), shown.get(path, Host="x")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_missing_pages_show_their_name_as_text(shown: Dashboard) -> None:
    answer = shown.get("/searches/default/%3Cscript%3Ealert(1)%3C/script%3E")
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("path", ["/%00", "/%ff%fe", "/assets/../secrets", "/assets/%2e%2e%2fpage.css", "/live/x"])
def test_strange_paths_are_not_found(shown: Dashboard, path: str) -> None:
    assert shown.get(path).status_code == 404


def test_a_busy_port_is_refused_with_the_cure(
    shown: Dashboard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_objects(tmp_path)
    assert run(["dashboard", str(tmp_path), "--port", str(shown.port)]) is Exit.FAILED
    assert f"127.0.0.1:{shown.port}" in capsys.readouterr().err
    assert run(["dashboard", str(tmp_path / "missing"), "--port", "0"]) is Exit.NOT_FOUND
    assert "podium-runs" in capsys.readouterr().err
