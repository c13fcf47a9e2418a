"""The folder of a run, the planner's view of it, and the devices of new attempts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Costs
from podium_core.schema.gpunode import SlotState
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial, LogCursor
from podium_local.attempt import Attempt
from podium_local.clock import moment
from podium_local.devices import Device
from podium_local.errors import LocalError
from podium_local.run_state import RunState, open_run
from podium_local.runner import Runner
from podium_local.snapshot import choose_devices, local_job_view, snapshot_of
from podium_local.store import RunFolder
from podium_local.trial import Trial, new_trial

GIB = 2**30


def job(**spec: Any) -> HyperParamJob:
    given: dict[str, Any] = {
        "objective": {"metric": "loss", "direction": "minimize"},
        "parameters": [{"name": "lr", "min": 0.0, "max": 1.0}],
        "trials": {"max": 8, "maxSteps": 10},
        "template": {"spec": {"containers": [{"name": "main", "image": "i", "command": ["train"]}]}},
    }
    return HyperParamJob.model_validate({"metadata": {"name": "j"}, "spec": {**given, **spec}})


def opened(folder: Path, *devices: Device, **spec: Any) -> RunState:
    return open_run(job(**spec), folder, devices or (Device("cpu-0", 0, 2, 1), Device("cpu-1", 1, 2, 1)), {})


def add(state: RunState, number: int) -> Trial:
    return state.add(new_trial(state.job, number, {"lr": 0.5}, 100.0 + number))


def occupy(trial: Trial, *devices: str) -> None:
    trial.attempt = Attempt(trial.key, 0, devices, 100.0, Path("/nowhere"))


def test_attempts_get_the_devices_with_the_fewest_trials(tmp_path: Path) -> None:
    state = opened(tmp_path)
    chosen = []
    for number in range(5):
        trial = add(state, number)
        devices = choose_devices(state.view(), state.trials.values(), state.machine)
        chosen.append(devices)
        if devices is not None:
            occupy(trial, *devices)
    assert chosen == [("cpu-0",), ("cpu-1",), ("cpu-0",), ("cpu-1",), None]


def test_declared_memory_limits_the_trials_on_a_gpu(tmp_path: Path) -> None:
    gpu = Device("GPU-a", 0, 4, 1, memory_total=80 * GIB, is_gpu=True)
    state = opened(tmp_path, gpu, gpus={"memory": "30Gi"})
    for number in range(2):
        assert choose_devices(state.view(), state.trials.values(), state.machine) == ("GPU-a",)
        occupy(add(state, number), "GPU-a")
    assert choose_devices(state.view(), state.trials.values(), state.machine) is None


def test_a_trial_with_two_gpus_gets_two_different_ones(tmp_path: Path) -> None:
    state = opened(tmp_path, gpus={"perTrial": 2})
    assert choose_devices(state.view(), state.trials.values(), state.machine) == ("cpu-0", "cpu-1")


def test_checkpoints_of_any_volume_can_be_continued_from() -> None:
    checkpoint = {"path": "/ckpt", "volume": {"emptyDir": {}}}
    methods = {"methods": ["app-checkpoint"]}
    view = local_job_view(job(checkpoint=checkpoint, suspension=methods), 2)
    assert view.abilities.checkpointable
    assert view.abilities.checkpoint_scope == "anywhere"
    assert not view.abilities.suspendable


def test_trials_without_gpus_use_the_cores() -> None:
    assert local_job_view(job(gpus={"perTrial": 0}), 6).limits.parallel == 6


def test_a_suspension_costs_little_before_it_was_measured(tmp_path: Path) -> None:
    state = opened(tmp_path)
    add(state, 0)
    assert snapshot_of(state.view(), state.ordered, state.machine, 1.0).costs.suspend < Costs().suspend


def test_a_run_continues_from_its_folder(tmp_path: Path) -> None:
    state = opened(tmp_path)
    trial = add(state, 3)
    state.folder.write_trial(trial.manifest(101.0), durable=True)
    uid = state.job.metadata.uid
    state.folder.close()
    again = opened(tmp_path)
    assert again.job.metadata.uid == uid
    assert [(one.number, one.spec.parameters) for one in again.ordered] == [(3, {"lr": 0.5})]


def test_a_trial_holds_no_device_after_its_runner_was_killed(tmp_path: Path) -> None:
    state = opened(tmp_path)
    begin = state.clock.now() - 1000.0
    trial = add(state, 0)
    occupy(trial, "cpu-0")
    assert trial.attempt is not None
    trial.attempt.state, trial.had_attempt, trial.phase = SlotState.RUNNING, True, TrialPhase.RUNNING
    trial.cursor = LogCursor(pod_uid=trial.attempt.uid, file="j-0-0.log")
    trial.follow(begin)
    state.folder.write_trial(trial.manifest(begin), durable=True)
    meta = state.job.metadata.model_copy(update={"creation_timestamp": moment(begin)})
    state.folder.write_job(state.job.model_copy(update={"metadata": meta}), durable=True)
    state.folder.close()
    os.utime(tmp_path / "objects" / "job.json", (begin + 5.0, begin + 5.0))  # the last write before it was killed
    (tmp_path / "logs" / "j-0-0.log").write_text('{"step": 1, "loss": 0.5}\n')
    again = opened(tmp_path)
    again.folder.close()
    (continued,) = again.ordered
    assert continued.phase is TrialPhase.REQUEUED
    assert continued.ledger.gpu_seconds(again.clock.now()) == pytest.approx(5.0, abs=0.01)
    assert [(one.step, one.value) for one in continued.curve.points] == [(1.0, 0.5)]
    assert continued.curve.points[0].time == pytest.approx(begin + 5.0, abs=0.01), "written before the runner ended"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"objective": {"metric": "loss", "direction": "maximize"}}, "spec.objective"),
        ({"parameters": [{"name": "lr", "min": 0.0, "max": 2.0}]}, "spec.parameters"),
        ({"search": {"algorithm": "random", "seed": 5}}, "spec.search"),
    ],
)
def test_a_change_that_makes_trials_incomparable_is_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    opened(tmp_path).folder.close()
    with pytest.raises(LocalError, match=named):
        opened(tmp_path, **change)
    opened(tmp_path).folder.close()  # a refusal unlocks the folder


def test_a_template_may_be_corrected_until_a_trial_has_a_value(tmp_path: Path) -> None:
    state = opened(tmp_path)
    trial = add(state, 0)
    state.folder.write_trial(trial.manifest(101.0), durable=True)
    state.folder.close()
    template = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["other"]}]}}
    opened(tmp_path, template=template).folder.close()
    status = {"curve": {"points": [{"step": 1, "value": 0.5, "time": 1.0}]}, "lastStep": 1, "lastValue": 0.5}
    stored = HyperParamTrial.model_validate({**trial.manifest(101.0).model_dump(by_alias=True), "status": status})
    folder = RunFolder(tmp_path)
    folder.write_trial(stored, durable=True)
    folder.close()
    with pytest.raises(LocalError, match=r"spec\.template"):
        opened(tmp_path)


def test_a_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).folder.close()
    other = job()
    other = other.model_copy(update={"metadata": other.metadata.model_copy(update={"name": "k"})})
    with pytest.raises(LocalError, match="--folder"):
        open_run(other, tmp_path, (Device("cpu-0", 0, 2, 1),), {})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metadata": {}}', json.dumps({"metadata": {"name": 3}})])
def test_a_damaged_state_is_named(tmp_path: Path, content: str) -> None:
    opened(tmp_path).folder.close()
    (tmp_path / "objects" / "job.json").write_text(content)
    with pytest.raises(LocalError, match=r"job\.json"):
        opened(tmp_path)


def test_a_write_that_is_cut_off_leaves_the_old_state(tmp_path: Path) -> None:
    state = opened(tmp_path)
    before = (tmp_path / "objects" / "job.json").read_text()
    (tmp_path / "objects" / "job.new").mkdir()  # as if the disk were full
    with pytest.raises(LocalError, match="StateNotWritten"):
        state.folder.write_job(state.job, durable=True)
    assert (tmp_path / "objects" / "job.json").read_text() == before


def test_keys_of_trials_are_stable(tmp_path: Path) -> None:
    state = opened(tmp_path)
    assert add(state, 2).key == TrialKey("default", "j-2", f"{state.job.metadata.uid}-2")


def test_a_stray_file_beside_the_trials_is_ignored(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.folder.write_trial(add(state, 3).manifest(101.0), durable=True)
    state.folder.close()
    for name in ("trial-3 (copy).json", "trial-3x.json", "trial-.json"):
        (tmp_path / "objects" / name).write_text("{}")
    assert [one.number for one in opened(tmp_path).ordered] == [3]


def test_a_helper_that_cannot_be_copied_is_an_error_with_the_cure(tmp_path: Path) -> None:
    state = opened(tmp_path)
    (tmp_path / "python").write_text("in the way, as if the disk were full")
    with pytest.raises(LocalError, match="free space"):
        Runner(state).run()
    opened(tmp_path).folder.close()  # the error unlocks the folder
