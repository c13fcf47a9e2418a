"""A release of Podium with real accounts, and what these accounts may write: for tests of its policies and roles.

Each refusal and each accepted write is proven by the API server's audit log, beside the client's answer: the user, the
node of its token, verb, resource, name, code, and whether RBAC or a policy refused it. With PODIUM_TEST_KUBECONFIG the
log is out of reach, so only the answers count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from attack_evidence import MARK, Attempt, Evidence, Expected, check_accepted, check_refused
from attacks import CONTAINER, GPUNODE, JOB, Attack, Site, pod, trial

from podium_cluster.client import ApiError, connect
from podium_cluster.settings import ClusterSettings
from podium_devcluster.audit_log import AuditLog

CHART = Path(__file__).parents[2] / "charts" / "podium"
PARTS = ("operator/rbac", "operator/admission", "agent/rbac", "agent/admission")
TENANT_RULES = [
    {"apiGroups": ["podium.dev"], "resources": ["hyperparamjobs", "hyperparamtrials"], "verbs": ["create", "patch"]},
    {
        "apiGroups": ["podium.dev"],
        "resources": ["hyperparamjobs/status", "hyperparamtrials/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch"]},
]
ON_NODES = ("node-a", "node-b", "stranger")  # actors with the token of a pod; the stranger's is on the trial's node


@dataclass(frozen=True)
class Cluster:
    """A release in `system` with agents on two nodes, and a trial of the namespace `victim` on the first node."""

    ask: Callable[..., subprocess.CompletedProcess[str]]
    kubectl: Callable[..., str]
    admin: dict[str, Any]
    folder: Path
    release: str
    site: Site
    evidence: Evidence | None

    def account(self, actor: str) -> tuple[str, str]:
        """Return the namespace and the name of an actor's service account."""
        if actor in ("tenant", "stranger"):
            return self.site.victim, actor
        return self.site.system, f"{self.release}-{'operator' if actor == 'operator' else 'agent'}"

    def node(self, actor: str) -> str:
        """Return the node of an actor's token."""
        if actor not in ON_NODES:
            return ""
        return self.site.node if actor == "stranger" else f"{self.site.node.removesuffix('node-a')}{actor}"

    def token(self, actor: str) -> Path:
        """Return a kubeconfig of `admin`, `operator`, `tenant`, `stranger`, or the agent on `node-a` or `node-b`."""
        config = self.admin
        if actor != "admin":
            namespace, account = self.account(actor)
            words = ["--namespace", namespace, account]
            if actor in ON_NODES:
                words += ["--bound-object-kind=Pod", f"--bound-object-name=pod-{actor}"]
            token = self.kubectl("create", "token", *words).strip()
            config = {**self.admin, "users": [{"name": self.admin["users"][0]["name"], "user": {"token": token}}]}
        path = self.folder / f"of-{actor}"
        path.write_text(yaml.safe_dump(config))
        return path

    def attempt(self, actor: str, attack: Attack) -> Attempt:
        """Let the actor make the attack once."""
        token, mark = self.token(actor), f"{MARK}{uuid.uuid4().hex}"

        async def ask() -> str:
            async with connect(ClusterSettings(kubeconfig=token)) as api:
                api._client.user_agent = mark
                try:
                    await attack(api, self.site)
                except ApiError as error:
                    return str(error)
            return ""

        return Attempt(actor, mark, asyncio.run(ask()))

    def expected(self, actor: str, what: str) -> Expected:
        """Return the request of an actor for `what`: a verb, a resource and a pattern of the name."""
        verb, resource, name = f"{what} *".split()[:3]
        user = "admin" if actor == "admin" else ":".join(("system:serviceaccount", *self.account(actor)))
        return Expected(user, self.node(actor), verb, resource, name)

    def is_refused(self, actor: str, attack: Attack, what: str, policy: str | None) -> None:
        """Check that the attack is refused, by this policy or by RBAC.

        The API server applies new policies and roles a moment after their creation.
        """
        reason = policy or "cannot"
        end = time.monotonic() + 60
        while reason not in (attempt := self.attempt(actor, attack)).error:
            assert time.monotonic() < end, attempt.error or "accepted"
            time.sleep(0.2)
        if self.evidence:
            expected = self.expected(actor, what)
            check_refused(self.evidence.of(attempt, expected), expected, policy)

    def is_accepted(self, actor: str, attack: Attack, what: str) -> None:
        """Check that the same write is accepted."""
        attempt = self.attempt(actor, attack)
        assert attempt.error == ""
        if self.evidence:
            expected = self.expected(actor, what)
            check_accepted(self.evidence.of(attempt, expected), expected)


@contextlib.contextmanager
def hostile_cluster(
    kubeconfig: Path, audit_log: AuditLog | None, binary: Callable[[str], Path], folder: Path
) -> Iterator[Cluster]:
    """Install the chart's roles and policies, create accounts, nodes and a trial, and remove them at the end.

    `folder` gets the kubeconfigs of the accounts.
    """
    mark = uuid.uuid4().hex[:6]
    system, victim, release = f"hostile-{mark}", f"victim-{mark}", f"podium-{mark}"

    def ask(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(binary("kubectl")), f"--kubeconfig={kubeconfig}", *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)

    def kubectl(*words: str, given: str = "") -> str:
        done = ask(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(*objects: dict[str, Any]) -> None:
        kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def create_pod(namespace: str, name: str, node: str, account: str) -> None:
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [CONTAINER]}
        about = {"name": name, "namespace": namespace}
        create({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})

    shown = [f"--show-only=templates/{part}.yaml" for part in PARTS]
    command = [str(binary("helm")), "template", release, str(CHART), "--kube-version=1.36.3", *shown]
    rights = subprocess.run(
        [*command, f"--namespace={system}"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    role = f"tenant-{mark}"
    nodes = [f"{mark}-node-{letter}" for letter in "ab"]
    try:
        create(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (system, victim)))
        kubectl("apply", "-f", "-", given=rights)
        rbac = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": victim}
        accounts = [{"metadata": {"name": name, "namespace": victim}} for name in ("tenant", "stranger")]
        create(
            *({"apiVersion": "v1", "kind": "ServiceAccount"} | account for account in accounts),
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": TENANT_RULES},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "tenant", "namespace": victim},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            },
        )
        for node in nodes:
            create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}, GPUNODE | {"metadata": {"name": node}}
            )
            create_pod(system, f"pod-{node.removeprefix(f'{mark}-')}", node, f"{release}-agent")
        create_pod(victim, "pod-stranger", nodes[0], "stranger")
        create(JOB | {"metadata": {"name": "sweep", "namespace": victim}}, trial(victim, "sweep-0"))
        status = {"status": {"phase": "Running", "rank": 3, "nodes": [nodes[0]], "node": nodes[0]}}
        words = ("patch", "hpt", "sweep-0", f"--namespace={victim}", "--subresource=status", "--type=merge")
        kubectl(*words, "-p", json.dumps(status))
        kubectl("create", "-f", "-", given=json.dumps(pod(victim, "sweep-0-0", "sweep-0")))
        admin = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        evidence = None if audit_log is None else Evidence(audit_log)
        yield Cluster(ask, kubectl, admin, folder, release, Site(system, victim, nodes[0]), evidence)
    finally:
        gone = ("delete", "--ignore-not-found", "--wait=false")
        kubectl(*gone, "-f", "-", given=rights)
        for kind in ("node", "gpunode"):
            kubectl(*gone, kind, *nodes)
        kubectl(*gone, "clusterrole", role)
        kubectl(*gone, "namespace", system, victim)
