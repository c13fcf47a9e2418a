"""GPUs of exclusive pods: which is chosen, how long it is allocated, what the pod waits for, and the scheduler."""

# ruff: noqa: E501 - a table is read by its rows

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from grouped_values import change

from podium_agent.observe.gpu_health import Gpu, Health, Sample
from podium_agent.schedule.exclusive_gpus import (
    ADMISSION_SECONDS,
    ExclusiveAllocation,
    NodePod,
    advance,
    blocked,
    prefer,
    whole_gpu_devices,
)
from podium_core.attempts.local_scheduler import Action, QueueEntry, RunQueues, decide
from podium_core.attempts.local_trial import Gate, LocalPod, LocalTrial
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import SlotState

GATED, STARTING, RUNNING = SlotState.GATED, SlotState.STARTING, SlotState.RUNNING
OUT, OFF = SlotState.SUSPENDING, SlotState.SUSPENDED
POD = ("prod", "urgent")
NOW = 1000.0


def trial(name: str, state: SlotState, gpus: str = "A", **changes: object) -> LocalTrial:
    key = TrialKey("demo", name, f"uid-{name}")
    gate = Gate.WAITING if state is GATED else Gate.PASSED
    base = LocalTrial(key, LocalPod(f"{name}-0", f"pod-{name}"), tuple(gpus), state, 0.0, gate=gate)
    return cast(LocalTrial, change(base, **changes))


def gpu(uuid: str, health: Health = "Healthy", use: float = 0.0) -> Gpu:
    return Gpu(Sample(uuid, ord(uuid)), use, health)


def test_one_device_a_gpu() -> None:
    said = whole_gpu_devices([gpu("A"), gpu("B", "Unhealthy"), gpu("C", "Unknown")])
    assert [(one.id, one.healthy) for one in said] == [
        ("A::exclusive", True),
        ("B::exclusive", False),
        ("C::exclusive", True),
    ]


WHICH = {
    "an idle one before a busy one": ("AB", [trial("a", RUNNING)], "B"),
    "by name where all is equal": ("BA", [], "A"),
    "one trial stopped before one that stops two GPUs": (
        "ABC",
        [trial("a", RUNNING, "AB"), trial("c", RUNNING, "C")],
        "C",
    ),
    "a frozen one moves no memory": (
        "AB",
        [
            trial("a", RUNNING, suspension__method="cuda-checkpoint", memory__declared=9),
            trial("b", RUNNING, "B", memory__declared=9),
        ],
        "B",
    ),
    "the less to move": (
        "AB",
        [
            trial("a", RUNNING, suspension__method="cuda-checkpoint", memory__declared=9),
            trial("b", RUNNING, "B", suspension__method="cuda-checkpoint", memory__declared=8),
        ],
        "B",
    ),
    "never one that cannot be suspended, if there is another": (
        "ABC",
        [trial("a", RUNNING, suspension__method=""), trial("b", RUNNING, "B")],
        "C",
    ),
    "it is the last but for an ill one": ("AX", [trial("a", RUNNING, suspension__method="")], "A"),
    "one that only waits there stops nothing": ("AB", [trial("a", OFF), trial("b", RUNNING, "B")], "A"),
    "the fewer that wait": ("AB", [trial("a", RUNNING), trial("w", GATED), trial("b", RUNNING, "B")], "B"),
}


@pytest.mark.parametrize(("free", "trials", "chosen"), WHICH.values(), ids=WHICH.keys())
def test_the_gpu_with_the_cheapest_suspension_is_chosen(free: str, trials: list[LocalTrial], chosen: str) -> None:
    devices = [f"{uuid}::exclusive" for uuid in free]
    gpus = [gpu(uuid, "Unhealthy" if uuid == "X" else "Healthy") for uuid in free]
    assert prefer(devices, (), 1, gpus, trials) == (f"{chosen}::exclusive",)


def test_several_gpus_include_the_required_ones() -> None:
    devices = [f"{uuid}::exclusive" for uuid in "ABC"]
    assert prefer(devices, ("C::exclusive",), 2, [gpu(uuid) for uuid in "ABC"], [trial("a", RUNNING)]) == (
        "C::exclusive",
        "B::exclusive",
    )


FRESH, MINE = ExclusiveAllocation("A", NOW - 1.0), ExclusiveAllocation("A", NOW - 1.0, POD, "u")
AT_WORK, OVER = {POD: NodePod("u", False)}, {POD: NodePod("u", True)}
LIST = {"A": POD}
LIFE = {
    "just allocated: no pod is listed yet": (FRESH, {}, {}, (), FRESH),
    "noted by a clock that was an hour ahead": (replace(FRESH, at=NOW + 3600), {}, {}, (), None),
    "the pod was refused after all": (replace(FRESH, at=NOW - ADMISSION_SECONDS), {}, {}, (), None),
    "the kubelet says whose it is before the API does": (FRESH, LIST, {}, (), replace(FRESH, pod=POD)),
    "and then its uid": (replace(FRESH, pod=POD), LIST, AT_WORK, (), MINE),
    "it stays": (MINE, LIST, AT_WORK, (), MINE),
    "nothing was noted: the kubelet's word is enough": (None, LIST, AT_WORK, (), replace(MINE, at=NOW)),
    "over for the API, and ended": (MINE, LIST, OVER, (), None),
    "ended for the API, but running": (MINE, LIST, OVER, ("u",), MINE),
    "forgotten by a new kubelet, but running": (MINE, {}, {}, ("u",), MINE),
    "deleted, and ended": (MINE, {}, {}, (), None),
    "another pod of that name": (MINE, LIST, {POD: NodePod("v", False)}, (), replace(MINE, uid="v")),
    "gone over to another pod": (MINE, {"A": ("prod", "other")}, {}, (), ExclusiveAllocation("A", MINE.at, ("prod", "other"), "")),
}  # fmt: skip


@pytest.mark.parametrize(("before", "listed", "pods", "alive", "after"), LIFE.values(), ids=LIFE.keys())
def test_how_long_a_gpu_remains_allocated(
    before: ExclusiveAllocation | None,
    listed: dict[str, tuple[str, str]],
    pods: dict[tuple[str, str], NodePod],
    alive: tuple[str, ...],
    after: ExclusiveAllocation | None,
) -> None:
    held = {} if before is None else {"A": before}
    assert advance(held, listed, pods, alive, NOW) == ({} if after is None else {"A": after})


WAITS = {
    "no trial is there": ("A", [], None),
    "a waiting trial does not block": ("A", [trial("a", GATED), trial("b", OFF)], None),
    "a trial on another GPU does not block": ("A", [trial("b", RUNNING, "B")], None),
    "decided before it was reserved": ("", [], "SuspensionPending"),
    "still running": ("A", [trial("a", RUNNING)], "SwitchInProgress"),
    "not verified yet": ("A", [trial("a", OUT)], "SwitchInProgress"),
    "let in a moment ago": ("A", [trial("a", STARTING)], "SwitchInProgress"),
    "could be on any GPU": ("A", [trial("a", RUNNING, "")], "SwitchInProgress"),
    "cannot be suspended": ("A", [trial("a", RUNNING, suspension__method="")], "HolderNotFreezable"),
    "was not suspended when it was tried": (
        "A",
        [trial("a", RUNNING, suspension__trouble="FreezeTimeout: x")],
        "SuspendFailed",
    ),
    "saves before it ends": ("A", [trial("a", RUNNING, termination__deleting=True)], "HolderTerminating"),
}


@pytest.mark.parametrize(("exclusive_pods", "trials", "code"), WAITS.values(), ids=WAITS.keys())
def test_what_the_pod_waits_for(exclusive_pods: str, trials: list[LocalTrial], code: str | None) -> None:
    trouble = blocked(["A"], exclusive_pods, trials, released=False)
    assert (trouble and trouble[0]) == code


def test_a_released_node_suspends_nothing() -> None:
    trouble = blocked(["A"], "A", [], released=True)
    assert trouble is not None
    assert trouble[0] == "Released"


def said(steps: tuple[Action, ...]) -> set[str]:
    return {f"{type(step).__name__.lower()} {step.trial.key.name} {step.reason}" for step in steps}


RULES = {
    "the running trial is suspended, and no other starts": ([trial("a", RUNNING), trial("b", OFF), trial("c", GATED)], {"suspend a ExclusivePod", "wait b ExclusivePod", "wait c ExclusivePod"}),
    "what hangs on to several GPUs leaves all": ([trial("a", RUNNING, "AB"), trial("b", OFF, "B")], {"suspend a ExclusivePod", "wait b SwitchInProgress"}),
    "other GPUs are unaffected": ([trial("a", OFF), trial("b", OFF, "B")], {"wait a ExclusivePod", "resume b Ranked"}),
    "one that is starting is left to start": ([trial("a", STARTING)], set()),
    "what cannot be suspended works on": ([trial("a", RUNNING, suspension__method="")], {"wait a FreezeNotAllowed"}),
    "half-stopped by a dead agent": ([trial("a", RUNNING, suspension__partial=True)], {"suspend a ExclusivePod"}),
    "a deleted trial ends": ([trial("a", RUNNING, termination__deleting=True, termination__deadline=90.0)], set()),
    "a frozen one waits for its last call": ([trial("a", OFF, termination__deleting=True, termination__deadline=90.0)], set()),
    "not with memory that was moved off": ([trial("a", OFF, termination__deleting=True, termination__deadline=12.0, memory__is_checkpointed=True)], {"wait a ExclusivePod"}),
    "and hears it": ([trial("a", OFF, termination__deleting=True, termination__deadline=12.0)], {"resume a FinalCheckpoint"}),
}  # fmt: skip


@pytest.mark.parametrize(("trials", "expected"), RULES.values(), ids=RULES.keys())
def test_the_local_scheduler_on_the_gpu_of_an_exclusive_pod(trials: list[LocalTrial], expected: set[str]) -> None:
    entries = {uuid: tuple(QueueEntry(one.key, "Ranked") for one in trials if uuid in one.gpus) for uuid in "AB"}
    assert said(decide(RunQueues(1, entries, exclusive_pods={"A": "prod/urgent"}), trials, 10.0)) == expected


def test_after_the_exclusive_pod_trials_run_in_run_queue_order() -> None:
    trials = [trial("a", OFF), trial("b", OFF)]
    run_queues = RunQueues(1, {"A": tuple(QueueEntry(one.key, "Ranked") for one in trials)})
    assert said(decide(run_queues, trials, 10.0)) == {"resume a Ranked", "wait b GPUInUse"}


def test_a_released_node_thaws_trials_beside_the_exclusive_pod() -> None:
    """Nothing stays frozen when Podium goes."""
    run_queues = RunQueues(1, {}, released=True, exclusive_pods={"A": "prod/urgent"})
    assert said(decide(run_queues, [trial("a", OFF)], 10.0)) == {"resume a Released"}
