"""Operator and agents under arbitrary interleavings of events: a model-based test.

The operator is the real one (its whole reconcile: observe, snapshot, plan, actuator, statuses) with a server of plain
objects; the agents decide with the real scheduler. Both sides observe the cluster late, each part as late as the test
likes. They are killed at any moment, the operator also between two calls of one reconcile, and answers to writes are
lost. Pods are deleted with and without grace, processes crash, one node is lost for good, nodes are drained. In some
searches each trial has two workers. The invariants:

- at limit one trial runs on a GPU (except for the final checkpoint of one that is about to be killed);
- a trial never has two running pods, or workers of two attempts, unless one was deleted from the API by force;
- lost work is reported: the status holds exactly what the attempts repeated;
- once faults stop, every trial ends, and nothing stays frozen.

`PODIUM_MODEL_EXAMPLES=10000 pytest tests/unit/operator/test_model.py` tries that many interleavings.
"""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model_agent import Agent
from model_api import Server, moment
from model_node import MAX_STEPS, Folders, Node, Process
from model_operator import Clock, Operator
from operator_builders import NOW, accepted, job_manifest

from podium_cluster.resources import GPUNODES, JOBS, PODS, TRIALS
from podium_cluster.resources import NODES as KUBE_NODES
from podium_core.domain.phase import FINAL
from podium_core.schema.trial import HyperParamTrial

EXAMPLES = int(os.environ.get("PODIUM_MODEL_EXAMPLES", "300"))
NODES = ("node-0", "node-1")
THIRD = "node-2"  # without faults, so that trials of two workers can end although one node is lost for good
TRIAL_COUNT = 4  # trials
CLAIM = {"path": "/c", "volume": {"claimName": "runs"}}
METHODS: dict[str, dict[str, Any]] = {
    "freeze": {"suspension": {"methods": ["freeze"]}},
    "save": {"suspension": {"methods": ["app-checkpoint"]}, "checkpoint": CLAIM},
    "both": {"suspension": {"methods": ["freeze", "app-checkpoint"]}, "checkpoint": CLAIM},
}
POLICIES: list[dict[str, Any]] = [
    {"name": "fifo"},
    {"name": "hermes", "settings": {"min_run": 1.0}},
    {"name": "round_robin", "settings": {"quantum": 2.0}},
]
A_NODE = st.sampled_from(NODES)
AFTER_CALLS = st.sampled_from([None, None, None, 0, 1, 2, 4])
CHANGES = st.sampled_from([0, 1, 3, None])  # changes that a watch delivers; None: all of them


class PodiumModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock(NOW)
        self.server = Server(self.clock.time)
        self.nodes: dict[str, Node] = {}
        self.agents: dict[str, Agent] = {}
        self.attempts: dict[str, Process] = {}  # by pod uid: all that ever started
        self.known_pods: set[str] = set()

    @initialize(
        method=st.sampled_from(sorted(METHODS)),
        policy=st.sampled_from(POLICIES),
        rounds=st.integers(0, 8),
        rebalances=st.booleans(),
        workers=st.sampled_from([1, 1, 2]),
    )
    def initial_run(self, method: str, policy: dict[str, Any], rounds: int, rebalances: bool, workers: int) -> None:
        """Run a part of the search without faults, so that faults meet trials in every state."""
        self.rebalances = rebalances
        folders = Folders(mounted=method != "freeze")
        names = NODES if workers == 1 else (*NODES, THIRD)
        for name in names:
            self.nodes[name] = Node(name, self.server, folders, self.peers, slots=3)
            self.server.put(GPUNODES, {"metadata": {"name": name, "uid": name}, "spec": {}, "status": {}})
            self.server.put(KUBE_NODES, {"metadata": {"name": name}, "status": {"allocatable": {"pods": "9"}}})
            self.agents[name] = Agent(self.nodes[name], self.server, self.clock.now)
        steps = {"max": TRIAL_COUNT, "parallel": TRIAL_COUNT, "maxSteps": MAX_STEPS, "maxFailed": TRIAL_COUNT}
        several: dict[str, Any] = {"trials": steps | {"workers": workers}, "gpus": {"perTrial": workers}}
        job = job_manifest(**several, policy=policy, **METHODS[method])
        job["metadata"] |= {"uid": "uid-sweep", "generation": 1, "creationTimestamp": moment(NOW)}
        self.server.put(JOBS, job | {"status": {"conditions": [accepted()]}})
        self.operator = Operator(self.server, self.clock, self.loop, (), rebalances)
        for name in names:
            self.report(name)
        for _ in range(rounds):
            self.run_without_faults()

    def peers(self, process: Process) -> list[Process]:
        """Return the processes of the other workers of an attempt, as far as their kubelets know them."""
        there = [one for node in self.nodes.values() for one in node.processes.values()]
        same = [one for one in there if (one.trial, one.attempt) == (process.trial, process.attempt)]
        return [one for one in same if one.rank != process.rank]

    # decisions

    @rule(seen=st.tuples(CHANGES, CHANGES, CHANGES), killed_after=AFTER_CALLS, unanswered_after=AFTER_CALLS)
    def operator_reconciles(
        self,
        seen: tuple[int | None, int | None, int | None],
        killed_after: int | None,
        unanswered_after: int | None = None,
    ) -> None:
        """Reconcile once after some news, perhaps with a lost answer, or killed in the middle and replaced."""
        for view, limit in zip(self.operator.caches.views, (None, *seen), strict=True):
            view.receive(limit)
        if not self.operator.reconcile(killed_after, unanswered_after):
            self.operator = Operator(self.server, self.clock, self.loop, self.known_pods, self.rebalances)

    @rule(
        name=A_NODE,
        pods=CHANGES,
        orders=st.one_of(CHANGES, st.just("old")),
        ends=st.sampled_from(["nothing", "acts", "acts", "report"]),
    )
    def agent_acts(self, name: str, pods: int | None, orders: int | str | None, ends: str) -> None:
        """Act once after some news or an outdated run queue. The actions end now or later."""
        if name in self.agents:
            agent = self.agents[name]
            agent.pods.receive(pods)
            if isinstance(orders, str):
                agent.nodes.read_stale()
            else:
                agent.nodes.receive(orders)
            agent.run_once(self.clock.now)
            self.at_most_one_holder()  # resumed trials run at once, suspended ones have not stopped yet
            if ends != "nothing":
                agent.finish()
            if ends == "report":
                self.report(name)

    def report(self, name: str) -> None:
        if name in self.agents:
            self.loop.run_until_complete(self.agents[name].report(self.clock.now))

    # normal operation

    @rule(kubelet=st.sampled_from([(), ("node-0",), ("node-1",), NODES]), steps=st.integers(0, 2))
    def cluster_runs(self, kubelet: tuple[str, ...], steps: int) -> None:
        self.scheduler()
        for name in kubelet:
            self.nodes[name].kubelet(self.clock.now)
            for _ in range(steps):
                self.nodes[name].work()

    def scheduler(self) -> None:
        for pod in self.server.all(PODS):
            if "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
                taken = self.nodes_of_other_workers(pod)
                there = [
                    node
                    for name, node in self.nodes.items()
                    if not node.lost and not self.drains(name) and name not in taken
                ]
                free = sorted((node for node in there if node.free_slots() > 0), key=lambda node: -node.free_slots())
                if free:
                    self.server.put(PODS, {**pod, "spec": pod["spec"] | {"nodeName": free[0].name}})

    def nodes_of_other_workers(self, pod: dict[str, Any]) -> set[str]:
        """Return the nodes that the pod's required anti-affinity excludes."""
        apart = pod["spec"].get("affinity", {}).get("podAntiAffinity")
        if apart is None:
            return set()
        (term,) = apart["requiredDuringSchedulingIgnoredDuringExecution"]
        label = term["labelSelector"]["matchLabels"]
        return {
            other["spec"]["nodeName"]
            for other in self.server.all(PODS)
            if label.items() <= other["metadata"]["labels"].items()
            and "nodeName" in other["spec"]
            and other["status"]["phase"] not in ("Succeeded", "Failed")
        }

    def drains(self, name: str) -> bool:
        found = self.server.find(GPUNODES, name)
        return found is not None and bool(found["spec"].get("draining"))

    @rule(seconds=st.sampled_from([1, 3, 30, 300]))
    def time_passes(self, seconds: int) -> None:
        self.clock.now += seconds
        for process in self.attempts.values():
            # a healthy agent writes within two seconds; the operator waits for it for four
            process.followed &= process.code is None or process.reported_step == process.step or seconds < 3
        for node in self.nodes.values():
            node.expire(self.clock.now)

    @rule(steps=st.sampled_from([1, 4]))
    def run_without_faults(self, steps: int = 1) -> None:
        self.time_passes(5)
        self.operator_reconciles((None, None, None), None)
        self.scheduler()
        for name in self.nodes:
            self.nodes[name].kubelet(self.clock.now)
            for _ in range(3):
                self.agent_acts(name, None, None, "acts")
            for _ in range(steps):
                self.nodes[name].work()
            self.nodes[name].kubelet(self.clock.now)
            self.agent_acts(name, None, None, "report")

    # faults

    @rule(which=st.integers(0, 7), how=st.sampled_from(["delete", "delete", "at once", "by force", "crash", "save"]))
    def trial_fault(self, which: int, how: str) -> None:
        alive = [p for node in self.nodes.values() for p in node.processes.values() if p.alive]
        if not alive:
            return
        process = alive[which % len(alive)]
        if how == "save":
            self.nodes[process.gpu.removeprefix("GPU-")].write_checkpoint(process)
        elif how == "crash":
            process.code = 1 if process.runs else process.code
        else:
            process.forced = process.forced or how == "by force"
            process.followed = process.followed and how != "by force"
            grace = {"delete": None, "at once": 2, "by force": 0}[how]
            self.server.end(process.pod, uid=process.uid, grace=grace)

    @rule(name=A_NODE, how=st.sampled_from(["agent dies", "agent dies", "drain", "undrain", "is lost", "is missed"]))
    def node_fault(self, name: str, how: str) -> None:
        """A lost node (one at limit) is missed later: its agent counts as unresponsive, its pods are collected."""
        node = self.nodes[name]
        if how in ("agent dies", "is lost"):
            self.not_followed(name)
        if how == "agent dies" and not node.lost:
            self.agents[name] = Agent(node, self.server, self.clock.now)
        elif how in ("drain", "undrain"):
            body = {"metadata": {"name": name}, "spec": {"draining": how == "drain"}}
            self.loop.run_until_complete(self.server.apply(GPUNODES, body, manager="cli"))
        elif how == "is lost" and not any(other.lost for other in self.nodes.values()):
            self.note_attempts()
            node.lose()
            del self.agents[name]
        elif how == "is missed" and node.lost:
            self.known_pods.add(name)
            self.operator.caches.unresponsive.add(name)
            for pod in node.pods():
                self.server.remove(pod["metadata"]["name"])

    def not_followed(self, name: str) -> None:
        for process in self.nodes[name].processes.values():
            process.followed = False

    # invariants

    def note_attempts(self) -> None:
        for node in self.nodes.values():
            self.attempts |= {uid: process for uid, process in node.processes.items() if process.started}

    @invariant()
    def at_most_one_holder(self) -> None:
        self.note_attempts()
        for node in self.nodes.values():
            rivals = [
                process.pod for process in node.processes.values() if process.runs and not process.final_checkpoint
            ]
            assert len(rivals) <= 1, f"{rivals} run on {node.gpu}"

    @invariant()
    def no_two_running_pods(self) -> None:
        alive = [p for node in self.nodes.values() for p in node.processes.values() if p.runs and not p.forced]
        workers = [(process.trial, process.rank) for process in alive]
        assert len(workers) == len(set(workers)), f"a trial runs twice: {[process.pod for process in alive]}"
        attempts = {(process.trial, process.attempt) for process in alive}
        assert len(attempts) == len(dict(attempts)), f"workers of two attempts: {[process.pod for process in alive]}"

    def teardown(self) -> None:
        try:
            if self.nodes:
                self.everything_ends()
        finally:
            self.loop.close()

    def everything_ends(self) -> None:
        for name in NODES:
            self.node_fault(name, "undrain")
            self.node_fault(name, "is missed")
        for _ in range(400):
            if self.over():
                break
            self.run_without_faults(steps=4)
        assert self.over(), f"not ended: {[(t.metadata.name, t.status.phase, t.status.reason) for t in self.trials()]}"
        for _ in range(3):
            self.run_without_faults()
        self.note_attempts()
        assert not [process.pod for process in self.attempts.values() if process.frozen and process.code is None]
        assert not [pod["metadata"]["name"] for pod in self.server.all(PODS) if pod["status"]["phase"] == "Running"]
        self.lost_work_is_reported()

    def trials(self) -> list[HyperParamTrial]:
        return [HyperParamTrial.model_validate(one) for one in self.server.all(TRIALS)]

    def over(self) -> bool:
        job = self.server.all(JOBS)[0]
        found = self.trials()
        ended = len(found) == TRIAL_COUNT and all(trial.status.phase in FINAL for trial in found)
        return ended and job["status"].get("phase") in ("Succeeded", "Failed")

    def lost_work_is_reported(self) -> None:
        """The status holds exactly what the attempts printed and repeated, as far as their agents lived to read it."""
        for trial in self.trials():
            of_trial = [process for process in self.attempts.values() if process.trial == trial.metadata.uid]
            mine = [process for process in of_trial if process.rank == 0]
            mine.sort(key=lambda process: process.attempt)
            for process in mine:
                assert process.reported_step == process.step or not process.followed, (
                    f"{process.pod}: its end is not reported"
                )
            known = [
                (process.reported_step, process.resumed_from) for process in mine if process.reported_step is not None
            ]
            lost = sum(max(0, before[0] - after[1]) for before, after in pairwise(known))
            reported = trial.status.lost_work.steps
            if not any(process.forced for process in of_trial):
                assert reported == lost, f"{trial.metadata.name}: {reported} steps reported, {lost} lost"


PodiumModel.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    derandomize="PODIUM_MODEL_EXAMPLES" not in os.environ,  # the long search is random; `make test` repeats itself
    suppress_health_check=list(HealthCheck),
)
TestModel = PodiumModel.TestCase
