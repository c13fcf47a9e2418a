"""The memory ledger: which trials fit, in cases and against a model of GPUs that counts every byte."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_agent.schedule.memory_ledger import Footprint, shortfall, shortfall_alone
from podium_suspension.base import RESTORE_SCRATCH

TOTAL = 100 << 30  # bytes of a GPU


def one(name: str = "a", gpus: str = "A", **facts: object) -> Footprint:
    return Footprint(name, tuple(gpus), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claim", "others", "free", "memory_shortage"),
    [
        (one(declared=60), [], {"A": 100}, None),
        (one(declared=60), [], {"A": 59}, (60, 59, 0)),
        (one(), [], {"A": 0}, None),
        (one(off_gpu={"A": 30}), [], {"A": 30}, (30 + RESTORE_SCRATCH, 30, 0)),
        (one(off_gpu={"A": 30}), [], {"A": 30 + RESTORE_SCRATCH}, None),
        (one(declared=60 << 30, off_gpu={"A": 30 << 30}), [], {"A": 60 << 30}, None),
        (one(declared=60, off_gpu={"A": 30}), [], {"A": 59}, (30 + RESTORE_SCRATCH, 59, 0)),
        (one(declared=60), [one("b", declared=60)], {"A": 100}, None),
        (one(declared=60), [one("b", declared=60, here=True)], {"A": 100}, (60, 100, 60)),
        (one(declared=60), [one("b", declared=60, here=True, held={"A": 50})], {"A": 50}, (60, 50, 10)),
        (one(declared=40), [one("b", declared=60, here=True, held={"A": 20})], {"A": 80}, None),
        (one(declared=60), [one("b", "B", declared=60, here=True)], {"A": 100, "B": 40}, None),
        (one(gpus="AB", declared=60), [one("b", "B", declared=60, here=True)], {"A": 100, "B": 100}, (60, 100, 60)),
        (one(declared=1), [], {}, (1, 0, 0)),
    ],
)
def test_which_trials_fit(
    claim: Footprint, others: list[Footprint], free: dict[str, int], memory_shortage: tuple[int, int, int] | None
) -> None:
    found = shortfall(claim, others, free)
    assert (None if found is None else (found.needed, found.free, found.promised)) == memory_shortage


def test_only_memory_that_cannot_move_blocks_a_trial() -> None:
    claim, free = one(declared=60), {"A": 40}
    at_work = one("b", declared=60, held={"A": 60}, here=True, leaves=True)
    stays = one("c", declared=60, held={"A": 60}, here=True)
    assert shortfall(claim, [at_work], free) is not None
    assert shortfall_alone(claim, [at_work], free) is None
    assert shortfall_alone(claim, [stays], free) == shortfall(claim, [stays], free)
    assert str(shortfall_alone(claim, [stays], free)) == "GPU A has 40 bytes free; 60 are needed"


@dataclass
class Trial:
    """As it truly is. `held` by GPU while it is on them, `off_gpu` while it is not."""

    name: str
    gpus: str
    declared: int
    held: dict[str, int] = field(default_factory=dict)
    off_gpu: dict[str, int] = field(default_factory=dict)
    here: bool = False


class Node:
    """Two GPUs whose bytes are counted; another pod takes free memory, promised or not."""

    def __init__(self, trials: list[Trial]) -> None:
        self.trials = trials
        self.other_pods = {"A": 0, "B": 0}

    def free(self) -> dict[str, int]:
        taken = {gpu: sum(t.held.get(gpu, 0) for t in self.trials) for gpu in self.other_pods}
        return {gpu: TOTAL - taken[gpu] - self.other_pods[gpu] for gpu in self.other_pods}

    def admits(self, trial: Trial) -> bool:
        footprints = {
            t.name: Footprint(t.name, tuple(t.gpus), t.declared, t.held, t.off_gpu, t.here, leaves=True)
            for t in self.trials
        }
        claim = footprints.pop(trial.name)
        return shortfall(claim, footprints.values(), self.free()) is None

    def come(self, trial: Trial) -> bool:
        if not self.admits(trial):
            return False
        trial.here, trial.held, trial.off_gpu = True, dict(trial.off_gpu), {}
        self.check()
        return True

    def grow(self, trial: Trial, gpu: str, to: int) -> None:
        trial.held[gpu] = max(trial.held.get(gpu, 0), to)
        self.check()

    def leave(self, trial: Trial) -> None:
        trial.here, trial.held, trial.off_gpu = False, {}, trial.held

    def check(self) -> None:
        assert all(count >= 0 for count in self.free().values()), "more is taken than there is"
        for gpu in self.other_pods if not any(self.other_pods.values()) else ():
            assert sum(max(t.declared, t.held.get(gpu, 0)) for t in self.trials if t.here and gpu in t.gpus) <= TOTAL


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_memory_is_never_overcommitted_and_every_start_ends(data: st.DataObject) -> None:
    """Any sequence of starts, growths, suspensions and other pods; then, without other pods, all end."""
    trials = [
        Trial(f"t{i}", data.draw(st.sampled_from(["A", "B", "AB"])), data.draw(st.integers(0, TOTAL - RESTORE_SCRATCH)))
        for i in range(data.draw(st.integers(1, 5)))
    ]
    node = Node(trials)
    with_other_pods = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(0, 30))):
        trial = data.draw(st.sampled_from(trials))
        what = data.draw(st.sampled_from(["come", "grow", "leave", "other pod"]))
        gpu = data.draw(st.sampled_from(trial.gpus))
        if what == "other pod" and with_other_pods:
            room = node.free()[gpu] + node.other_pods[gpu]
            node.other_pods[gpu] = data.draw(st.integers(0, room))
        elif what == "come" and not trial.here:
            node.come(trial)
        elif what == "leave" and trial.here:
            node.leave(trial)
        elif what == "grow" and trial.here:
            most = (
                trial.declared
                if not with_other_pods
                else min(trial.declared, node.free()[gpu] + trial.held.get(gpu, 0))
            )
            node.grow(trial, gpu, data.draw(st.integers(0, max(0, most))))
    node.other_pods = {"A": 0, "B": 0}
    for trial in trials:
        if trial.here:
            node.leave(trial)
    left = list(trials)
    while left:
        came = [trial for trial in data.draw(st.permutations(left)) if node.come(trial)]
        assert came, "all wait for one another"
        for trial in came:
            for gpu in trial.gpus:
                node.grow(trial, gpu, trial.declared)
            trial.here, trial.held = False, {}
            left.remove(trial)
