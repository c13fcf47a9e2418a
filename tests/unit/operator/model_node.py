"""A node of the model as it really is: processes, freezers, gates, folders; and the kubelet that reports them.

Nothing here knows Podium's rules. A trial's process works while it is thawed, saves into the folder of its trial, and
handles SIGTERM by a save, as `podium.trial` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from model_api import Object, Server, moment

from podium_agent.observe.pods import TrialPod
from podium_cluster.resources import PODS

MAX_STEPS = 12


@dataclass(slots=True)
class Process:
    """One pod's processes. `started`: the gate let it through and its main container runs or ran."""

    pod: str
    uid: str
    trial: str  # uid
    attempt: int
    gpu: str
    gate: bool = True  # the gate runs and is connected
    passed: bool = False  # the gate has ended well
    started: bool = False
    frozen: bool = False
    code: int | None = None
    said: int | None = None  # what its gate found in the folder
    begun_at: int = 0  # step of the save that it went on from
    step: int = 0
    term: bool = False  # SIGTERM is pending
    final_checkpoint: bool = False  # thawed beside another, for what was left of its grace
    forced: bool = False  # its pod was taken from the API while it ran
    told: int | None = None  # step that an agent wrote of it; None: nothing was written of this attempt
    followed: bool = True  # the same agent was there from its start to its last words

    @property
    def works(self) -> bool:
        return self.started and self.code is None and not self.frozen

    @property
    def lives(self) -> bool:
        return self.code is None and (self.gate or self.passed)


@dataclass(slots=True)
class Folders:
    """The checkpoint volume, which every node mounts: step of the newest save by trial uid. `mounted`: there is one."""

    mounted: bool
    saved: dict[str, int] = field(default_factory=dict)


class Node:
    def __init__(self, name: str, server: Server, folders: Folders, *, shares: int) -> None:
        self.name = name
        self.gpu = f"GPU-{name}"
        self.shares = shares
        self.lost = False
        self.processes: dict[str, Process] = {}  # by pod uid
        self.passages: dict[str, TrialPod] = {}  # by pod uid: what its agents noted on its disk
        self._server = server
        self._folders = folders

    def pods(self) -> list[Object]:
        return [pod for pod in self._server.all(PODS) if pod["spec"].get("nodeName") == self.name]

    def room(self) -> int:
        return self.shares - len([pod for pod in self.pods() if pod["status"]["phase"] not in ("Succeeded", "Failed")])

    # kubelet

    def kubelet(self, now: float) -> None:
        """One sync of every pod, and of what is left of pods that are gone."""
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
                said=self._folders.saved.get(meta["ownerReferences"][0]["uid"]),
            )
        if going:
            self._end(process, meta)
        self._report(pod, process, now)

    def let_through(self, process: Process) -> None:
        """The gate ends well, and the main container starts before anybody hears of it."""
        if process.code is None and not self.lost:
            process.gate, process.passed, process.started = False, True, True
            process.begun_at = process.step = self._folders.saved.get(process.trial, 0)

    def _end(self, process: Process, meta: Object) -> None:
        """SIGTERM; whoever still lives when the grace is over is killed (`expire`)."""
        if not process.started and process.code is None:
            process.code, process.gate = 143, False
        process.term = True

    def expire(self, now: float) -> None:
        """SIGKILL for those whose grace period is over."""
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
        """Each process that may runs one step; one that was told to go saves and goes."""
        for process in self.processes.values():
            if not process.works:
                continue
            if process.term:
                self.save(process)
                process.code = 0
                continue
            process.step += 1
            if process.step >= MAX_STEPS:
                self.save(process)
                process.code = 0

    def save(self, process: Process) -> None:
        if process.works and self._folders.mounted:
            self._folders.saved[process.trial] = process.step

    def marker(self, process: Process) -> int | None:
        return self._folders.saved.get(process.trial)

    def die(self) -> None:
        """The machine is gone, with all that ran there."""
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
