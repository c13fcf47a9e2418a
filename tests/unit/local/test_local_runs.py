"""Real searches by `podium run`: processes, signals, a killed runner, and the exact result afterwards."""

from __future__ import annotations

import shutil
import signal
from itertools import pairwise
from typing import Any

import pytest
from local_scene import ROOT, Scene, ended, is_alive, wait_until

SLOW = "--pause=0.2"


def result(scene: Scene) -> list[tuple[Any, ...]]:
    """Return what each trial reached, bit for bit."""
    return [
        (one["spec"]["parameters"], one["status"]["phase"], one["status"]["lastStep"], one["status"]["best"])
        for one in scene.trials()
    ]


def undisturbed(x: float) -> float:
    total = 0.0
    for step in range(1, 7):
        total += x / (step + 1.0)
    return total


def test_a_search_runs_to_its_end_and_writes_its_results(scene: Scene) -> None:
    scene.write()
    output = scene.run("--cpus", "2")
    trials = scene.trials()
    assert [one["status"]["phase"] for one in trials] == ["Succeeded"] * 4
    values = {one["metadata"]["name"]: undisturbed(one["spec"]["parameters"]["x"]) for one in trials}
    best = max(values, key=lambda name: values[name])
    assert scene.job()["status"]["best"]["trial"] == best
    assert scene.job()["status"]["best"]["value"] == values[best]
    assert f"best         {best}" in output
    assert (scene.run_folder / "report.html").read_text().startswith("<!")
    assert len((scene.run_folder / "curves.jsonl").read_text().splitlines()) >= 4


def test_trials_share_one_device_by_suspension(scene: Scene) -> None:
    scene.write(scene.hold, policy={"name": "round_robin", "settings": {"quantum": 0.3}})
    with scene.running("--cpus", "1") as process:
        wait_until(lambda: scene.suspensions() > 0)
        scene.release()
        ended(process)
    trials = scene.trials()
    assert [one["status"]["phase"] for one in trials] == ["Succeeded"] * 4
    assert scene.suspensions() > 0
    spans = sorted(
        (allocation["start"], allocation["end"]) for one in trials for allocation in one["status"]["allocations"]
    )
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "two at once"
    assert [one["status"]["best"]["value"] for one in trials] == [
        undisturbed(one["spec"]["parameters"]["x"]) for one in trials
    ]


def test_a_finished_search_is_shown_again_and_not_repeated(scene: Scene) -> None:
    scene.write()
    scene.run()
    before = scene.trials()
    output = scene.run()
    assert "best " in output
    assert [one["status"]["attempt"] for one in scene.trials()] == [one["status"]["attempt"] for one in before]


def test_a_finished_search_keeps_its_trials_when_fewer_are_asked_for(scene: Scene) -> None:
    scene.write()
    scene.run()
    before = result(scene)
    scene.write(trials={"max": 2, "parallel": 2, "maxSteps": 6})
    output = scene.run()
    assert result(scene) == before
    assert "spec.trials.max is 2, and the search in" in output
    assert "has 4 trials already: they remain" in output
    assert "trials       4 of 4 ended (trials.max is 2 now; no trial is removed)" in output
    assert scene.job()["status"]["done"] == "4/4"


def test_a_killed_runner_takes_its_trials_along_and_the_search_continues_exactly(scene: Scene) -> None:
    scene.write(SLOW, "--child=session")
    with scene.running("--cpus", "2") as process:
        wait_until(lambda: sum('"score"' in line for line in scene.logs()) >= 4)
        children = scene.children()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert children
    wait_until(lambda: not any(map(is_alive, children)))
    scene.write("--child=session")  # the command may not change once a value was printed
    assert "JobChanged" in scene.run("--cpus", "2", code=1)
    scene.write(SLOW, "--child=session")
    scene.run("--cpus", "2")
    disturbed = result(scene)
    assert any(one["status"]["attempt"] > 0 for one in scene.trials())
    assert [value["value"] for *_, value in disturbed] == [undisturbed(given["x"]) for given, *_ in disturbed]
    assert {phase for _, phase, *_ in disturbed} == {"Succeeded"}
    wait_until(lambda: not any(map(is_alive, scene.children())))


@pytest.mark.parametrize("child", ["group", "session"])
def test_children_of_a_trial_end_with_it(scene: Scene, child: str) -> None:
    scene.write(f"--child={child}", trials={"max": 1, "maxSteps": 6})
    scene.run()
    assert scene.children()
    wait_until(lambda: not any(map(is_alive, scene.children())))


def test_an_interrupt_lets_trials_checkpoint_and_the_search_continues(scene: Scene) -> None:
    scene.write(SLOW)
    with scene.running("--cpus", "1") as process:
        wait_until(lambda: sum('"score"' in line for line in scene.logs()) >= 2)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    stored = [one["status"] for one in scene.trials()]
    assert {one["phase"] for one in stored} <= {"Requeued", "Succeeded"}
    saved = [one["checkpoint"]["step"] for one in stored if "checkpoint" in one]
    assert saved
    scene.run("--cpus", "1")
    assert [one["status"]["lostWork"]["steps"] for one in scene.trials()] == [0.0] * 4
    assert [value["value"] for *_, value in result(scene)] == [undisturbed(given["x"]) for given, *_ in result(scene)]


def test_a_second_interrupt_kills_scripts_that_ignore_the_first(scene: Scene) -> None:
    scene.write(SLOW, "--wrong=deaf", "--steps=100000", "--child=group", trials={"max": 1, "maxSteps": 100000})
    with scene.running() as process:
        wait_until(lambda: bool(scene.children()) and any('"score"' in line for line in scene.logs()))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
    assert not any(map(is_alive, scene.children()))


def test_a_script_that_ignores_sigterm_is_killed_after_its_grace_period(scene: Scene) -> None:
    scene.write(
        *(SLOW, "--wrong=deaf", "--steps=100000"),
        trials={"max": 1, "maxSteps": 100000},
        suspension={"methods": ["freeze"], "gracePeriodSeconds": 1},
    )
    with scene.running() as process:
        wait_until(lambda: any('"score"' in line for line in scene.logs()))
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert scene.trials()[0]["status"]["phase"] == "Requeued"


def test_two_runners_of_one_folder_refuse_each_other(scene: Scene) -> None:
    scene.write(SLOW, "--steps=100000", trials={"max": 1, "maxSteps": 100000})
    with scene.running() as process:
        wait_until(lambda: bool(scene.logs()))
        output = scene.run(code=1)
        assert "FolderInUse" in output
        assert str(process.pid) in output


def test_the_last_lines_of_failed_trials_are_shown(scene: Scene) -> None:
    scene.write("--wrong=fail", trials={"max": 2, "maxSteps": 6, "maxFailed": 0, "retries": 0})
    output = scene.run(code=1)
    assert "TooManyFailedTrials" in output
    assert "the data is missing" in output
    assert "exit code 1" in output


def test_a_metric_that_is_never_printed_is_named(scene: Scene) -> None:
    scene.write("--wrong=name", trials={"max": 1, "maxSteps": 6})
    output = scene.run()
    assert "MetricsUnavailable" in output
    assert "'score'" in output


def test_values_that_a_script_would_push_are_printed_and_read(scene: Scene) -> None:
    scene.write(metrics={"source": "push", "stepKey": "epoch"}, trials={"max": 2, "maxSteps": 3}, checkpoint=False)
    script = "from podium import trial\nfor epoch in (1, 2, 3):\n    trial.report(step=epoch, score=epoch / 4)\n"
    (scene.folder / "train.py").write_text(script)
    assert "metrics.source push" in scene.run()
    assert [one["status"]["lastValue"] for one in scene.trials()] == [0.75, 0.75]


def test_the_command_of_this_machine_replaces_that_of_the_container(scene: Scene) -> None:
    scene.write()
    scene.run("--", "python3", "train.py", "--steps=3", "--x=$(podium.params.x)")
    assert [one["status"]["lastStep"] for one in scene.trials()] == [3.0] * 4


def test_another_search_in_the_folder_is_refused(scene: Scene) -> None:
    scene.write()
    scene.run("--folder", "here")
    scene.write(objective={"metric": "score", "direction": "minimize"})
    assert "spec.objective" in scene.run("--folder", "here", code=1)


def test_trials_of_several_workers_are_refused(scene: Scene) -> None:
    scene.write(trials={"max": 2, "maxSteps": 6, "workers": 2}, gpus={"perTrial": 2})
    assert "WorkersUnavailable: trials.workers is 2" in scene.run(code=1)


def test_trials_whose_pods_a_controller_creates_are_refused(scene: Scene) -> None:
    main = {"name": "main", "image": "not/used", "command": ["python3", "/app/train.py", "$(podium.args)"]}
    template = {"spec": {"template": {"spec": {"containers": [main]}}}}
    workload = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": template}]},
    }
    scene.write(template=None, workload=workload)
    assert "WorkloadUnavailable: spec.workload is a JobSet" in scene.run(code=1)


def test_more_trials_continue_a_finished_search(scene: Scene) -> None:
    scene.write()
    scene.run()
    before = result(scene)
    scene.write(trials={"max": 6, "parallel": 4, "maxSteps": 6})
    scene.run()
    assert result(scene)[:4] == before
    assert len(scene.trials()) == 6


def test_the_digits_search_is_the_same_bit_for_bit_after_a_killed_runner(scene: Scene) -> None:
    text = (ROOT / "examples" / "digits" / "job.yaml").read_text()
    for long, short in {
        "name: digits": "name: tiny",
        "max: 12, parallel: 8, maxSteps: 40": "max: 3, parallel: 3, maxSteps: 4",
        "--epochs=40": "--epochs=4, --work=8",
        "{name: envelope}": "{name: round_robin, settings: {quantum: 0.5}}",
    }.items():
        assert long in text
        text = text.replace(long, short, 1)
    (scene.folder / "search.yaml").write_text(text)
    for file in ("train.py", "gpu.py"):
        shutil.copy(ROOT / "examples" / "digits" / file, scene.folder)
    with scene.running("--cpus", "1") as process:
        wait_until(lambda: sum('"val_acc"' in line for line in scene.logs()) >= 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
    scene.run("--cpus", "1")
    disturbed, best = result(scene), scene.job()["status"]["best"]
    assert any(one["status"]["attempt"] > 0 for one in scene.trials())
    shutil.rmtree(scene.run_folder)
    scene.run("--cpus", "2")
    assert result(scene) == disturbed
    assert scene.job()["status"]["best"] == best
