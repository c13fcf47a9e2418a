"""Switches of sets of GPUs: local scheduler and memory ledger over 200 consecutive random run queues.

Trials with two GPUs and with one share a node, and each declares more than half of a GPU, so that no two fit together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from agent_builders import key
from grouped_values import change

from podium_agent.schedule.memory_ledger import Footprint, shortfall, shortfall_alone
from podium_core.attempts.local_scheduler import Admit, QueueEntry, Resume, RunQueues, Suspend, decide
from podium_core.attempts.local_trial import Gate, LocalPod, LocalTrial, TrialMemory, TrialSuspension
from podium_core.schema.gpunode import SlotState

TOTAL, DECLARED = 100 << 30, 60 << 30
GATED, RUNNING, OFF = SlotState.GATED, SlotState.RUNNING, SlotState.SUSPENDED
HAND_OVERS = 200
MOST_TURNS = 20  # until an order is carried out


@dataclass
class Node:
    """Two GPUs. A suspension may fail to move a trial's memory: then it stays there, frozen (`kept`), and
    from then on it is only frozen (`failed`).
    """

    chance: np.random.Generator
    trials: dict[str, LocalTrial]
    run_queues: RunQueues = field(default_factory=RunQueues)
    _other_pods: dict[str, int] = field(default_factory=lambda: {"A": 0, "B": 0})
    kept: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def footprint(self, trial: LocalTrial) -> Footprint:
        here = trial.state is RUNNING or trial.pod.name in self.kept
        bytes_ = dict.fromkeys(trial.gpus, DECLARED)
        began = trial.state is not GATED
        return Footprint(
            trial.pod.name,
            trial.gpus,
            DECLARED,
            held=bytes_ if here else {},
            off_gpu=bytes_ if began and not here else {},
            here=here,
            leaves=trial.state is RUNNING and trial.pod.name not in self.failed,
        )

    def free(self) -> dict[str, int]:
        held = [self.footprint(trial).held for trial in self.trials.values()]
        return {gpu: TOTAL - taken - sum(one.get(gpu, 0) for one in held) for gpu, taken in self._other_pods.items()}

    def memory_shortage(self, trial: LocalTrial, alone: bool) -> str:
        if trial.pod.name in self.kept:
            return ""
        others = [self.footprint(one) for one in self.trials.values() if one.pod.name != trial.pod.name]
        judge = shortfall_alone if alone else shortfall
        return str(judge(self.footprint(trial), others, self.free()) or "")

    def turn(self, fails: float = 0.0) -> bool:
        """One decision and what it leads to; False: nothing is left to be done."""
        for name, trial in self.trials.items():
            if trial.memory.shortage:
                self.trials[name] = change(trial, memory__shortage=self.memory_shortage(trial, alone=True))
        moved = False
        for step in decide(self.run_queues, list(self.trials.values()), now=0.0):
            trial = self.trials[step.trial.pod.name]
            if isinstance(step, Suspend):
                moved = True
                self.trials[trial.pod.name] = change(trial, state=OFF)
                if self.chance.random() < fails:
                    self.failed.add(trial.pod.name)
                if trial.pod.name in self.failed:
                    self.kept.add(trial.pod.name)
            elif isinstance(step, Admit | Resume):
                moved = True
                memory_shortage = self.memory_shortage(trial, alone=False)
                self.kept.discard(trial.pod.name)
                state = trial.state if memory_shortage else RUNNING
                self.trials[trial.pod.name] = change(trial, state=state, memory__shortage=memory_shortage)
            self.check()
        return moved

    def check(self) -> None:
        for gpu in self._other_pods:
            assert len([one for one in self.trials.values() if one.state is RUNNING and gpu in one.gpus]) <= 1
        assert all(count >= 0 for count in self.free().values()), "more is taken than there is"

    def settle(self, fails: float = 0.0) -> None:
        for _ in range(MOST_TURNS):
            if not self.turn(fails):
                return
        pytest.fail("it does not come to rest")

    def at_work(self) -> set[str]:
        return {name for name, one in self.trials.items() if one.state is RUNNING}

    def wanted(self, places: list[str]) -> set[str]:
        """By the order alone: each in turn takes its GPUs if all are free."""
        taken: set[str] = set()
        chosen = set()
        for name in places:
            if not taken & set(self.trials[name].gpus):
                chosen.add(name)
                taken |= set(self.trials[name].gpus)
        return chosen

    def command(self) -> list[str]:
        """Run queues as the operator writes them: one sequence of all trials, restricted to each GPU."""
        sequence = [str(name) for name in self.chance.permutation(sorted(self.trials))]
        leaders = self.wanted(sequence)
        places = [n for n in sequence if n in leaders] + [n for n in sequence if n not in leaders]
        gpus = {g: tuple(QueueEntry(key(n)) for n in places if g in self.trials[n].gpus) for g in self._other_pods}
        self.run_queues = RunQueues(self.run_queues.epoch + 1, gpus)
        return places


def node(seed: int) -> Node:
    sets = {"a": "AB", "b": "A", "c": "B", "d": "AB", "e": "A"}
    trials = {
        name: LocalTrial(
            key(name),
            LocalPod(name, name),
            tuple(gpus),
            GATED,
            0.0,
            gate=Gate.WAITING,
            memory=TrialMemory(DECLARED),
            suspension=TrialSuspension("cuda-checkpoint"),
        )
        for name, gpus in sets.items()
    }
    return Node(np.random.default_rng(seed), trials)


@pytest.mark.parametrize("seed", range(5))
def test_every_run_queue_takes_effect(seed: int) -> None:
    here = node(seed)
    for _ in range(HAND_OVERS):
        places = here.command()
        here.settle()
        assert here.at_work() == here.wanted(places)


@pytest.mark.parametrize("seed", range(5))
def test_a_trial_runs_whatever_remains_on_a_gpu(seed: int) -> None:
    """Other pods come and go, and some trials can only be frozen."""
    here = node(seed)
    for _ in range(HAND_OVERS):
        gpu = str(here.chance.choice(["A", "B"]))
        room = here.free()[gpu] + here._other_pods[gpu]
        here._other_pods[gpu] = int(here.chance.integers(0, room + 1)) if here.chance.random() < 0.5 else 0
        here.command()
        here.settle(fails=0.01)
        could = [name for name, one in here.trials.items() if not here.memory_shortage(one, alone=True)]
        assert here.at_work() or not could, "all wait, and a trial could run"
    here._other_pods = {"A": 0, "B": 0}
    left = set(here.trials)
    while left:  # without other pods each trial ends
        here.settle()
        assert here.at_work(), "all wait for one another"
        for name in here.at_work():
            del here.trials[name]
            left.discard(name)
