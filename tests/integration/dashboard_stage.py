"""The dashboard of the chart in a process of its own, with callers in two namespaces of a real API server."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

CHART = Path(__file__).parents[2] / "charts" / "podium"
RBAC = "rbac.authorization.k8s.io"
DEADLINE = 90.0
CONTAINER = {"name": "main", "image": "none"}
SPEC = {
    "objective": {"metric": "acc", "direction": "maximize"},
    "parameters": [{"name": "lr", "min": 0.001, "max": 0.1}],
    "trials": {"max": 3, "parallel": 2, "maxSteps": 10},
    "template": {"spec": {"containers": [CONTAINER]}},
}
Manifest = dict[str, Any]


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of the condition."""
    end = time.monotonic() + DEADLINE
    while not (found := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.1)
    return found


def search(namespace: str, name: str, gpu: str, node: str) -> list[Manifest]:
    """Return a job with a running trial on a GPU."""
    about = {"namespace": namespace}
    job = {"kind": "HyperParamJob", "metadata": {"name": name, **about}, "spec": SPEC}
    trial = {
        "kind": "HyperParamTrial",
        "metadata": {"name": f"{name}-0", "labels": {"podium.dev/job": name}, **about},
        "spec": {"job": name, "number": 0, "parameters": {"lr": 0.01}},
        "status": {"phase": "Running", "pod": f"{name}-0-0", "gpus": [gpu], "node": node, "nodes": [node]},
    }
    return [{"apiVersion": "podium.dev/v1alpha1"} | one for one in (job, trial)]


def gpu_node(name: str, gpu: str, holder: tuple[str, str, str], waiting: tuple[str, str, str]) -> Manifest:
    """Return a node with a GPU; holder and waiting trial are given as namespace, name and uid."""

    def ref(of: tuple[str, str, str]) -> Manifest:
        return dict(zip(("namespace", "trial", "uid"), of, strict=True))

    now = {"since": "2026-01-01T00:00:00Z"}
    slots = [
        ref(of) | now | {"pod": f"{of[1]}-0", "podUID": f"pod-{of[2]}", "state": state}
        for of, state in ((holder, "Running"), (waiting, "Suspended"))
    ]
    queue = [ref(of) | {"reason": "Ranked", "message": f"{of[1]} is ranked"} for of in (holder, waiting)]
    other = {"namespace": holder[0], "pod": "notebook", "podUID": "other"}
    status = {"uuid": gpu, "index": 0, "slots": 4, "health": "Healthy", "holder": ref(holder) | now, "trials": slots}
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {"epoch": 1, "gpus": [{"uuid": gpu, "runQueue": queue}]},
        "status": {"gpus": [status | {"otherPods": [other]}]},
    }


def binding(kind: str, name: str, role: str, account: tuple[str, str]) -> Manifest:
    """Return the binding of a ClusterRole to a service account, given as namespace and name."""
    subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name} | ({"namespace": account[0]} if kind == "RoleBinding" else {}),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


@dataclass(frozen=True)
class Site:
    """The namespaces and names of one test, and how it administers the cluster."""

    kubectl: Callable[..., str]
    mark: str
    system: str = field(init=False)
    mine: str = field(init=False)  # of the callers
    other: str = field(init=False)  # whose names the callers must not see

    def __post_init__(self) -> None:
        for name in ("system", "mine", "other"):
            object.__setattr__(self, name, f"{name}-{self.mark}")

    def token(self, account: str, namespace: str | None = None) -> str:
        """Return a new token of a service account."""
        return self.kubectl("create", "token", account, f"--namespace={namespace or self.mine}").strip()

    def create(self, *objects: Manifest) -> None:
        """Create objects, with their status."""
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("create", "-f", "-", given=given)
        for one in objects:
            if "status" in one:
                about = one["metadata"]
                where = [f"--namespace={about['namespace']}"] if "namespace" in about else []
                words = ("patch", one["kind"], about["name"], *where, "--subresource=status", "--type=merge", "-p")
                self.kubectl(*words, json.dumps({"status": one["status"]}))

    def spec_of(self, kind: str, name: str, namespace: str) -> Manifest:
        """Return the spec of an object."""
        found: Manifest = json.loads(self.kubectl("get", kind, name, f"--namespace={namespace}", "-o", "json"))["spec"]
        return found

    def uid_of(self, kind: str, name: str, namespace: str) -> str:
        """Return the uid of an object."""
        return self.kubectl("get", kind, name, f"--namespace={namespace}", "-o", "jsonpath={.metadata.uid}")


@dataclass(frozen=True)
class Dashboard:
    """The running dashboard."""

    base: str
    log: Path
    health: str

    def get(self, path: str, token: str | None = None, **headers: str) -> httpx.Response:
        """Get a page with a token in the header Authorization."""
        given = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.get(self.base + path, headers=given | headers, timeout=DEADLINE)

    def post(self, path: str, fields: Mapping[str, str], token: str | None = None, **headers: str) -> httpx.Response:
        """Send a form as a page of the dashboard does."""
        given = {"Origin": self.base} | ({"Authorization": f"Bearer {token}"} if token is not None else {})
        return httpx.post(self.base + path, data=dict(fields), headers=given | headers, timeout=DEADLINE)

    def act(self, path: str, token: str) -> httpx.Response:
        """Open the page of an action and confirm it."""
        return self.post(path, form_of(self.get(path, token).text), token)


def form_of(html: str) -> dict[str, str]:
    """Return the hidden fields of the form of a page."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html))


class Stream:
    """Everything that one live page sends."""

    def __init__(self, shown: Dashboard, path: str, token: str) -> None:
        self.text = ""
        self.ended = threading.Event()
        self._url, self._token = f"{shown.base}/live{path}", token
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            with httpx.stream("GET", self._url, headers=headers, timeout=DEADLINE) as response:
                for chunk in response.iter_text():
                    self.text += chunk
        except httpx.HTTPError:
            pass
        finally:
            self.ended.set()


@contextmanager
def running(site: Site, admin: Manifest, folder: Path, account: str) -> Iterator[Dashboard]:
    """Run the dashboard with the account of the chart."""
    user = {"name": admin["users"][0]["name"], "user": {"token": site.token(account, site.system)}}
    kubeconfig, log = folder / "kubeconfig", folder / "log"
    kubeconfig.write_text(yaml.safe_dump(admin | {"users": [user]}))
    settings = {
        "PODIUM_KUBECONFIG": str(kubeconfig),
        "PODIUM_PAGES_HOST": "127.0.0.1",
        "PODIUM_PAGES_PORT": "0",
        "PODIUM_HTTP_HOST": "127.0.0.1",
        "PODIUM_HTTP_PORT": "0",
        "PODIUM_LOG_FORMAT": "console",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "podium_dashboard.main"], env=os.environ | settings, stdout=out, stderr=out
        )

    def ports() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        return re.search(r"pages on port (\d+), health on port (\d+)", log.read_text())

    try:
        found = wait_until(ports, "the dashboard listens")
        shown = Dashboard(f"http://127.0.0.1:{found[1]}", log, f"http://127.0.0.1:{found[2]}")
        wait_until(lambda: httpx.get(f"{shown.health}/readyz").status_code == 200, "the dashboard is ready")
        yield shown
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=DEADLINE)
    assert code == 0, log.read_text()


def signed_again(token: str, key: Path, **claims: int) -> str:
    """Return the token with these claims changed, signed by the API server's own key (ES256)."""
    head, body, _ = token.split(".")
    changed = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))) | claims
    signed = f"{head}.{_base64(json.dumps(changed).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    done = subprocess.run(command, input=signed.encode(), capture_output=True, timeout=60, check=True)
    return f"{signed}.{_base64(_two_numbers(done.stdout))}"


def _two_numbers(der: bytes) -> bytes:
    """Return the two numbers of a signature in DER, 32 bytes each, as tokens have them."""
    numbers, rest = b"", der[2:]
    while rest:
        length = rest[1]
        numbers += int.from_bytes(rest[2 : 2 + length], "big").to_bytes(32, "big")
        rest = rest[2 + length :]
    return numbers


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
