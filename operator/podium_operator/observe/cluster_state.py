"""Everything that one reconcile reads, as frozen values: the objects in the watch caches at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from podium_core.domain.snapshot import JobKey, TrialKey
from podium_core.schema.gpunode import GPUNode, TrialOnGpu
from podium_core.schema.job import HyperParamJob
from podium_operator.act.pod_manifest import JOB_UID_LABEL
from podium_operator.observe.pod_state import SeenPod
from podium_operator.observe.reservation_state import SeenLease
from podium_operator.observe.trial_state import SeenTrial


@dataclass(frozen=True)
class World:
    """State of the cluster at one moment, as the watch caches show it.

    `silent`: nodes whose agent is unresponsive. `unread`: uids of ended pods whose log holds no value. `end_seen`: when
    this operator first observed that a pod's containers had ended, by pod uid. `leases`: reservation pods. `gone`: the
    last state of a trial's latest deleted pod, by trial uid. `turns`: when the holder got its GPU, by node and GPU, by
    this operator's clock.
    """

    now: float
    jobs: tuple[HyperParamJob, ...]
    trials: tuple[SeenTrial, ...]
    pods: tuple[SeenPod, ...]
    nodes: tuple[GPUNode, ...]
    silent: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    end_seen: Mapping[str, float] = field(default_factory=dict)
    leases: tuple[SeenLease, ...] = ()
    gone: Mapping[str, SeenPod] = field(default_factory=dict)
    turns: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @cached_property
    def job_by_key(self) -> Mapping[JobKey, HyperParamJob]:
        """Jobs by namespace and name."""
        return {JobKey(job.metadata.namespace, job.metadata.name): job for job in self.jobs}

    @cached_property
    def trial_by_key(self) -> Mapping[TrialKey, SeenTrial]:
        """Trials by namespace, name and uid."""
        return {trial_key(trial): trial for trial in self.trials}

    @cached_property
    def pods_of(self) -> Mapping[str, tuple[SeenPod, ...]]:
        """Pods that exist, by the trial's uid, the latest attempt first."""
        found: dict[str, list[SeenPod]] = {}
        for pod in self.pods:
            found.setdefault(pod.trial_uid, []).append(pod)
        return {uid: tuple(sorted(pods, key=lambda pod: -pod.attempt)) for uid, pods in found.items()}

    @cached_property
    def latest_pod(self) -> Mapping[str, SeenPod]:
        """Pod of the latest attempt, by the trial's uid."""
        return {uid: pods[0] for uid, pods in self.pods_of.items()}

    @cached_property
    def on_gpus(self) -> Mapping[str, tuple[tuple[str, str, TrialOnGpu], ...]]:
        """GPUs of each pod, by its uid: sorted tuples (node, GPU, report of the agent)."""
        found: dict[str, list[tuple[str, str, TrialOnGpu]]] = {}
        for node in self.nodes:
            for gpu in node.status.gpus:
                for there in gpu.trials:
                    found.setdefault(there.pod_uid, []).append((node.metadata.name, gpu.uuid, there))
        return {uid: tuple(sorted(places, key=lambda p: p[:2])) for uid, places in found.items()}


def of_its_job(trial: SeenTrial, jobs: Mapping[JobKey, HyperParamJob]) -> bool:
    """Return True if the trial belongs to the present job, not to a deleted job of the same name."""
    job = jobs.get(job_key(trial))
    return job is None or trial.metadata.labels.get(JOB_UID_LABEL, job.metadata.uid) == job.metadata.uid


def trial_key(trial: SeenTrial) -> TrialKey:
    """Return the key of a trial."""
    return TrialKey(trial.metadata.namespace, trial.metadata.name, trial.metadata.uid)


def job_key(trial: SeenTrial) -> JobKey:
    """Return the key of a trial's job."""
    return JobKey(trial.metadata.namespace, trial.spec.job)
