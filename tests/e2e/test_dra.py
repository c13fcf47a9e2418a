"""GPU reservations where GPUs are dynamic resources (DRA): trials share them, and Podium yields to a plain pod.

The file has a one-node cluster of its own with a DRA driver over the fake driver and kube-scheduler as it is. Each test
continues from the state of the previous one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from script_modules import load

from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import nvidia

pytestmark = pytest.mark.e2e
nvidia_cluster = load(Path(__file__).with_name("nvidia_cluster.py"))
ROOT = Path(__file__).parents[2]
NODE, GPUS, TRIALS, JOB = "node-1", 2, 4, "dynamic"
STATE = "/var/lib/podium-fake-driver"
LOW_PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "below-reservations"},
    "value": -3,
}


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster, and the requests of the tests."""

    site: Any
    uuids: tuple[str, ...]  # of the GPUs, by index

    def pod(self, name: str, **spec: Any) -> None:
        """Create a pod that requests a GPU, prints its device nodes, and runs until it is deleted."""
        container = {
            "name": "main",
            "image": "localhost/podium-digits:dev",
            "command": ["/bin/sh", "-c", "ls /dev | grep -x 'nvidia[0-9]'; exec sleep infinity"],
            "resources": {"limits": {nvidia.RESOURCE: "1"}},
        }
        body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **spec}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "others"}, "spec": body}
        self.site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def delete(self, pod: str) -> None:
        self.site.kubectl("-n", "others", "delete", "pod", pod, "--timeout=60s", timeout=70)

    def status(self, pod: str) -> dict[str, Any]:
        found: dict[str, Any] = self.site.get("pod", pod, "-n", "others")["status"]
        return found

    def unschedulable(self, pod: str) -> str:
        """Return the scheduler's message about a pod without a node; empty until there is one."""
        conditions = self.status(pod).get("conditions", [])
        return next((one["message"] for one in conditions if one.get("reason") == "Unschedulable"), "")

    def reservations(self) -> dict[str, dict[str, Any]]:
        """Return the reservation pods that are not terminating, by uid."""
        pods = self.site.objects("pods", "-l", "podium.dev/gpu-reservation")
        return {one["metadata"]["uid"]: one for one in pods if "deletionTimestamp" not in one["metadata"]}

    def reserved(self) -> dict[str, str]:
        """Return the reservation of each reserved GPU, as the agent reports it."""
        gpus = self.site.get("gpunode", NODE).get("status", {}).get("gpus", [])
        return {gpu["uuid"]: gpu["reservation"] for gpu in gpus if gpu.get("reservation")}

    def steps(self) -> dict[str, list[int]]:
        """Return the steps that each trial's pod has printed, by the pod's name."""
        found = {}
        for pod in self.site.objects("pods", "-l", f"podium.dev/job={JOB}"):
            started = any(one.get("started") for one in pod["status"].get("containerStatuses", []))
            log = self.site.log_of(pod, "train") if started else ""
            found[pod["metadata"]["name"]] = [step for step, _ in self.site.evidence.printed(log, "val_acc", "epoch")]
        return found

    def events(self, reason: str) -> list[str]:
        return [one["message"] for one in self.site.objects("events", "--field-selector", f"reason={reason}")]


@pytest.fixture(scope="module")
def stage(site_of: Callable[[Cluster], Any], record_grants: Callable[[Cluster], None]) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    with nvidia_cluster.cluster_with_toolkit("dra", GPUS) as cluster:
        nvidia.start_dra_driver(cluster)
        cluster.kubectl("create", "namespace", "others")
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(LOW_PRIORITY))
        gpud = f"{STATE}/bin/podium-fake-gpud"
        uuids = tuple(cluster.node_exec(NODE, [gpud, "uuid", NODE, str(gpu)]).strip() for gpu in range(GPUS))
        yield Stage(site_of(cluster), uuids)
        record_grants(cluster)


def test_the_driver_publishes_gpus_as_nvidias_driver_does(stage: Stage) -> None:
    site = stage.site
    assert nvidia.published(site.cluster, site.cluster.node(NODE)) == {
        f"gpu-{i}": uuid for i, uuid in enumerate(stage.uuids)
    }
    (found,) = json.loads(site.kubectl("get", "resourceslices", "-o", "json"))["items"]
    (first, _) = found["spec"]["devices"]
    assert first["attributes"]["productName"] == {"string": "Podium Fake GPU 24GB"}
    assert first["attributes"]["driverVersion"] == {"version": "610.43.2"}
    assert first["capacity"]["memory"]["value"] == "24Gi"
    assert nvidia.announced(site.cluster, site.cluster.node(NODE)) == 0, "no device plugin offers them"


def test_trials_share_reserved_dynamic_resources(stage: Stage) -> None:
    site = stage.site
    values = [
        "-f",
        str(ROOT / "examples/demo-values.yaml"),
        "--set=gpus.mode=reservations",
        "--set=agent.slotsPerGPU=2",
    ]
    values += [
        f"--set=gpus.reservations.max={GPUS}",
        "--set=agent.runtimeClassName=nvidia",
        "--set=trials.runtimeClassName=nvidia",
    ]
    values += ["--set=agent.driver.libraryPath=", "--set=agent.trialEnv=null"]
    chart = [site.place.tool("helm"), "install", "podium", str(ROOT / "charts/podium"), *values]
    options = ["-n", "podium-system", "--create-namespace", "--wait", "--timeout=240s"]
    site.demo.call(site.place, [*chart, *options], 260, quiet=True)

    manifest = YAML(typ="safe").load((ROOT / "examples/digits/reservations.yaml").read_text())
    manifest["metadata"]["name"] = JOB
    manifest["spec"]["trials"] = {"max": TRIALS, "parallel": TRIALS, "maxSteps": 100_000}
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["command"] = ["python3", "/app/train.py", "--epochs=100000", "--work=20", "$(podium.args)"]
    container["resources"]["requests"] = {"cpu": "50m", "memory": "128Mi"}
    site.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    site.until("both GPUs are reserved", lambda: set(stage.reserved()) == set(stage.uuids), 240)
    claims = [one["status"]["extendedResourceClaimStatus"] for one in stage.reservations().values()]
    assert len(claims) == GPUS
    site.until("all trials have started", lambda: sum(map(bool, stage.steps().values())) == TRIALS, 240)


def test_a_pod_of_lower_priority_gets_no_gpu(stage: Stage) -> None:
    before = stage.reservations().keys()
    stage.pod("patient", priorityClassName="below-reservations")
    message = stage.site.until("the scheduler's message", lambda: stage.unschedulable("patient"), 60)
    assert "cannot allocate all claims" in message
    stage.pod("elsewhere", nodeSelector={"no": "node"})
    stage.site.until("the scheduler's message", lambda: stage.unschedulable("elsewhere"), 60)
    # the operator decides at least every 2 s: after further steps it has seen both pods for long enough
    steps = {pod: len(there) for pod, there in stage.steps().items()}
    enough = lambda: max(len(there) - steps[pod] for pod, there in stage.steps().items()) > 40  # noqa: E731
    stage.site.until("further steps", enough, 120)
    assert stage.reservations().keys() == before
    for pod in ("patient", "elsewhere"):
        assert stage.status(pod)["phase"] == "Pending"
        stage.delete(pod)


def test_podium_yields_to_a_pod_that_the_scheduler_does_not_help(stage: Stage) -> None:
    site, before = stage.site, stage.reservations().keys()
    stage.pod("plain")
    running = site.until("the plain pod runs", lambda: stage.status("plain")["phase"] == "Running", 120)
    assert running
    assert len(stage.reservations().keys() & before) == GPUS - 1, "one reservation was given up"
    (uuid,) = set(stage.uuids) - set(stage.reserved())
    log = site.until("its device", lambda: site.log_of(site.get("pod", "plain", "-n", "others"), "main"), 30)
    assert log.split()[-1] == f"nvidia{stage.uuids.index(uuid)}"
    event = site.until("the Event with the pod's name", lambda: stage.events("ReservationYielded"), 30)[0]
    assert "pod others/plain" in event
    assert not stage.events("ReservationPreempted"), "the scheduler preempts no pod for a dynamic resource"
    pod = site.get("pod", "plain", "-n", "others")
    started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    seconds = datetime.fromisoformat(started) - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    print(f"from the plain pod's creation to its start: {seconds.total_seconds():g} s")
    asked = lambda: len(stage.reservations()) == GPUS  # noqa: E731
    site.until("a reservation is requested again now that the pod has a node", asked, 60)
    assert set(stage.reserved()) == set(stage.uuids) - {uuid}
    assert stage.status("plain")["phase"] == "Running"


def test_the_gpu_comes_back_and_no_step_is_lost(stage: Stage) -> None:
    site, before = stage.site, stage.steps()
    assert len(before) == TRIALS
    stage.delete("plain")
    site.until("both GPUs are reserved again", lambda: set(stage.reserved()) == set(stage.uuids), 120)

    def all_continue() -> bool:
        return all(len(there) > len(before[pod]) for pod, there in stage.steps().items())

    site.until("every trial makes a further step", all_continue, 240)
    after = stage.steps()
    assert after.keys() == before.keys(), "every trial is still in its first pod"
    assert all(there == list(range(1, len(there) + 1)) for there in after.values())
    assert site.job(JOB)["status"]["lostWork"]["steps"] == 0
    record = (site.cluster.node_root(NODE) / STATE.removeprefix("/") / "work.log").read_text()
    assert site.evidence.overlaps(site.evidence.work_of(record)) == []


def test_the_reservations_end_with_the_search(stage: Stage) -> None:
    stage.site.kubectl("delete", "hyperparamjob", JOB, "--timeout=120s", timeout=130)
    stage.site.until("no reservation is left", lambda: not stage.reservations(), 120)
