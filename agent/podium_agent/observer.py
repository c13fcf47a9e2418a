"""Puts together what is known of this node's trials: pods (API), devices (kubelet), gates (socket), cgroups (kernel).

Called by the conductor before every decision; the answer is one tuple of frozen `LocalTrial`. States are derived
from the facts each time, so an agent that starts anew has nothing to restore but what it cannot see.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from podium.schema.gpunode import TrialState
from podium_agent.cgroups import Container, Freezer, find_containers, heeds_sigterm
from podium_agent.gate import Gates
from podium_agent.podresources import KubeletAwayError, PodName, gpus_of_pods
from podium_agent.pods import TrialPod
from podium_agent.settings import AgentSettings
from podium_agent.states import derive, reason
from podium_agent.suspension.base import Standing, SuspensionMethod
from podium_agent.trials import Acting, Gate, LocalTrial, Work

log = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 0.5


@dataclass(slots=True)
class Record:
    """What the agent remembers of one pod between two looks; only this file and the carrier write here."""

    pod: TrialPod
    gpus: tuple[str, ...] = ()
    state: TrialState | None = None
    since: float = 0.0
    acting: Acting = Acting.NOTHING
    done: Acting = Acting.NOTHING  # the act that ended since the last look
    retry_at: float = 0.0
    trouble: str = ""
    containers: dict[str, Container] = field(default_factory=dict)
    whole: bool = False  # all of its containers were found once: from then on it can be suspended
    work: Work = Work.THAWED  # what the kernel said last
    searched: float = 0.0
    ended: bool = False
    watched: dict[int, int] = field(default_factory=dict)  # pid > pidfd

    @property
    def freezers(self) -> tuple[Freezer, ...]:
        return tuple(container.freezer for container in self.containers.values())


class Observer:
    """`changed` wakes the conductor: a container's first process has ended."""

    def __init__(
        self, settings: AgentSettings, gates: Gates, method: SuspensionMethod, changed: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._gates = gates
        self._method = method
        self._changed = changed
        self._records: dict[str, Record] = {}
        self._hints: Mapping[str, tuple[str, ...]] = {}
        self._asking: asyncio.Future[None] | None = None
        self._ask_after = 0.0

    def hint(self, gpus: Mapping[str, tuple[str, ...]]) -> None:
        """Where an earlier agent saw each pod (by uid): used while the kubelet does not answer."""
        self._hints = gpus

    def record(self, pod_uid: str) -> Record | None:
        return self._records.get(pod_uid)

    def records(self) -> tuple[Record, ...]:
        return tuple(self._records.values())

    def look(self, pods: Iterable[TrialPod], now: float) -> tuple[LocalTrial, ...]:
        """All trials that are on this node's GPUs now. Pods that have ended, or never had a share, are left out."""
        present = {pod.uid: pod for pod in pods}
        for uid in self._records.keys() - present.keys():
            self._drop(self._records.pop(uid))
        self._gates.forget(frozenset(present))
        for uid, pod in present.items():
            record = self._records.setdefault(uid, Record(pod, since=now))
            record.pod = pod
            record.ended = record.ended or pod.ended
        self._learn_devices()
        self._locate()
        return tuple(trial for record in self._records.values() if (trial := self._judge(record, now)) is not None)

    def _learn_devices(self) -> None:
        """Ask the kubelet, beside everything else, while a pod's GPUs are not known."""
        missing = [one for one in self._records.values() if one.pod.gated and not one.gpus and not one.ended]
        if missing and (self._asking is None or self._asking.done()) and time.monotonic() >= self._ask_after:
            self._asking = asyncio.ensure_future(self._ask_kubelet())

    async def _ask_kubelet(self) -> None:
        found: Mapping[PodName, tuple[str, ...]] = {}
        away = False
        try:
            found = await gpus_of_pods(self._settings.pod_resources_socket, self._settings.resource)
        except KubeletAwayError as error:
            log.warning("the GPUs of some pods are not known: %s", error)
            away = True
        # a pod that has just been bound is not listed yet: ask again soon, but politely
        self._ask_after = time.monotonic() + (1.0 if away else 0.1)
        for record in self._records.values():
            if not record.gpus:
                uuids = found.get((record.pod.key.namespace, record.pod.name), ())
                record.gpus = uuids or (self._hints.get(record.pod.uid, ()) if away else ())
        self._changed()

    def _locate(self) -> None:
        """Find the cgroups of containers that run and are not found yet."""
        now = time.monotonic()
        wanted: set[str] = set()
        for record in self._records.values():
            unknown = record.pod.running - record.containers.keys() if record.pod.gated else None
            if unknown and not record.ended and now - record.searched >= LOOK_AGAIN_SECONDS:
                record.searched = now
                wanted |= unknown
        if not wanted:
            return
        found = find_containers(self._settings.proc, self._settings.cgroup_root, frozenset(wanted))
        for record in self._records.values():
            for container in found.keys() & record.pod.running:
                record.containers[container] = found[container]
                self._watch_end(record, found[container].pid)

    def _judge(self, record: Record, now: float) -> LocalTrial | None:
        pod = record.pod
        if not pod.gated:
            return None  # a trial without a GPU: nothing to hand over
        gate = self._gate(pod)
        work = self._work(record)
        state = derive(gate, work, record.acting)
        if state is not record.state:
            why = reason(record.state, state, record.done)
            log.info("%s: %s > %s (%s)", pod.name, record.state or "-", state or "Ended", why)
            record.state, record.since = state, now
        record.done = Acting.NOTHING
        if state is None:
            return None
        heeds = True
        if pod.deadline is not None:
            heeds = any(heeds_sigterm(self._settings.proc, one.pid) for one in record.containers.values())
        return LocalTrial(
            key=pod.key,
            pod=pod.name,
            pod_uid=pod.uid,
            gpus=record.gpus,
            state=state,
            since=record.since,
            gate=gate,
            work=work,
            deleting=pod.deadline is not None,
            heeds_term=heeds,
            deadline=pod.deadline,
            grace=pod.grace,
            retry_at=record.retry_at,
            trouble=record.trouble,
            memory=pod.memory,
        )

    def _gate(self, pod: TrialPod) -> Gate:
        if self._gates.passed(pod.uid) or pod.gate_passed:
            return Gate.PASSED
        if self._gates.waiting(pod.uid):
            return Gate.WAITING
        return Gate.SILENT if pod.gate_running else Gate.ABSENT

    def _work(self, record: Record) -> Work:
        if record.ended:
            return Work.ENDED
        if not record.containers:
            return Work.NOT_STARTED
        try:
            standing = self._method.standing(record.freezers)
        except (OSError, ValueError) as error:
            log.error("%s: taken to be %s, as before: its freezer is not read: %s", record.pod.name, record.work, error)
            return record.work
        if standing is Standing.GONE:
            # every container that ran here is gone; another of the pod's may still be about to start
            if record.pod.running <= record.containers.keys() and len(record.containers) >= len(record.pod.containers):
                record.ended = True
                return Work.ENDED
            return Work.NOT_STARTED
        if standing is Standing.WORKING and not record.whole and self._incomplete(record):
            # suspended now, the container that is still to come would work beside the next trial
            return Work.NOT_STARTED
        record.whole = True
        record.work = Work.FROZEN if standing is Standing.PARKED else Work.THAWED
        return record.work

    def _incomplete(self, record: Record) -> bool:
        return record.pod.starting or not record.pod.running <= record.containers.keys()

    def _watch_end(self, record: Record, pid: int) -> None:
        """Hear at once when a container's first process has ended: the next trial need not wait for a tick."""
        if pid in record.watched:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return  # ended already: the next look sees it
        record.watched[pid] = descriptor
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            self._changed()

        loop.add_reader(descriptor, ended)

    def _drop(self, record: Record) -> None:
        loop = asyncio.get_running_loop()
        for descriptor in record.watched.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        record.watched.clear()
