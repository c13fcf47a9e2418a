"""Node of the model: processes, freezers, gates and folders, and the kubelet that reports them.

It knows nothing of Podium's rules. A trial's process works unless it is frozen, checkpoints into the folder of its
trial, and handles SIGTERM by a checkpoint, as `podium.trial` does. A worker of several makes a step only while all of
them run, fails if another one has ended, and leaves the checkpoints to worker 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model_api import Object, Server, moment

from podium_agent.observe.pods import TrialPod
from podium_cluster.resources import PODS

MAX_STEPS = 12


@dataclass(slots=True)
class Process:
    """Processes of one pod. `started`: the gate opened and its main container runs or ran."""

    pod: str
    uid: str
    trial: str  # uid
    attempt: int
    gpu: str
    rank: int = 0
    workers: int = 1
    gate: bool = True  # the gate runs and is connected
    passed: bool = False  # the gate has ended well
    started: bool = False
    frozen: bool = False
    code: int | None = None
    gate_checkpoint: int | None = None  # step of the checkpoint that its gate read in the folder
    resumed_from: int = 0  # step of the checkpoint that it continued from
    step: int = 0
    term: bool = False  # SIGTERM is pending
    final_checkpoint: bool = False  # thawed beside another trial for the rest of its grace period
    forced: bool = False  # its pod was deleted from the API while it ran
    reported_step: int | None = None  # step that an agent reported; None: nothing was reported of this attempt
    followed: bool = True  # one agent observed it from its start to its final report

    @property
    def runs(self) -> bool:
        return self.started and self.code is None and not self.frozen

    @property
    def alive(self) -> bool:
        return self.code is None and (self.gate or self.passed)


@dataclass(slots=True)
class Folders:
    """Checkpoint volume, which every node mounts: step of the newest checkpoint by trial uid. `mounted`: it exists."""

    mounted: bool
    saved: dict[str, int] = field(default_factory=dict)


Peers = Callable[[Process], "list[Process]"]  # the processes of the other workers of its attempt, on any node


class Node:
    def __init__(self, name: str, server: Server, folders: Folders, peers: Peers, *, slots: int) -> None:
        self.name = name
        self.gpu = f"GPU-{name}"
        self.slots = slots
        self.lost = False
        self.processes: dict[str, Process] = {}  # by pod uid
        self.admissions: dict[str, TrialPod] = {}  # by pod uid: what its agents recorded on its disk
        self._server = server
        self._folders = folders
        self._peers = peers

    def pods(self) -> list[Object]:
        return [pod for pod in self._server.all(PODS) if pod["spec"].get("nodeName") == self.name]

    def free_slots(self) -> int:
        return self.slots - len([pod for pod in self.pods() if pod["status"]["phase"] not in ("Succeeded", "Failed")])

    # kubelet

    def kubelet(self, now: float) -> None:
        """Synchronise every pod, and what remains of pods that are gone."""
        if self.lost:
            return
        there = {pod["metadata"]["uid"]: pod for pod in self.pods()}
        for uid, process in list(self.processes.items()):
            if uid not in there:
                if process.code is None:
                    process.code = 137
                    process.gate = False
                del self.processes[uid]
        for pod in there.values():
            self._sync(pod, now)

    def _sync(self, pod: Object, now: float) -> None:
        meta = pod["metadata"]
        process = self.processes.get(meta["uid"])
        going = "deletionTimestamp" in meta
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            if going:
                self._server.remove(meta["name"])
            return
        if process is None:
            if going:
                self._server.remove(meta["name"])
                return
            process = self.processes[meta["uid"]] = Process(
                meta["name"],
                meta["uid"],
                meta["ownerReferences"][0]["uid"],
                int(meta["labels"]["podium.dev/attempt"]),
                self.gpu,
                int(meta["labels"].get("podium.dev/rank", "0")),
                int(meta["labels"].get("podium.dev/workers", "1")),
                gate_checkpoint=self._folders.saved.get(meta["ownerReferences"][0]["uid"]),
            )
        if going:
            self._end(process, meta)
        self._report(pod, process, now)

    def open_gate(self, process: Process) -> None:
        """End the gate well; the main container starts before any watch shows that."""
        if process.code is None and not self.lost:
            process.gate, process.passed, process.started = False, True, True
            process.resumed_from = process.step = self._folders.saved.get(process.trial, 0)

    def _end(self, process: Process, meta: Object) -> None:
        """Send SIGTERM; processes that still run when the grace period is over are killed (`expire`)."""
        if not process.started and process.code is None:
            process.code, process.gate = 143, False
        process.term = True

    def expire(self, now: float) -> None:
        """Send SIGKILL to processes whose grace period is over."""
        for pod in self.pods():
            process = self.processes.get(pod["metadata"]["uid"])
            deadline = pod["metadata"].get("deletionTimestamp")
            if process is not None and process.code is None and deadline is not None and deadline <= moment(now):
                process.code, process.gate = 137, False

    def _report(self, pod: Object, process: Process, now: float) -> None:
        status = _status(process, now)
        if status != pod["status"]:
            self._server.put(PODS, {**pod, "status": status})

    # the trials' processes

    def work(self) -> None:
        """Run one step of each process that may run; a process with SIGTERM checkpoints and exits."""
        for process in self.processes.values():
            if not process.runs:
                continue
            others = self._peers(process)
            if process.term:
                self.write_checkpoint(process)
                process.code = 0
            elif any(other.started and other.code is not None for other in others):
                complete = any(other.rank == 0 and other.step >= MAX_STEPS for other in others)
                process.code = 0 if complete else 1
            elif process.rank == 0 and len([other for other in others if other.runs]) == process.workers - 1:
                process.step += 1
                if process.step >= MAX_STEPS:
                    self.write_checkpoint(process)
                    process.code = 0

    def write_checkpoint(self, process: Process) -> None:
        if process.runs and process.rank == 0 and self._folders.mounted:
            self._folders.saved[process.trial] = process.step

    def latest_checkpoint(self, process: Process) -> int | None:
        return self._folders.saved.get(process.trial)

    def lose(self) -> None:
        """Lose the machine with all that ran there."""
        self.lost = True
        for process in self.processes.values():
            process.code = 137 if process.code is None else process.code
            process.gate = False
        self.processes.clear()


def _status(process: Process, now: float) -> dict[str, Any]:
    gate: Object = {"running": {}}
    if process.passed or process.code is not None:
        gate = {"terminated": {"exitCode": 0 if process.passed else 143}}
    status: Object = {"phase": "Pending", "initContainerStatuses": [{"name": "podium-gate", "state": gate}]}
    if process.started:
        main: Object = {"running": {}}
        if process.code is not None:
            main = {"terminated": {"exitCode": process.code, "finishedAt": moment(now)}}
        status["phase"] = "Running"
        status["containerStatuses"] = [{"name": "main", "containerID": f"containerd://{process.uid}", "state": main}]
    if process.code is not None:
        status["phase"] = "Succeeded" if process.code == 0 else "Failed"
    return status
