"""All that one cycle looks at, as frozen values: the objects in the caches at one moment. Made by `mirror`."""

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
    """`silent`: nodes whose agent is not heard; `unread`: uids of ended pods whose log has no value; `end_seen`: by uid
    of a pod whose containers have ended, when this operator first saw that; `leases`: placeholder pods; `gone`: by the
    trial's uid, the last pod of it that is not there any more, as it was then; `turns`: by node and GPU, when its
    holder got it, by this operator's clock.
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
        return {JobKey(job.metadata.namespace, job.metadata.name): job for job in self.jobs}

    @cached_property
    def trial_by_key(self) -> Mapping[TrialKey, SeenTrial]:
        return {trial_key(trial): trial for trial in self.trials}

    @cached_property
    def pods_of(self) -> Mapping[str, tuple[SeenPod, ...]]:
        """By the trial's uid: the pods of its attempts that are still there, the latest first."""
        found: dict[str, list[SeenPod]] = {}
        for pod in self.pods:
            found.setdefault(pod.trial_uid, []).append(pod)
        return {uid: tuple(sorted(pods, key=lambda pod: -pod.attempt)) for uid, pods in found.items()}

    @cached_property
    def latest_pod(self) -> Mapping[str, SeenPod]:
        """By the trial's uid: the pod of its latest attempt."""
        return {uid: pods[0] for uid, pods in self.pods_of.items()}

    @cached_property
    def on_gpus(self) -> Mapping[str, tuple[tuple[str, str, TrialOnGpu], ...]]:
        """By pod uid: (node, GPU, what the agent says of it), GPUs in order."""
        found: dict[str, list[tuple[str, str, TrialOnGpu]]] = {}
        for node in self.nodes:
            for gpu in node.status.gpus:
                for there in gpu.trials:
                    found.setdefault(there.pod_uid, []).append((node.metadata.name, gpu.uuid, there))
        return {uid: tuple(sorted(places, key=lambda p: p[:2])) for uid, places in found.items()}


def of_its_job(trial: SeenTrial, jobs: Mapping[JobKey, HyperParamJob]) -> bool:
    """Whether the trial belongs to the job that is there now, not to an older one of the same name on its way out."""
    job = jobs.get(job_key(trial))
    return job is None or trial.metadata.labels.get(JOB_UID_LABEL, job.metadata.uid) == job.metadata.uid


def trial_key(trial: SeenTrial) -> TrialKey:
    return TrialKey(trial.metadata.namespace, trial.metadata.name, trial.metadata.uid)


def job_key(trial: SeenTrial) -> JobKey:
    return JobKey(trial.metadata.namespace, trial.spec.job)
