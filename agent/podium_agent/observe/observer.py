"""State of this node's trials, from pods (API), devices (kubelet), gates (socket) and cgroups (kernel).

The node reconciler calls it before every decision; the answer is a tuple of frozen `LocalTrial`. States are derived
from the facts each time, so a restarted agent only has to restore what it cannot see.

The end of a pod counts only when the kernel confirms it. A restarted kubelet fails pods whose processes still run
(UnexpectedAdmissionError). A pod that was deleted by force, or whose node was given up, is gone from the API while it
runs. Until its processes are gone such a pod is an orphan, and no trial runs beside it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping

from podium_agent.log_fields import about_pod
from podium_agent.observe.cgroups import find_containers, find_remaining_containers, handles_sigterm, sigterm_pending
from podium_agent.observe.pod_records import Hint, PodProcesses, PodRecord, orphan
from podium_agent.observe.pod_resources import KubeletAwayError, PodName, gpus_of_pods
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.prestop_hooks import prestop_hook_pending
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.state_table import derive, reason
from podium_agent.settings import AgentSettings
from podium_core.attempts.local_trial import (
    Acting,
    Gate,
    LocalPod,
    LocalTrial,
    Termination,
    TrialMemory,
    TrialSuspension,
    Work,
)
from podium_core.placement.needs import moves_memory
from podium_core.schema.gpunode import SlotState
from podium_suspension.base import SuspensionState
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.methods import SuspensionMethods

log = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 0.5


class Observer:
    """Observer of this node's trials; `changed` wakes the node reconciler when a container's process ends."""

    def __init__(
        self,
        settings: AgentSettings,
        gates: Gates,
        admissions: Admissions,
        methods: SuspensionMethods,
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._gates = gates
        self._admissions = admissions
        self._methods = methods
        self._changed = changed
        self._records: dict[str, PodRecord] = {}
        self._hints: Mapping[str, Hint] = {}
        self._adopted = False
        self._before: frozenset[str] = frozenset()  # pods that were there, or noted, at the first observation
        self._asking: asyncio.Future[None] | None = None
        self._ask_after = 0.0
        self.removed: tuple[PodRecord, ...] = ()  # pods without processes since the last observation

    def hint(self, seen: Mapping[str, Hint]) -> None:
        """Take over which pods an earlier agent saw, by uid, and on which GPUs.

        Some may be orphans by now. Pods that it admitted just before it died are noted on this node.
        """
        self._hints = {**seen, **self._admissions.read()}

    def record(self, pod_uid: str) -> PodRecord | None:
        """Return the record of one pod."""
        return self._records.get(pod_uid)

    def records(self) -> tuple[PodRecord, ...]:
        """Return the records of all pods."""
        return tuple(self._records.values())

    def observe(self, pods: Iterable[TrialPod], now: float) -> tuple[LocalTrial, ...]:
        """Return all trials on this node's GPUs now, without pods that have ended or have no slot."""
        present = {pod.uid: pod for pod in pods}
        for uid, pod in present.items():
            record = self._records.setdefault(uid, PodRecord(pod, since=now))
            record.pod = pod
            if pod.migration.gpu_state_trouble and not record.migration.gpu_state_noted:
                record.migration.gpu_state_noted = True
                with about_pod(pod, record.gpus):
                    log.error("%s counts as a pod that started here: %s", pod.name, pod.migration.gpu_state_trouble)
        if not self._adopted:
            self._adopted = True
            self._before = frozenset(present) | self._hints.keys()
            for uid in self._hints.keys() - present.keys():
                self._records[uid] = orphan(uid, self._hints[uid])
        for uid, record in self._records.items():
            end = record.end
            end.absent = uid not in present
            if not (end.absent or record.pod.status.ended):
                end.over_since = None
        self._gates.forget(frozenset(self._records))
        self._learn_devices()
        self._locate()
        self._find_orphans(now)
        trials = tuple(trial for record in self._records.values() if (trial := self._judged(record, now)) is not None)
        self.removed = tuple(record for record in self._records.values() if record.end.absent and record.end.ended)
        for record in self.removed:
            self._drop(self._records.pop(record.pod.uid).processes)
            self._admissions.forget(record.pod.uid)
        return trials

    def _learn_devices(self) -> None:
        """Ask the kubelet in a task of its own while a pod's GPUs are not known."""
        missing = [one for one in self._records.values() if one.pod.gate.present and not one.gpus and not one.end.ended]
        if missing and (self._asking is None or self._asking.done()) and time.monotonic() >= self._ask_after:
            self._asking = asyncio.ensure_future(self._ask_kubelet())

    async def _ask_kubelet(self) -> None:
        gpus_by_pod: Mapping[PodName, tuple[str, ...]] = {}
        away = False
        try:
            gpus_by_pod = await gpus_of_pods(self._settings.pod_resources_socket, self._settings.resource)
        except KubeletAwayError as error:
            log.warning("the GPUs of some pods are unknown: %s", error)
            away = True
        # the kubelet does not list a pod yet that was just bound: ask again soon
        self._ask_after = time.monotonic() + (1.0 if away else 0.1)
        for record in self._records.values():
            if not record.gpus:
                uuids = gpus_by_pod.get((record.pod.key.namespace, record.pod.name), ())
                hint = self._hints.get(record.pod.uid)
                forgotten = away or record.end.over_since is not None  # the kubelet does not list a pod that it gave up
                record.gpus = uuids or (hint.gpus if forgotten and hint is not None else ())
        self._changed()

    def _locate(self) -> None:
        """Find the cgroups of running containers that are not known yet."""
        now = time.monotonic()
        wanted: set[str] = set()
        for record in self._records.values():
            processes, running = record.processes, record.pod.containers.running
            unknown = running - processes.containers.keys() if _concerns_us(record.pod) else None
            if unknown and not record.end.ended and now - processes.searched_at >= LOOK_AGAIN_SECONDS:
                processes.searched_at = now
                wanted |= unknown
        if not wanted:
            return
        containers = find_containers(self._settings.proc, self._settings.cgroup_root, frozenset(wanted))
        for record in self._records.values():
            for container in containers.keys() & record.pod.containers.running:
                record.processes.containers[container] = containers[container]
                self._watch_end(record.processes, containers[container].pid)

    def _find_orphans(self, now: float) -> None:
        """Search once for processes of the pods that have ended, as the API reports."""
        fresh = {
            uid: record
            for uid, record in self._records.items()
            if record.end.over_since is None and (record.end.absent or record.pod.status.ended)
        }
        gated = frozenset(uid for uid, record in fresh.items() if record.pod.gate.present and not record.end.ended)
        remaining = find_remaining_containers(self._settings.proc, self._settings.cgroup_root, gated)
        for record in fresh.values():  # only after the search: one that failed is repeated
            record.end.over_since = now
        for uid, containers in remaining.items():
            record = fresh[uid]
            with about_pod(record.pod, record.gpus):
                name = record.pod.name
                log.warning("%s has ended according to the API, but its processes still run: waiting for them", name)
            record.processes.complete = True
            for container in containers:
                record.processes.containers.setdefault(container.id, container)
                self._watch_end(record.processes, container.pid)

    def _judged(self, record: PodRecord, now: float) -> LocalTrial | None:
        with about_pod(record.pod, record.gpus):
            return self._judge(record, now)

    def _judge(self, record: PodRecord, now: float) -> LocalTrial | None:
        pod = record.pod
        if not pod.gate.present:
            record.started, record.end.ended = True, record.end.over_since is not None
            return None  # a trial without a GPU takes part in no switch
        gate = self._gate(pod)
        work = self._work(record)
        if not record.started and (pod.gate.passed or record.processes.containers):
            record.started, record.gate_report = True, self._gates.gate_report(pod.uid)
        state = derive(gate, work, record.act.current)
        changed = state is not record.state
        if changed:
            why = reason(record.state, state, record.act.done)
            log.info("%s: %s > %s (%s)", pod.name, record.state or "-", state or "Ended", why)
            record.state, record.since = state, now
        record.act.done = Acting.NOTHING
        if state is None:
            return None
        suspended = state is SlotState.SUSPENDED
        if suspended and record.kill_at(now) is None and self._termination_seen(record.processes, changed):
            log.info("%s is being terminated; the signal arrived while it was frozen, or just before", pod.name)
            record.note_termination(now)
        hint = self._hints.get(pod.uid)
        hinted_gpus = hint.gpus if hint is not None else ()
        method = self._methods.choose(pod.settings.methods, len(record.gpus or hinted_gpus), record.suspension.failed)
        return LocalTrial(
            key=pod.key,
            pod=LocalPod(pod.name, pod.uid, pod.attempt),
            gpus=record.gpus,
            state=state,
            since=record.since,
            gate=gate,
            admitting=record.act.current is Acting.ADMITTING,
            termination=self._termination(record, now),
            memory=TrialMemory(
                declared=pod.requests.gpu_memory,
                shortage=record.memory.shortage,
                moves=method == CudaCheckpoint.name and moves_memory(pod.settings.methods),
                is_checkpointed=suspended and self._methods.is_checkpointed(record.processes.freezers),
            ),
            suspension=TrialSuspension(
                method=method,
                partial=record.suspension.partial and state is SlotState.RUNNING,
                retry_at=record.act.retry_at,
                trouble=record.act.trouble,
            ),
            hinted_gpus=hinted_gpus,
        )

    def _termination(self, record: PodRecord, now: float) -> Termination:
        deadline = record.kill_at(now)
        deleting = deadline is not None or record.end.over_since is not None
        heeds = True
        if deleting:  # a trial that continues on another node must not compute here as well
            elsewhere = record.pod.migration.to and record.migration.image_complete is not False
            heeds = not elsewhere and any(
                handles_sigterm(self._settings.proc, one.pid) for one in record.processes.containers.values()
            )
        denied = record.pod.status.denied and not record.end.absent
        return Termination(deleting, heeds, deadline, record.pod.termination.grace, record.end.over_since, denied)

    def _termination_seen(self, processes: PodProcesses, just_frozen: bool) -> bool:
        """Return whether a SIGTERM, or the preStop hook before it, is pending: nothing enters a frozen container."""
        proc, containers = self._settings.proc, processes.containers.values()
        caught = just_frozen and any(prestop_hook_pending(proc, one.freezer) for one in containers)
        return caught or any(sigterm_pending(proc, one.pid) for one in containers)

    def _gate(self, pod: TrialPod) -> Gate:
        if self._gates.passed(pod.uid) or pod.gate.passed:
            return Gate.PASSED
        if self._gates.waiting(pod.uid):
            return Gate.WAITING
        # the gate of a later pod has only not connected yet: no other agent can have opened it
        return Gate.SILENT if pod.gate.running and pod.uid in self._before else Gate.ABSENT

    def _work(self, record: PodRecord) -> Work:
        end, processes = record.end, record.processes
        if end.ended:
            return Work.ENDED
        over = end.over_since is not None
        if not processes.containers:
            end.ended = over
            return Work.ENDED if over else Work.NOT_STARTED
        try:
            self._note_gpu_state(record)
            suspension_state = self._methods.suspension_state(processes.freezers)
        except (OSError, ValueError) as error:
            log.error(
                "%s: assumed to be %s, as before, because its freezer cannot be read: %s",
                record.pod.name,
                processes.work,
                error,
            )
            return processes.work
        if suspension_state is SuspensionState.GONE:
            # every container that ran here is gone; another one of the pod may still start
            all_seen = record.pod.containers.running <= processes.containers.keys()
            end.ended = over or (all_seen and len(processes.containers) >= len(record.pod.containers.names))
            return Work.ENDED if end.ended else Work.NOT_STARTED
        record.suspension.partial = (
            suspension_state is SuspensionState.PARTLY_SUSPENDED and record.act.current is Acting.NOTHING
        )
        if suspension_state is not SuspensionState.SUSPENDED and not processes.complete and _incomplete(record):
            # if the pod were suspended now, a later container of it would run beside the next trial
            return Work.NOT_STARTED
        processes.complete = True
        processes.work = Work.FROZEN if suspension_state is SuspensionState.SUSPENDED else Work.THAWED
        return processes.work

    def _note_gpu_state(self, record: PodRecord) -> None:
        """Note the GPU state of a container that was migrated here: it is partly suspended until it is restored.

        Only the pod's first container is migrated; a container beside it (a sidecar) started here.
        """
        main, gpu_state = record.processes.containers.get(record.pod.containers.main), record.pod.migration.gpu_state
        if gpu_state is None or record.migration.gpu_state_noted or not record.gpus or main is None:
            return
        self._methods.add_migrated(main.freezer, gpu_state, record.gpus)
        record.migration.gpu_state_noted = True

    def _watch_end(self, processes: PodProcesses, pid: int) -> None:
        """Wake the node reconciler as soon as a container's first process has ended, without waiting for a tick."""
        if pid in processes.pidfds:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return  # it has ended: the next observation sees it
        processes.pidfds[pid] = descriptor
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            self._changed()

        loop.add_reader(descriptor, ended)

    def _drop(self, processes: PodProcesses) -> None:
        loop = asyncio.get_running_loop()
        for descriptor in processes.pidfds.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        processes.pidfds.clear()


def _concerns_us(pod: TrialPod) -> bool:
    """Return whether Podium suspends the pod's processes or watches its checkpoints."""
    return pod.gate.present or bool(pod.settings.checkpoint)


def _incomplete(record: PodRecord) -> bool:
    containers = record.pod.containers
    return containers.starting or not containers.running <= record.processes.containers.keys()
