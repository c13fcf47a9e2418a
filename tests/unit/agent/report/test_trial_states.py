"""States from facts, the account of holds and suspensions, and what pods and GPUNodes show of them."""

# ruff: noqa: E501 - a table is read by its rows

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from grouped_values import change

from podium_agent.observe.gpu_health import GpuLoad, Reading, Sample, merge
from podium_agent.observe.pods import parse
from podium_agent.report.node_status import (
    NodeFacts,
    build,
    decisive,
    moved,
)
from podium_agent.report.pod_conditions import HOLDS, SUSPENDED, patch
from podium_agent.report.trial_record import TrialRecord
from podium_agent.report.trial_status import position_from, to_status
from podium_agent.schedule.node_reconciler import View
from podium_agent.schedule.state_table import TRANSITIONS, derive, reason
from podium_core.attempts.local_scheduler import RunQueues
from podium_core.attempts.local_trial import OCCUPYING, Acting, Gate, LocalPod, LocalTrial, TrialMemory, Work
from podium_core.attempts.lost_work import (
    AttemptLostWork,
    AttemptStart,
    CompletionMarker,
    GateReport,
    LostWorkTotals,
)
from podium_core.attempts.trial_status import curve_from, ledger_from, reached
from podium_core.attempts.usage_ledger import (
    SuspensionCost,
    UsageLedger,
    begin_attempt,
    follow,
    resumed,
    saw_marker,
    suspended,
)
from podium_core.curves.growing_curve import Curve, Line, extend
from podium_core.curves.thinning import Grid
from podium_core.domain.keys import TrialKey
from podium_core.logs.line_reader import ParsedLine
from podium_core.schema.gpunode import SlotState
from podium_core.schema.trial import TrialStatus
from podium_core.sources.batch import Position
from podium_suspension.freeze import Freeze
from podium_suspension.methods import SuspensionMethods

R, OFF = SlotState.RUNNING, SlotState.SUSPENDED
KEY = TrialKey("demo", "cnt-0", "u1")


def test_every_combination_of_facts_has_a_state() -> None:
    for gate, work, acting in itertools.product(Gate, Work, Acting):
        assert (derive(gate, work, acting) is None) == (work is Work.ENDED)


def test_every_transition_has_a_valid_reason() -> None:
    assert all(why[0].isupper() and before is not after for (before, after), why in TRANSITIONS.items())


@pytest.mark.parametrize(
    ("before", "after", "done", "why"),
    [
        (None, R, Acting.NOTHING, "Observed"),
        (R, None, Acting.NOTHING, "Ended"),
        (R, OFF, Acting.NOTHING, "FrozenExternally"),
        (R, OFF, Acting.SUSPENDING, "Suspended"),
        (OFF, R, Acting.RESUMING, "Resumed"),
        (OFF, R, Acting.NOTHING, "ThawedExternally"),
    ],
)
def test_reasons(before: SlotState | None, after: SlotState | None, done: Acting, why: str) -> None:
    assert reason(before, after, done) == why


def test_a_ledger_over_two_time_slices() -> None:
    ledger = UsageLedger()
    for state, now in ((SlotState.GATED, 0.0), (SlotState.STARTING, 10.0), (R, 11.0), (SlotState.SUSPENDING, 20.0)):
        ledger = follow(ledger, state, ("A", "B"), "n", now)
    ledger = suspended(ledger, SuspensionCost("freeze", 20.0, 0.5))
    ledger = follow(ledger, OFF, ("A", "B"), "n", 20.5)
    ledger = resumed(follow(ledger, SlotState.RESUMING, ("A", "B"), "n", 30.0), 0.25)
    ledger = follow(ledger, R, ("A", "B"), "n", 30.5)
    assert ledger.gpu_seconds(31.0) == 2 * (10.5 + 1.0)
    ledger = follow(ledger, None, ("A", "B"), "n", 32.0)
    assert [(allocation.start, allocation.end) for allocation in ledger.allocations] == [(10.0, 20.5), (30.0, 32.0)]
    assert (ledger.count, ledger.suspend_seconds, ledger.resume_seconds) == (1, 0.5, 0.25)
    assert ledger.recent[0].resume_seconds == 0.25


def pod_payload(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "cnt-0-0", "namespace": "demo", "uid": "p1", "labels": {"podium.dev/trial": "cnt-0"},
            "annotations": {"podium.dev/metrics": '{"metric": "acc", "direction": "maximize", "container": "train"}'},
            "ownerReferences": [{"kind": "HyperParamTrial", "name": "cnt-0", "uid": "u1", "controller": True, "apiVersion": "podium.dev/v1alpha1"}],
        },
        "spec": {"containers": [{"name": "train", "env": [{"name": "PODIUM_GPU_MEMORY_BYTES", "value": "1024"}]}]},
        "status": status,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "running", "ended", "gate_running", "gate_passed"),
    [
        ({}, 0, False, False, False),
        ({"initContainerStatuses": [{"name": "podium-gate", "state": {"running": {}}}]}, 0, False, True, False),
        ({"initContainerStatuses": [{"name": "podium-gate", "state": {"terminated": {"exitCode": 0}}}]}, 0, False, False, True),
        ({"initContainerStatuses": [{"name": "podium-gate", "state": {"terminated": {"exitCode": 143}}}]}, 0, False, False, False),
        ({"containerStatuses": [{"name": "train", "containerID": "containerd://ab", "state": {"running": {}}}]}, 1, False, False, False),
        ({"containerStatuses": [{"name": "train", "containerID": "containerd://ab", "state": {"terminated": {"exitCode": 1}}}]}, 0, True, False, False),
        ({"phase": "Failed"}, 0, True, False, False),
    ],
)  # fmt: skip
def test_a_pod_is_parsed(status: Any, running: int, ended: bool, gate_running: bool, gate_passed: bool) -> None:
    pod = parse(pod_payload(**status))
    assert (len(pod.containers.running), pod.status.ended, pod.gate.running, pod.gate.passed) == (
        running,
        ended,
        gate_running,
        gate_passed,
    )
    assert (pod.key, pod.requests.gpu_memory, pod.settings.metrics and pod.settings.metrics.metric) == (
        KEY,
        1024,
        "acc",
    )


@pytest.mark.parametrize(
    ("second", "starting"),
    [
        ({}, True),
        ({"waiting": {"reason": "ContainerCreating"}}, True),
        ({"waiting": {"reason": "ImagePullBackOff"}}, False),
        ({"running": {}}, False),
        ({"terminated": {"exitCode": 0}}, False),
    ],
)
def test_a_container_that_is_still_to_start(second: Any, starting: bool) -> None:
    statuses = [{"name": name, "containerID": "containerd://ab", "state": {"running": {}}} for name in ("train", "log")]
    statuses[1]["state"] = second
    payload = pod_payload(containerStatuses=statuses)
    payload["spec"]["containers"].append({"name": "log"})
    assert parse(payload).containers.starting == starting


def test_gate_attempt_and_grace_of_a_pod() -> None:
    payload = pod_payload()
    pod = parse(payload)
    assert (pod.gate.present, pod.attempt, pod.termination.grace) == (False, 0, 30.0)
    payload["spec"]["initContainers"] = [{"name": "download"}, {"name": "podium-gate"}]
    payload["metadata"]["labels"]["podium.dev/attempt"] = "3"
    payload["metadata"]["deletionGracePeriodSeconds"] = 1
    payload["spec"]["terminationGracePeriodSeconds"] = 300
    pod = parse(payload)
    assert (pod.gate.present, pod.attempt, pod.termination.grace) == (True, 3, 1.0)
    del payload["metadata"]["deletionGracePeriodSeconds"]
    assert parse(payload).termination.grace == 300.0


@pytest.mark.parametrize(
    ("methods", "best"),
    [(None, "freeze"), ("freeze", "freeze"), ("app-checkpoint,freeze", "freeze"), ("app-checkpoint", ""), ("", "")],
)
def test_whether_a_pod_may_be_frozen(methods: str | None, best: str) -> None:
    payload = pod_payload()
    if methods is not None:
        payload["metadata"]["annotations"]["podium.dev/methods"] = methods
    assert SuspensionMethods(Freeze(1.0)).choose(parse(payload).settings.methods, 1) == best


def test_the_checkpoint_path_of_a_pod() -> None:
    """In its first container, whatever the order in which the kubelet lists them."""
    names = ("sidecar", "train")
    payload = pod_payload(
        containerStatuses=[{"name": name, "containerID": f"containerd://{name}", "state": {}} for name in names]
    )
    assert (parse(payload).settings.checkpoint, parse(payload).containers.main) == ("", "train")
    payload["metadata"]["annotations"]["podium.dev/checkpoint"] = "/ckpt"
    assert parse(payload).settings.checkpoint == "/ckpt"


def test_a_pod_without_an_owning_trial_is_refused() -> None:
    payload = pod_payload()
    payload["metadata"]["ownerReferences"] = []
    with pytest.raises(ValueError, match="neither this HyperParamTrial nor a Job"):
        parse(payload)


@pytest.mark.parametrize("field", ["deletionGracePeriodSeconds", "terminationGracePeriodSeconds"])
def test_a_pod_with_a_number_that_nothing_can_hold_is_refused(field: str) -> None:
    payload = pod_payload()
    payload["metadata" if field.startswith("deletion") else "spec"][field] = 10**400
    with pytest.raises(ValueError, match=field):
        parse(payload)


def test_the_status_of_a_trial_survives_an_agent() -> None:
    """What one agent writes, the next reads back: same account with its saves and losses, curve and position."""
    trial_record = TrialRecord(parse(pod_payload()), "n")
    ledger = follow(UsageLedger(), R, ("A",), "n", 100.0)
    ledger = suspended(follow(ledger, OFF, ("A",), "n", 110.0), SuspensionCost("freeze", 110.0, 0.5))
    ledger = saw_marker(follow(ledger, R, ("A",), "n", 120.0), CompletionMarker(3.0, "step-3"), "n", 1, 121.0)
    loss = AttemptLostWork(1, 100.0, step=5.0, resumed_from=2.0, steps=3.0, gpu_seconds=4.5)
    ledger = replace(ledger, lost_work=LostWorkTotals(1, 3.0, 4.5, accounted_gpu_seconds=5.0, recent=(loss,)))
    trial_record.load(
        ledger, Curve(last_step=3.0, last_value=0.5, lines=7, current_step=2.0), Position("0.log", "f", 42)
    )
    status = TrialStatus.model_validate(to_status(trial_record, ledger, "train", 125.0))
    assert ledger_from(status) == ledger
    position = position_from(status, "p1", "train")
    assert position == Position("0.log", "f", 42)
    assert curve_from(status, None, continues=position != Position()) == Curve(
        last_step=3.0, last_value=0.5, lines=7, current_step=2.0
    )
    assert position_from(status, "p2", "train") == Position(), "another pod: from the beginning"
    assert status.gpu_seconds == 15.0


def test_a_step_is_lost_once_for_each_repetition() -> None:
    """Saved at 10 and printed to 15; then to 12; then nothing: 5 steps are done again, 2 more, and none."""
    status = TrialStatus()
    for attempt, (begins, ends) in enumerate([(0, 15), (10, 12), (10, 10)]):
        status = attempts(status, attempt, begins, ends)
    status = attempts(status, 3, 10, 11)
    assert (status.lost_work.steps, status.lost_work.count) == (7.0, 2)
    assert [(loss.step, loss.resumed_from, loss.steps) for loss in status.lost_work.recent] == [
        (15, 10, 5),
        (12, 10, 2),
    ]
    assert status.last_step == 15.0, "the curve does not go back"


def attempts(status: TrialStatus, attempt: int, begins: int, ends: int) -> TrialStatus:
    """The status after a pod that continues from step `begins` and prints up to step `ends`."""
    ledger = ledger_from(status)
    said = GateReport(CompletionMarker(float(begins)) if begins else None)
    ledger = begin_attempt(ledger, AttemptStart(said, "n", attempt), reached(status), status.gpu_seconds, 100.0)
    lines = [Line(100.0, f"{step}") for step in range(begins + 1, ends + 1)]
    curve = extend(
        curve_from(status, float(begins), continues=False),
        lines,
        lambda text: [ParsedLine(float(text), 0.5)],
        Grid(maximize=True),
    )
    trial_record = TrialRecord(parse(pod_payload()), "n")
    trial_record.load(ledger, curve, Position())
    return TrialStatus.model_validate(to_status(trial_record, ledger, "train", 125.0))


def test_what_happens_before_the_status_could_be_loaded_is_not_lost() -> None:
    trial_record = TrialRecord(parse(pod_payload()), "n")
    trial_record.follow(R, ("A",), 10.0)
    trial_record.suspended(SuspensionCost("freeze", 15.0, 0.1))
    trial_record.follow(OFF, ("A",), 15.0)
    trial_record.load(UsageLedger(finished_gpu_seconds=100.0), Curve(), Position())
    assert trial_record.ledger is not None
    assert (trial_record.ledger.gpu_seconds(99.0), trial_record.ledger.count) == (105.0, 1)


def test_a_trial_that_waits_for_memory_shows_it_while_suspended() -> None:
    for state, why in ((OFF, "InsufficientGPUMemory"), (SlotState.GATED, "InsufficientGPUMemory"), (R, "Running")):
        entries = (patch(state, {}, "now", "GPU x has 1 bytes free") or {})["status"]["conditions"]
        assert [(entry["reason"], "1 bytes free" in entry["message"]) for entry in entries] == [
            (why, why != str(state))
        ] * 2


def test_pod_conditions_are_patched_only_when_they_differ() -> None:
    first = patch(R, {}, "now")
    assert first is not None
    assert {(one["type"], one["status"]) for one in first["status"]["conditions"]} == {
        (HOLDS, "True"),
        (SUSPENDED, "False"),
    }
    shown = {one["type"]: (one["status"], one["reason"]) for one in first["status"]["conditions"]}
    assert patch(R, shown, "now") is None
    second = patch(OFF, shown, "later")
    assert second is not None
    assert all(one["lastTransitionTime"] == "later" for one in second["status"]["conditions"])


def local(name: str, state: SlotState, since: float = 0.0) -> LocalTrial:
    return LocalTrial(TrialKey("demo", name, name), LocalPod(name, name), ("A",), state, since, memory=TrialMemory(100))


def status_of(*trials: LocalTrial, **load: Any) -> Any:
    reading = merge(Reading(), [Sample("A", 0, "H200", 1000, load=GpuLoad(10, **load))], 1.0, "610")
    facts, view = NodeFacts(reading, 4, ("freeze",), "0.1"), View(RunQueues(5), trials)
    return build(facts, view, lambda uuid: 5, lambda trial: trial.since, 2.0)


def test_the_node_status_names_one_holder_and_what_is_decisive() -> None:
    status = status_of(local("a", SlotState.SUSPENDING), local("b", SlotState.GATED), local("c", OFF))
    gpu = status.gpus[0]
    assert (gpu.holder.trial, gpu.memory_reserved, [one.trial for one in gpu.trials]) == ("a", 300, ["a", "b", "c"])
    coming = status_of(replace(local("a", SlotState.GATED), admitting=True)).gpus[0]
    assert (coming.holder, coming.trials[0].state) == (None, SlotState.GATED), "it holds nothing before its gate opens"
    movers = (
        change(local(name, OFF), memory__moves=True, memory__declared=size) for name, size in (("a", 60), ("b", 70))
    )
    packed = status_of(*movers, local("c", R)).gpus[0]
    assert (packed.memory_reserved, packed.memory_movable) == (170, 70), "of those that are moved off the largest only"
    assert decisive(status) != decisive(status_of(local("a", R), local("b", SlotState.GATED), local("c", OFF)))
    hot, cold = status_of(temperature=50.0), status_of(temperature=52.0)
    assert decisive(hot) == decisive(cold)
    assert not moved(hot, cold)
    assert moved(hot, status_of(temperature=54.0))
    smaller = hot.model_copy(update={"gpus": [hot.gpus[0].model_copy(update={"memory_total": 1})]})
    assert moved(hot, smaller), "another GPU is reported at once"
    assert SlotState.GATED not in OCCUPYING


def test_the_node_status_contains_trials_with_unconfirmed_gpus() -> None:
    """The operator would take it for gone, and give its GPU away."""
    known = local("a", R)
    assert status_of(replace(known, gpus=(), hinted_gpus=("A",))).gpus == status_of(known).gpus
    assert status_of(replace(known, gpus=())).gpus[0].trials == []
    assert status_of(replace(known, gpus=("B",), hinted_gpus=("A",))).gpus[0].trials == [], (
        "the kubelet's word goes before"
    )
