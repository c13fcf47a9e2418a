"""Two trials that do not fit together share a GPU by `cuda-checkpoint` on the real cluster.

Another process takes the memory just before a restore. The checks use the fake driver's state and work.log,
containerd's logs and the API. Each trial declares 80 % of its GPU and uses 60 %; the example leaves the rest to the
context of a real driver. The GPUs are small, because the checkpointed memory must fit into the trials' pods.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB, NODE, SEEDS, EPOCHS = "sharing", "node-1", (1, 2), 24
TOTAL = 512 << 20
DECLARED, TAKEN = TOTAL * 4 // 5, TOTAL * 3 // 5
Scene = Any


def memory(scene: Scene) -> list[int]:
    """Return the memory of every GPU in bytes, as the agents report it."""
    return [gpu["memoryTotal"] for node in scene.site.objects("gpunodes") for gpu in node["status"].get("gpus", [])]


def of_both_nodes(found: list[int]) -> list[int]:
    """Return an empty list until both nodes report their GPU."""
    return found if len(found) == 2 else []


def used(scene: Scene) -> list[int]:
    return [gpu["memoryUsed"] for node in scene.site.objects("gpunodes") for gpu in node["status"].get("gpus", [])]


def set_gpu_memory(scene: Scene, size: str) -> None:
    daemon = ("-n", "podium-fake-driver", "daemonset/podium-fake-driver")
    scene.site.kubectl("set", "env", *daemon, f"FAKE_GPU_MEMORY={size}")


@pytest.fixture
def small_gpus(scene: Scene) -> Iterator[None]:
    before = scene.site.until("every node's GPUs", lambda: of_both_nodes(memory(scene)), 150)
    set_gpu_memory(scene, str(TOTAL))
    try:
        scene.site.until("small GPUs", lambda: memory(scene) == [TOTAL] * len(before), 150)
        yield
    finally:
        scene.site.driver(NODE).occupy_memory(0)
        set_gpu_memory(scene, str(before[0]))
        scene.site.until("the GPUs with their usual memory", lambda: memory(scene) == before, 150)


@pytest.fixture
def _search(scene: Scene, small_gpus: None) -> Iterator[None]:
    """A search that is deleted before the GPUs change again."""
    scene.site.until("every node accepts pods", scene.nodes_accept_pods, 120)
    scene.apply(manifest(scene))
    yield
    scene.site.kubectl("delete", "hyperparamjob", JOB, "--timeout=90s", timeout=100)


def manifest(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.site.example(JOB)
    found["spec"] |= {
        "parameters": [{"name": "seed", "values": list(SEEDS)}],
        "search": {"algorithm": "grid"},
        "trials": {"max": 2, "parallel": 2, "maxSteps": EPOCHS},
        "policy": {"name": "round_robin", "settings": {"quantum": 2}},
        "gpus": {"perTrial": 1, "memory": str(DECLARED)},
        "suspension": {"methods": ["cuda-checkpoint"]},
    }
    del found["spec"]["checkpoint"]
    pod = found["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    pod["containers"][0]["command"] = ["python3", "/app/train.py", f"--epochs={EPOCHS}", "--work=100", "$(podium.args)"]
    pod["containers"][0]["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    return found


def run_alone(scene: Scene, pod: dict[str, Any]) -> str:
    """Start the same command in a pod without a GPU, unknown to Podium; return its name."""
    name = f"alone-{pod['metadata']['labels']['podium.dev/trial']}"
    train = pod["spec"]["containers"][0]
    container = {"name": "train", "image": train["image"], "command": train["command"]}
    alone = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    scene.apply({"apiVersion": "v1", "kind": "Pod", **alone})
    return name


def curve(scene: Scene, pod: dict[str, Any]) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = scene.site.evidence.printed(scene.site.log_of(pod, "train"), "val_acc", "epoch")
    return found


def one_pod(scene: Scene, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.site.get("pod", name)
    return found


@pytest.mark.usefixtures("_search")
def test_two_trials_of_more_than_half_a_gpu_share_it_and_wait_for_memory_of_another_process(scene: Scene) -> None:
    site, driver = scene.site, scene.site.driver(NODE)

    def read_gpu() -> Any:
        """Read the GPU; check that its memory is not overcommitted and that no process is FAILED."""
        seen = driver.read()
        assert "FAILED" not in seen.states
        assert seen.used <= seen.total == TOTAL
        return seen

    def one_checkpointed() -> Any:
        """Return the GPU if one trial runs and the other one, whose restore is next, is checkpointed."""
        seen = read_gpu()
        return seen if seen.states == ["CHECKPOINTED", "RUNNING"] and seen.used == TAKEN else None

    seen = site.until("one trial runs, the other is checkpointed", one_checkpointed, 120)
    assert [holder.bytes for holder in seen.holders] == [TAKEN, TAKEN]
    driver.occupy_memory(TOTAL - seen.used)  # another process uses all free memory

    pods = {pod["metadata"]["labels"]["podium.dev/trial"]: pod for pod in scene.pods(JOB)}
    alone = {trial: run_alone(scene, pod) for trial, pod in pods.items()}

    def waits() -> bool:
        read_gpu()
        statuses = [trial.get("status", {}) for trial in scene.trials(JOB)]
        states = [(one.get("phase"), one.get("reason")) for one in statuses]
        return states == [("Suspended", "InsufficientGPUMemory")] * 2

    site.until("the restores wait for memory", waits, 120)
    assert read_gpu().states == ["CHECKPOINTED", "CHECKPOINTED"], "waiting, not FAILED"
    assert read_gpu().used == TOTAL - TAKEN, "only the memory of the other process"
    driver.occupy_memory(TOTAL)  # and, while no restore is under way, all memory
    site.until("the agent has read the memory", lambda: TOTAL in used(scene), 60)
    assert read_gpu().states == ["CHECKPOINTED", "CHECKPOINTED"]
    driver.occupy_memory(0)

    def ended() -> bool:
        read_gpu()
        return scene.phase(JOB) in ("Succeeded", "Failed")

    site.until("the end of the search", ended, 400)
    status = site.job(JOB)["status"]
    assert status["phase"] == "Succeeded", status["message"]
    for trial in scene.trials(JOB):
        assert (trial["status"].get("attempt", 0), trial["status"].get("failures", 0)) == (0, 0), trial["status"]
    trial_containers = {
        container for pod in scene.pods(JOB) for container in container_ids(pod)
    }  # a busy kubelet reports IDs late
    work = [item for item in site.work() if item.container in trial_containers]
    assert not site.evidence.overlaps(work)
    assert site.evidence.resumptions(work) >= 1, (
        "a trial resumed after the other one had worked, by the driver's record"
    )
    for trial, name in alone.items():
        site.kubectl("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s", timeout=190)
        undisturbed = curve(scene, one_pod(scene, name))
        assert [epoch for epoch, _ in undisturbed] == list(range(1, EPOCHS + 1))
        assert curve(scene, one_pod(scene, pods[trial]["metadata"]["name"])) == undisturbed, "bit-identical"
    for first, second in itertools.combinations(alone.values(), 2):
        assert curve(scene, one_pod(scene, first)) != curve(scene, one_pod(scene, second)), "two different trials"
    site.kubectl("delete", "pod", *alone.values(), "--wait=false")


def container_ids(pod: dict[str, Any]) -> list[str]:
    return [one["containerID"].rpartition("/")[2] for one in pod["status"]["containerStatuses"]]
