"""One node with whole GPUs: Katib over NVIDIA's device plugin, and Podium in its place, one after the other."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.digits_cluster import FINAL, ROOT
from benchmarks.katib import measured, searches
from benchmarks.katib.measured import Search, Trial, Watch
from benchmarks.katib.searches import Point, Size
from benchmarks.queues.gpu_time import first_work, gpu_seconds, work_of
from podium_devcluster.artifacts import images
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime import katib, nvidia
from podium_devcluster.runtime.apiserver import ApiClient
from podium_devcluster.runtime.node_config import KubeletSettings
from podium_devcluster.shell import run

NODE = "node-1"
PODIUM, JOBS = "podium-system", "default"  # namespaces of Podium and of its job
POLL = 0.5  # seconds between two looks at a search
GONE_SECONDS = 180.0
KATIB_API = f"/apis/kubeflow.org/v1beta1/namespaces/{katib.NAMESPACE}"
PODIUM_API = f"/apis/podium.dev/v1alpha1/namespaces/{JOBS}"
VALUES = (*nvidia.CHART_VALUES, f"--set=agent.slotsPerGPU={searches.SLOTS}")


@contextmanager
def cluster_with_katib(name: str, gpus: int) -> Iterator[Cluster]:
    """Start a cluster of one node with GPUs, NVIDIA's parts and Katib; remove it at the end."""
    cluster = Cluster(name, nodes=1, kubelet=KubeletSettings(dns=True))
    try:
        cluster.up()
        images.build_and_load(cluster)
        nvidia.install_fake_driver(cluster, gpus)
        nvidia.install_toolkit(cluster)
        katib.install(cluster)
        for namespace in (katib.NAMESPACE, JOBS):
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(searches.scripts(namespace)))
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(katib.database_folder(cluster), ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster. `limit`: seconds that one search may take."""

    cluster: Cluster
    size: Size
    limit: float

    # ---- Katib -----------------------------------------------------------------------------------------------------

    @contextmanager
    def katib(self) -> Iterator[None]:
        """Let Katib and NVIDIA's plugin run; afterwards neither does."""
        katib.scale(self.cluster, 1)
        nvidia.start_plugin(self.cluster)
        yield
        nvidia.stop_plugin(self.cluster)
        katib.scale(self.cluster, 0)

    def experiment(self, name: str, algorithm: str, seed: int, *, stops: bool) -> tuple[Search, list[Point]]:
        """Run an Experiment to its end, remove it, and return it with its points in their order."""
        manifest = searches.experiment(name, katib.NAMESPACE, algorithm, seed, self.size, stops=stops)

        def trials() -> list[dict[str, Any]]:
            return self._list(f"{KATIB_API}/trials")

        def ended() -> bool:
            found = self._get(f"{KATIB_API}/experiments/{name}").get("status", {}).get("conditions", [])
            types = {one["type"] for one in found if one["status"] == "True"}
            if "Failed" in types:
                raise RuntimeError(f"Experiment {name} failed: {found[-1]}")
            return "Succeeded" in types

        def trial(one: dict[str, Any], when: float) -> Trial:
            point = measured.katib_point(one["spec"]["parameterAssignments"])
            return Trial(one["metadata"]["name"], point, measured.katib_final(one), measured.katib_phase(one), when)

        watch, seconds = self._watch(manifest, katib.NAMESPACE, trials, measured.katib_phase, ended)
        made = [trial(one, watch.ended[one["metadata"]["name"]] - watch.created) for one in trials()]
        points: list[Point] = [*measured.katib_points(self._get(f"{KATIB_API}/suggestions/{name}"))]
        self.cluster.kubectl("-n", katib.NAMESPACE, "delete", "experiment", name, "--timeout=120s", timeout=130)
        self._until(
            "its trials and pods are gone",
            lambda: not trials() and len(self._pods(katib.NAMESPACE)) == len(katib.DEPLOYMENTS),
        )
        return self._search(watch, made, seconds, watch.held), points

    # ---- Podium ----------------------------------------------------------------------------------------------------

    @contextmanager
    def podium(self) -> Iterator[None]:
        """Install Podium with its own device plugin; afterwards it is gone."""
        helm = [str(self.cluster.cache.bin / "helm"), f"--kubeconfig={self.cluster.kubeconfig}", "-n", PODIUM]
        chart = ["upgrade", "--install", "podium", str(ROOT / "charts/podium"), *VALUES, "--create-namespace"]
        run([*helm, *chart, "--wait", "--timeout=240s"], timeout=260)
        self._until("all GPUs are healthy", lambda: self._healthy() == self.size.gpus)
        yield
        run([*helm, "uninstall", "podium", "--wait", "--timeout=120s"], timeout=130)
        self._until("Podium's pods are gone", lambda: not self._pods(PODIUM))
        self.cluster.kubectl("delete", "gpunodes", "--all", "--timeout=60s", timeout=70)

    def job(self, name: str, points: list[Point], policy: str) -> Search:
        """Run a HyperParamJob with these points to its end, and remove it."""
        manifest = searches.job(name, points, self.size, policy)

        def trials() -> list[dict[str, Any]]:
            return self._list(f"{PODIUM_API}/hyperparamtrials")

        def ended() -> bool:
            status = self._get(f"{PODIUM_API}/hyperparamjobs/{name}").get("status", {})
            if status.get("phase") in FINAL and status["phase"] != "Succeeded":
                raise RuntimeError(f"HyperParamJob {name} ended as {status['phase']}: {status.get('message')}")
            return bool(status.get("phase") == "Succeeded")

        def trial(one: dict[str, Any], when: float) -> Trial:
            point, final = measured.podium_point(one), one["status"].get("lastValue")
            return Trial(one["metadata"]["name"], point, final, measured.podium_phase(one), when)

        watch, seconds = self._watch(manifest, JOBS, trials, measured.podium_phase, ended)
        made = [trial(one, watch.ended[one["metadata"]["name"]] - watch.created) for one in trials()]
        self.cluster.kubectl("-n", JOBS, "delete", "hyperparamjob", name, "--timeout=120s", timeout=130)
        self._until("its trials and pods are gone", lambda: not trials() and not self._pods(JOBS))
        # the slots of a GPU keep all other pods from it, also while no trial is there
        return self._search(watch, made, seconds, self.size.gpus * seconds)

    # ---- both ------------------------------------------------------------------------------------------------------

    def _watch(
        self,
        manifest: dict[str, Any],
        namespace: str,
        trials: Callable[[], list[dict[str, Any]]],
        phase: Callable[[dict[str, Any]], str],
        ended: Callable[[], bool],
    ) -> tuple[Watch, float]:
        """Create a search and watch it to its end; return what was seen, and its seconds."""
        watch = Watch(time.monotonic())
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
        while True:
            now, over = time.monotonic(), ended()
            done = [one["metadata"]["name"] for one in trials() if phase(one)]
            watch.see(now, done, self._pods(namespace))
            if over and len(done) >= self.size.trials:
                return watch, now - watch.created
            if now - watch.created > self.limit:
                raise TimeoutError(f"{manifest['metadata']['name']} did not end within {self.limit:g} s")
            time.sleep(POLL)

    def _search(self, watch: Watch, trials: list[Trial], seconds: float, held: float) -> Search:
        """Return the search with what the fake driver recorded of its containers."""
        owners = dict.fromkeys(watch.containers, "it")
        folder = self.cluster.node_root(NODE) / searches.STATE.removeprefix("/")
        files = [folder / name for name in ("work.log.1", "work.log") if (folder / name).exists()]
        work = [one for file in files for one in work_of(file.read_text())]
        first = first_work(work, owners, "it", watch.created)
        if first is None:
            raise RuntimeError("no trial worked on a GPU")
        busy = gpu_seconds(work, owners, watch.created, watch.created + seconds)["it"]
        return Search(tuple(trials), seconds, first - watch.created, held, busy)

    def _get(self, path: str) -> dict[str, Any]:
        status, body = ApiClient(self.cluster.spec.port, self.cluster.paths.pki).get(path, timeout=20.0)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body[:200]}")
        answer: dict[str, Any] = json.loads(body)
        return answer

    def _list(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._get(path)["items"]
        return items

    def _pods(self, namespace: str) -> list[dict[str, Any]]:
        return self._list(f"/api/v1/namespaces/{namespace}/pods")

    def _healthy(self) -> int:
        nodes = self._list("/apis/podium.dev/v1alpha1/gpunodes")
        return sum(gpu.get("health") == "Healthy" for one in nodes for gpu in one.get("status", {}).get("gpus", []))

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + GONE_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"after {GONE_SECONDS:g} s still not: {what}")
            time.sleep(POLL)
