"""Records what a real kube-scheduler asks the extender, and the answers, for tests/unit/extender/test_recorded_schedulers.py.

    PODIUM_TEST_SCHEDULER=1.34.4 python tools/record_scheduler.py     (root; without: the cluster's version)
    ... --scenes crowded                                              (the others stay as they are recorded)

A few scenes on Node objects without a kubelet, each with node names and with whole nodes (`nodeCacheCapable: false`;
not the one of a crowd, whose nodes would take 200 KB). With each question goes what the extender had heard of by then,
so that it can be asked again anywhere. Writes tests/golden/extender/schedulers/VERSION.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from control_plane import open_world
from extender_world import ROOT, World, gpu, now, scheduler_version

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_extender.verbs.top_k import SCORED

FOLDER = ROOT / "tests" / "golden" / "extender" / "schedulers"
FORMS = {"names": True, "nodes": False}
HEARD = "2027-01-15T07:59:50Z"  # ten seconds before the clock of the unit tests
Json = dict[str, Any]


class Relay:
    """Between the scheduler and the extender: passes on, and keeps each question with its answer."""

    def __init__(self, port: int) -> None:
        self.calls: list[Json] = []
        calls, far = self.calls, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = far.post(self.path, content=body)
                calls.append({"verb": self.path.strip("/"), "request": json.loads(body), "answer": answer.json()})
                self.send_response(answer.status_code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Nothing: the calls are the log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def first_about(self, pod: str) -> Iterator[Json]:
        """The first question of each verb: later ones are of other attempts, at which other things were known."""
        seen: set[str] = set()
        for call in list(self.calls):
            if call["request"]["Pod"]["metadata"]["name"] == pod and call["verb"] not in seen:
                seen.add(call["verb"])
                yield call


def known(world: World) -> Json:
    """What the extender has heard of, as far as it reads it."""

    async def read(api: Api) -> Json:
        nodes = [
            item for item in (await api.list(GPUNODES))["items"] if item["metadata"]["name"].startswith(world.node(""))
        ]
        pods, trials = [(await api.list(kind, world.namespace))["items"] for kind in (PODS, TRIALS)]
        return {
            "gpunodes": [_part(node, "name") | {"status": node["status"] | {"updatedAt": HEARD}} for node in nodes],
            "pods": [_part(pod, "name", "namespace", "uid", "labels") | {"spec": _spec(pod["spec"])} for pod in pods],
            "trials": [_part(trial, "name", "namespace") | {"status": trial["status"]} for trial in trials],
        }

    found: Json = world.api(read)
    return found


def _part(item: Mapping[str, Any], *fields: str) -> Json:
    return {"metadata": {field: item["metadata"][field] for field in fields if field in item["metadata"]}}


def _spec(spec: Mapping[str, Any]) -> Json:
    return {field: spec[field] for field in ("nodeName", "schedulerName", "priority", "containers") if field in spec}


def settled(world: World) -> None:
    world.wait(lambda: world.metric("podium_extender_assumed_pods") == 0, "the extender has seen every binding")


def placing(world: World, pod: str, *, trial: bool) -> Json:
    """A broken node, one with three trials, an idle one; on each of the others a pod that shows it was seen."""
    world.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    world.add_node("busy", gpu(2, trials=2))
    world.add_node("idle", gpu(3))
    for node in ("busy", "idle"):
        world.add_pod(f"first-on-{node}", on=node, trial=trial)
        world.bound(f"first-on-{node}")
    settled(world)
    before = known(world)
    world.add_pod(pod, trial=trial)
    world.bound(pod)
    return before


def crowding(world: World, pod: str) -> Json:
    """More nodes than filter hands on; the earlier their names come the busier they are."""
    crowd = [f"n{i:02d}" for i in range(SCORED + 8)]
    world.add_nodes({short: [gpu(i, smUtilization=2.0 * (len(crowd) - i))] for i, short in enumerate(crowd)})
    world.add_pod("first", on=crowd[0])
    world.bound("first")
    settled(world)
    world.wait(lambda: world.handed_on(crowd) == crowd[-SCORED:], "filter hands on the best")
    before = known(world)
    world.add_pod(pod, among=crowd)
    world.bound(pod)
    return before


def preempting(world: World, pod: str) -> Json:
    """Three trials have all shares; of the last two one has just saved."""
    world.add_node("idle", gpu(1), shares=3)
    for name, saved in (("first", 0.0), ("second", 95.0), ("third", 60.0)):
        world.add_trial(name, gpuSeconds=100.0, checkpoint={"step": 1, "at": now(), "gpuSeconds": saved})
        world.add_pod(name, on="idle")
        world.bound(name)
    settled(world)
    before = known(world)
    world.add_pod(pod, on="idle", urgent=True)
    world.wait(lambda: world.pod("second")["metadata"].get("deletionTimestamp"), "the trial that saved last leaves")
    return before


SCENES = {
    "searching": lambda world: placing(world, "searching", trial=True),
    "plain": lambda world: placing(world, "plain", trial=False),
    "urgent": lambda world: preempting(world, "urgent"),
    "crowded": lambda world: crowding(world, "crowded"),
}
BY_NAMES_ALONE = {"crowded"}


@contextmanager
def asking(world: World, relay: Relay, by_name: bool) -> Iterator[None]:
    world.start_scheduler(patience="20s", urlPrefix=relay.address, nodeCacheCapable=by_name)
    try:
        yield
    finally:
        world.kill("scheduler")


def record(world: World, scenes: Collection[str]) -> list[Json]:
    found: list[Json] = []
    world.start_extender()
    for form, by_name in FORMS.items():
        relay = Relay(world.extender_port)
        with asking(world, relay, by_name):
            for scene in scenes:
                if not by_name and scene in BY_NAMES_ALONE:
                    continue
                objects = SCENES[scene](world)
                for call in relay.first_about(scene):
                    found.append({"scene": scene, "form": form, "objects": objects, **call})
                    print(f"{scene}, {form}: {call['verb']}", flush=True)
                world.clear()
                settled(world)
        relay.server.shutdown()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    scenes = parser.parse_args().scenes
    path = FOLDER / f"{scheduler_version()}.json"
    kept = [call for call in json.loads(path.read_text()) if call["scene"] not in scenes] if path.exists() else []
    with open_world(scheduler="podium-golden") as world:
        found = kept + record(world, scenes)
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} questions in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
