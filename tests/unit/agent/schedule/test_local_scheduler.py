"""The local scheduler's rules, a table row each, and two properties: at most one trial runs, and none is stuck."""

# ruff: noqa: E501 - a table is read by its rows

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from grouped_values import change
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.attempts.local_scheduler import (
    Action,
    Admit,
    QueueEntry,
    Resume,
    RunQueues,
    Suspend,
    Wait,
    decide,
    newer,
)
from podium_core.attempts.local_trial import Gate, LocalPod, LocalTrial
from podium_core.domain.keys import TrialKey
from podium_core.schema.gpunode import SlotState

GATED, STARTING, RUNNING = SlotState.GATED, SlotState.STARTING, SlotState.RUNNING
OUT, OFF, IN = SlotState.SUSPENDING, SlotState.SUSPENDED, SlotState.RESUMING


def key(name: str) -> TrialKey:
    return TrialKey("default", name, f"uid-{name}")


def trial(name: str, state: SlotState, gpus: str = "A", **changes: object) -> LocalTrial:
    base = LocalTrial(
        key(name),
        LocalPod(f"{name}-0", f"pod-{name}"),
        tuple(gpus),
        state,
        0.0,
        gate=Gate.WAITING if state is GATED else Gate.PASSED,
    )
    return cast(LocalTrial, change(base, **changes))


def run_queues(epoch: int = 1, released: bool = False, **gpus: str) -> RunQueues:
    return RunQueues(
        epoch, {uuid: tuple(QueueEntry(key(n), "Ranked") for n in names) for uuid, names in gpus.items()}, released
    )


def held(uuid: str, **gpus: str) -> RunQueues:
    """Run queues whose first entry on this GPU is on hold."""
    base = run_queues(**gpus)
    first, *rest = base.of(uuid) or ()
    return replace(base, gpus={**(base.gpus or {}), uuid: (replace(first, on_hold=True), *rest)})


def said(steps: tuple[Action, ...]) -> set[str]:
    return {f"{type(step).__name__.lower()} {step.trial.key.name} {step.reason}" for step in steps}


CASES = {
    "first at its gate is let in": (run_queues(A="ab"), [trial("a", GATED), trial("b", GATED)], {"admit a Ranked", "wait b GPUInUse"}),
    "a running trial continues": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", GATED)], {"wait b GPUInUse"}),
    "a better one comes: first only the suspension": (run_queues(A="ba"), [trial("a", RUNNING), trial("b", GATED)], {"suspend a Ranked", "wait b SwitchInProgress"}),
    "not before it is verified": (run_queues(A="ba"), [trial("a", OUT), trial("b", OFF)], {"wait b SwitchInProgress"}),
    "then the next one resumes": (run_queues(A="ba"), [trial("a", OFF), trial("b", OFF)], {"resume b Ranked", "wait a GPUInUse"}),
    "a starting one is not suspended": (run_queues(A="ba"), [trial("a", STARTING), trial("b", OFF)], {"wait b SwitchInProgress"}),
    "a resuming one is left alone": (run_queues(A="ba"), [trial("a", IN), trial("b", OFF)], {"wait b SwitchInProgress"}),
    "the holder has ended: the next at once": (run_queues(A="abc"), [trial("b", OFF), trial("c", OFF)], {"resume b Ranked", "wait c GPUInUse"}),
    "a GPU does not wait for an image": (run_queues(A="ab"), [trial("a", GATED, gate=Gate.ABSENT), trial("b", GATED)], {"wait a GPUInUse", "admit b Ranked"}),
    "a gate that may have been passed counts as running": (run_queues(A="ba"), [trial("a", STARTING, gate=Gate.SILENT), trial("b", GATED)], {"wait b SwitchInProgress"}),
    "not in the order: may not work": (run_queues(A="b"), [trial("a", RUNNING)], {"suspend a NotInRunQueue"}),
    "not in the order: not let in": (run_queues(A=""), [trial("a", GATED), trial("b", OFF)], {"wait a NotInRunQueue", "wait b NotInRunQueue"}),
    "on hold: not let in, even to a free GPU": (held("A", A="a"), [trial("a", GATED)], {"wait a WaitingForAllGPUs"}),
    "on hold: not resumed": (held("A", A="a"), [trial("a", OFF)], {"wait a WaitingForAllGPUs"}),
    "on hold: the next one in line runs": (held("A", A="ab"), [trial("a", GATED), trial("b", OFF)], {"wait a GPUInUse", "resume b Ranked"}),
    "on hold: it is suspended, and the next one waits for that": (held("A", A="ab"), [trial("a", RUNNING), trial("b", OFF)], {"suspend a Ranked", "wait b SwitchInProgress"}),
    "on hold: it is suspended, though no other trial is there": (held("A", A="a"), [trial("a", RUNNING)], {"suspend a WaitingForAllGPUs"}),
    "on hold on one of two GPUs": (held("A", A="a", B="a"), [trial("a", RUNNING, gpus="AB")], {"suspend a WaitingForAllGPUs"}),
    "on hold and not freezable: it runs until it ends": (held("A", A="a"), [trial("a", RUNNING, suspension__method="")], {"wait a FreezeNotAllowed"}),
    "on hold and deleted: it is thawed for its last checkpoint": (held("A", A="a"), [trial("a", OFF, termination__deleting=True, termination__deadline=130.0)], {"resume a Deleted"}),
    "no run queue yet: gates stay closed, running trials continue": (run_queues(), [trial("a", RUNNING), trial("b", GATED)], {"wait b NoRunQueue"}),
    "no GPUNode at all": (RunQueues(), [trial("a", GATED)], {"wait a NoRunQueue"}),
    "devices not known": (run_queues(A="a"), [trial("a", GATED, gpus="")], {"wait a DevicesUnknown"}),
    "a trial that runs on unknown GPUs blocks all": (run_queues(A="a"), [trial("a", GATED), trial("x", RUNNING, gpus="")], {"wait a SwitchInProgress", "wait x DevicesUnknown"}),
    "released: all thawed, gates shut": (run_queues(released=True, A="ab"), [trial("a", RUNNING), trial("b", OFF), trial("c", GATED)], {"resume b Released", "wait c Released"}),
    "two GPUs or none": (run_queues(A="ab", B="ab"), [trial("a", GATED, gpus="AB"), trial("b", RUNNING, gpus="A")], {"suspend b Ranked", "wait a SwitchInProgress"}),
    "two GPUs: not while one is kept": (run_queues(A="a", B="ba"), [trial("a", OFF, gpus="AB"), trial("b", RUNNING, gpus="B")], {"wait a GPUInUse"}),
    "what the big one cannot have goes to the next": (run_queues(A="ac", B="ba"), [trial("a", OFF, gpus="AB"), trial("b", RUNNING, gpus="B"), trial("c", OFF)], {"wait a GPUInUse", "resume c Ranked"}),
    "crossed orders do not deadlock": (run_queues(A="ab", B="ba"), [trial("a", OFF, gpus="AB"), trial("b", OFF, gpus="AB")], {"resume a Ranked", "wait b GPUInUse"}),
    "in the order of one of its GPUs only": (run_queues(A="a", B=""), [trial("a", OFF, gpus="AB")], {"wait a NotInRunQueue"}),
    "a failed suspension is tried again later": (run_queues(A="b"), [trial("a", RUNNING, suspension__retry_at=20.0, suspension__trouble="FreezeTimeout: x")], {"wait a SuspendFailed"}),
    "a failed resumption too": (run_queues(A="a"), [trial("a", OFF, suspension__retry_at=20.0)], {"wait a ResumeFailed"}),
    "deleted while running: it handles its own SIGTERM": (run_queues(A="ba"), [trial("a", RUNNING, termination__deleting=True), trial("b", OFF)], {"wait b GPUInUse"}),
    "deleted while frozen: the holder makes room": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, termination__deleting=True)], {"suspend a Ending"}),
    "then it is thawed alone": (run_queues(A="ab"), [trial("a", OFF), trial("b", OFF, termination__deleting=True)], {"resume b Deleted", "wait a GPUInUse"}),
    "deleted, and deaf to SIGTERM: stays frozen": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, termination__deleting=True, termination__handles_sigterm=False)], set()),
    "last call": (run_queues(A="ab"), [trial("a", OUT), trial("b", OFF, termination__deleting=True, termination__deadline=12.0)], {"resume b FinalCheckpoint"}),
    "a short grace period: first the holder makes room": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, termination__deleting=True, termination__deadline=11.0, termination__grace=1.0)], {"suspend a Ending"}),
    "a short grace period: last call in its last third": (run_queues(A="ab"), [trial("a", OUT), trial("b", OFF, termination__deleting=True, termination__deadline=10.3, termination__grace=1.0)], {"resume b FinalCheckpoint"}),
    "waits for memory: others work": (run_queues(A="ba"), [trial("a", RUNNING), trial("b", OFF, memory__shortage="0 free")], {"wait b InsufficientGPUMemory"}),
    "deleted while it waits for memory: others work meanwhile": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, memory__shortage="0 free", termination__deleting=True, termination__deadline=90.0)], {"wait b InsufficientGPUMemory"}),
    "deleted while it waits for memory: last call": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, memory__shortage="0 free", termination__deleting=True, termination__deadline=12.0)], {"resume b FinalCheckpoint"}),
    "deleted at its gate: nothing": (run_queues(A="a"), [trial("a", GATED, termination__deleting=True)], set()),
    "deleted while it is being suspended: first that is over": (run_queues(A="ab"), [trial("a", OFF), trial("b", OUT, termination__deleting=True)], {"wait a GPUInUse"}),
    "deleted while it is being resumed: it works soon, and hears": (run_queues(A="ab"), [trial("a", OFF), trial("b", IN, termination__deleting=True)], {"wait a GPUInUse"}),
    "deleted while it starts: the kubelet ends it": (run_queues(A="ba"), [trial("a", OFF), trial("b", STARTING, termination__deleting=True)], {"wait a GPUInUse"}),
    "deleted while it starts behind the holder": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", STARTING, termination__deleting=True)], {"suspend a Ending"}),
    "a thaw that failed is tried again later, deleted or not": (run_queues(A="ab"), [trial("b", OFF, termination__deleting=True, termination__deadline=12.0, suspension__retry_at=11.0)], set()),
    "two deleted: the one with less time comes first": (run_queues(A="ab"), [trial("a", OFF, termination__deleting=True, termination__deadline=90.0), trial("b", OFF, termination__deleting=True, termination__deadline=40.0)], {"resume b Deleted"}),
    "two deleted: the other's last call": (run_queues(A="ab"), [trial("a", OFF, termination__deleting=True, termination__deadline=12.0), trial("b", RUNNING, termination__deleting=True, termination__deadline=11.0)], {"resume a FinalCheckpoint"}),
    "a last call beside a holder that is just starting": (run_queues(A="ab"), [trial("a", STARTING), trial("b", OFF, termination__deleting=True, termination__deadline=12.0)], {"resume b FinalCheckpoint"}),
    "after a last call the holder still makes room": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", RUNNING, termination__deleting=True, termination__deadline=12.0)], {"suspend a Ending"}),
    "half stopped: it is resumed": (run_queues(A="ab"), [trial("a", RUNNING, suspension__partial=True), trial("b", OFF)], {"resume a PartlySuspended", "wait b GPUInUse"}),
    "half-stopped, and another is next: off whole": (run_queues(A="ba"), [trial("a", RUNNING, suspension__partial=True), trial("b", OFF)], {"suspend a Ranked", "wait b SwitchInProgress"}),
    "half-stopped, and may not be frozen": (run_queues(A="ba"), [trial("a", RUNNING, suspension__partial=True, suspension__method=""), trial("b", OFF)], {"resume a PartlySuspended", "wait b HolderNotFreezable"}),
    "half-stopped, and deleted": (run_queues(A="ba"), [trial("a", RUNNING, suspension__partial=True, termination__deleting=True), trial("b", OFF)], {"resume a PartlySuspended", "wait b GPUInUse"}),
    "half-stopped, and its thaw failed a moment ago": (run_queues(A="a"), [trial("a", RUNNING, suspension__partial=True, suspension__retry_at=20.0)], set()),
    "half-stopped, and released": (run_queues(released=True, A="a"), [trial("a", RUNNING, suspension__partial=True)], {"resume a Released"}),
    "may not be frozen: it runs, and the next one waits with a reason": (run_queues(A="ba"), [trial("a", RUNNING, suspension__method=""), trial("b", GATED)], {"wait a FreezeNotAllowed", "wait b HolderNotFreezable"}),
    "may not be frozen: not for one that must end either": (run_queues(A="ab"), [trial("a", RUNNING, suspension__method=""), trial("b", OFF, termination__deleting=True)], {"wait a FreezeNotAllowed"}),
    "may not be frozen: then a last call": (run_queues(A="ab"), [trial("a", RUNNING, suspension__method=""), trial("b", OFF, termination__deleting=True, termination__deadline=12.0)], {"wait a FreezeNotAllowed", "resume b FinalCheckpoint"}),
    "may not be frozen, but was: it resumes": (run_queues(A="a"), [trial("a", OFF, suspension__method="")], {"resume a Ranked"}),
    "may not be frozen, and is on its way out": (run_queues(A="ba"), [trial("a", RUNNING, suspension__method="", termination__deleting=True), trial("b", OFF)], {"wait b GPUInUse"}),
    "not in the order any more, but may not be frozen": (run_queues(A=""), [trial("a", RUNNING, suspension__method="")], {"wait a FreezeNotAllowed"}),
    "an older pod of the trial may not work": (run_queues(A="a"), [trial("a", RUNNING, pod__uid="old"), trial("a", GATED, pod__attempt=1)], {"suspend a Superseded", "wait a SwitchInProgress"}),
    "nor be let in": (run_queues(A="a"), [trial("a", GATED, pod__uid="old"), trial("a", GATED, pod__attempt=1)], {"wait a Superseded", "admit a Ranked"}),
    "nor be thawed": (run_queues(A="a"), [trial("a", OFF, pod__uid="old"), trial("a", OFF, pod__attempt=1)], {"wait a Superseded", "resume a Ranked"}),
    "but it may end": (run_queues(A="a"), [trial("a", OFF, pod__uid="old", termination__deleting=True), trial("a", GATED, pod__attempt=1)], {"resume a Deleted", "wait a GPUInUse"}),
    "over, and works: it may still be saving": (run_queues(A="ab"), [trial("a", RUNNING, termination__deleting=True, termination__over_since=-9.0, termination__grace=60.0), trial("b", OFF)], {"wait b GPUInUse"}),
    "over, and works: left to the kubelet": (run_queues(A="ab"), [trial("a", RUNNING, termination__deleting=True, termination__over_since=9.0), trial("b", OFF)], {"wait b GPUInUse"}),
    "over, and works for long: frozen": (run_queues(A="ab"), [trial("a", RUNNING, termination__deleting=True, termination__over_since=-36.0), trial("b", OFF)], {"suspend a Orphan", "wait b GPUInUse"}),
    "over for long, and may not be frozen": (run_queues(A="ab"), [trial("a", RUNNING, termination__deleting=True, termination__over_since=-36.0, suspension__method=""), trial("b", OFF)], {"wait b GPUInUse"}),
    "over, and frozen: it stays so, and the next works": (run_queues(A="ab"), [trial("a", OFF, termination__deleting=True, termination__over_since=-36.0), trial("b", OFF)], {"resume b Ranked"}),
    "denied by a new kubelet, and frozen: the holder makes room": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, termination__deleting=True, termination__denied=True, termination__over_since=9.0)], {"suspend a Ending"}),
    "denied, and frozen: thawed alone": (run_queues(A="ab"), [trial("a", OFF), trial("b", OFF, termination__deleting=True, termination__denied=True, termination__over_since=9.0)], {"resume b Denied", "wait a GPUInUse"}),
    "denied, and works: left to the kubelet": (run_queues(A="ba"), [trial("a", RUNNING, termination__deleting=True, termination__denied=True, termination__over_since=9.0), trial("b", OFF, termination__deleting=True, termination__denied=True, termination__over_since=9.0)], set()),
    "denied, and its signal has come: last call": (run_queues(A="ab"), [trial("a", RUNNING, termination__deleting=True, termination__denied=True, termination__over_since=9.0), trial("b", OFF, termination__deleting=True, termination__denied=True, termination__over_since=9.0, termination__deadline=12.0)], {"resume b FinalCheckpoint"}),
    "denied, and deaf to SIGTERM: stays frozen": (run_queues(A="ab"), [trial("a", RUNNING), trial("b", OFF, termination__deleting=True, termination__denied=True, termination__over_since=9.0, termination__handles_sigterm=False)], set()),
    "denied, and its trial continues in a new pod: stays frozen": (run_queues(A="a"), [trial("a", OFF, pod__uid="old", termination__deleting=True, termination__denied=True, termination__over_since=9.0), trial("a", GATED, pod__attempt=1)], {"admit a Ranked"}),
    "denied for long, and works: frozen": (run_queues(A="ab"), [trial("a", RUNNING, termination__deleting=True, termination__denied=True, termination__over_since=-36.0), trial("b", OFF)], {"suspend a Orphan", "wait b GPUInUse"}),
    "denied for long, and frozen: it stays so, and the next works": (run_queues(A="ab"), [trial("a", OFF, termination__deleting=True, termination__denied=True, termination__over_since=-36.0), trial("b", OFF)], {"resume b Ranked"}),
    "over on a GPU that is not known: in everyone's way": (run_queues(A="a"), [trial("a", GATED), trial("x", RUNNING, gpus="", termination__deleting=True, termination__over_since=9.0)], {"wait a SwitchInProgress"}),
    "an older pod of the same trial is in the way of the new one": (run_queues(A="a"), [trial("a", RUNNING, pod__uid="old", termination__deleting=True), trial("a", GATED)], {"wait a GPUInUse"}),
}  # fmt: skip


@pytest.mark.parametrize(("order", "trials", "expected"), CASES.values(), ids=CASES)
def test_rules(order: RunQueues, trials: list[LocalTrial], expected: set[str]) -> None:
    assert said(decide(order, trials, now=10.0)) == expected
    assert said(decide(order, trials[::-1], now=10.0)) == expected, "the answer depends on the order of the list"


def test_every_wait_has_a_reason() -> None:
    for order, trials, _ in CASES.values():
        for step in decide(order, trials, now=10.0):
            assert step.reason[0].isupper()
            assert not isinstance(step, Wait) or step.message or step.trial.suspension.trouble == ""


@pytest.mark.parametrize(
    ("seen", "followed"),
    [
        (run_queues(4, A="b"), run_queues(5, A="a")),
        (run_queues(5, A="b"), run_queues(5, A="b")),
        (run_queues(6, A="b"), run_queues(6, A="b")),
        (run_queues(4, released=True, A="b"), run_queues(5, released=True, A="a")),
    ],
)
def test_an_older_epoch_is_ignored_but_a_release_counts(seen: RunQueues, followed: RunQueues) -> None:
    assert newer(run_queues(5, A="a"), seen) == followed


def play(current: dict[str, LocalTrial], steps: tuple[Action, ...]) -> bool:
    """Carry out steps instantly, except that the states in between are passed through; True if anything moved."""
    moved = False
    for step in steps:
        name = step.trial.pod.uid
        if isinstance(step, Admit):
            current[name] = replace(current[name], state=STARTING, gate=Gate.PASSED)
        elif isinstance(step, Suspend):
            current[name] = replace(current[name], state=OUT)
        elif isinstance(step, Resume):
            current[name] = replace(current[name], state=IN)
        moved |= not isinstance(step, Wait)
    return moved


ARRIVE = {STARTING: RUNNING, OUT: OFF, IN: RUNNING}
NAMES = "abcdef"
GPUS = "ABC"


FACTS = {
    "termination__deleting": st.booleans(),
    "termination__deadline": st.one_of(st.none(), st.floats(-10.0, 40.0)),
    "termination__grace": st.sampled_from([1.0, 30.0]),
    "termination__handles_sigterm": st.booleans(),
    "suspension__method": st.sampled_from(["freeze", ""]),
    "pod__attempt": st.integers(0, 2),
    "termination__over_since": st.one_of(st.none(), st.floats(-30.0, 0.0)),
    "termination__denied": st.booleans(),
    "suspension__retry_at": st.sampled_from([0.0, 5.0]),
}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_second_trial_never_runs_on_a_gpu_in_any_state(data: st.DataObject) -> None:
    """Any mixture of deleted, orphaned, older and unfreezable trials in any states. The one exception is a last call."""
    trials = []
    for number in range(data.draw(st.integers(1, 5))):
        facts = {name: data.draw(strategy, name) for name, strategy in FACTS.items()}
        facts["termination__deleting"] |= facts["termination__over_since"] is not None
        state = data.draw(st.sampled_from([GATED, STARTING, RUNNING, OUT, OFF, IN]))
        gpus = data.draw(st.sampled_from(["", "A", "B", "AB"]))
        trials.append(trial(data.draw(st.sampled_from("ab")), state, gpus, pod__uid=f"pod-{number}", **facts))
    order = run_queues(
        1, A=data.draw(st.sampled_from(["", "a", "ab", "ba"])), B=data.draw(st.sampled_from(["ab", "b"]))
    )
    steps = decide(order, trials, now=0.0)
    for step in steps:
        one = step.trial
        if not isinstance(step, Admit | Resume):
            if isinstance(step, Suspend):
                assert one.freezable
                assert one.state is RUNNING
            continue
        newer = any(other.key == one.key and other.pod.attempt > one.pod.attempt for other in trials)
        assert one.termination.over_since is None or (one.termination.denied and not newer)
        assert not (isinstance(step, Admit) and one.termination.deleting)
        if step.reason == "FinalCheckpoint":
            continue
        others = [other for other in trials if other is not one and (set(other.gpus) & set(one.gpus) or not other.gpus)]
        let_in = [s.trial for s in steps if isinstance(s, Admit | Resume) and s.reason != "FinalCheckpoint"]
        assert not any(other.occupies or other in let_in for other in others)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[RunQueues, list[LocalTrial]]:
    trials = [
        trial(
            name,
            draw(st.sampled_from([GATED, OFF])),
            gpus="".join(sorted(draw(st.sets(st.sampled_from(GPUS), min_size=1)))),
        )
        for name in NAMES[: draw(st.integers(1, 6))]
    ]
    lists = {gpu: draw(st.permutations([t.key.name for t in trials if gpu in t.gpus])) for gpu in GPUS}
    return run_queues(1, **{gpu: "".join(names) for gpu, names in lists.items()}), trials


@settings(max_examples=80, deadline=None)
@given(worlds(), st.data())
def test_at_most_one_trial_runs_and_none_is_stuck(
    world: tuple[RunQueues, list[LocalTrial]], data: st.DataObject
) -> None:
    order, trials = world
    current = {one.pod.uid: one for one in trials}
    for _ in range(60):
        moved = play(current, decide(order, list(current.values()), now=0.0))
        for gpu in GPUS:
            at_work = [one.pod.uid for one in current.values() if gpu in one.gpus and one.occupies]
            assert len(at_work) <= 1, at_work
        arriving = [name for name, one in current.items() if one.state in ARRIVE]
        if arriving:
            name = data.draw(st.sampled_from(sorted(arriving)))
            current[name] = replace(current[name], state=ARRIVE[current[name].state])
        elif not moved:
            running = sorted(name for name, one in current.items() if one.state is RUNNING)
            assert running or not current, "all wait, and no trial runs"
            if not current:
                break
            del current[data.draw(st.sampled_from(running))]
            if not current:
                break
