"""The dashboard in a cluster: a token of one namespace sees and changes this namespace only, and no token sees nothing.

The dashboard runs with the account and the rights of the chart, on a real API server. The callers are service accounts
with the chart's roles for users.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from dashboard_stage import (
    CHART,
    CONTAINER,
    DEADLINE,
    Dashboard,
    Site,
    Stream,
    binding,
    form_of,
    gpu_node,
    running,
    search,
    signed_again,
    wait_until,
)

from podium_devcluster.cluster import Cluster

sys.path.append(str(Path(__file__).parents[1] / "browser"))

from chromium import Tab, chromium, needed_browser

pytestmark = pytest.mark.integration
EVERYWHERE = "watcher"  # an account that may read all namespaces and the GPUs
ACCOUNTS = {"editor": "edit", "reader": "view", "observer": "view", "temporary": "view", "powerless": ""}


@pytest.fixture(scope="module")
def site(kubeconfig: Path, binary: Callable[[str], Path]) -> Iterator[Site]:
    """Two namespaces with a search each, whose trials share a GPU; the other's trial holds it."""

    def kubectl(*words: str, given: str = "") -> str:
        command = [str(binary("kubectl")), f"--kubeconfig={kubeconfig}", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = Site(kubectl, uuid.uuid4().hex[:6])
    release = f"podium-{made.mark}"
    command = [str(binary("helm")), "template", release, str(CHART), f"--namespace={made.system}"]
    options = ["--kube-version=1.36.3", "--set=dashboard.enabled=true,userRoles.aggregate=false"]
    shown = ["--show-only=templates/dashboard/rbac.yaml", "--show-only=templates/users.yaml"]
    rights = subprocess.run([*command, *options, *shown], capture_output=True, text=True, timeout=60, check=True).stdout
    node, gpu = f"node-{made.mark}", f"GPU-{made.mark}"
    namespaces = (made.system, made.mine, made.other)
    try:
        made.create(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces))
        kubectl("apply", "-f", "-", given=rights)
        accounts = [(made.mine, name, role) for name, role in ACCOUNTS.items()]
        accounts += [(made.other, "editor", "edit"), (made.system, EVERYWHERE, "")]
        for namespace, name, role in accounts:
            about = {"name": name, "namespace": namespace}
            made.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
            if role:
                made.create(binding("RoleBinding", name, f"{release}-{role}", (namespace, name)))
        for role, account in (("view", (made.system, EVERYWHERE)), ("view-gpus", (made.system, EVERYWHERE))):
            made.create(binding("ClusterRoleBinding", f"{release}-{role}", f"{release}-{role}", account))
        gpus = binding("ClusterRoleBinding", f"{release}-observer", f"{release}-view-gpus", (made.mine, "observer"))
        made.create(gpus, *search(made.mine, "alpha", gpu, node), *search(made.other, "beta", gpu, node))
        trials = [
            (space, f"{name}-0", made.uid_of("hpt", f"{name}-0", space))
            for space, name in ((made.other, "beta"), (made.mine, "alpha"))
        ]
        made.create(gpu_node(node, gpu, trials[0], trials[1]))
        for space, name in ((made.mine, "alpha"), (made.other, "beta")):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-0-0", "namespace": space}}
            made.create(pod | {"spec": {"containers": [CONTAINER], "automountServiceAccountToken": False}})
        yield made
    finally:
        for kind, names in (
            ("gpunode", [node]),
            ("clusterrolebinding", [f"{release}-{one}" for one in ("dashboard", "view", "view-gpus", "observer")]),
            ("clusterrole", [f"{release}-{one}" for one in ("dashboard", "edit", "view", "view-gpus")]),
            ("namespace", list(namespaces)),
        ):
            kubectl("delete", kind, *names, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def shown(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    admin = json.loads(site.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    with running(site, admin, tmp_path_factory.mktemp("dashboard"), f"podium-{site.mark}-dashboard") as dashboard:
        yield dashboard


@pytest.fixture(scope="module")
def editor(site: Site, shown: Dashboard) -> str:
    """A token that may edit in `mine`, once the API server knows its rights."""
    token = site.token("editor")
    wait_until(lambda: "alpha" in shown.get("/", token).text, "the editor sees its search")
    return token


def paths_of_the_other(site: Site) -> list[str]:
    pages = [f"/searches/{site.other}/beta", f"/trials/{site.other}/beta-0"]
    actions = [f"/actions/suspend/{site.other}/beta", f"/actions/stop/{site.other}/beta-0"]
    return [*pages, *(f"/live{one}" for one in pages), *actions]


def test_without_a_token_there_is_only_the_sign_in_page(site: Site, shown: Dashboard) -> None:
    mine = [f"/searches/{site.mine}/alpha", f"/trials/{site.mine}/alpha-0", f"/live/searches/{site.mine}/alpha"]
    for path in ("/", "/gpus", "/live/", *mine, *paths_of_the_other(site)):
        answer = shown.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        assert 'name="token"' in answer.text
        assert "alpha" not in answer.text.replace(f"{path}", "")
        assert site.mark not in answer.text.replace(path, "")


def test_an_invalid_token_sees_nothing(site: Site, shown: Dashboard, plane: Cluster | None, editor: str) -> None:
    head, body, signature = editor.split(".")
    forged = [f"{head}.{body}.{signature[::-1]}", "x", "ä", "a b", "x" * 9000, f"{editor}x"]
    if plane is not None:
        key, now = plane.paths.pki / "sa.key", int(time.time())
        assert shown.get("/", signed_again(editor, key)).status_code == 200
        forged.append(signed_again(editor, key, iat=now - 7200, nbf=now - 7200, exp=now - 3600))
    for token in forged:
        answer = httpx.get(
            f"{shown.base}/", headers=[(b"Authorization", f"Bearer {token}".encode("latin-1"))], timeout=60
        )
        assert answer.status_code == 401, token[:40]
        assert site.mark not in answer.text
        assert "token" in answer.text


def test_a_namespace_sees_its_own_searches_and_trials_only(site: Site, shown: Dashboard, editor: str) -> None:
    assert "beta" not in shown.get("/", editor).text
    for path in (f"/searches/{site.mine}/alpha", f"/trials/{site.mine}/alpha-0"):
        answer = shown.get(path, editor)
        assert answer.status_code == 200
        assert "alpha-0" in answer.text
        assert "beta" not in answer.text
        assert site.other not in answer.text
    for path in paths_of_the_other(site):
        answer = shown.get(path, editor)
        assert answer.status_code == 404, path
        assert "beta" not in answer.text.replace(path, "")
    other = site.token("editor", site.other)
    wait_until(lambda: "beta" in shown.get("/", other).text, "the other editor sees its search")
    assert "alpha" not in shown.get("/", other).text


def test_an_account_without_a_role_sees_no_search(site: Site, shown: Dashboard, editor: str) -> None:
    answer = shown.get("/", site.token("powerless"))
    assert answer.status_code == 200
    assert "There is no search yet." in answer.text
    assert site.mine not in answer.text.replace(f"system:serviceaccount:{site.mine}:powerless", "")


def test_gpus_are_shown_with_the_right_and_without_names_of_others(site: Site, shown: Dashboard, editor: str) -> None:
    node = f"node-{site.mark}"
    assert node not in shown.get("/gpus", editor).text
    token = site.token("observer")
    wait_until(lambda: node in shown.get("/gpus", token).text, "the observer sees the GPUs")
    for path in ("/gpus", f"/trials/{site.mine}/alpha-0", f"/searches/{site.mine}/alpha", "/"):
        text = shown.get(path, token).text
        assert "beta" not in text, path
        assert "notebook" not in text
        assert site.other not in text
    assert shown.get("/gpus", token).text.count("in another namespace") == 2
    assert "in another namespace, for" in shown.get(f"/trials/{site.mine}/alpha-0", token).text
    everything = site.token(EVERYWHERE, site.system)
    wait_until(lambda: "beta" in shown.get("/", everything).text, "the watcher sees both searches")
    text = shown.get("/gpus", everything).text
    assert "beta-0" in text
    assert "alpha-0" in text
    assert f"{site.other}/notebook" in text


def test_the_stream_carries_nothing_of_another_namespace(site: Site, shown: Dashboard, editor: str) -> None:
    streams = [Stream(shown, path, editor) for path in ("/", f"/searches/{site.mine}/alpha", "/gpus")]
    watcher = Stream(shown, "/", site.token(EVERYWHERE, site.system))
    wait_until(lambda: all("fragments" in one.text for one in (*streams, watcher)), "every stream has begun")
    for namespace, name in ((site.other, "beta"), (site.mine, "alpha")):
        change = {"status": {"message": f"news-of-{name}", "reason": "Paused", "phase": "Suspended"}}
        words = ("patch", "hpj", name, f"--namespace={namespace}", "--subresource=status", "--type=merge", "-p")
        site.kubectl(*words, json.dumps(change))
    wait_until(lambda: "news-of-alpha" in streams[0].text and "news-of-alpha" in streams[1].text, "own news arrive")
    wait_until(lambda: "news-of-beta" in watcher.text, "the watcher gets all news")
    for one in streams:
        assert "beta" not in one.text
        assert site.other not in one.text


def test_actions_use_the_rights_of_the_token(site: Site, shown: Dashboard, editor: str) -> None:
    suspend, stop = f"/actions/suspend/{site.mine}/alpha", f"/actions/stop/{site.mine}/alpha-0"
    page = shown.get(f"/searches/{site.mine}/alpha", editor).text
    assert f'href="{suspend}"' in page
    asked = shown.get(suspend, editor)
    assert "Its trials release their GPUs" in asked.text
    assert (
        "suspend" not in site.spec_of("hpj", "alpha", site.mine)
        or not site.spec_of("hpj", "alpha", site.mine)["suspend"]
    )
    done = shown.act(suspend, editor)
    assert (done.status_code, "alpha is being suspended." in done.text) == (200, True)
    assert site.spec_of("hpj", "alpha", site.mine)["suspend"] is True
    assert "alpha continues." in shown.act(f"/actions/resume/{site.mine}/alpha", editor).text
    assert site.spec_of("hpj", "alpha", site.mine)["suspend"] is False
    assert "is ranked before" in shown.act(f"/actions/pin/{site.mine}/alpha-0", editor).text
    assert site.spec_of("hpt", "alpha-0", site.mine)["pinned"] is True
    reader = site.token("reader")
    wait_until(lambda: "alpha" in shown.get("/", reader).text, "the reader sees the search")
    refused = shown.act(stop, reader)
    assert refused.status_code == 403
    assert "You may not do that" in refused.text
    assert "cannot patch resource" in refused.text
    assert not site.spec_of("hpt", "alpha-0", site.mine).get("stopped")
    assert "is being stopped" in shown.act(stop, editor).text
    assert site.spec_of("hpt", "alpha-0", site.mine)["stopped"] is True


def test_a_form_of_another_page_or_caller_changes_nothing(site: Site, shown: Dashboard, editor: str) -> None:
    path = f"/actions/suspend/{site.mine}/alpha"
    form = form_of(shown.get(path, editor).text)
    before = site.spec_of("hpj", "alpha", site.mine)
    attempts = {
        "another site": shown.post(path, form, editor, Origin="https://evil.example"),
        "another site, by the browser's word": shown.post(path, form, editor, **{"Sec-Fetch-Site": "cross-site"}),
        "a site of the same domain": shown.post(path, form, editor, **{"Sec-Fetch-Site": "same-site"}),
        "no origin": httpx.post(shown.base + path, data=form, headers={"Authorization": f"Bearer {editor}"}),
        "no form token": shown.post(path, {"uid": form["uid"]}, editor),
        "the form of another action": shown.post(f"/actions/resume/{site.mine}/alpha", form, editor),
        "the form of another caller": shown.post(path, form, site.token("editor")),
        "no token": shown.post(path, form),
        "a get": shown.get(f"{path}?form={form['form']}&uid={form['uid']}", editor),
    }
    codes = {name: answer.status_code for name, answer in attempts.items()}
    expected = dict.fromkeys(attempts, 403) | {"no token": 401, "a get": 200}
    assert codes == expected
    stale = shown.post(path, form | {"uid": str(uuid.uuid4())}, editor)
    assert (stale.status_code, "Another object has this name now" in stale.text) == (409, True)
    assert site.spec_of("hpj", "alpha", site.mine) == before


def test_a_caller_cannot_act_in_another_namespace(site: Site, shown: Dashboard, editor: str) -> None:
    form = form_of(shown.get(f"/actions/suspend/{site.mine}/alpha", editor).text)
    path = f"/actions/suspend/{site.other}/beta"
    uid = site.uid_of("hpj", "beta", site.other)
    assert shown.post(path, form | {"uid": uid}, editor).status_code == 404
    assert not site.spec_of("hpj", "beta", site.other).get("suspend")


def test_logs_are_read_with_the_callers_token(site: Site, shown: Dashboard, editor: str) -> None:
    """No kubelet runs here. The API server's answer shows that it let the caller pass as far as the pod's node."""
    path = f"/trials/{site.mine}/alpha-0"
    assert "cannot get resource" not in shown.get(path, editor).text
    role = {"apiGroups": ["podium.dev"], "resources": ["hyperparamjobs", "hyperparamtrials"], "verbs": ["list"]}
    about = {"name": "lists-only", "namespace": site.mine}
    subject = {"kind": "ServiceAccount", "name": "powerless", "namespace": site.mine}
    rbac = "rbac.authorization.k8s.io"
    site.create(
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": about, "rules": [role]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "lists-only"},
            "subjects": [subject],
        },
    )
    token = site.token("powerless")
    wait_until(lambda: shown.get(path, token).status_code == 200, "the caller may list trials")
    text = shown.get(path, token).text
    assert "The log cannot be read" in text
    assert f"serviceaccount:{site.mine}:powerless" in text
    assert "cannot get resource" in text


def test_a_person_signs_in_with_a_token_and_out_again(site: Site, shown: Dashboard, editor: str) -> None:
    wanted = f"/searches/{site.mine}/alpha"
    origin = {"Origin": shown.base}
    with httpx.Client(base_url=shown.base, timeout=60, headers=origin) as browser:
        first = browser.get(wanted)
        form = form_of(first.text)
        assert form["next"] == wanted
        wrong = browser.post("/sign-in", data=form | {"token": "wrong"})
        assert wrong.status_code == 401
        assert "does not accept" in wrong.text
        assert "set-cookie" not in wrong.headers
        done = browser.post("/sign-in", data=form | {"token": f" {editor}\n"})
        assert (done.status_code, done.headers["location"]) == (303, wanted)
        cookie = done.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
        assert "secure" not in cookie
        page = browser.get(wanted)
        assert page.status_code == 200
        assert f"system:serviceaccount:{site.mine}:editor" in page.text
        assert editor not in page.text
        assert "Sign out" in page.text
        assert (
            "is being suspended"
            in browser.post(
                f"/actions/suspend/{site.mine}/alpha",
                data=form_of(browser.get(f"/actions/suspend/{site.mine}/alpha").text),
            ).text
        )
        assert browser.post("/sign-out").status_code == 415  # a form without a type
        out = browser.post("/sign-out", data={"x": ""})
        assert out.status_code == 303
        assert browser.get(wanted).status_code == 401
    assert editor not in shown.log.read_text()


def test_behind_tls_the_cookie_is_secure_and_without_tls_a_host_takes_no_token(shown: Dashboard, editor: str) -> None:
    tls = {"X-Forwarded-Proto": "https", "Host": "podium.example", "Origin": "https://podium.example"}
    fields = {"token": editor, "next": "//evil.example/"}
    done = shown.post("/sign-in", fields, **tls)
    assert (done.status_code, done.headers["location"]) == (303, "/")
    name, _, rest = done.headers["set-cookie"].partition("=")
    assert name == "__Host-podium-dashboard"
    assert "secure" in rest.lower()
    cookie = {"Cookie": f"{name}={editor}"}
    assert shown.get("/", **cookie, **tls).status_code == 200
    assert shown.get("/", **cookie).status_code == 401
    plain = {"Host": "podium.example", "Origin": "http://podium.example"}
    refused = shown.post("/sign-in", fields, **plain)
    assert refused.status_code == 403
    assert "not encrypted" in refused.text
    assert "set-cookie" not in refused.headers
    assert 'name="token"' not in shown.get("/", **plain).text


def test_a_deleted_account_loses_its_pages_and_its_stream(site: Site, shown: Dashboard) -> None:
    token = site.token("temporary")
    wait_until(lambda: "alpha" in shown.get("/", token).text, "the account sees its search")
    stream = Stream(shown, "/", token)
    wait_until(lambda: "fragments" in stream.text, "the stream has begun")
    site.kubectl("delete", "serviceaccount", "temporary", f"--namespace={site.mine}")
    wait_until(lambda: shown.get("/", token).status_code == 401, "the token is refused")
    assert stream.ended.wait(60)
    assert shown.get("/live/", token).status_code == 401


def test_a_lost_right_hides_the_search(site: Site, shown: Dashboard) -> None:
    token = site.token("reader")
    wait_until(lambda: "alpha" in shown.get("/", token).text, "the reader sees the search")
    site.kubectl("delete", "rolebinding", "reader", f"--namespace={site.mine}")
    wait_until(lambda: "alpha" not in shown.get("/", token).text, "the search is hidden")
    assert shown.get(f"/searches/{site.mine}/alpha", token).status_code == 404


def test_with_a_kubeconfig_actions_use_its_rights(site: Site, editor: str, kubeconfig: Path, tmp_path: Path) -> None:
    admin = json.loads(site.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    user = {"name": admin["users"][0]["name"], "user": {"token": editor}}
    config = tmp_path / "config"
    config.write_text(json.dumps(admin | {"users": [user]}))
    command = [sys.executable, "-m", "podium_cli.main", "dashboard", "--port=0", f"--namespace={site.mine}"]
    with subprocess.Popen([*command, f"--kubeconfig={config}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base, _, token = process.stdout.readline().removeprefix("Dashboard: ").strip().partition("/?token=")
            own = Dashboard(base, tmp_path, "")
            path = f"/actions/resume/{site.mine}/alpha"
            change = ("--type=merge", "-p", '{"spec": {"suspend": true}}')
            site.kubectl("patch", "hpj", "alpha", f"--namespace={site.mine}", *change)
            assert f'href="{path}"' in own.get(f"/searches/{site.mine}/alpha", token).text
            form = form_of(own.get(path, token).text)
            assert own.post(path, form, token, Origin="https://evil.example").status_code == 403
            assert own.post(path, form | {"form": "0" * 64}, token).status_code == 403
            assert own.post(path, form).status_code == 401
            assert site.spec_of("hpj", "alpha", site.mine)["suspend"] is True
            assert "alpha continues." in own.post(path, form, token).text
            assert site.spec_of("hpj", "alpha", site.mine)["suspend"] is False
            assert own.get(f"/actions/resume/{site.other}/beta", token).status_code == 404
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
    assert process.returncode == 0


async def shows(tab: Tab, expression: str) -> None:
    """Wait until an expression is true; while a page replaces another, there is nothing to ask."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with suppress(AssertionError):
                if await tab.evaluate(expression):
                    return
            await asyncio.sleep(0.05)


def test_a_person_signs_in_and_acts_in_a_browser(site: Site, shown: Dashboard, editor: str, tmp_path: Path) -> None:
    """A real browser sends the forms with the headers that the server checks, and no script can read the cookie."""
    program = needed_browser()
    shots = Path(__file__).parents[2] / "build" / "dashboard"
    shots.mkdir(parents=True, exist_ok=True)
    change = ("--type=merge", "-p", '{"spec": {"suspend": false}}')
    site.kubectl("patch", "hpj", "alpha", f"--namespace={site.mine}", *change)

    async def browse() -> None:
        async with asyncio.timeout(300), chromium(program, tmp_path / "profile") as tab:
            await tab.look(width=1180, height=700, dark=False)
            await tab.call("Page.navigate", url=f"{shown.base}/sign-in")
            await shows(tab, "document.readyState === 'complete' && !!document.querySelector('#token')")
            (shots / "sign-in.png").write_bytes(await tab.screenshot())
            await tab.evaluate(f"document.querySelector('#token').value = {json.dumps(editor)}")
            await tab.evaluate("document.querySelector('form button').click()")
            await shows(tab, "!!document.querySelector('#light[data-state=live]')")
            assert await tab.evaluate("document.cookie") == ""
            await tab.go(f"{shown.base}/searches/{site.mine}/alpha")
            (shots / "actions.png").write_bytes(await tab.screenshot())
            await tab.evaluate("document.querySelector('nav.actions a').click()")
            await shows(tab, "document.querySelector('h1')?.textContent === 'Suspend alpha?'")
            (shots / "confirm.png").write_bytes(await tab.screenshot())
            await tab.evaluate("document.querySelector('main form button').click()")
            await shows(tab, "document.querySelector('[role=status]')?.textContent.includes('is being suspended')")
            await tab.go(f"{shown.base}/")
            await tab.evaluate("document.querySelector('header form button').click()")
            await shows(tab, "!!document.querySelector('#token')")
            assert tab.errors == []
            assert all(url.startswith(f"{shown.base}/") or url == "about:blank" for url in tab.requests)

    asyncio.run(browse())
    assert site.spec_of("hpj", "alpha", site.mine)["suspend"] is True
