"""Agent of the model: the real decisions (scheduler, state table, ledger, lost work) on what it observes of its node.

Pods and run queues come from watches that lag; processes and folders come from the node itself, as for the real agent.
Sockets, cgroups and log files are replaced by reading the node's `Process`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model_api import Object, Server, View, moment
from model_node import Node, Process

from podium_agent.observe.pods import TrialPod, parse
from podium_agent.report.trial_record import TrialRecord
from podium_agent.report.trial_status import position_from, to_status
from podium_agent.schedule.node_reconciler import run_queues_of
from podium_agent.schedule.state_table import derive
from podium_cluster.client import ApiError
from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_core.attempts.local_scheduler import Admit, Resume, RunQueues, Suspend, Wait, decide, newer
from podium_core.attempts.local_trial import Acting, Gate, LocalPod, LocalTrial, Termination, TrialSuspension, Work
from podium_core.attempts.lost_work import (
    AttemptStart,
    CompletionMarker,
    GateReport,
)
from podium_core.attempts.trial_status import curve_from, ledger_from, reached
from podium_core.attempts.usage_ledger import begin_attempt
from podium_core.curves.growing_curve import Line, extend
from podium_core.curves.thinning import Grid
from podium_core.logs.line_reader import ParsedLine
from podium_core.schema.gpunode import GPUNode, SlotState, TrialOnGpu
from podium_core.schema.trial import HyperParamTrial
from podium_core.sources.batch import Position

MANAGER = "podium-agent"


@dataclass(slots=True)
class Record:
    """What the agent remembers of one pod. `gone`: it must not write to the trial's status any more."""

    pod: TrialPod
    process: Process | None = None
    trial_record: TrialRecord | None = None
    state: SlotState | None = None
    since: float = 0.0
    acting: Acting = Acting.NOTHING
    ends: Suspend | Resume | None = None  # the action in progress
    passed: bool = False
    located: bool = False
    over_since: float | None = None
    version: str = ""
    gone: bool = False


class Agent:
    def __init__(self, node: Node, server: Server, now: float) -> None:
        self._node = node
        self._server = server
        self.pods: View[TrialPod] = View(
            server, PODS, parse, lambda pod: bool(pod["spec"].get("nodeName") == node.name)
        )
        self.nodes: View[GPUNode] = View(server, GPUNODES, GPUNode.model_validate)
        self.orders = RunQueues()
        self.records: dict[str, Record] = {}
        self.pods.receive()  # list before the first action
        self.nodes.receive()
        self._hints: dict[str, TrialPod] = dict(node.admissions)
        before = self.nodes.get("", node.name)
        for gpu in before.status.gpus if before is not None else ():
            self._hints |= {one.pod_uid: _forgotten_pod(one) for one in gpu.trials}

    # one pass of the executor

    def run_once(self, now: float) -> bool:
        """Observe, decide and start the actions; return True if there were any."""
        node = self.nodes.get("", self._node.name)
        if node is not None:
            before, self.orders = self.orders, newer(self.orders, run_queues_of(node))
            assert self.orders.epoch >= before.epoch, "an order that is older than the one in force"
        trials = self._observe(now)
        started = False
        for step in decide(self.orders, trials, now):
            record = self.records[step.trial.pod.uid]
            if isinstance(step, Wait) or record.acting is not Acting.NOTHING or record.process is None:
                continue
            started = True
            if isinstance(step, Admit):
                record.passed = True
                self._node.admissions[record.pod.uid] = record.pod
                self._node.open_gate(record.process)
            elif isinstance(step, Suspend):
                record.acting, record.ends = Acting.SUSPENDING, step
            else:
                record.acting, record.ends = Acting.RESUMING, step
                record.process.frozen = False
                if step.reason == "FinalCheckpoint":
                    record.process.final_checkpoint = True
        return started

    def finish(self) -> None:
        """Complete the actions in progress. A resumption took effect earlier, a suspension only now: the worst case."""
        for record in self.records.values():
            if isinstance(record.ends, Suspend) and record.process is not None and record.process.code is None:
                record.process.frozen = True
            record.acting, record.ends = Acting.NOTHING, None

    def _observe(self, now: float) -> tuple[LocalTrial, ...]:
        present = {pod.uid: pod for pod in self.pods.values()}
        for uid, pod in present.items():
            record = self.records.setdefault(uid, Record(pod, since=now))
            record.pod = pod
            record.process = self._node.processes.get(uid, record.process)
        for uid in self._hints.keys() - present.keys():  # once: processes of pods that the API has forgotten
            process = self._node.processes.get(uid)
            self.records[uid] = Record(self._hints[uid], process, over_since=now, passed=True, gone=True)
        self._hints.clear()
        trials = []
        for uid, record in list(self.records.items()):
            over = uid not in present or record.pod.status.ended
            if over and record.over_since is None:
                record.over_since = now
            trial = self._local_trial(record, now)
            self._follow(record, now)
            if trial is not None:
                trials.append(trial)
        return tuple(trials)

    def _local_trial(self, record: Record, now: float) -> LocalTrial | None:
        pod, process = record.pod, record.process
        record.located = record.located or bool(pod.containers.running) or (record.over_since is not None)
        gate = self._gate(record)
        work = self._work(record)
        state = derive(gate, work, record.acting)
        if state is not record.state:
            record.state, record.since = state, now
        if state is None:
            return None
        deleting = pod.termination.deadline is not None or record.over_since is not None
        return LocalTrial(
            key=pod.key,
            pod=LocalPod(pod.name, pod.uid, pod.attempt),
            gpus=(self._node.gpu,),
            state=state,
            since=record.since,
            gate=gate,
            termination=Termination(
                deleting,
                handles_sigterm=process is not None and process.started,
                deadline=pod.termination.deadline,
                grace=pod.termination.grace,
                over_since=record.over_since,
            ),
            suspension=TrialSuspension("freeze" if "freeze" in pod.settings.methods else ""),
        )

    def _gate(self, record: Record) -> Gate:
        if record.passed or record.pod.gate.passed:
            return Gate.PASSED
        if record.process is not None and record.process.gate:
            return Gate.WAITING
        return Gate.SILENT if record.pod.gate.running else Gate.ABSENT

    def _work(self, record: Record) -> Work:
        process = record.process
        if record.over_since is not None and (process is None or not process.alive):
            return Work.ENDED
        if process is None or not process.started or not record.located:
            return Work.ENDED if record.over_since is not None and process is None else Work.NOT_STARTED
        if process.code is not None:
            return Work.ENDED
        return Work.FROZEN if process.frozen else Work.THAWED

    # the trial's status

    def _follow(self, record: Record, now: float) -> None:
        process = record.process
        started = record.passed or record.pod.gate.passed or record.located
        if record.gone or process is None or not started or not process.passed or process.rank:
            return
        if record.trial_record is None:
            record.trial_record = TrialRecord(record.pod, self._node.name)
        record.trial_record.follow(record.state, (self._node.gpu,), now)

    async def report(self, now: float) -> None:
        """Report once, as the reporter and the trials' writers do."""
        await self._server.apply_status(GPUNODES, self._status(now), manager=MANAGER)
        for uid, record in list(self.records.items()):
            if record.trial_record is not None and not record.gone:
                await self._write(record, record.trial_record, now)
            if record.over_since is not None and record.state is None:
                del self.records[uid]  # its final report is written
                self._node.admissions.pop(uid, None)

    async def _write(self, record: Record, trial_record: TrialRecord, now: float) -> None:
        if trial_record.ledger is None:
            self._load_record(record, trial_record, now)
        for _ in range(3):
            if record.gone or trial_record.ledger is None:
                return
            self._read(record, trial_record, now)
            key = trial_record.pod.key
            about = {"name": key.name, "namespace": key.namespace, "resourceVersion": record.version}
            manifest = {"metadata": about, "status": to_status(trial_record, trial_record.ledger, "main", now)}
            try:
                answer = await self._server.apply_status(TRIALS, manifest, manager=MANAGER)
            except ApiError as error:
                if not error.conflict:
                    raise
                self._load_record(record, trial_record, now)
                continue
            record.version = answer["metadata"]["resourceVersion"]
            if record.process is not None:
                record.process.reported_step = record.process.step
            trial_record.own()
            return

    def _load_record(self, record: Record, trial_record: TrialRecord, now: float) -> None:
        """Start a record as `TrialWriter._begin` does: read the status and take over from the attempt before."""
        found = self._server.find(TRIALS, trial_record.pod.key.name)
        assert found is not None
        status = HyperParamTrial.model_validate(found).status
        record.version = found["metadata"]["resourceVersion"]
        mine = status.log_cursor is not None and status.log_cursor.pod_uid == trial_record.pod.uid
        if mine and trial_record.ledger is not None:
            trial_record.own()
            return
        if trial_record.writing.owned or (not mine and status.attempt > trial_record.pod.attempt):
            record.gone = True
            return
        account, begins_at = ledger_from(status), None
        if not mine:
            assert record.process is not None
            said = GateReport(None if record.process.gate_checkpoint is None else _mark(record.process.gate_checkpoint))
            spent = status.gpu_seconds
            start = AttemptStart(said, trial_record.node, trial_record.pod.attempt)
            account = begin_attempt(account, start, reached(status), spent, now)
            begins_at = account.checkpoint.step if account.checkpoint is not None else 0.0
        position = position_from(status, trial_record.pod.uid, "main")
        trial_record.load(account, curve_from(status, begins_at, continues=position != Position()), position)

    def _read(self, record: Record, trial_record: TrialRecord, now: float) -> None:
        """Read the log and the completion marker."""
        process = record.process
        assert process is not None
        printed = [Line(now, f"{step}") for step in range(process.resumed_from + 1, process.step + 1)]
        unread = [line for line in printed if float(line.text) > trial_record.metrics.curve.current_step]
        trial_record.metrics.curve = extend(trial_record.metrics.curve, unread, _reading, Grid(maximize=True))
        saved = self._node.latest_checkpoint(process)
        if saved is not None:
            trial_record.saw_marker(_mark(saved), now)

    def _status(self, now: float) -> Object:
        here = [record for record in self.records.values() if record.state is not None]
        entries = [
            {
                "namespace": record.pod.key.namespace,
                "trial": record.pod.key.name,
                "uid": record.pod.key.uid,
                "pod": record.pod.name,
                "podUID": record.pod.uid,
                "state": record.state,
                "since": moment(record.since),
            }
            for record in here
        ]
        gpu: dict[str, Any] = {"uuid": self._node.gpu, "index": 0, "health": "Healthy", "slots": self._node.slots}
        holder = next((r for r in sorted(here, key=lambda r: r.since) if _runs(r)), None)
        if holder is not None:
            entry = entries[here.index(holder)]
            gpu["holder"] = {field: entry[field] for field in ("namespace", "trial", "uid", "since")}
        status = {"observedEpoch": self.orders.epoch, "gpus": [gpu | {"trials": entries}]}
        return {"metadata": {"name": self._node.name}, "status": status}


def _runs(record: Record) -> bool:
    return record.state not in (None, SlotState.GATED, SlotState.SUSPENDED)


def _reading(text: str) -> list[ParsedLine]:
    return [ParsedLine(float(text), float(text) / 10.0)]


def _mark(step: int) -> CompletionMarker:
    return CompletionMarker(float(step), f"step-{step}", on_request=True)


def _forgotten_pod(one: TrialOnGpu) -> TrialPod:
    owner = {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "name": one.trial,
        "uid": one.uid,
        "controller": True,
    }
    meta = {"name": one.pod, "namespace": one.namespace, "uid": one.pod_uid, "labels": {"podium.dev/trial": one.trial}}
    return parse({"metadata": meta | {"ownerReferences": [owner]}, "status": {"phase": "Failed"}})
