"""Pods, trials and agents that do not belong together: each is adopted or left to its end, and nothing is doubled.

| pod | trial | what the agent does | held by |
| --- | --- | --- | --- |
| there | deleted, or another of its name | suspends it, never lets it in; writes no status | here, test_writer |
| there, and a newer one | there | only the newer runs; the older may end | here, test_local_scheduler |
| over as the API says, still runs | there | waits for its end; frozen where no kubelet comes; never thawed | here |
| denied by a restarted kubelet, still runs | there | the same, but thawed to write a checkpoint | here |
| gone from the API, still runs | there | the same, also by an agent that starts later | here, test_admissions |
| none | there | nothing: the operator makes one | test_operator |
| claims to be a trial's, and is not | - | is never let in | here |
| there | there, and a second agent | the second waits for the lock | test_share |
| there | there, and a restarted agent | derives its state | here, test_agent_restarts |
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from agent_builders import key, pod
from agent_node import Node, order

from podium_agent.observe.pod_records import Hint
from podium_agent.observe.pods import TrialPod, parse
from podium_core.attempts.local_scheduler import ORPHAN_SECONDS
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import SlotState

TRAIN = "ab" * 32


@pytest.mark.parametrize("owner", [TrialKey("demo", "a", "of-an-earlier-one"), TrialKey("demo", "gone", "x")])
def test_a_pod_without_its_trial_does_not_run(on_node: Callable[..., None], owner: TrialKey) -> None:
    """The garbage collector ends it; until then it is in no order, whatever now bears its trial's name."""

    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid())
        running = pod(key=owner, containers__running=frozenset({TRAIN}))
        assert node.steps(order("a"), running) == {"suspend a-0 NotInRunQueue"}
        gated = pod("b", key=owner, gate__passed=False)
        node.waits_at_its_gate(gated)
        assert node.steps(order("a"), gated) == {"wait b-0 NotInRunQueue"}

    on_node(scene)


def test_a_restarted_agent_derives_each_state(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        holder, suspended, gated = (
            pod("a", containers__running=frozenset({TRAIN})),
            pod("b", containers__running=frozenset({"cd" * 32})),
            pod("c", gate__passed=False, gate__running=True),
        )
        node.run(holder, TRAIN, os.getpid())
        node.run(suspended, "cd" * 32, os.getppid()).ask(True)
        node.restart_agent()
        node.waits_at_its_gate(gated)
        states = [trial.state for trial in node.look(holder, suspended, gated)]
        assert states == [SlotState.RUNNING, SlotState.SUSPENDED, SlotState.GATED]
        assert node.steps(order("a", "b", "c"), holder, suspended, gated) == {"wait b-0 GPUInUse", "wait c-0 GPUInUse"}

    on_node(scene)


def test_a_silent_gate_counts_as_opened_only_if_an_earlier_agent_could(
    on_node: Callable[..., None],
) -> None:
    """Of a new pod its helper is about to connect: called starting, it held its GPU beside the holder for a moment."""

    def scene(node: Node) -> None:
        assert node.look() == ()
        new = pod(gate__passed=False, gate__running=True)
        assert node.state(new) is SlotState.GATED
        node.restart_agent()
        assert node.state(new) is SlotState.STARTING
        node.restart_agent()
        node.observer.hint({new.uid: Hint(new.key, new.name, ("G",))})
        assert node.look() == (), "the API server has forgotten it for a moment"
        assert node.state(new) is SlotState.STARTING, "it was noted when it was let through"

    on_node(scene)


def test_a_pod_that_is_not_of_a_trial_is_never_admitted(on_node: Callable[..., None]) -> None:
    """Every user with permission to create pods can set the label; only trials of the operator control their pods."""
    with pytest.raises(ValueError, match="neither this HyperParamTrial nor a Job"):
        parse(
            {
                "metadata": {"name": "x", "namespace": "demo", "uid": "u", "labels": {"podium.dev/trial": "a"}},
                "spec": {},
            }
        )

    def scene(node: Node) -> None:
        node.waits_at_its_gate(pod("x"))
        assert node.steps(order("a", "x")) == set()

    on_node(scene)


GONE_FROM_THE_API: tuple[TrialPod, ...] = ()
OVER = {
    "failed": (pod(status__ended=True, gate__passed=False),),
    "deleted by force": GONE_FROM_THE_API,
}


@pytest.mark.parametrize("after", OVER.values(), ids=OVER)
@pytest.mark.parametrize("new_agent", [False, True])
def test_an_ended_pod_keeps_its_gpu_until_its_processes_are_gone(
    on_node: Callable[..., None], after: tuple[TrialPod, ...], new_agent: bool
) -> None:
    def scene(node: Node) -> None:
        freezer = node.run(pod(), TRAIN, os.getpid())
        assert node.state(pod(containers__running=frozenset({TRAIN}))) is SlotState.RUNNING
        if new_agent:
            node.restart_agent()
            node.observer.hint({pod().uid: Hint(key(), "a-0", ("G",))})
        second = pod("b", gate__passed=False)
        node.waits_at_its_gate(second)
        assert node.steps(order("b", "a"), *after, second) == {"wait b-0 GPUInUse"}
        assert node.steps(order("b", "a"), *after, second, now=1.0 + 30.0 + ORPHAN_SECONDS) == {
            "suspend a-0 Orphan",
            "wait b-0 GPUInUse",
        }
        (freezer.path / "cgroup.procs").write_text("")
        assert node.steps(order("b", "a"), *after, second) == {"admit b-0 FirstInRunQueue"}

    on_node(scene)


@pytest.mark.parametrize("after", OVER.values(), ids=OVER)
def test_an_ended_pod_is_never_thawed(on_node: Callable[..., None], after: tuple[TrialPod, ...]) -> None:
    """A new pod may already continue from its checkpoints; a frozen process blocks no GPU."""

    def scene(node: Node) -> None:
        freezer = node.run(pod(), TRAIN, os.getpid())
        freezer.ask(True)
        assert node.state(pod(containers__running=frozenset({TRAIN}))) is SlotState.SUSPENDED
        new = pod(attempt=1, gate__passed=False)
        node.waits_at_its_gate(new)
        assert node.steps(order("a"), *after, new, now=100.0) == {"admit a-1 FirstInRunQueue"}
        assert node.steps(order("a"), *after, now=200.0) == set()

    on_node(scene)


@pytest.mark.parametrize("new_agent", [False, True])
def test_a_pod_that_a_restarted_kubelet_denied_is_thawed_alone(on_node: Callable[..., None], new_agent: bool) -> None:
    """Its processes get a SIGTERM and their grace period; a frozen process could not write a checkpoint."""

    def scene(node: Node) -> None:
        freezer = node.run(pod(), TRAIN, os.getpid())
        freezer.ask(True)
        holder = pod("b", containers__running=frozenset({"cd" * 32}))
        other = node.run(holder, "cd" * 32, os.getppid())
        assert node.state(pod(containers__running=frozenset({TRAIN})), holder) is SlotState.SUSPENDED
        if new_agent:
            node.restart_agent()
        denied = pod(status__ended=True, status__denied=True, gate__passed=False)
        assert node.steps(order("b", "a"), denied, holder) == {"suspend b-0 Ending"}
        other.ask(True)
        assert node.steps(order("b", "a"), denied, holder) == {"resume a-0 Denied", "wait b-0 GPUInUse"}
        freezer.ask(False)
        assert node.steps(order("b", "a"), denied, holder) == {"wait b-0 GPUInUse"}
        (freezer.path / "cgroup.procs").write_text("")
        assert node.steps(order("b", "a"), denied, holder) == {"resume b-0 FirstInRunQueue"}

    on_node(scene)


def test_a_denied_pod_is_not_thawed_beside_its_successor(on_node: Callable[..., None]) -> None:
    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid()).ask(True)
        assert node.state(pod(containers__running=frozenset({TRAIN}))) is SlotState.SUSPENDED
        new = pod(attempt=1, gate__passed=False)
        node.waits_at_its_gate(new)
        denied = pod(status__ended=True, status__denied=True, gate__passed=False)
        assert node.steps(order("a"), denied, new) == {"admit a-1 FirstInRunQueue"}

    on_node(scene)


@pytest.mark.parametrize(
    ("phase", "reason", "denied"),
    [
        ("Failed", "UnexpectedAdmissionError", True),
        ("Failed", "OutOfpodium.dev/gpu", True),
        ("Failed", "NodeAffinity", True),
        ("Failed", "Evicted", False),
        ("Failed", "", False),
        ("Running", "UnexpectedAdmissionError", False),
    ],
)
def test_a_denied_pod_is_recognised(phase: str, reason: str, denied: bool) -> None:
    owner = {
        "kind": "HyperParamTrial",
        "name": "a",
        "uid": "u",
        "controller": True,
        "apiVersion": "podium.dev/v1alpha1",
    }
    meta = {
        "name": "a-0",
        "namespace": "d",
        "uid": "p",
        "labels": {"podium.dev/trial": "a"},
        "ownerReferences": [owner],
    }
    parsed = parse({"metadata": meta, "spec": {}, "status": {"phase": phase, "reason": reason}})
    assert (parsed.status.denied, parsed.status.ended) == (denied, phase == "Failed")


@pytest.mark.parametrize("after", OVER.values(), ids=OVER)
def test_a_pod_that_never_started_ends_at_once(on_node: Callable[..., None], after: tuple[TrialPod, ...]) -> None:
    """Deleted or rejected at its gate: no process of it was ever on the GPU, and nothing of it is remembered."""

    def scene(node: Node) -> None:
        gated = pod(gate__passed=False, gate__running=True)
        node.waits_at_its_gate(gated)
        assert node.state(gated) is SlotState.GATED
        assert node.look(*after) == ()
        assert [record.end.ended for record in node.observer.records()] == [True] * len(after)

    on_node(scene)


@pytest.mark.parametrize("command", ["pause", "podium-gate"])
def test_a_remaining_sandbox_or_gate_is_not_a_trial(on_node: Callable[..., None], command: str) -> None:
    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid(), command)
        assert node.state(pod(status__ended=True)) is None

    on_node(scene)


def test_an_api_server_that_forgets_a_pod_for_a_moment_changes_nothing(on_node: Callable[..., None]) -> None:
    """A watch that lists again between two states, or a pod that could not be read once."""

    def scene(node: Node) -> None:
        node.run(pod(), TRAIN, os.getpid())
        running = pod(containers__running=frozenset({TRAIN}))
        assert not node.look(running)[0].termination.deleting
        assert node.look()[0].termination.deleting
        trial = node.look(running)[0]
        assert (trial.termination.deleting, trial.state) == (False, SlotState.RUNNING)

    on_node(scene)
