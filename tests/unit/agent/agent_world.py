"""A node with the agent itself (reconciler, observer, scheduler, executor, freezer) that can be killed anywhere.

Real: everything of the agent, on freezer files in a folder. Stood in for: the kernel (it stops a cgroup a moment after
it was asked), the kubelet (starts what is let in, sends SIGTERM, kills when the grace period is over), trials (they end
when they hear SIGTERM) and the API's caches, which show the true state only on request. A kill lets no further act
happen, as SIGKILL does: no `finally` has an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from agent_builders import Machine, key, pod

import podium_agent.observe.observer
import podium_agent.schedule.executor
import podium_agent.schedule.node_reconciler
import podium_cluster.clock
import podium_suspension.freeze
from podium_agent.metrics import Metrics
from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.observer import Observer
from podium_agent.observe.pods import TrialPod, parse
from podium_agent.report.trial_record import TrialRecord
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.executor import (
    Executor,
    ExecutorHooks,
    TrialStart,
)
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_agent.schedule.node_reconciler import NodeReconciler
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS, Selection
from podium_cluster.watch import WatchCache
from podium_core.attempts.local_scheduler import FINAL_CHECKPOINT_PART, FINAL_CHECKPOINT_SECONDS
from podium_core.schema.gpunode import GPUNode, SlotState
from podium_suspension.freeze import Freeze
from podium_suspension.methods import SuspensionMethods

TURN_SECONDS = 0.1
POLL_SECONDS = 0.001  # real ones, between two looks of the freezer at what it asked for


class KilledError(BaseException):
    """SIGKILL: raised in place of an act, and of every act after it."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Trial:
    """One trial as it truly is. `heard`: it ended by SIGTERM, so it could save; `killed`: it could not."""

    name: str
    gpus: str = "G"
    containers: int = 1
    let_in: bool = False
    freezers: list[Freezer] = field(default_factory=list)
    deadline: float | None = None
    grace: float = 30.0
    heard: bool = False
    killed: bool = False

    @property
    def ended(self) -> bool:
        return self.heard or self.killed

    def suspension_state(self) -> set[str]:
        return {(freezer.path / "freezer.state").read_text() for freezer in self.freezers}

    @property
    def works(self) -> bool:
        return self.let_in and not self.ended and self.suspension_state() != {"FROZEN"}

    @property
    def frozen(self) -> bool:
        return self.let_in and not self.ended and "FROZEN" in self.suspension_state()

    def ids(self) -> list[str]:
        return [f"{number:02x}{self.name.encode().hex()}".ljust(64, "0") for number in range(self.containers)]

    def as_pod(self) -> TrialPod:
        names = ("train", "sidecar")[: self.containers]
        return pod(
            self.name,
            containers__names=names,
            containers__running=frozenset(self.ids()) if self.let_in and not self.ended else frozenset(),
            containers__main=self.ids()[0] if self.let_in else "",
            gate__running=not self.let_in,
            gate__passed=self.let_in,
            status__ended=self.ended,
            termination__deadline=self.deadline,
            termination__grace=self.grace,
        )


class NodeModel:
    """`acts` counts what the agents have done; at number `kill_at` the one that is at it is killed."""

    def __init__(self, folder: Path, *trials: Trial) -> None:
        self.machine = Machine(folder)
        self.clock = Clock()
        self.trials = {trial.name: trial for trial in trials}
        self.gpus = sorted({gpu for trial in trials for gpu in trial.gpus})
        self.order: tuple[str, ...] = ()
        self.epoch = 0
        self.released = False
        self.acts = 0
        self.kill_at: set[int] = set()
        self.dead = False
        self.deaths = 0
        self.wrong: list[str] = []
        self._let_go: set[str] = set()  # trials that ran while the node was released, and never alone since
        self.shown = self.show()

    # what the agent does

    def act(self, what: Callable[[], None]) -> None:
        if self.dead:
            raise KilledError
        self.acts += 1
        if self.acts in self.kill_at:
            self.dead = True
            raise KilledError
        what()
        self.check()

    def ask(self, freezer: Freezer, frozen: bool) -> None:
        state = freezer.path / "freezer.state"
        if not frozen:
            self.act(lambda: cast(None, state.write_text("THAWED")))
            return
        if state.read_text() != "FROZEN":
            self.act(lambda: cast(None, state.write_text("FREEZING")))

    def let_in(self, pod_uid: str) -> None:
        trial = next(one for one in self.trials.values() if one.as_pod().uid == pod_uid)
        assert not trial.let_in, "let in twice"
        # a deleted pod's gate hears no more, and the kubelet starts none of its containers
        self.act(lambda: setattr(trial, "let_in", trial.deadline is None))

    def check(self) -> None:
        """Check that at most one trial runs on each GPU.

        A deleted trial may run beside it shortly before it is killed. Trials that ran on a released node may run
        together until they are frozen again; no trial is admitted beside them.

        Errors are stored, not raised: the executor catches whatever an act raises.
        """
        rivals = {gpu: self._rivals(gpu) for gpu in self.gpus}
        if self.shown[1].spec.released:
            self._let_go = set().union(*rivals.values())
            return
        several = [names for names in rivals.values() if len(names) > 1]
        self.wrong += [f"turn at {self.clock.now:.1f}: {names} work" for names in several if not names <= self._let_go]
        self._let_go &= set().union(*several)

    def _rivals(self, gpu: str) -> set[str]:
        at_work = [one for one in self.trials.values() if one.works and gpu in one.gpus]
        return {one.name for one in at_work if not self._in_final_checkpoint(one)}

    def _in_final_checkpoint(self, trial: Trial) -> bool:
        if trial.deadline is None:
            return False
        return self.clock.now >= trial.deadline - min(FINAL_CHECKPOINT_SECONDS, trial.grace * FINAL_CHECKPOINT_PART)

    # what the others do

    def turn(self) -> None:
        """A tenth of a second of kernel, kubelet and trials."""
        self.clock.now += TURN_SECONDS
        for freezer in (freezer for trial in self.trials.values() for freezer in trial.freezers):
            state = freezer.path / "freezer.state"
            if state.read_text() == "FREEZING":
                state.write_text("FROZEN")
        for trial in self.trials.values():
            if trial.deadline is None or trial.ended:
                continue
            if not trial.let_in or trial.suspension_state() == {"THAWED"}:
                self._end(trial, heard=True)
            elif self.clock.now >= trial.deadline:
                self._end(trial, heard=False)
        for trial in self.trials.values():
            if trial.let_in and not trial.freezers and not trial.ended:
                trial.freezers = [self.machine.run(trial.as_pod(), one) for one in trial.ids()]

    def _end(self, trial: Trial, heard: bool) -> None:
        trial.heard, trial.killed = heard, not heard
        for freezer in trial.freezers:
            self.machine.end(freezer)

    def delete(self, name: str, grace: float) -> None:
        trial = self.trials[name]
        if trial.deadline is None:
            trial.deadline, trial.grace = self.clock.now + grace, grace

    def command(self, *order: str) -> None:
        self.order = order
        self.epoch += 1

    def show(self) -> tuple[list[TrialPod], GPUNode]:
        """The API's caches hear how things stand."""
        pods = [trial.as_pod() for trial in self.trials.values()]
        entries = [{"namespace": "demo", "trial": name, "uid": key(name).uid} for name in self.order]
        run_queues, gpus = [], []
        for index, gpu in enumerate(self.gpus):
            here = [one for one in self.trials.values() if gpu in one.gpus]
            names = {one.name for one in here}
            run_queues.append({"uuid": gpu, "runQueue": [entry for entry in entries if entry["trial"] in names]})
            gpus.append({"uuid": gpu, "index": index, "trials": [_seen(one) for one in here]})
        node = GPUNode.model_validate(
            {
                "metadata": {"name": "n", "uid": "node"},
                "spec": {"epoch": self.epoch, "gpus": run_queues if self.epoch else [], "released": self.released},
                "status": {"gpus": gpus},
            }
        )
        self.shown = (pods, node)
        return self.shown


def _seen(trial: Trial) -> dict[str, str]:
    return {
        "namespace": "demo",
        "trial": trial.name,
        "uid": key(trial.name).uid,
        "pod": trial.as_pod().name,
        "podUID": trial.as_pod().uid,
        "state": SlotState.GATED,
        "since": "2026-11-21T00:00:00Z",
    }


class _Gates(Gates):
    """Every gate that runs is connected; its going through is an act like any other."""

    def __init__(self, world: NodeModel) -> None:
        super().__init__(world.machine.folder / "proc", lambda: None)
        self._world = world

    def waiting(self, pod_uid: str) -> bool:
        running = [one for one in self._world.trials.values() if not one.let_in and not one.ended]
        return any(one.as_pod().uid == pod_uid for one in running)

    def open(self, pod_uid: str) -> None:
        self._world.let_in(pod_uid)
        super().open(pod_uid)


class Agent:
    """One agent process from its start to its death. It knows nothing of the one before."""

    def __init__(self, world: NodeModel) -> None:
        self.world = world
        world.dead = False
        settings, metrics = world.machine.settings(), Metrics()
        methods = SuspensionMethods(Freeze(5.0))
        self.pods = WatchCache(cast(Api, None), Selection(PODS), parse)
        self.nodes = WatchCache(cast(Api, None), Selection(GPUNODES), GPUNode.model_validate)
        self.node_reconciler = NodeReconciler(
            settings, self.pods, self.nodes, metrics, lambda one: TrialRecord(one, "n")
        )
        gates = _Gates(world)
        admissions = Admissions(settings.admissions_dir)
        self.observer = Observer(settings, gates, admissions, methods, lambda: None)
        start = TrialStart(gates, admissions, MemoryAdmission(self.observer.records, methods))
        hooks = ExecutorHooks(self.node_reconciler.trial_record_of, self.node_reconciler.wake)
        self.executor = Executor(self.observer, methods, start, metrics, 1.0, hooks)
        self.hear()
        self.node_reconciler._hint(self.observer)

    def hear(self) -> None:
        pods, node = self.world.shown
        self.pods._items = {(one.key.namespace, one.name): one for one in pods}
        self.nodes._items = {("", "n"): node}

    async def turn(self) -> None:
        """One look, and the acts that it leads to, as far as they come: a freeze is done in the kernel's next turn."""
        for record in self.observer.records():
            record.processes.searched_at = 0.0
        self.node_reconciler.reconcile(self.observer, self.executor)
        await asyncio.sleep(0)
        if self.executor._tasks:
            done, _ = await asyncio.wait(set(self.executor._tasks), timeout=4 * POLL_SECONDS)
            for task in done:
                task.result()
        if self.world.dead:
            raise KilledError

    async def die(self) -> None:
        """The kernel closes what the process had open, and its tasks are no more."""
        tasks = set(self.executor._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for record in self.observer.records():
            self.observer._drop(record.processes)


@contextmanager
def simulated_node(world: NodeModel) -> Iterator[None]:
    """The clock, the kubelet's answer and the kernel's freezer are the world's."""

    async def devices(*_: Any) -> dict[tuple[str, str], tuple[str, ...]]:
        return {("demo", one.as_pod().name): tuple(one.gpus) for one in world.trials.values()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(podium_cluster.clock, "now", world.clock.time)
        patch.setattr(podium_agent.schedule.node_reconciler, "time", world.clock)
        patch.setattr(podium_agent.schedule.executor, "time", world.clock)
        patch.setattr(podium_agent.observe.observer, "time", world.clock)
        patch.setattr(podium_agent.observe.observer, "gpus_of_pods", devices)
        patch.setattr(podium_suspension.freeze, "LONGEST_POLL", POLL_SECONDS)
        patch.setattr(podium_agent.observe.observer, "handles_sigterm", lambda *_: True)
        patch.setattr(podium_agent.observe.observer, "sigterm_pending", lambda *_: False)
        patch.setattr(Freezer, "ask", lambda freezer, frozen: world.ask(freezer, frozen))
        yield


async def run(world: NodeModel, turns: int, before_turn: Callable[[int], object] = lambda _: None) -> None:
    """Run `turns` turns; a new agent follows a killed one a moment later."""
    agent: Agent | None = None
    for number in range(turns):
        before_turn(number)
        world.turn()
        try:
            if agent is None:
                agent = Agent(world)
            agent.hear()
            await agent.turn()
        except KilledError:
            world.deaths += 1
            if agent is not None:
                await agent.die()
            agent = None
        world.check()
        assert not world.wrong, world.wrong
    if agent is not None:
        await agent.die()
