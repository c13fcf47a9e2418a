"""Snapshot for the planner from the objects of the API."""
# ruff: noqa: E501 - a table is read by its columns

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import (
    NOW,
    UUID,
    accepted,
    ended,
    make_cluster_state,
    make_job,
    make_node,
    make_pod,
    make_trial,
    moment,
)

from podium_core.domain.actions import CreatePod, CreateTrial
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs, JobView, Snapshot
from podium_core.planning.planner import plan
from podium_core.schema.gpunode import GpuStatus
from podium_core.schema.job import HyperParamJob
from podium_core.testing.builders import change_job
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot

RUNNING = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}

CLAIM = {"path": "/c", "volume": {"claimName": "c"}}
ON_NODE = {"path": "/c", "volume": {"hostPath": {"path": "/srv"}}}
SAVES = {"methods": ["app-checkpoint"]}


def snap(*objects: Any, **cluster: Any) -> Snapshot:
    there = make_cluster_state(*objects, **cluster)
    return build_snapshot(there, observe(there))


def view(**how: Any) -> JobView:
    return snap(make_job(**how)).jobs[0]


JOBS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("defaults", {},
     {"policy": "envelope", "maximize": True, "accepted": True, "finished": False, "gpus_per_trial": 1}),
    ("minimize", {"objective": {"metric": "loss", "direction": "minimize", "target": 0.1}},
     {"maximize": False, "target": 0.1}),
    ("auto", {"trials": {"max": 5, "parallel": "auto", "maxSteps": 3}}, {"parallel": None, "max_trials": 5}),
    ("suspended", {"suspend": True}, {"suspended": True}),
    ("finished", {"status": {"phase": "Succeeded", "observedGeneration": 1}}, {"finished": True}),
    ("not checked", {"status": {"conditions": []}}, {"accepted": False}),
    ("refused", {"status": {"conditions": [accepted("False")]}}, {"accepted": False}),
    ("memory", {"gpus": {"memory": "2Gi", "products": ["A"]}}, {"memory": 2 * 2**30, "products": ("A",)}),
    ("no checkpoint", {}, {"suspendable": True, "checkpointable": False, "checkpoint_scope": "nowhere"}),
    ("a claim, app-checkpoint", {"checkpoint": CLAIM, "suspension": SAVES}, {"suspendable": False, "checkpointable": True,
                                                                            "checkpoint_scope": "anywhere"}),
    ("a claim, no app-checkpoint", {"checkpoint": CLAIM}, {"suspendable": True, "checkpointable": False, "checkpoint_scope": "anywhere"}),
    ("a folder of the node", {"checkpoint": ON_NODE, "suspension": SAVES}, {"checkpointable": True, "checkpoint_scope": "node"}),
    ("a scratch folder", {"checkpoint": {"path": "/c", "volume": {"emptyDir": {}}}}, {"checkpoint_scope": "nowhere"}),
    ("cpu", {"gpus": {"perTrial": 0}}, {"gpus_per_trial": 0}),
    ("a grid smaller than max", {"search": {"algorithm": "grid"}, "parameters": [{"name": "a", "values": [1, 2]}]},
     {"max_trials": 2}),
    ("a grid larger than max", {"search": {"algorithm": "grid"}, "parameters": [{"name": "a", "values": [1, 2, 3, 4]}]},
     {"max_trials": 3}),
    ("a budget", {"budget": {"gpuSeconds": 60, "deadline": "2025-10-09T08:53:20Z"}},
     {"budget_gpu_seconds": 60.0, "deadline": NOW}),
]  # fmt: skip


@pytest.mark.parametrize(("how", "wanted"), [case[1:] for case in JOBS], ids=[case[0] for case in JOBS])
def test_view_of_a_job(how: dict[str, Any], wanted: dict[str, Any]) -> None:
    seen = view(**how)
    assert seen == change_job(seen, **wanted)


@pytest.mark.parametrize(
    ("nodes", "suspendable"), [((), False), ((True,), True), ((True, True), True), ((True, False), False)]
)
def test_a_checkpoint_keeps_a_trial_in_place_only_where_every_node_has_it(
    nodes: tuple[bool, ...], suspendable: bool
) -> None:
    seen = []
    for number, has in enumerate(nodes):
        node = make_node(f"node-{number}")
        methods = ["freeze", "cuda-checkpoint"] if has else ["freeze"]
        seen.append(node.model_copy(update={"status": node.status.model_copy(update={"methods": methods})}))
    job = make_job(suspension={"methods": ["cuda-checkpoint"]})
    assert snap(job, *seen).jobs[0].abilities.suspendable is suspendable
    assert snap(make_job(), *seen).jobs[0].abilities.suspendable


@pytest.mark.parametrize(("place", "suspendable"), [("owned", True), ("leased", False), ("", False)])
def test_a_node_with_reserved_gpus_excludes_freezing_only_for_trials_there(place: str, suspendable: bool) -> None:
    """A trial without a GPU may be scheduled to either."""
    there = {
        name: make_node(name, trials={"sweep-0": "Running"} if name == place else {}) for name in ("owned", "leased")
    }
    reservation_condition = there["leased"].status.model_copy(
        update={"mode": "reservations", "methods": ["cuda-checkpoint"]}
    )
    nodes = there["owned"], there["leased"].model_copy(update={"status": reservation_condition})
    assert snap(make_job(), make_trial(phase="Running"), *nodes).jobs[0].abilities.suspendable is suspendable


@pytest.mark.parametrize(
    ("recent", "switch"),
    [
        ((), None),
        ((("freeze", 0.1, None),), None),
        ((("freeze", 0.1, 0.1), ("freeze", 0.3, 0.3), ("freeze", 0.2, None)), 0.4),
        ((("cuda-checkpoint", 9.0, 9.0), ("freeze", 0.1, 0.2)), 0.3),
    ],
)
def test_the_switch_time_of_a_trial_is_measured_on_itself(
    recent: tuple[tuple[str, float, float | None], ...], switch: float | None
) -> None:
    records = [{"method": m, "at": moment(), "suspendSeconds": out, "resumeSeconds": back} for m, out, back in recent]
    seen = snap(make_job(), make_trial(suspensions={"count": len(records), "recent": records})).trials[0]
    assert seen.usage.switch_seconds == (None if switch is None else pytest.approx(switch))


def test_a_trial_on_a_gpu() -> None:
    points = [{"step": 1, "value": 0.5, "time": NOW}]
    trial = make_trial(phase="Gated", pod="sweep-0-0", curve={"points": points}, gpuSeconds=7.5)
    node = make_node(trials={"sweep-0": "Running"}, holder="sweep-0", order=["sweep-0"], epoch=4)
    snapshot = snap(make_job(), trial, make_pod(**RUNNING), node)
    seen = snapshot.trials[0]
    key = TrialKey("lab", "sweep-0", "uid-sweep-0")
    assert seen.pod is not None
    assert (seen.phase, seen.pod.name, seen.node, seen.gpus) == (TrialPhase.RUNNING, "sweep-0-0", "node-1", (UUID,))
    assert (seen.curve[0].value, seen.usage.gpu_seconds) == (0.5, 7.5)
    gpu = snapshot.gpus[0]
    assert (gpu.holder, gpu.run_queue.trials, gpu.trials, gpu.free_slots) == (key, (key,), (key,), 3)
    assert snapshot.epochs == {"node-1": 4}


def test_an_ended_pod_allows_a_new_one() -> None:
    dead = make_pod(phase="Failed", gate=ended(0), main=ended(1))
    assert snap(make_job(), make_trial(phase="Running", pod="sweep-0-0"), dead).trials[0].pod is None


def test_the_pod_of_a_finished_trial_counts_until_it_has_ended() -> None:
    """Otherwise the winner's pod would remain if the first attempt to delete it failed."""
    trial = make_trial(phase="Succeeded", pod="sweep-0-0")
    pod = snap(make_job(), trial, make_pod(**RUNNING)).trials[0].pod
    assert pod is not None
    assert pod.name == "sweep-0-0"
    over = make_pod(phase="Succeeded", gate=ended(0), main=ended(0))
    assert snap(make_job(), trial, over).trials[0].pod is None


def test_the_gpus_of_an_unresponsive_node_are_unknown_not_lost() -> None:
    snapshot = snap(make_job(), make_node(), unresponsive=["node-1"])
    assert [gpu.health for gpu in snapshot.gpus] == ["Unknown"]


def test_costs_are_the_measured_ones() -> None:
    slow = make_trial(suspensions={"count": 4, "suspendSeconds": 2.0, "resumeSeconds": 1.0})
    assert snap(make_job(), slow).costs == Costs(0.5, 0.25)
    assert snap(make_job(), make_trial()).costs == Costs()
    there = make_cluster_state(make_job(), slow)
    assert build_snapshot(there, observe(there), 7.5).costs == Costs(0.5, 0.25, 7.5)


@pytest.mark.parametrize("back", [1, 10])
def test_a_suspended_trial_counts_no_resumption(back: int) -> None:
    trials = []
    for number in range(10):
        past = {"method": "freeze", "at": moment(), "suspendSeconds": 30.0} | (
            {"resumeSeconds": 30.0} if number < back else {}
        )
        of_all = {"count": 1, "suspendSeconds": 30.0, "resumeSeconds": past.get("resumeSeconds", 0.0), "recent": [past]}
        trials.append(make_trial(number, suspensions=of_all))
    assert snap(make_job(), *trials).costs == Costs(30.0, 30.0)


def test_a_trial_that_migrates_from_a_draining_node() -> None:
    node = make_node(trials={"sweep-0": "Running"})
    drains = node.model_copy(update={"spec": node.spec.model_copy(update={"draining": True})})
    saved = {"step": 4, "at": NOW}
    trial = make_trial(phase="Running", pod="sweep-0-0", checkpoint=saved)
    snapshot = snap(make_job(), trial, make_pod(**RUNNING, deleting=True, created=-9.0), drains)
    (seen,) = snapshot.trials
    assert (seen.terminating, seen.termination_overdue, seen.attempts.checkpoint_step, seen.pod_since) == (
        True,
        False,
        4.0,
        NOW - 9.0,
    )
    assert [gpu.availability.draining for gpu in snapshot.gpus] == [True]


def test_the_exclusive_pod_of_a_gpu_is_in_the_view() -> None:
    node = make_node()
    gpus = [gpu.model_copy(update={"exclusive_pod": "prod/urgent"}) for gpu in node.status.gpus]
    taken = node.model_copy(update={"status": node.status.model_copy(update={"gpus": gpus})})
    assert [gpu.availability.exclusive_pod for one in (node, taken) for gpu in snap(one).gpus] == [None, "prod/urgent"]


@pytest.mark.parametrize(("other_pods", "free"), [((), 3), ((0,), 2), ((5, 7), 1), ((0, 0, 0), 0), ((0,) * 9, 0)])
def test_slots_and_memory_of_other_pods_are_not_free(other_pods: tuple[int, ...], free: int) -> None:
    """Otherwise a pod would be created without a slot, or a trial moved to where its memory does not fit."""
    there = [{"namespace": "prod", "pod": f"g{i}", "podUID": f"g{i}", "memory": m} for i, m in enumerate(other_pods)]
    node = make_node(trials={"other-0": "Running"})
    gpus = [GpuStatus.model_validate(gpu.model_dump(by_alias=True) | {"otherPods": there}) for gpu in node.status.gpus]
    full = node.model_copy(update={"status": node.status.model_copy(update={"gpus": gpus})})
    snapshot = snap(make_job(trials={"max": 9, "parallel": 9, "maxSteps": 10}), *map(make_trial, range(9)), full)
    assert [(gpu.free_slots, gpu.memory.reserved) for gpu in snapshot.gpus] == [(free, sum(other_pods))]
    assert sum(isinstance(action, CreatePod) for action in plan(snapshot).actions) == free


def test_objects_that_are_being_deleted_are_not_planned_for() -> None:
    job = make_job()
    going = job.model_copy(
        update={"metadata": job.metadata.model_copy(update={"deletion_timestamp": job.metadata.creation_timestamp})}
    )
    assert snap(going).jobs == ()


def with_memory(much: str) -> HyperParamJob:
    spec = make_job().spec
    return make_job("other").model_copy(
        update={"spec": spec.model_copy(update={"gpus": spec.gpus.model_copy(update={"memory": much})})}
    )


ENDLESS = [{"name": "lr", "min": 0.0, "max": 1e300, "step": 1e-300}]


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (True, make_job("other", status={"conditions": []}, search={"algorithm": "grid"}, parameters=ENDLESS)),
        (False, with_memory("much")),
    ],
    ids=["a grid without end", "accepted without validation"],
)
def test_an_inconsistent_job_does_not_affect_the_others(
    wrong: HyperParamJob, seen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not accepted either: only its owner has read it."""
    snapshot = snap(wrong, make_trial(0, job="other"), make_job(), make_node())
    assert [job.key.name for job in snapshot.jobs] == [*(["other"] if seen else []), "sweep"]
    assert ("job lab/other is left unchanged" in caplog.text) is not seen
    assert {action.job.name for action in plan(snapshot).actions if isinstance(action, CreateTrial)} == {"sweep"}


def unplaced(message: str) -> list[dict[str, str]]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


@pytest.mark.parametrize(
    ("message", "age", "lacks_capacity"),
    [
        ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.", 61.0, True),
        ("0/2 nodes are available: 2 Insufficient podium.dev/gpu.", 61.0, True),
        (
            "0/2 nodes are available: 2 GPUMemoryReserved: 0 of 1 GPUs have 2.0 GiB beside what they declared",
            61.0,
            True,
        ),
        ("0/2 nodes are available: 2 Insufficient cpu.", 59.0, False),
        ("0/2 nodes are available: 2 node(s) were unschedulable.", 61.0, False),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", 61.0, False),
    ],
)
def test_a_pod_that_waits_for_capacity(message: str, age: float, lacks_capacity: bool) -> None:
    """A shortage that the end of another trial would not cure is not a lack of capacity."""
    pod = make_pod(node=None, created=-age, conditions=unplaced(message))
    (trial,) = snap(make_job(), make_trial(pod="sweep-0-0"), make_node(), pod).trials
    assert trial.pod is not None
    assert trial.pod.waits_for_capacity is lacks_capacity
    assert trial.pod.stuck is (age > 60.0)
