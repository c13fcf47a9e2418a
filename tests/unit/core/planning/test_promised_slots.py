"""A slot on the target of a migration is promised from the request on: no other trial and no new pod gets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import RUN, SLOW, P, created, of, sound, why

from podium_core.domain.actions import CreatePod, Migrate, Plan
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.migration import IN_PROGRESS, MigrationPhase
from podium_core.domain.snapshot import Snapshot, TrialView
from podium_core.planning.slots.promised_slots import promises
from podium_core.testing.builders import change_job, make_gpu, make_job, make_snapshot, make_trial

ASKED, PUSHED, CREATED = MigrationPhase.REQUESTED, MigrationPhase.IMAGE_PUSHED, MigrationPhase.POD_CREATED
JOB = make_job(max_trials=9, parallel=9, migratable=True)


def on_way(number: int, phase: MigrationPhase = ASKED, node: str = "node-a", **trial: Any) -> TrialView:
    """Its old pod is on the GPU of `node`; or, if it is `migrated`, its new one on the way to node-c."""
    about: dict[str, Any] = {"migration": phase, "migration_target": "node-c", "values": SLOW, "phase": P.SUSPENDED}
    old = {"gpus": [f"gpu-{node[-1]}"], "node": node, "suspend": True}
    new = {"migrated": True, "attempt": 1, "pod": f"job-{number}-1", "phase": P.PENDING}
    return make_trial(number, **(about | (new if trial.get("migrated") else old) | trial))


def works(number: int, node: str = "node-a") -> TrialView:
    return make_trial(number, gpus=[f"gpu-{node[-1]}"], node=node, phase=RUN, values=SLOW)


def cluster(*trials: TrialView, free: int = 1, others: int = 0, job: Any = JOB, **there: Any) -> Snapshot:
    """node-a and node-b drain; node-c has `free` slots but for those of `other pods`."""
    gpus: list[GpuView] = []
    for node in "ab":
        mine = [trial.key for trial in trials if f"gpu-{node}" in trial.gpus]
        gpus.append(make_gpu(f"gpu-{node}", node=f"node-{node}", trials=mine, draining=True, supports_migration=True))
    taken = [make_trial(90 + i).key for i in range(others)]
    gpus.append(make_gpu("gpu-c", node="node-c", supports_migration=True, slots=free, **{"trials": taken, **there}))
    return make_snapshot(jobs=[job], trials=trials, gpus=gpus)


def targets(made: Plan) -> list[str]:
    return [action.trial.name for action in of(made, Migrate) if isinstance(action, Migrate)]


@pytest.mark.parametrize(("free", "asked"), [(1, ["job-0"]), (2, ["job-0", "job-1"])])
def test_two_draining_nodes_send_one_trial_to_one_slot(free: int, asked: list[str]) -> None:
    assert targets(sound(cluster(works(0), works(1, "node-b"), free=free))) == asked


@pytest.mark.parametrize(
    "other",
    [
        on_way(1, ASKED, "node-b"),
        on_way(1, PUSHED, "node-b"),
        on_way(1, CREATED, migrated=True),
        on_way(1, CREATED, migrated=True, stuck=True),
        on_way(1, CREATED, migrated=True, node="node-c"),
    ],
)
def test_a_promised_slot_is_not_given_to_another_trial(other: TrialView) -> None:
    """As an operator sees it that has just started: all of it is in the objects."""
    one, two = cluster(works(0), other), cluster(works(0), other, free=2)
    assert (targets(sound(one)), targets(sound(two))) == ([], ["job-0"])
    no_pod = make_trial(2)
    waits = sound(replace(one, trials=(other, no_pod)))
    assert created(waits) == ([] if other.relocation.migration is not PUSHED else ["job-1"])
    if other.pod is None or not other.pod.stuck:
        assert why(waits, "job-2") == "NoFreeSlot"
        assert "job-2" in created(sound(replace(two, trials=(other, no_pod))))


def test_no_pod_is_created_for_a_slot_promised_in_the_same_plan() -> None:
    waits = sound(cluster(works(0), make_trial(2)))
    assert (targets(waits), created(waits)) == (["job-0"], [])


@pytest.mark.parametrize(
    ("pending", "asked"),
    [
        ({}, []),
        ({"node": "node-c"}, []),
        ({"node": "node-b"}, ["job-0"]),
        ({"stuck": True}, ["job-0"]),
        ({"phase": P.SUCCEEDED}, ["job-0"]),
    ],
)
def test_a_slot_that_an_unplaced_pod_may_take_is_not_free(pending: dict[str, Any], asked: list[str]) -> None:
    assert targets(sound(cluster(works(0), make_trial(1, pod="job-1-0", **pending)))) == asked


BROKEN: list[tuple[str, Snapshot, list[str]]] = [
    ("it is kept", cluster(on_way(0)), []),
    ("another pod has the slot", cluster(on_way(0), others=1), ["job-0"]),
    ("the image is there", cluster(on_way(0, PUSHED), others=1), ["job-0"]),
    ("its new pod has it", cluster(on_way(0, PUSHED), trials=[on_way(0).key]), []),
    ("the most advanced comes first", cluster(on_way(0), on_way(1, PUSHED, "node-b")), ["job-0"]),
    ("a new pod before an image", cluster(on_way(0, PUSHED), on_way(1, PUSHED, migrated=True)), ["job-0"]),
    ("its GPU is unhealthy", cluster(on_way(0), health="Unhealthy"), ["job-0"]),
    ("its reservation has ended", cluster(on_way(0), reserved_for=""), ["job-0"]),
    ("nothing is heard of the node", replace(cluster(on_way(0)), gpus=cluster().gpus[:2]), []),
    ("the node drains as well", cluster(on_way(0), others=1, draining=True), []),
    ("two GPUs, one of them free", cluster(on_way(0), job=change_job(JOB, gpus_per_trial=2)), []),
]


@pytest.mark.parametrize(("seen", "names"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_promises_are_detected(seen: Snapshot, names: list[str]) -> None:
    assert [key.name for key in promises(seen).broken] == names


def test_no_pod_is_created_from_an_image_whose_slot_is_taken() -> None:
    assert of(sound(cluster(on_way(0, PUSHED), others=1)), CreatePod) == []
    assert created(sound(cluster(on_way(0, PUSHED)))) == ["job-0"]


@given(
    st.lists(st.tuples(st.sampled_from(sorted(IN_PROGRESS)), st.booleans(), st.sampled_from("ab")), max_size=6),
    st.integers(0, 5),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_no_more_slots_are_promised_than_are_free(
    ways: list[tuple[MigrationPhase, bool, str]], free: int, others: int, fresh: int
) -> None:
    """Promises, what is asked and what is created in one plan fit into what is free, together."""
    trials = [
        on_way(i, phase, f"node-{where}", migrated=phase is CREATED or carried)
        for i, (phase, carried, where) in enumerate(ways)
    ]
    more = [make_trial(20 + i) for i in range(fresh)]
    seen = cluster(*trials, works(10), *more, free=free, others=others)
    found, made = promises(seen), sound(seen)
    left = max(0, free - others)
    assert sum(found.slots.values()) + len(found.broken) == len(trials)
    assert all(shares <= left for shares in found.slots.values())
    newcomers = [name for name in created(made) if name not in {trial.key.name for trial in trials}]
    assert sum(found.slots.values()) + len(targets(made)) + len(newcomers) <= left
