"""From what can be seen of a trial (its pod, the agent's word) to its phase: pure, so that every case is a row in a
table of tests.

Called by the operator in each cycle. The one question that matters for fairness is who is to blame when a pod ends:
the trial's own process (counted, retried `retries` times) or the cluster (evicted, preempted, node lost, refused by
the kubelet: never counted).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED, out_of_memory
from podium_core.domain.phase import FINAL, LIVE, REQUEUES, TrialPhase, check

Gate = Literal["None", "Waiting", "Running", "Done"]
EndKind = Literal["Succeeded", "TrialFailure", "Disrupted", "NotEnded"]

# pod.status.reason of pods that the cluster ended or refused; kubelet admission also says OutOf<resource>
_DISRUPTIONS = frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "NodeLost",
        "NodeShutdown",
        "Terminated",
        "Shutdown",
        "NodeAffinity",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "AdmissionError",
    }
)
_PATIENT = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_WRONG_SPEC = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_NO_START = _PATIENT | _WRONG_SPEC
_NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
# of a node's agent after which the operator does not believe it (a setting, of which this is the default)
AGENT_STALE_SECONDS = 45.0
# the agent's last patch of a trial follows its end within about two seconds; with the API away before, or a volume that
# hangs, in the agent's longest pause. Without an agent a search is so much longer, no more
FINAL_REPORT_SECONDS = 45.0
_FIRST_RETRY = 2.0
_LONGEST_RETRY = 300.0


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What matters of one pod; `exit_*` is the end of the container that ended worst, `gate` the init container
    podium-gate.
    """

    phase: str
    reason: str = ""
    message: str = ""
    deleting: bool = False
    node: str | None = None
    gate: Gate = "None"
    exit_code: int | None = None
    exit_reason: str = ""
    exit_message: str = ""  # its last lines, where it failed
    whole_gpus: bool = False  # it had whole GPUs to itself: the retry of one that ran out of GPU memory
    failed_init: str = ""  # that container's name, if it is an init container
    disruption: str = ""  # reason of a true DisruptionTarget condition
    waiting_reason: str = ""
    unschedulable: str = ""
    waits_for_memory: str = ""  # the GPU memory that it waits for, as its agent says
    requeue: str = ""  # why Podium deletes the pod, as it stamped it
    migrated: bool = False  # it goes on from the image of a live trial


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """One look at a trial. `had_pod`: its status named a pod, so a missing one is gone, not yet to come."""

    current: TrialPhase
    pod: PodFacts | None
    had_pod: bool
    agent_state: str | None = None  # GPUNode.status.gpus[].trials[].state
    failures: int = 0  # own failures counted so far, this end not among them
    retries: int = 0
    stopped: bool = False
    agent_fresh: bool = True  # the node's heartbeat is recent: its word counts
    complete: bool = False  # it has printed its last step
    reason: str = ""  # stored with `current`
    disruption: str = ""  # of a pod that is gone: by whom, as the cluster said while it was there


@dataclass(frozen=True, slots=True)
class DerivedPhase:
    phase: TrialPhase
    reason: str
    message: str
    own_failure: bool = False
    problem: bool = False  # the pod cannot start, or goes: its reason says more than the trial's rank


@dataclass(frozen=True, slots=True)
class PodEnd:
    kind: EndKind
    reason: str
    message: str


def retry_delay(failures: int) -> float:
    """Seconds before attempt number `failures` + 1: doubling from 2 s to 5 min."""
    return min(_LONGEST_RETRY, _FIRST_RETRY * 2.0 ** max(0, min(failures, 20) - 1))


def classify_end(pod: PodFacts, *, complete: bool = False) -> PodEnd:
    """Whose fault the end of a pod is. The cluster's word goes before exit codes: an evicted process exits 143 or
    137 as well, and one that was told to go and saved exits 0. `complete`: it has printed its last step.
    """
    if pod.phase == "Succeeded" and (pod.disruption or pod.deleting) and not complete:
        how = f"The cluster took the pod away ({pod.disruption})" if pod.disruption else "The pod was deleted"
        return PodEnd("Disrupted", pod.requeue or "PodDisrupted", f"{how}, and its process ended well.")
    if pod.phase == "Succeeded":
        return PodEnd("Succeeded", "Completed", "The trial's process ended with exit code 0.")
    if pod.phase != "Failed":
        # still at work, or its node is silent (Unknown), or on its way out: not over before the kubelet says so
        return PodEnd("NotEnded", "", "")
    if pod.reason == "Evicted" and "exceed" in pod.message:
        # of its own limits; where the node is low on something, the kubelet's words are others
        return PodEnd(
            "TrialFailure", "StorageExceeded", f"{pod.message} Raise the limit in the template, or write less."
        )
    if pod.disruption:
        return PodEnd(
            "Disrupted", "PodDisrupted", f"The cluster took the pod away ({pod.disruption}). {pod.message}".strip()
        )
    if pod.reason in _DISRUPTIONS or pod.reason.startswith("OutOf"):
        reason = "PodRejected" if pod.exit_code is None else "PodDisrupted"
        return PodEnd("Disrupted", reason, f"The cluster ended the pod ({pod.reason}). {pod.message}".strip())
    if pod.deleting:
        return PodEnd("Disrupted", pod.requeue or "PodDisrupted", "The pod was deleted while its process ran.")
    if pod.exit_reason == "ContainerStatusUnknown":
        return PodEnd("Disrupted", "PodDisrupted", "The node lost sight of the container, its exit code is unknown.")
    if pod.migrated and pod.exit_reason in _NEVER_STARTED:
        return PodEnd(
            "Disrupted", "MigrationFailed", f"The trial's image could not be restored. {pod.exit_message}".strip()
        )
    who = f"The init container {pod.failed_init}" if pod.failed_init else "The trial's process"
    if pod.exit_reason == "OOMKilled":
        text = f"{who} used more memory than resources.limits.memory allows; raise it in the template."
        return PodEnd("TrialFailure", "OOMKilled", text)
    if pod.reason == "DeadlineExceeded":
        return PodEnd(
            "TrialFailure", "DeadlineExceeded", "The pod's activeDeadlineSeconds passed; remove it from the template."
        )
    text = out_of_memory(pod.exit_message)
    if text and pod.exit_code:
        text = f"{who} asked for more GPU memory than there was: {text!r}."
        return PodEnd("TrialFailure", GPU_MEMORY_EXCEEDED, text)
    if pod.exit_code is None:
        said = pod.reason or pod.message or "no reason"
        return PodEnd("Disrupted", "PodDisrupted", f"The pod failed before its process gave an exit code ({said}).")
    return PodEnd("TrialFailure", "ProcessFailed", f"{who} ended with exit code {pod.exit_code}.")


def classify_missing_pod(reason: str, taken: str) -> PodEnd:
    """The end of a pod that was gone before anybody saw it end, as those often are that Podium told to go. `reason`:
    stored with the trial's phase; `taken`: by whom, as the cluster said while the pod was there, empty: nobody.
    """
    code = reason if reason in REQUEUES else "PodDisrupted" if taken else "PodDeleted"
    how = f"The cluster took the pod away ({taken})" if code == "PodDisrupted" else "The pod was deleted"
    return PodEnd("Disrupted", code, f"{how}; a new one will go on.")


def derive_phase(facts: TrialFacts) -> DerivedPhase:
    """The phase that these facts mean. A finished trial stays finished; a lost pod means Requeued; constant time."""
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
    """The phase to write: checked against the table, so a wrong derivation shows itself instead of being stored."""
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
        TrialPhase.PENDING, "WaitingForSlot", "The trial has no pod yet: it waits for a free share of a GPU."
    )


def _failed(facts: TrialFacts, end: PodEnd) -> DerivedPhase:
    failures = facts.failures + 1
    exceeded, alone = end.reason == GPU_MEMORY_EXCEEDED, facts.pod is not None and facts.pod.whole_gpus
    if facts.current is TrialPhase.REQUEUED:
        # the dead pod of the attempt that was counted already is still there
        return DerivedPhase(TrialPhase.REQUEUED, "WaitingForPod", "The trial waits for a new pod.")
    if exceeded and alone:
        text = f"{end.message} It had its GPU to itself: use a larger GPU (gpus.products), or less memory."
        return DerivedPhase(TrialPhase.FAILED, end.reason, text, own_failure=True)
    if failures > facts.retries:
        text = f"{end.message} That was failure {failures}; {facts.retries} are retried."
        return DerivedPhase(TrialPhase.FAILED, end.reason, text, own_failure=True)
    again = f"next in {retry_delay(failures):g} s."
    if exceeded:
        again = f"{again[:-1]}, with a GPU to itself. Raise gpus.memory if the others need as much."
    text = f"{end.message} That was failure {failures} of {facts.retries} that are retried; {again}"
    return DerivedPhase(TrialPhase.REQUEUED, end.reason, text, own_failure=True)


_LET_IN = (TrialPhase.RUNNING, "Started", "The gate is open: the trial is starting.")
_AGENT_WORDS: dict[str, tuple[TrialPhase, str, str]] = {
    "Suspending": (TrialPhase.SUSPENDING, "TimeSliceEnded", "The agent is suspending the trial."),
    "Suspended": (TrialPhase.SUSPENDED, "TimeSliceEnded", "The trial is suspended and keeps its progress."),
    "Resuming": (TrialPhase.RESUMING, "TimeSliceStarted", "The agent is resuming the trial."),
    "Running": (TrialPhase.RUNNING, "Started", "The trial trains on its GPU."),
    "Starting": _LET_IN,
}


def _alive(facts: TrialFacts, pod: PodFacts) -> DerivedPhase:
    if facts.current is TrialPhase.REQUEUED and pod.deleting:
        return DerivedPhase(TrialPhase.REQUEUED, "WaitingForPod", "The old pod is on its way out.")
    seen = _at_work(facts, pod)
    if pod.deleting and pod.requeue:
        text = "Podium has told the pod to go; the trial may save, and goes on in another pod."
        return DerivedPhase(seen.phase, pod.requeue, text, problem=True)
    return seen


def _at_work(facts: TrialFacts, pod: PodFacts) -> DerivedPhase:
    started = pod.gate in ("None", "Done") and pod.phase == "Running"
    word = _AGENT_WORDS.get(facts.agent_state or "") if facts.agent_fresh else None
    if word is not None and (started or pod.gate in ("Running", "Done")):
        if pod.waiting_reason in _NO_START:
            return _not_starting(word[0], pod)
        return _short(word[0], pod) if pod.waits_for_memory and word[0] is TrialPhase.SUSPENDED else DerivedPhase(*word)
    if started:
        if facts.current in (TrialPhase.SUSPENDING, TrialPhase.SUSPENDED, TrialPhase.RESUMING):
            # a frozen pod says Running too: without the agent's word the last known phase stands
            return DerivedPhase(
                facts.current, "AgentUnresponsive", "The node's agent says nothing new; the last known phase stands."
            )
        return DerivedPhase(TrialPhase.RUNNING, "Started", "The trial's process runs.")
    goes_on = facts.current in (TrialPhase.RUNNING, TrialPhase.SUSPENDING, TrialPhase.SUSPENDED, TrialPhase.RESUMING)
    # who was let in has the turn that it was given, though its agent does not say so yet: a plan that took it for not
    # there would give the GPU away again
    if goes_on or pod.gate == "Done":
        seen = (
            DerivedPhase(facts.current, "Unchanged", "The pod reports nothing new.")
            if goes_on
            else DerivedPhase(*_LET_IN)
        )
        return _not_starting(seen.phase, pod) if pod.waiting_reason in _NO_START else seen
    # the agent says Gated of a pod whose gate does not run yet as well: only the gate itself shows that it waits
    if pod.gate == "Running" and pod.waits_for_memory:
        return _short(TrialPhase.GATED, pod)
    if pod.gate == "Running":
        return DerivedPhase(
            TrialPhase.GATED, "WaitingForTimeSlice", "The trial has a share and waits at the gate for its turn."
        )
    # there is no way back from Gated: the phase stands, with what the pod says now
    return _not_starting(TrialPhase.GATED if facts.current is TrialPhase.GATED else TrialPhase.PENDING, pod)


def _short(phase: TrialPhase, pod: PodFacts) -> DerivedPhase:
    text = f"{pod.waits_for_memory[0].upper()}{pod.waits_for_memory[1:]}. Others may work meanwhile."
    return DerivedPhase(phase, "InsufficientGPUMemory", text, problem=True)


def _not_starting(phase: TrialPhase, pod: PodFacts) -> DerivedPhase:
    return DerivedPhase(phase, *_why_pending(pod), problem=True)


def _why_pending(pod: PodFacts) -> tuple[str, str]:
    if pod.waiting_reason in _PATIENT:
        return pod.waiting_reason, f"The image cannot be pulled ({pod.waiting_reason}): {pod.message or 'see the pod'}"
    if pod.waiting_reason in _WRONG_SPEC:
        return pod.waiting_reason, f"The container cannot be created: {pod.message or 'see the events of the pod'}"
    if pod.node is None:
        return "Unscheduled", pod.unschedulable or "The pod waits for a node."
    return "ContainerCreating", f"Node {pod.node} is preparing the pod."
