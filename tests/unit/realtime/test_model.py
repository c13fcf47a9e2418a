"""Networks, tasks, profiles and task set files: valid ones, and the errors for invalid ones with task and field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.network import InferenceNetwork, Stage, chain, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.task import PeriodicTask, identical_tasks, require_distinct
from podium_realtime.model.taskset import TaskSet, parse

NET = resnet18()


def test_resnet18_is_the_reference_network() -> None:
    assert [stage.name for stage in NET.stages] == ["stem", "layer1", "layer2", "layer3", "layer4", "head"]
    assert NET.work == pytest.approx(1.0)
    assert NET.launches == pytest.approx(1.0)
    assert NET.successors == ((1,), (2,), (3,), (4,), (5,), ())
    assert NET.fused().stages == (Stage("whole", NET.work, NET.launches),)


@pytest.mark.parametrize(
    ("make", "where", "code"),
    [
        (lambda: PeriodicTask("cam", NET, 0.0, 0.1), "task cam: period", "InvalidValue"),
        (lambda: PeriodicTask("cam", NET, float("nan"), 0.1), "task cam: period", "InvalidValue"),
        (lambda: PeriodicTask("cam", NET, 0.1, -0.1), "task cam: deadline", "InvalidValue"),
        (lambda: PeriodicTask("cam", NET, 0.1, 0.2), "task cam: deadline", "DeadlineAfterPeriod"),
        (lambda: PeriodicTask("cam", NET, 0.1, 0.1, offset=-1.0), "task cam: offset", "InvalidValue"),
        (lambda: PeriodicTask("", NET, 0.1, 0.1), "task ?: name", "Required"),
        (lambda: require_distinct(identical_tasks(2, NET, 30.0) * 2), "task resnet18-00: name", "DuplicateName"),
        (lambda: identical_tasks(2, NET, 0.0), "fps", "InvalidValue"),
        (lambda: InferenceNetwork("n", ()), "network n: stages", "NoStages"),
        (lambda: chain("n", [("a", 0.0, 1.0)]), "network n: stage a: work", "InvalidValue"),
        (lambda: InferenceNetwork("n", (Stage("a", 1.0, 1.0, (0,)),)), "network n: stage a: after", "NotAcyclic"),
        (lambda: Profile((4, 2), (1.0, 1.0), (1.0, 1.0)), "profile: sms", "InvalidProfile"),
        (lambda: Profile((2, 4), (1.0,), (1.0, 1.0)), "profile: sms", "InvalidProfile"),
        (lambda: Profile((2,), (-1.0,), (1.0,)), "profile: alone", "InvalidValue"),
    ],
)
def test_invalid_values_are_reported_with_task_and_field(make: Any, where: str, code: str) -> None:
    with pytest.raises(RealtimeError) as error:
        make()
    assert (error.value.where, error.value.code) == (where, code)


def test_a_profile_follows_amdahls_law_between_its_points() -> None:
    profile = Profile((2, 4, 8), (10.0, 6.0, 4.0), (20.0, 12.0, 8.0))
    # 2 + 16/n passes through all three points
    assert profile.time(3, occupied=False) == pytest.approx(2.0 + 16.0 / 3.0)
    assert profile.time(8) == 8.0
    assert profile.time(1) == 20.0
    assert profile.time(68) == 8.0


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8), st.integers(1, 40), st.integers(1, 40))
def test_more_sms_never_take_longer(times: list[float], first: int, second: int) -> None:
    profile = Profile(tuple(3 * n + 1 for n in range(len(times))), tuple(times), tuple(times))
    few, many = sorted((first, second))
    assert profile.time(many) <= profile.time(few) + 1e-12


def task_file(**changes: Any) -> dict[str, Any]:
    task = {"name": "cam", "network": "resnet18", "fps": 30} | changes
    return {"apiVersion": "podium.dev/v1alpha1", "kind": "PeriodicTaskSet", "spec": {"tasks": [task]}}


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"fps": -1}, "task cam: fps", "InvalidValue"),
        ({"fps": "30"}, "task cam: fps", "InvalidValue"),
        ({"fps": 1e-9}, "task cam: fps", "InvalidValue"),
        ({"fbs": 30}, "task cam: fbs", "UnknownField"),
        ({"network": "vgg"}, "task cam: network", "UnknownNetwork"),
        ({"deadlineMs": 50}, "task cam: deadline", "DeadlineAfterPeriod"),
        ({"deadlineMs": 0}, "task cam: deadlineMs", "InvalidValue"),
        ({"priority": "urgent"}, "task cam: priority", "InvalidValue"),
        ({"name": ""}, "spec.tasks[0].name", "InvalidValue"),
    ],
)
def test_invalid_task_fields_are_reported_with_task_and_field(changes: dict[str, Any], field: str, code: str) -> None:
    errors = parse(task_file(**changes))
    assert not isinstance(errors, TaskSet)
    assert [(error.field, error.code) for error in errors] == [(field, code)]
    assert errors[0].message


def test_files_of_another_kind_are_rejected() -> None:
    errors = parse({"kind": "Pod"})
    assert not isinstance(errors, TaskSet)
    assert (errors[0].code, errors[0].field) == ("WrongKind", "kind")
    assert parse({"spec": {}}) != ()


@pytest.mark.parametrize("spec", ["text", [1], {"tasks": "text"}, {"tasks": {"name": "cam"}}, {"tasks": [3]}])
def test_specs_of_another_structure_are_rejected(spec: Any) -> None:
    errors = parse({"spec": spec})
    assert not isinstance(errors, TaskSet)
    assert errors[0].field.startswith("spec")


@pytest.mark.parametrize(
    ("networks", "stages", "field"),
    [
        (["two", "two"], ["a"], "network two: name"),
        (["resnet18"], ["a"], "network resnet18: name"),
        (["two"], ["a", "b", "a"], "network two: stage a: name"),
    ],
)
def test_duplicate_names_in_a_task_file_are_rejected(networks: list[str], stages: list[str], field: str) -> None:
    content = task_file()
    parts = [{"name": stage, "work": 0.5, "launches": 0.1} for stage in stages]
    content["spec"]["networks"] = [{"name": network, "stages": parts} for network in networks]
    errors = parse(content)
    assert not isinstance(errors, TaskSet)
    assert [(error.field, error.code) for error in errors] == [(field, "DuplicateName")]


def test_a_task_file_can_define_a_network() -> None:
    content = task_file(network="two", deadlineMs=20)
    content["spec"]["networks"] = [
        {
            "name": "two",
            "stages": [
                {"name": "a", "work": 0.5, "launches": 0.1},
                {"name": "b", "work": 0.5, "launches": 0.1, "after": ["a"]},
            ],
        }
    ]
    parsed = parse(content)
    assert isinstance(parsed, TaskSet)
    assert parsed.tasks[0].deadline == pytest.approx(0.02)
    assert parsed.tasks[0].network.stages[1].after == (0,)
    content["spec"]["networks"][0]["stages"][1]["after"] = ["c"]
    errors = parse(content)
    assert not isinstance(errors, TaskSet)
    assert errors[0].code == "UnknownStage"
    content["spec"]["networks"][0]["stages"][0]["after"] = ["b"]
    content["spec"]["networks"][0]["stages"][1]["after"] = ["a"]
    errors = parse(content)
    assert not isinstance(errors, TaskSet)
    assert errors[0].code == "NotAcyclic"
