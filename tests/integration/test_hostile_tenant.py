"""A tenant, an agent of another node and a stranger try to forge objects; the chart's policies and roles refuse it.

The tenant has more rights than a namespace's administrator: every verb on Podium's namespaced kinds and on pods. So a
refusal is the policy's. An administrator makes each attack too, which shows that it is well-formed. The stranger is the
token of a pod on a node, with an account that has no role.

The audit log proves each refusal and each accepted write (hostile_cluster.py).

Other attacks do not reach the API server, and have tests of their own:

- strangers at the agent's gate socket, floods of connections, slow clients and recycled pids:
  tests/unit/agent/schedule/test_gate.py, test_trial_socket.py
- connections to the health pages and to the extender: tests/unit/cluster/test_health.py,
  tests/unit/extender/test_bounded_protocol.py
- a stranger's pod with a trial's labels, if the policies are off: tests/unit/operator/observe/test_pod_state.py
- Jobs, JobSets and TrainJobs whose pods would be those of a trial: test_hostile_workloads.py
- an agent's token that writes to the objects of another node: test_agent_admission.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attacks
import pytest
from attacks import JOB, Attack, Site, pod
from hostile_cluster import Cluster, hostile_cluster

from podium_cluster.client import Api
from podium_cluster.resources import JOBS, PODS, TRIALS
from podium_devcluster.audit_log import AuditLog

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster(
    kubeconfig: Path,
    audit_log: AuditLog | None,
    binary: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with hostile_cluster(kubeconfig, audit_log, binary, tmp_path_factory.mktemp("tokens")) as made:
        yield made


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
