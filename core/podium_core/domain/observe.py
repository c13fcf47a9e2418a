"""Derivation of a trial's phase from observed facts (its pod, the agent's report).

Pure: every case is a row of a test.

The operator calls it in each reconciliation. For fairness the cause of a pod's end matters. A failure of the trial's
own process is counted, and retried `retries` times. An end that the cluster caused (evicted, preempted, node lost,
rejected by the kubelet) is never counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from podium_core.domain.backoff import backoff_pause
from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED, out_of_memory
from podium_core.domain.phase import FINAL, LIVE, REQUEUES, TrialPhase, check

Gate = Literal["None", "Waiting", "Running", "Done"]
EndKind = Literal["Succeeded", "TrialFailure", "Disrupted", "NotEnded"]

# pod.status.reason of pods whose admission the kubelet denied; there is also OutOf<resource>.
_DENIALS = frozenset({"NodeAffinity", "TopologyAffinityError", "UnexpectedAdmissionError", "AdmissionError"})
# pod.status.reason of pods that the cluster ended or rejected
_DISRUPTIONS = _DENIALS | frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "NodeLost",
        "NodeShutdown",
        "Terminated",
        "Shutdown",
    }
)
# reason of the condition DisruptionTarget that an agent writes if the driver ended a process during a suspension
GPU_DRIVER_ERROR = "GPUDriverError"
_IMAGE_PROBLEMS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_SPEC_PROBLEMS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_NO_START = _IMAGE_PROBLEMS | _SPEC_PROBLEMS
# the kubelet's reason, and containerd's for a container that it could not recover after a restart (exit code 255)
_UNKNOWN_ENDS = frozenset({"ContainerStatusUnknown", "Unknown"})
_NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
# Silence of a node's agent after which the operator ignores its report (the default of a setting).
AGENT_STALE_SECONDS = 45.0
# The agent writes its final report of a trial about two seconds after its end. It needs up to its longest pause if the
# API server was unavailable or a volume hangs. Without an agent, a search takes this much longer.
FINAL_REPORT_SECONDS = 45.0
_FIRST_RETRY = 2.0
_LONGEST_RETRY = 300.0


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """End of the container of a pod that ended worst."""

    code: int | None = None  # exit code; None: no container has ended
    reason: str = ""
    message: str = ""  # its last lines, if it failed
    failed_init: str = ""  # name of that container, if it is an init container


@dataclass(frozen=True, slots=True)
class PodWait:
    """What a pod that has not started, or does not run, waits for; empty: it does not wait."""

    container: str = ""  # reason of a container that cannot start
    node: str = ""  # why the scheduler finds no node
    gpu_memory: str = ""  # the GPU memory that it waits for, as reported by its agent


_NOT_ENDED, _NO_WAIT = ContainerEnd(), PodWait()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Observed facts about one pod. `gate` is the state of the init container podium-gate."""

    phase: str
    reason: str = ""
    message: str = ""
    deleting: bool = False
    node: str | None = None
    gate: Gate = "None"
    end: ContainerEnd = _NOT_ENDED
    wait: PodWait = _NO_WAIT
    whole_gpus: bool = False  # it had whole GPUs: the retry of a trial that ran out of GPU memory
    disruption: str = ""  # reason of a true DisruptionTarget condition
    requeue: str = ""  # why Podium deletes the pod, as written on it
    migrated: bool = False  # it continues from the image of a running trial


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """Observed facts about a trial.

    `had_pod`: its status names a pod, so a missing pod is deleted and not yet to be created.
    """

    current: TrialPhase
    pod: PodFacts | None
    had_pod: bool
    agent_state: str | None = None  # GPUNode.status.gpus[].trials[].state
    failures: int = 0  # own failures counted so far, without this end
    retries: int = 0
    stopped: bool = False
    agent_fresh: bool = True  # the node's heartbeat is recent, so the report counts
    complete: bool = False  # it has printed its last step
    reason: str = ""  # stored with `current`
    disruption: str = ""  # of a deleted pod: the reason that the cluster gave while the pod existed


@dataclass(frozen=True, slots=True)
class DerivedPhase:
    """A phase derived from facts, with its reason."""

    phase: TrialPhase
    reason: str
    message: str
    own_failure: bool = False
    problem: bool = False  # the pod cannot start or is terminating: its reason is shown instead of the trial's rank


@dataclass(frozen=True, slots=True)
class PodEnd:
    """Kind of a pod's end, with its reason."""

    kind: EndKind
    reason: str
    message: str


def is_denial(reason: str) -> bool:
    """Return whether a failed pod has this reason because the kubelet denied its admission.

    A restarted kubelet admits all pods again. Those that run then may be denied, and their processes end later.
    """
    return reason in _DENIALS or reason.startswith("OutOf")


def retry_delay(failures: int) -> float:
    """Return the seconds before attempt number `failures` + 1: doubling from 2 s to 5 min."""
    return backoff_pause(failures, _FIRST_RETRY, _LONGEST_RETRY)


def classify_end(pod: PodFacts, *, complete: bool = False) -> PodEnd:
    """Return whether the trial or the cluster ended the pod.

    The cluster's reason takes precedence over exit codes: an evicted process also exits with 143 or 137, and one that
    checkpointed on request exits with 0. `complete`: the trial has printed its last step.
    """
    if pod.disruption == GPU_DRIVER_ERROR and (pod.phase == "Succeeded" or pod.end.reason == "OOMKilled"):
        pod = replace(pod, disruption="")  # the driver did not end the process
    ended_by = pod.disruption or (pod.reason if is_denial(pod.reason) else "")
    if pod.phase == "Succeeded" and (ended_by or pod.deleting) and not complete:
        how = f"The cluster ended the pod ({ended_by})" if ended_by else "The pod was deleted"
        return PodEnd("Disrupted", pod.requeue or "PodDisrupted", f"{how}, and its process ended with exit code 0.")
    if pod.phase == "Succeeded":
        return PodEnd("Succeeded", "Completed", "The trial's process ended with exit code 0.")
    if pod.phase != "Failed":
        # It runs, its node does not respond (Unknown), or it is terminating: it has not ended until the kubelet
        # reports it.
        return PodEnd("NotEnded", "", "")
    if pod.reason == "Evicted" and "exceed" in pod.message:
        # It exceeded its own limits. If the node lacks a resource, the kubelet's message is different.
        return PodEnd(
            "TrialFailure", "StorageExceeded", f"{pod.message} Raise the limit in the template, or write less."
        )
    if pod.disruption:
        return PodEnd(
            "Disrupted", "PodDisrupted", f"The cluster ended the pod ({pod.disruption}). {pod.message}".strip()
        )
    if pod.reason in _DISRUPTIONS or is_denial(pod.reason):
        reason = "PodRejected" if pod.end.code is None else "PodDisrupted"
        return PodEnd("Disrupted", reason, f"The cluster ended the pod ({pod.reason}). {pod.message}".strip())
    if pod.deleting:
        return PodEnd("Disrupted", pod.requeue or "PodDisrupted", "The pod was deleted while its process ran.")
    if pod.end.reason in _UNKNOWN_ENDS:
        return PodEnd("Disrupted", "PodDisrupted", "The node lost track of the container, so its exit code is unknown.")
    if pod.migrated and pod.end.reason in _NEVER_STARTED:
        return PodEnd(
            "Disrupted", "MigrationFailed", f"The trial's image could not be restored. {pod.end.message}".strip()
        )
    process = f"The init container {pod.end.failed_init}" if pod.end.failed_init else "The trial's process"
    if pod.end.reason == "OOMKilled":
        text = f"{process} used more memory than resources.limits.memory allows; raise it in the template."
        return PodEnd("TrialFailure", "OOMKilled", text)
    if pod.reason == "DeadlineExceeded":
        return PodEnd(
            "TrialFailure", "DeadlineExceeded", "The pod's activeDeadlineSeconds passed; remove it from the template."
        )
    text = out_of_memory(pod.end.message)
    if text and pod.end.code:
        text = f"{process} requested more GPU memory than was free: {text!r}."
        return PodEnd("TrialFailure", GPU_MEMORY_EXCEEDED, text)
    if pod.end.code is None:
        cause = pod.reason or pod.message or "no reason"
        return PodEnd("Disrupted", "PodDisrupted", f"The pod failed before its process gave an exit code ({cause}).")
    return PodEnd("TrialFailure", "ProcessFailed", f"{process} ended with exit code {pod.end.code}.")


def classify_missing_pod(reason: str, taken: str) -> PodEnd:
    """Return the end of a pod that was deleted before its end was observed.

    This is common for pods that Podium deletes. `reason` is stored with the trial's phase. `taken` is the reason that
    the cluster gave while the pod existed; empty if it gave none.
    """
    code = reason if reason in REQUEUES else "PodDisrupted" if taken else "PodDeleted"
    how = f"The cluster ended the pod ({taken})" if code == "PodDisrupted" else "The pod was deleted"
    return PodEnd("Disrupted", code, f"{how}; a new pod continues the trial.")


def derive_phase(facts: TrialFacts) -> DerivedPhase:
    """Return the phase that these facts mean, in constant time.

    A finished trial remains finished; a missing pod means Requeued.
    """
    if facts.current in FINAL:
        return DerivedPhase(facts.current, "Final", f"The trial is {facts.current}.")
    if facts.pod is None:
        return _without_pod(facts)
    end = classify_end(facts.pod, complete=facts.complete)
    if end.kind == "Succeeded":
        return DerivedPhase(TrialPhase.SUCCEEDED, end.reason, end.message)
    if end.kind == "Disrupted":
        return DerivedPhase(TrialPhase.REQUEUED, end.reason, f"{end.message} This does not count as a failure.")
    if end.kind == "TrialFailure":
        return _failed(facts, end)
    return _alive(facts, facts.pod)


def next_phase(current: TrialPhase, observed: DerivedPhase) -> TrialPhase:
    """Return the phase to write.

    It is checked against the table, so that a wrong derivation raises an error.
    """
    if current in FINAL or observed.phase == current:
        return current
    check(current, observed.phase)
    return observed.phase


def _without_pod(facts: TrialFacts) -> DerivedPhase:
    if facts.current in LIVE or (facts.had_pod and facts.current is not TrialPhase.REQUEUED):
        end = classify_missing_pod(facts.reason, facts.disruption)
        return DerivedPhase(TrialPhase.REQUEUED, end.reason, f"{end.message} This does not count as a failure.")
    if facts.current is TrialPhase.REQUEUED:
        return DerivedPhase(TrialPhase.REQUEUED, "WaitingForPod", "The trial waits for a new pod.")
    return DerivedPhase(
        TrialPhase.PENDING, "WaitingForSlot", "The trial has no pod yet: it waits for a free slot on a GPU."
    )


def _failed(facts: TrialFacts, end: PodEnd) -> DerivedPhase:
    failures = facts.failures + 1
    exceeded, alone = end.reason == GPU_MEMORY_EXCEEDED, facts.pod is not None and facts.pod.whole_gpus
    if facts.current is TrialPhase.REQUEUED:
        # The ended pod of an attempt that was counted already still exists.
        return DerivedPhase(TrialPhase.REQUEUED, "WaitingForPod", "The trial waits for a new pod.")
    if exceeded and alone:
        text = f"{end.message} It had a whole GPU: use a larger GPU (gpus.products), or less memory."
        return DerivedPhase(TrialPhase.FAILED, end.reason, text, own_failure=True)
    if failures > facts.retries:
        text = f"{end.message} This was failure {failures}; {facts.retries} are retried."
        return DerivedPhase(TrialPhase.FAILED, end.reason, text, own_failure=True)
    again = f"the next attempt starts in {retry_delay(failures):g} s."
    if exceeded:
        again = f"{again[:-1]}, with a whole GPU. Raise gpus.memory if the other trials need as much."
    text = f"{end.message} This was failure {failures} of {facts.retries} that are retried; {again}"
    return DerivedPhase(TrialPhase.REQUEUED, end.reason, text, own_failure=True)


_ADMITTED = (TrialPhase.RUNNING, "Started", "The gate is open: the trial is starting.")
_AGENT_STATES: dict[str, tuple[TrialPhase, str, str]] = {
    "Suspending": (TrialPhase.SUSPENDING, "TimeSliceEnded", "The agent is suspending the trial."),
    "Suspended": (TrialPhase.SUSPENDED, "TimeSliceEnded", "The trial is suspended and keeps its progress."),
    "Resuming": (TrialPhase.RESUMING, "TimeSliceStarted", "The agent is resuming the trial."),
    "Running": (TrialPhase.RUNNING, "Started", "The trial trains on its GPU."),
    "Starting": _ADMITTED,
}


def _alive(facts: TrialFacts, pod: PodFacts) -> DerivedPhase:
    if facts.current is TrialPhase.REQUEUED and pod.deleting:
        return DerivedPhase(TrialPhase.REQUEUED, "WaitingForPod", "The old pod is terminating.")
    derived = _from_reports(facts, pod)
    if pod.deleting and pod.requeue:
        text = "Podium deletes the pod; the trial can checkpoint, and another pod continues it."
        return DerivedPhase(derived.phase, pod.requeue, text, problem=True)
    return derived


def _from_reports(facts: TrialFacts, pod: PodFacts) -> DerivedPhase:
    started = pod.gate in ("None", "Done") and pod.phase == "Running"
    reported = _AGENT_STATES.get(facts.agent_state or "") if facts.agent_fresh else None
    if reported is not None and (started or pod.gate in ("Running", "Done")):
        if pod.wait.container in _NO_START:
            return _not_starting(reported[0], pod)
        return (
            _waits_for_memory(reported[0], pod)
            if pod.wait.gpu_memory and reported[0] is TrialPhase.SUSPENDED
            else DerivedPhase(*reported)
        )
    if started:
        if facts.current in (TrialPhase.SUSPENDING, TrialPhase.SUSPENDED, TrialPhase.RESUMING):
            # a frozen pod says Running too: without the agent's reported the last known phase stands
            return DerivedPhase(
                facts.current,
                "AgentUnresponsive",
                "The node's agent reports nothing new; the last known phase remains.",
            )
        return DerivedPhase(TrialPhase.RUNNING, "Started", "The trial's process runs.")
    was_live = facts.current in (TrialPhase.RUNNING, TrialPhase.SUSPENDING, TrialPhase.SUSPENDED, TrialPhase.RESUMING)
    # An admitted trial has its time slice, even before the agent reports it. Otherwise the plan would give the GPU to
    # another trial.
    if was_live or pod.gate == "Done":
        derived = (
            DerivedPhase(facts.current, "Unchanged", "The pod reports nothing new.")
            if was_live
            else DerivedPhase(*_ADMITTED)
        )
        return _not_starting(derived.phase, pod) if pod.wait.container in _NO_START else derived
    # The agent also reports Gated for a pod whose gate does not run yet: only the gate itself shows that it waits.
    if pod.gate == "Running" and pod.wait.gpu_memory:
        return _waits_for_memory(TrialPhase.GATED, pod)
    if pod.gate == "Running":
        return DerivedPhase(
            TrialPhase.GATED,
            "WaitingForTimeSlice",
            "The trial has a slot and waits at its gate for its first time slice.",
        )
    # Gated cannot change back to Pending: the phase remains, with the present reason of the pod.
    return _not_starting(TrialPhase.GATED if facts.current is TrialPhase.GATED else TrialPhase.PENDING, pod)


def _waits_for_memory(phase: TrialPhase, pod: PodFacts) -> DerivedPhase:
    text = f"{pod.wait.gpu_memory[0].upper()}{pod.wait.gpu_memory[1:]}. Other trials may run meanwhile."
    return DerivedPhase(phase, "InsufficientGPUMemory", text, problem=True)


def _not_starting(phase: TrialPhase, pod: PodFacts) -> DerivedPhase:
    return DerivedPhase(phase, *_why_pending(pod), problem=True)


def _why_pending(pod: PodFacts) -> tuple[str, str]:
    if pod.wait.container in _IMAGE_PROBLEMS:
        return pod.wait.container, f"The image cannot be pulled ({pod.wait.container}): {pod.message or 'see the pod'}"
    if pod.wait.container in _SPEC_PROBLEMS:
        return pod.wait.container, f"The container cannot be created: {pod.message or 'see the events of the pod'}"
    if pod.node is None:
        return "Unscheduled", pod.wait.node or "The pod waits for a node."
    return "ContainerCreating", f"Node {pod.node} is preparing the pod."
