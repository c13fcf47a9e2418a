"""Everything that one reconcile reads, as frozen values: the objects in the watch caches at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.tenure import Tenure
from podium_core.schema.gpunode import GPUNode, TrialOnGpu
from podium_core.schema.gpuqueue import GPUQueue
from podium_core.schema.job import HyperParamJob
from podium_operator.act.pod_manifest import JOB_UID_LABEL
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.observe.trial_state import TrialState
from podium_operator.observe.waiting_pods import UnplacedPodState
from podium_operator.observe.worker_pods import combine


@dataclass(frozen=True)
class ClusterState:
    """State of the cluster at one moment, as the watch caches show it.

    - `unresponsive`: nodes whose agent does not respond
    - `logs_without_value`: uids of ended pods whose log holds no value
    - `end_observed_at`: when this operator first observed that a pod's containers had ended, by pod uid
    - `reservations`: reservation pods
    - `unplaced_pods`: all pods without a node, if GPUs are reserved
    - `deleted_pods`: the last state of a trial's latest deleted pod, by its trial's key
    - `queues`: GPUQueues
    - `holder_since`: when the holder got its GPU, by node and GPU, by this operator's clock
    - `tenures`: tenure of its job, likewise
    """

    now: float
    jobs: tuple[HyperParamJob, ...]
    trials: tuple[TrialState, ...]
    pods: tuple[PodState, ...]
    nodes: tuple[GPUNode, ...]
    unresponsive: frozenset[str] = frozenset()
    logs_without_value: frozenset[str] = frozenset()
    end_observed_at: Mapping[str, float] = field(default_factory=dict)
    reservations: tuple[ReservationPodState, ...] = ()
    unplaced_pods: tuple[UnplacedPodState, ...] = ()
    deleted_pods: Mapping[TrialKey, PodState] = field(default_factory=dict)
    holder_since: Mapping[tuple[str, str], float] = field(default_factory=dict)
    tenures: Mapping[tuple[str, str], Tenure] = field(default_factory=dict)
    queues: tuple[GPUQueue, ...] = ()

    @cached_property
    def job_by_key(self) -> Mapping[JobKey, HyperParamJob]:
        """Jobs by namespace and name."""
        return {JobKey(job.metadata.namespace, job.metadata.name): job for job in self.jobs}

    @cached_property
    def node_by_name(self) -> Mapping[str, GPUNode]:
        """Nodes by name."""
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def trial_by_key(self) -> Mapping[TrialKey, TrialState]:
        """Trials by namespace, name and uid."""
        return {trial_key(trial): trial for trial in self.trials}

    @cached_property
    def pods_by_trial(self) -> Mapping[TrialKey, tuple[PodState, ...]]:
        """Pods that exist, by their trial, the latest attempt first; the pods of several workers are combined."""
        attempts: dict[tuple[TrialKey, int], list[PodState]] = {}
        for pod in self.pods:
            attempts.setdefault((pod.trial_key, pod.attempt), []).append(pod)
        grouped: dict[TrialKey, list[PodState]] = {}
        for (key, _), pods in attempts.items():
            combined = combine(pods, self.deleted_pods.get(key), self.now)
            if combined is not None:
                grouped.setdefault(key, []).append(combined)
        return {key: tuple(sorted(pods, key=lambda pod: -pod.attempt)) for key, pods in grouped.items()}

    @cached_property
    def each_pod(self) -> Mapping[TrialKey, tuple[PodState, ...]]:
        """All pods by their trial, each worker's on its own."""
        grouped: dict[TrialKey, list[PodState]] = {}
        for pod in self.pods:
            grouped.setdefault(pod.trial_key, []).append(pod)
        return {key: tuple(pods) for key, pods in grouped.items()}

    @cached_property
    def latest_pod(self) -> Mapping[TrialKey, PodState]:
        """Pod of the latest attempt, by its trial."""
        return {key: pods[0] for key, pods in self.pods_by_trial.items()}

    @cached_property
    def gpus_by_pod(self) -> Mapping[str, tuple[tuple[str, str, TrialOnGpu], ...]]:
        """GPUs of each pod, by its uid: sorted tuples (node, GPU, report of the agent).

        An agent may report the pods of its own node only, so a report about any other pod is omitted.
        """
        node_of = {pod.uid: pod.facts.node for pod in self.pods}
        grouped: dict[str, list[tuple[str, str, TrialOnGpu]]] = {}
        for node in self.nodes:
            name = node.metadata.name
            for gpu in node.status.gpus:
                for trial in gpu.trials:
                    if node_of.get(trial.pod_uid, name) == name:
                        grouped.setdefault(trial.pod_uid, []).append((name, gpu.uuid, trial))
        return {uid: tuple(sorted(rankings, key=lambda p: p[:2])) for uid, rankings in grouped.items()}


def belongs_to_job(trial: TrialState, jobs: Mapping[JobKey, HyperParamJob]) -> bool:
    """Return True if the trial belongs to the present job, not to a deleted job of the same name."""
    job = jobs.get(job_key(trial))
    return job is None or trial.metadata.labels.get(JOB_UID_LABEL, job.metadata.uid) == job.metadata.uid


def trial_key(trial: TrialState) -> TrialKey:
    """Return the key of a trial."""
    return TrialKey(trial.metadata.namespace, trial.metadata.name, trial.metadata.uid)


def job_key(trial: TrialState) -> JobKey:
    """Return the key of a trial's job."""
    return JobKey(trial.metadata.namespace, trial.spec.job)
