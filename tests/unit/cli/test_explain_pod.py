"""`podium explain pod`: every node with its score or its refusal, and the terms that the score is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from podium_cli.commands.explain_pod import explanation, parse, views_of
from podium_cli.exit_codes import CliError
from podium_core.placement.node_parser import placed_pod
from podium_core.placement.policies.registry import POLICIES, placement_policy
from podium_views import formatting

NOW = 1_800_000_000.0
FRESH, OLD = "2027-01-15T07:59:50Z", "2027-01-15T07:00:00Z"
Json = Mapping[str, Any]


def node(name: str, *, updated: str = FRESH, trial: str = "", **gpu: Any) -> Json:
    shown = {
        "uuid": f"GPU-{name}",
        "index": 0,
        "health": "Healthy",
        "slots": 4,
        "memoryTotal": 2**36,
        "temperature": 50,
    }
    sitting = {"namespace": "default", "trial": trial, "uid": trial, "pod": f"{trial}-0", "podUID": f"uid-{trial}"}
    trials = [sitting | {"state": "Running", "since": FRESH}] if trial else []
    return {"metadata": {"name": name}, "status": {"updatedAt": updated, "gpus": [shown | {"trials": trials} | gpu]}}


def pod(name: str, node_name: str = "", gpus: str = "1") -> Json:
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": gpus}}}
    spec = {"schedulerName": "podium", "nodeName": node_name, "containers": [container]}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def trial(name: str, rank: int) -> Json:
    spec = {"job": "job", "number": 0, "parameters": {}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"rank": rank}}


NODES = [
    node("busy", trial="first"),
    node("idle"),
    node("broken", health="Unhealthy", healthReason="Xid79"),
    node("old", updated=OLD),
    node("beating", updated=OLD),
]
LEASES = [{"metadata": {"name": "podium-agent-beating"}, "spec": {"renewTime": FRESH}}]


def rows(
    asked: Json,
    *,
    policy: str = "load_balance",
    pods: tuple[Json, ...] = (),
    free_cpus: Mapping[str, int] | None = None,
) -> dict[str, list[str]]:
    sitting = [placed_pod(parse(one)) for one in pods]
    views = views_of(NODES, sitting, [trial("first", 1)], LEASES, NOW, free_cpus)
    console = Console(width=400)
    with console.capture() as capture:
        shown = explanation(parse(asked), views, placement_policy(policy), NOW, sitting, cpus=free_cpus is not None)
        console.print(shown)
    return {words[0]: words for line in capture.get().splitlines() if (words := line.split())}


def test_every_node_is_listed() -> None:
    found = rows(pod("new"))
    assert found["beating"][1] == "10"
    assert found["idle"][1] == "9", "as good; equal nodes go by name"
    assert found["busy"][1] == "0"
    assert found["busy"][2] == "0.38", "the wait behind the first of a job, (1/2 + 1/1) / 4 slots"
    assert found["old"][1:3] == ["5", formatting.NOTHING], "stale is the middle, and no term is shown"
    assert found["broken"][1] == "refused"
    assert "Unhealthy:" in found["broken"]
    assert "(Xid79)." in found["broken"]
    assert {"0-10", "0.50"} <= set(found["NODE"]), "the scale and the weights are in the head"


def test_a_pod_that_no_agent_has_reported_counts() -> None:
    assert rows(pod("new"), pods=(pod("other", "idle"),))["idle"][2] == "0.25"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_explained(policy: str) -> None:
    found = rows(pod("new"), policy=policy)
    assert found["policy"][1] == ("fragmentation" if policy == "auto" else f"{policy}:")
    assert {found[name][1] for name in ("idle", "busy", "beating")} <= {str(n) for n in range(11)}


def test_the_default_policy_is_shown_as_the_one_for_this_pod() -> None:
    plain, searching = pod("new"), pod("new")
    searching["metadata"]["labels"] = {"podium.dev/trial": "new"}
    assert rows(plain, policy="auto")["policy"][1:3] == ["fragmentation", "(auto):"]
    assert rows(searching, policy="auto")["policy"][1:3] == ["load_balance", "(auto):"]
    assert rows(searching, policy="auto")["idle"] == rows(searching, policy="load_balance")["idle"]


def test_unknown_free_cpus_are_reported() -> None:
    assert rows(pod("new"), policy="auto")["CPUs"][1:5] == ["of", "the", "nodes", "are"]
    known = rows(pod("new"), policy="auto", free_cpus={"idle": 4000, "busy": 0})
    assert known["policy"][1:3] == ["fill", "(auto):"]
    assert "CPUs" not in known
    assert "CPUs" not in rows(pod("new")), "load_balance reads none"


def test_a_pod_that_requests_no_gpu_of_podium() -> None:
    assert "Podium" in rows(pod("plain", gpus="0"))


def test_a_pod_that_cannot_be_read() -> None:
    with pytest.raises(CliError, match=r"InvalidPod: pod default/odd: .* podium.dev/gpu='many': not a quantity"):
        rows(pod("odd", gpus="many"))
