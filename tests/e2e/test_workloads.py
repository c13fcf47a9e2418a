"""Trials that are JobSets and Kubeflow TrainJobs of two workers on two nodes, with the real controllers.

The file has a cluster of its own, with CoreDNS: the workers find each other by the names that JobSet gives them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import controllers

worker_searches = load(Path(__file__).with_name("worker_searches.py"))
pytestmark = pytest.mark.e2e
SUSPENSIONS = 10
EPOCHS = 320  # of 0.25 s: more than 10 time slices, which take about 4 s with their switches
RUNTIME = "two-processes"
INDEX = "batch.kubernetes.io/job-completion-index"
FINAL = ("Succeeded", "Failed", "Refused")
Stage = Any


@pytest.fixture(scope="module")
def stage(site_of: Callable[[Cluster], Any]) -> Iterator[Stage]:
    with worker_searches.stage_on_two_nodes(site_of, "workloads") as made:
        controllers.JOBSET.install(made.site.cluster)
        yield made


@pytest.fixture(scope="module")
def trainer(stage: Stage) -> None:
    """Install the Trainer, and a runtime that mounts the script, as the administrator of a cluster does."""
    controllers.TRAINER.install(stage.site.cluster)
    container = {"name": "node", "image": "localhost/busybox:1", "volumeMounts": worker_searches.MOUNTS}
    pod = {"containers": [container], "volumes": [worker_searches.SCRIPTS]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": pod}},
        },
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    stage.site.kubectl("apply", "-f", "-", stdin=json.dumps(runtime))


def as_jobset(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the search with a JobSet in place of its pod template."""
    job = {"parallelism": 2, "completions": 2, "template": manifest["spec"].pop("template")}
    jobs = [{"name": "worker", "replicas": 1, "template": {"spec": job}}]
    spec = {"replicatedJobs": jobs}
    manifest["spec"]["workload"] = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    return manifest


def as_train_job(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the search with a TrainJob in place of its pod template."""
    (container,) = manifest["spec"].pop("template")["spec"]["containers"]
    trainer = {
        "numNodes": 2,
        "image": container["image"],
        "command": container["command"],
        "resourcesPerNode": container["resources"],
    }
    spec = {"runtimeRef": {"name": RUNTIME}, "trainer": trainer}
    manifest["spec"]["workload"] = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    return manifest


def run_beside_another_search(stage: Stage, manifest: dict[str, Any], suspensions: int) -> None:
    """Run the search beside one of single GPUs, and check that each trial prints what an undisturbed one prints.

    Both workers of a trial have to be suspended at about the same times.
    """
    scene, site, name = stage.scene, stage.site, manifest["metadata"]["name"]
    epochs, number = manifest["spec"]["trials"]["maxSteps"], manifest["spec"]["trials"]["max"]
    names = [f"{name}-{index}" for index in range(number)]
    expected = [stage.undisturbed(f"alone-{name}-{seed}", epochs, seed) for seed in range(1, number + 1)]
    logs = scene.start(manifest)
    scene.until(
        logs,
        "all trials train",
        lambda: [scene.last_step(trial) > 0 for trial in scene.trials(name)] == [True] * number,
        180,
    )
    other = scene.search(f"beside-{name}", trials=1, seconds=0.2)
    switches = [worker_searches.Switches(trial) for trial in names]

    def ended() -> bool:
        nodes = site.objects("gpunodes")
        for one in switches:
            one.look(nodes)
        other.open_new()
        return all(scene.phase(job) in FINAL for job in (name, other.job))

    scene.until(logs, "both searches end", ended, 900)
    assert [scene.phase(job) for job in (name, other.job)] == ["Succeeded", "Succeeded"]
    worker_searches.report(switches, suspensions)
    for trial in scene.trials(name):
        status = trial["status"]
        found = logs.printed(trial["metadata"]["name"])
        assert found == {0: expected[names.index(trial["metadata"]["name"])]}, "one attempt, with the same digits"
        assert status["suspensions"]["count"] >= suspensions
        assert status.get("lostWork", {}).get("steps", 0) == 0
        assert {one["rank"] for one in status["workers"]} == {0, 1}
        assert {one["node"] for one in status["workers"]} == {"node-1", "node-2"}
    scene.check_results(other)
    scene.check_no_leaks(name)


def check_object(stage: Stage, kind: str, trial: str, attempt: int, condition: str) -> dict[str, Any]:
    """Return the object of an attempt. Check that it belongs to its trial and has this condition at the end."""

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = stage.site.get(kind, f"{trial}-{attempt}")
        true = {one["type"] for one in found.get("status", {}).get("conditions", []) if one["status"] == "True"}
        return found if condition in true else None

    found: dict[str, Any] = stage.site.until(f"the {kind} of {trial} is {condition}", ended, 60)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("HyperParamTrial", trial, True)
    return found


def test_trials_that_are_jobsets_take_turns_with_a_trial_of_one_pod(stage: Stage) -> None:
    """Both JobSets are suspended 10 times, and each value has the digits of an undisturbed run."""
    run_beside_another_search(stage, as_jobset(stage.job("sets", EPOCHS, 2, "--pause=0.25")), SUSPENSIONS)
    for trial in ("sets-0", "sets-1"):
        jobset = check_object(stage, "jobset", trial, 0, "Completed")
        assert jobset["status"].get("restarts", 0) == 0
        pods = stage.site.objects("pods", "-l", f"podium.dev/trial={trial}")
        assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods} == {"Job"}
        phases = {pod["metadata"]["labels"][INDEX]: pod["status"]["phase"] for pod in pods}
        assert phases["0"] == "Succeeded", "the Job controller ends the other worker, like Podium"
    stage.scene.finish("sets", "beside-sets")
    stage.scene.wait_until_deleted()
    stage.site.until("no JobSet remains", lambda: not stage.site.objects("jobsets"), 60)


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_without_one_worker_a_new_jobset_continues_from_the_checkpoint(stage: Stage, how: str) -> None:
    scene, site, name = stage.scene, stage.site, f"lossy-{how}"
    trial = f"{name}-0"

    def second_worker() -> dict[str, Any]:
        (pod,) = site.objects("pods", "-l", f"podium.dev/trial={trial},{INDEX}=1")
        return dict(pod)

    lost = stage.lose_worker(as_jobset(stage.job(name, 80, 1, "--pause=0.4", "--save-every=10")), how, second_worker)
    check_object(stage, "jobset", trial, 1, "Completed")
    pods = {pod["metadata"]["uid"]: pod["metadata"]["labels"]["podium.dev/attempt"] for pod in scene.pods(name)}
    jobsets = [one["metadata"]["name"] for one in site.objects("jobsets")]
    if how == "killed":  # the log of a process that failed can be read
        assert pods.pop(lost) == "0"
        check_object(stage, "jobset", trial, 0, "Failed")
        jobsets.remove(f"{trial}-0")
    assert set(pods.values()) == {"1"}
    assert jobsets == [f"{trial}-1"]
    scene.check_no_leaks(name)
    scene.finish(name)
    scene.wait_until_deleted()


def test_a_train_job_without_its_controller_waits_and_starts_once_it_is_installed(
    stage: Stage, request: pytest.FixtureRequest
) -> None:
    scene, name = stage.scene, "early"
    logs = scene.start(as_train_job(stage.job(name, 3, 1)))

    def message() -> str:
        return "".join(trial.get("status", {}).get("message", "") for trial in scene.trials(name))

    scene.until(logs, "the trial says what is missing", lambda: "install its controller" in message(), 60)
    assert "has no ClusterTrainingRuntime (trainer.kubeflow.org/v1alpha1)" in message()
    assert scene.pods(name) == []
    request.getfixturevalue("trainer")
    assert scene.wait_for_end(logs, 180)["status"]["phase"] == "Succeeded"
    check_object(stage, "trainjob", f"{name}-0", 0, "Complete")
    scene.finish(name)
    scene.wait_until_deleted()


def test_trials_that_are_train_jobs_take_turns_with_a_trial_of_one_pod(stage: Stage, trainer: None) -> None:
    """The Trainer makes JobSets with its own variables; its own way to resume is not used."""
    run_beside_another_search(stage, as_train_job(stage.job("trains", EPOCHS, 2, "--pause=0.25")), SUSPENSIONS)
    for trial in ("trains-0", "trains-1"):
        check_object(stage, "trainjob", trial, 0, "Complete")
        runtime = stage.site.get("trainingruntime", f"{trial}-0")
        assert runtime["metadata"]["ownerReferences"][0]["name"] == trial
        jobset = stage.site.get("jobset", f"{trial}-0")
        assert jobset["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    stage.scene.finish("trains", "beside-trains")
    stage.scene.wait_until_deleted()
    stage.site.until("no TrainJob remains", lambda: not stage.site.objects("trainjobs"), 60)
