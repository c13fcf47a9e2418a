"""A tenant, an agent of another node and a stranger try to forge objects; the chart's policies and roles refuse it.

The tenant has more rights than a namespace's administrator: every verb on Podium's namespaced kinds and on pods. So a
refusal is the policy's. An administrator makes each attack too, which shows that it is well-formed. The stranger is the
token of a pod on a node, with an account that has no role.

Each refusal and each accepted write is proven by the API server's audit log, beside the client's answer: the user, the
node of its token, verb, resource, name, code, and whether RBAC or a policy refused it. With PODIUM_TEST_KUBECONFIG the
log is out of reach, so only the answers count.

Other attacks do not reach the API server, and have tests of their own:

- strangers at the agent's gate socket, floods of connections, slow clients and recycled pids:
  tests/unit/agent/schedule/test_gate.py, test_trial_socket.py
- connections to the health pages and to the extender: tests/unit/cluster/test_health.py,
  tests/unit/extender/test_bounded_protocol.py
- a stranger's pod with a trial's labels, if the policies are off: tests/unit/operator/observe/test_pod_state.py
- an agent's token that writes to the objects of another node: test_agent_admission.py
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attacks
import pytest
import yaml
from attack_evidence import MARK, Attempt, Evidence, Expected, check_accepted, check_refused
from attacks import CONTAINER, GPUNODE, JOB, Attack, Site, pod, trial

from podium_cluster.client import Api, ApiError, connect
from podium_cluster.resources import JOBS, PODS, TRIALS
from podium_cluster.settings import ClusterSettings
from podium_devcluster.audit_log import AuditLog

pytestmark = pytest.mark.integration
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


@pytest.fixture(scope="module")
def cluster(
    kubeconfig: Path,
    audit_log: AuditLog | None,
    binary: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    mark = uuid.uuid4().hex[:6]
    system, victim, release = f"hostile-{mark}", f"victim-{mark}", f"podium-{mark}"

    def kubectl(*words: str, given: str = "") -> str:
        command = [str(binary("kubectl")), f"--kubeconfig={kubeconfig}", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
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
        yield Cluster(
            kubectl, admin, tmp_path_factory.mktemp("tokens"), release, Site(system, victim, nodes[0]), evidence
        )
    finally:
        gone = ("delete", "--ignore-not-found", "--wait=false")
        kubectl(*gone, "-f", "-", given=rights)
        for kind in ("node", "gpunode"):
            kubectl(*gone, kind, *nodes)
        kubectl(*gone, "clusterrole", role)
        kubectl(*gone, "namespace", system, victim)


def name_of(attack: Any) -> str:
    return getattr(attack, "__name__", "")


TRIAL_STATUS = "patch hyperparamtrials/status sweep-0"
BY_TENANT: list[tuple[Attack, str, str]] = [
    (attacks.create_pod, "create pods forged-*", "LabelOfOperator"),
    (attacks.create_reservation, "create pods forged-*", "LabelOfOperator"),
    (attacks.label_pod, "patch pods plain-*", "LabelOfOperator"),
    (attacks.relabel_trial_pod, "patch pods sweep-0-0", "LabelOfOperator"),
    (attacks.unlabel_trial_pod, "patch pods sweep-0-0", "LabelOfOperator"),
    (attacks.ask_for_migration, "patch pods sweep-0-0", "LabelOfOperator"),
    (attacks.change_methods, "patch pods sweep-0-0", "LabelOfOperator"),
    (attacks.create_trial, "create hyperparamtrials sweep-*", "TrialOfOperator"),
    (attacks.relabel_trial, "patch hyperparamtrials sweep-0", "LabelOfOperator"),
    (attacks.rank_trial, TRIAL_STATUS, "StatusOfOperator"),
    (attacks.end_trial, TRIAL_STATUS, "StatusOfOperator"),
    (attacks.forge_image, TRIAL_STATUS, "StatusOfOperator"),
    (attacks.accept_job, "patch hyperparamjobs/status sweep", "StatusOfOperator"),
]


@pytest.mark.parametrize(("attack", "what", "policy"), BY_TENANT, ids=name_of)
def test_a_tenant_cannot_forge(cluster: Cluster, attack: Attack, what: str, policy: str) -> None:
    cluster.is_refused("tenant", attack, what, policy)
    cluster.is_accepted("admin", attack, what)


OF_OPERATOR = ("create_pod", "create_trial", "ask_for_migration", "rank_trial", "accept_job")


@pytest.mark.parametrize(
    ("write", "what"), [row[:2] for row in BY_TENANT if name_of(row[0]) in OF_OPERATOR], ids=name_of
)
def test_the_operator_can_write_what_it_owns(cluster: Cluster, write: Attack, what: str) -> None:
    cluster.is_accepted("operator", write, what)


def test_a_tenant_can_do_what_users_do(cluster: Cluster) -> None:
    async def use(api: Api, at: Site) -> None:
        name = f"plain-{attacks.fresh()}"
        await api.create(PODS, pod(at.victim, name, None), manager="test")
        change: dict[str, Any] = {"metadata": {"labels": {"team": attacks.fresh()}}}
        await api.patch(PODS, name, at.victim, change, manager="test")
        await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")
        await api.patch(TRIALS, "sweep-0", at.victim, change, manager="test")
        await api.patch(TRIALS, "sweep-0", at.victim, {"spec": {"suspend": True}}, manager="test")
        await api.create(JOBS, JOB | {"metadata": {"name": name, "namespace": at.victim}}, manager="test")

    # the tenant's role is in force
    cluster.is_refused("tenant", attacks.create_pod, "create pods forged-*", "LabelOfOperator")
    cluster.is_accepted("tenant", use, "create hyperparamjobs plain-*")


@pytest.mark.parametrize("attack", [attacks.report, attacks.forge_image], ids=name_of)
def test_an_agent_reports_only_trials_that_were_on_its_node(cluster: Cluster, attack: Attack) -> None:
    cluster.is_refused("node-b", attack, TRIAL_STATUS, "NodeMismatch")
    cluster.is_accepted("node-a", attack, TRIAL_STATUS)


@pytest.mark.parametrize("attack", [attacks.rank_trial, attacks.end_trial, attacks.forge_node], ids=name_of)
def test_an_agent_writes_only_its_own_fields(cluster: Cluster, attack: Attack) -> None:
    cluster.is_refused("node-a", attack, TRIAL_STATUS, "FieldOfOperator")
    cluster.is_accepted("operator", attack, TRIAL_STATUS)


def test_an_agent_writes_no_run_queue(cluster: Cluster) -> None:
    cluster.is_refused("node-a", attacks.queue_trial, "patch gpunodes *-node-a", "FieldOfOperator")
    cluster.is_accepted("operator", attacks.queue_trial, "patch gpunodes *-node-a")


WITHOUT_A_RIGHT: list[tuple[Attack, str]] = [
    (attacks.create_pod, "create pods"),
    (attacks.create_trial, "create hyperparamtrials"),
    (attacks.accept_job, "patch hyperparamjobs/status sweep"),
]
BY_STRANGER: list[tuple[Attack, str]] = [
    *WITHOUT_A_RIGHT,
    (attacks.report, TRIAL_STATUS),
    (attacks.forge_condition, "patch pods/status sweep-0-0"),
    (attacks.queue_trial, "patch gpunodes *-node-a"),
    (attacks.forge_heartbeat, "patch leases podium-agent-*-node-a"),
    (attacks.read_trial, "get hyperparamtrials sweep-0"),
    (attacks.list_gpus, "list gpunodes"),
]


@pytest.mark.parametrize(("attack", "what"), WITHOUT_A_RIGHT, ids=name_of)
def test_an_agent_has_no_right_to_the_rest(cluster: Cluster, attack: Attack, what: str) -> None:
    cluster.is_refused("node-a", attack, what, None)
    cluster.is_accepted("operator", attack, what)


@pytest.mark.parametrize(("attack", "what"), BY_STRANGER, ids=name_of)
def test_a_strangers_pod_has_no_right_at_all(cluster: Cluster, attack: Attack, what: str) -> None:
    """Its token names the trial's node, as an agent's does; that alone gives no right."""
    cluster.is_refused("stranger", attack, what, None)
    cluster.is_accepted("admin", attack, what)
