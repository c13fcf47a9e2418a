"""Derivation of phases from facts: the cause of a pod's end, and the meaning of a silent agent."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from podium_core.domain.observe import (
    GPU_DRIVER_ERROR,
    PodFacts,
    TrialFacts,
    classify_end,
    derive_phase,
    next_phase,
    retry_delay,
)
from podium_core.domain.phase import EDGES, FINAL, TrialPhase
from podium_core.testing.builders import change_pod_facts as changed
from podium_core.testing.builders import make_pod_facts as made

P = TrialPhase
FAILED = made("Failed", node="node-a", gate="Done")
EVICTED = changed(FAILED, reason="Evicted", disruption="TerminationByKubelet", exit_code=137)
OWN_DISK = 'Container main exceeded its local ephemeral storage limit "1Gi". '  # the kubelet's words
OWN_VOLUME = 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". '

TORCH = "  File x\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"
JAX = "W1122 cuda_executor.cc: failed to allocate 8.00GiB: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nbye"

ENDS = [
    ("done", made("Succeeded", exit_code=0), "Succeeded", "Completed"),
    ("exit 1", changed(FAILED, exit_code=1, exit_reason="Error"), "TrialFailure", "ProcessFailed"),
    ("oom", changed(FAILED, exit_code=137, exit_reason="OOMKilled"), "TrialFailure", "OOMKilled"),
    ("gpu oom", changed(FAILED, exit_code=1, exit_message=TORCH), "TrialFailure", "GPUMemoryExceeded"),
    ("gpu oom of the driver", changed(FAILED, exit_code=1, exit_message=JAX), "TrialFailure", "GPUMemoryExceeded"),
    (
        "host oom",
        changed(FAILED, exit_code=1, exit_message="MemoryError: out of memory"),
        "TrialFailure",
        "ProcessFailed",
    ),
    ("warned, not failed", made("Succeeded", exit_code=0, exit_message=JAX), "Succeeded", "Completed"),
    ("init", changed(FAILED, gate="Waiting", exit_code=2, failed_init="load"), "TrialFailure", "ProcessFailed"),
    ("deadline", changed(FAILED, reason="DeadlineExceeded"), "TrialFailure", "DeadlineExceeded"),
    ("evicted", changed(FAILED, reason="Evicted", exit_code=137), "Disrupted", "PodDisrupted"),
    ("low node", changed(EVICTED, message="The node was low on resource: memory. "), "Disrupted", "PodDisrupted"),
    ("own disk", changed(EVICTED, message=OWN_DISK), "TrialFailure", "StorageExceeded"),
    ("own volume", changed(EVICTED, message=OWN_VOLUME), "TrialFailure", "StorageExceeded"),
    ("preempted", changed(FAILED, disruption="PreemptionByScheduler", exit_code=143), "Disrupted", "PodDisrupted"),
    ("taint", changed(FAILED, disruption="DeletionByTaintManager", exit_code=137), "Disrupted", "PodDisrupted"),
    ("node lost", changed(FAILED, reason="NodeLost"), "Disrupted", "PodRejected"),
    ("shutdown", changed(FAILED, reason="Terminated", exit_code=143), "Disrupted", "PodDisrupted"),
    ("raced for cpu", changed(FAILED, reason="OutOfcpu"), "Disrupted", "PodRejected"),
    ("raced for gpu", changed(FAILED, reason="OutOfpodium.dev/gpu"), "Disrupted", "PodRejected"),
    ("admission", changed(FAILED, reason="UnexpectedAdmissionError"), "Disrupted", "PodRejected"),
    ("deleted", changed(FAILED, deleting=True, exit_code=143), "Disrupted", "PodDisrupted"),
    ("terminating", changed(FAILED, deleting=True, exit_code=143, requeue="Preempted"), "Disrupted", "Preempted"),
    ("terminating, saved", made("Succeeded", deleting=True, requeue="Preempted"), "Disrupted", "Preempted"),
    ("deleted, ended well", made("Succeeded", deleting=True, exit_code=0), "Disrupted", "PodDisrupted"),
    ("evicted, ended well", made("Succeeded", disruption="EvictionByEvictionAPI"), "Disrupted", "PodDisrupted"),
    ("lost sight", changed(FAILED, exit_code=137, exit_reason="ContainerStatusUnknown"), "Disrupted", "PodDisrupted"),
    ("lost by containerd", changed(FAILED, exit_code=255, exit_reason="Unknown"), "Disrupted", "PodDisrupted"),
    ("no exit code", FAILED, "Disrupted", "PodDisrupted"),
    ("running", made("Running", gate="Done"), "NotEnded", ""),
    ("running, terminating", made("Running", gate="Done", deleting=True), "NotEnded", ""),
    ("a sidecar still runs", made("Running", gate="Done", exit_code=1), "NotEnded", ""),
    ("silent node", made("Unknown"), "NotEnded", ""),
    ("driver", changed(FAILED, disruption=GPU_DRIVER_ERROR, exit_code=137), "Disrupted", "PodDisrupted"),
    ("driver, by a launcher", changed(FAILED, disruption=GPU_DRIVER_ERROR, exit_code=1), "Disrupted", "PodDisrupted"),
    ("driver, ended well", made("Succeeded", disruption=GPU_DRIVER_ERROR, exit_code=0), "Succeeded", "Completed"),
    (
        "driver, host oom",
        changed(FAILED, disruption=GPU_DRIVER_ERROR, exit_code=137, exit_reason="OOMKilled"),
        "TrialFailure",
        "OOMKilled",
    ),
]


def test_a_denied_pod_whose_process_ended_well_is_not_complete() -> None:
    """A restarted kubelet denied it and sent SIGTERM; the trial wrote a checkpoint and exited with 0."""
    denied = changed(made("Succeeded", exit_code=0), reason="UnexpectedAdmissionError")
    end = classify_end(denied)
    assert (end.kind, end.reason) == ("Disrupted", "PodDisrupted")
    assert "UnexpectedAdmissionError" in end.message
    assert classify_end(denied, complete=True).kind == "Succeeded"


@pytest.mark.parametrize(("pod", "kind", "reason"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_classify_end(pod: PodFacts, kind: str, reason: str) -> None:
    end = classify_end(pod)
    assert (end.kind, end.reason) == (kind, reason)
    assert end.message or kind == "NotEnded"


def test_a_deleted_pod_is_complete_if_it_printed_its_last_step() -> None:
    """SIGTERM makes a script that checkpoints end with exit code 0 as well."""
    for pod in (made("Succeeded", deleting=True), made("Succeeded", disruption="EvictionByEvictionAPI")):
        assert classify_end(pod, complete=True).kind == "Succeeded"
    assert classify_end(changed(FAILED, deleting=True, exit_code=143), complete=True).kind == "Disrupted"


RUNNING = made("Running", node="node-a", gate="Done")
GATE = made("Pending", node="node-a", gate="Running")
NEW = made("Pending", node="node-a", gate="Waiting")
NO_IMAGE = changed(NEW, waiting_reason="ErrImagePull", message="no such image")
NO_SECRET = made("Pending", node="node-a", gate="Done", waiting_reason="CreateContainerConfigError")
STARTS = made("Pending", node="node-a", gate="Done")
GONE_IMAGE = changed(STARTS, waiting_reason="ErrImagePull")  # imagePullPolicy: Always, and the registry is away
REQUEUED = changed(RUNNING, deleting=True, requeue="Preempted")
FAIL1 = changed(FAILED, exit_code=1)
EXCEEDS = changed(FAIL1, exit_message=TORCH)
ALONE = changed(EXCEEDS, whole_gpus=True)
SHORT = changed(RUNNING, waits_for_memory="it waits for GPU memory: GPU x has 1 bytes free; 2 are needed")


def facts(current: TrialPhase, pod: PodFacts | None, **more: object) -> TrialFacts:
    return replace(TrialFacts(current, pod, had_pod=pod is not None), **more)  # type: ignore[arg-type]


PHASES = [
    ("new", facts(P.PENDING, None), P.PENDING, "WaitingForSlot", False),
    ("no node", facts(P.PENDING, made("Pending", unschedulable="0/2 nodes")), P.PENDING, "Unscheduled", False),
    ("creating", facts(P.PENDING, NEW), P.PENDING, "ContainerCreating", False),
    ("image", facts(P.PENDING, changed(NEW, waiting_reason="ImagePullBackOff")), P.PENDING, "ImagePullBackOff", False),
    ("at the gate", facts(P.PENDING, GATE), P.GATED, "WaitingForTimeSlice", False),
    ("agent states gated", facts(P.PENDING, NEW, agent_state="Gated"), P.PENDING, "ContainerCreating", False),
    ("no image, agent states gated", facts(P.PENDING, NO_IMAGE, agent_state="Gated"), P.PENDING, "ErrImagePull", False),
    ("no image, once gated", facts(P.GATED, NO_IMAGE, agent_state="Gated"), P.GATED, "ErrImagePull", False),
    ("no secret", facts(P.RUNNING, NO_SECRET, agent_state="Starting"), P.RUNNING, NO_SECRET.wait.container, False),
    ("no secret, silent agent", facts(P.RUNNING, NO_SECRET), P.RUNNING, NO_SECRET.wait.container, False),
    ("gate open", facts(P.GATED, GATE, agent_state="Starting"), P.RUNNING, "Started", False),
    ("no gate", facts(P.PENDING, made("Running", node="n")), P.RUNNING, "Started", False),
    ("let in, the agent is late", facts(P.PENDING, STARTS), P.RUNNING, "Started", False),
    ("let in from its gate, the agent is late", facts(P.GATED, STARTS), P.RUNNING, "Started", False),
    ("let in, no secret, silent agent", facts(P.GATED, NO_SECRET), P.RUNNING, NO_SECRET.wait.container, False),
    ("let in, no image", facts(P.GATED, GONE_IMAGE, agent_state="Starting"), P.RUNNING, "ErrImagePull", False),
    ("let in, no image, silent agent", facts(P.PENDING, GONE_IMAGE), P.RUNNING, "ErrImagePull", False),
    ("suspending", facts(P.RUNNING, RUNNING, agent_state="Suspending"), P.SUSPENDING, "TimeSliceEnded", False),
    ("suspended", facts(P.RUNNING, RUNNING, agent_state="Suspended"), P.SUSPENDED, "TimeSliceEnded", False),
    ("no memory", facts(P.RUNNING, SHORT, agent_state="Suspended"), P.SUSPENDED, "InsufficientGPUMemory", False),
    (
        "no memory at the gate",
        facts(P.GATED, changed(GATE, waits_for_memory="GPU x"), agent_state="Gated"),
        P.GATED,
        "InsufficientGPUMemory",
        False,
    ),
    ("no memory, silent agent", facts(P.SUSPENDED, SHORT), P.SUSPENDED, "AgentUnresponsive", False),
    ("resuming", facts(P.SUSPENDED, RUNNING, agent_state="Resuming"), P.RESUMING, "TimeSliceStarted", False),
    ("resumed", facts(P.SUSPENDED, RUNNING, agent_state="Running"), P.RUNNING, "Started", False),
    ("silent agent", facts(P.SUSPENDED, RUNNING), P.SUSPENDED, "AgentUnresponsive", False),
    (
        "stale word",
        facts(P.RUNNING, RUNNING, agent_state="Suspended", agent_fresh=False),
        P.RUNNING,
        "Started",
        False,
    ),
    ("done", facts(P.RUNNING, made("Succeeded", exit_code=0)), P.SUCCEEDED, "Completed", False),
    ("retried", facts(P.RUNNING, FAIL1, failures=1, retries=2), P.REQUEUED, "ProcessFailed", True),
    ("failed", facts(P.RUNNING, FAIL1, failures=2, retries=2), P.FAILED, "ProcessFailed", True),
    ("too little memory", facts(P.RUNNING, EXCEEDS, retries=2), P.REQUEUED, "GPUMemoryExceeded", True),
    ("alone as well", facts(P.RUNNING, ALONE, failures=1, retries=9), P.FAILED, "GPUMemoryExceeded", True),
    (
        "alone, another fault",
        facts(P.RUNNING, changed(FAIL1, whole_gpus=True), retries=2),
        P.REQUEUED,
        "ProcessFailed",
        True,
    ),
    ("counted once", facts(P.REQUEUED, FAIL1, failures=1, retries=2), P.REQUEUED, "WaitingForPod", False),
    ("evicted", facts(P.RUNNING, changed(FAIL1, reason="Evicted"), failures=9), P.REQUEUED, "PodDisrupted", False),
    ("gone", facts(P.RUNNING, None, had_pod=True), P.REQUEUED, "PodDeleted", False),
    ("terminating", facts(P.RUNNING, REQUEUED), P.RUNNING, "Preempted", False),
    ("terminating, gone", facts(P.RUNNING, None, had_pod=True, reason="Preempted"), P.REQUEUED, "Preempted", False),
    (
        "taken, gone",
        facts(P.RUNNING, None, had_pod=True, disruption="PreemptionByScheduler"),
        P.REQUEUED,
        "PodDisrupted",
        False,
    ),
    (
        "terminating, taken, gone",
        facts(P.RUNNING, None, had_pod=True, reason="Preempted", disruption="PreemptionByScheduler"),
        P.REQUEUED,
        "Preempted",
        False,
    ),
    ("gone for another reason", facts(P.RUNNING, None, had_pod=True, reason="Rank"), P.REQUEUED, "PodDeleted", False),
    (
        "saved, then gone",
        facts(P.RUNNING, made("Succeeded", deleting=True, exit_code=0)),
        P.REQUEUED,
        "PodDisrupted",
        False,
    ),
    (
        "done while it was deleted",
        facts(P.RUNNING, made("Succeeded", deleting=True, exit_code=0), complete=True),
        P.SUCCEEDED,
        "Completed",
        False,
    ),
    ("still gone", facts(P.REQUEUED, None, had_pod=True), P.REQUEUED, "WaitingForPod", False),
    ("next attempt", facts(P.REQUEUED, NEW), P.PENDING, "ContainerCreating", False),
    ("over", facts(P.FAILED, RUNNING), P.FAILED, "Final", False),
]


@pytest.mark.parametrize(
    ("seen", "phase", "reason", "own"), [row[1:] for row in PHASES], ids=[str(row[0]) for row in PHASES]
)
def test_derive_phase(seen: TrialFacts, phase: TrialPhase, reason: str, own: bool) -> None:
    observed = derive_phase(seen)
    assert (observed.phase, observed.reason, observed.own_failure) == (phase, reason, own)
    assert observed.message.strip()
    assert next_phase(seen.current, observed) == phase
    if own:
        assert reason in EDGES[seen.current, phase], "the table states why as well"


def test_the_container_that_failed_is_named() -> None:
    end = classify_end(changed(FAIL1, exit_code=2, failed_init="load"))
    assert end.message == "The init container load ended with exit code 2."
    assert classify_end(FAIL1).message == "The trial's process ended with exit code 1."


PODS = [None, NEW, GATE, RUNNING, FAIL1, NO_IMAGE, NO_SECRET, STARTS, *(row[1] for row in ENDS)]
STATES = [None, "Gated", "Starting", "Running", "Suspending", "Suspended", "Resuming", "SomethingNew"]


@pytest.mark.parametrize("current", TrialPhase, ids=str)
def test_no_combination_of_facts_leads_to_an_illegal_transition(current: TrialPhase) -> None:
    for pod, state, fresh, had in product(PODS, STATES, (True, False), (True, False)):
        seen = TrialFacts(current, pod, had_pod=had or pod is not None, agent_state=state, retries=1, agent_fresh=fresh)
        after = next_phase(current, derive_phase(seen))
        assert current not in FINAL or after == current


def test_retry_delay_doubles_and_is_bounded() -> None:
    assert [retry_delay(n) for n in (1, 2, 3, 4)] == [2.0, 4.0, 8.0, 16.0]
    assert retry_delay(0) == 2.0
    assert retry_delay(10_000) == 300.0


def test_the_out_of_memory_line_is_quoted() -> None:
    end = classify_end(changed(FAILED, exit_code=1, exit_message=TORCH))
    assert "'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.'" in end.message
    seen = derive_phase(facts(P.RUNNING, EXCEEDS, retries=2))
    assert "the next attempt starts in 2 s, with a whole GPU" in seen.message
