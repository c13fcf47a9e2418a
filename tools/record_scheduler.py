"""Record the requests of a real kube-scheduler to the extender, and its responses, as golden files.

PODIUM_TEST_SCHEDULER=1.34.4 python tools/record_scheduler.py     (root; default: the cluster's version)
    ... --scenes crowded                                              (records only these scenes again)

The scenes use Node objects without a kubelet. Each is recorded with node names and with complete nodes
(`nodeCacheCapable: false`), except the crowded one, whose nodes would take 200 KB. Each request is stored with the
objects that the extender knew at that time, so that tests/unit/extender/test_recorded_schedulers.py can repeat it
without a cluster. The result is tests/golden/extender/schedulers/VERSION.json.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.control_plane import open_setup
from extender_setup import ROOT, ExtenderSetup, gpu, now, scheduler_version

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS, TRIALS
from podium_extender.verbs.node_selection import SCORED_NODES

FOLDER = ROOT / "tests" / "golden" / "extender" / "schedulers"
FORMS = {"names": True, "nodes": False}
OBSERVED = "2027-01-15T07:59:50Z"  # ten seconds before the clock of the unit tests
Json = dict[str, Any]


class Relay:
    """A proxy between the scheduler and the extender that records each request with its response."""

    def __init__(self, port: int) -> None:
        self.calls: list[Json] = []
        calls, far = self.calls, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Forward and record a request."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = far.post(self.path, content=body)
                calls.append({"verb": self.path.strip("/"), "request": json.loads(body), "answer": answer.json()})
                self.send_response(answer.status_code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Print nothing: the calls are the log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def first_about(self, pod: str) -> Iterator[Json]:
        """Return the first request of each verb: later ones belong to attempts with other known objects."""
        seen: set[str] = set()
        for call in list(self.calls):
            if call["request"]["Pod"]["metadata"]["name"] == pod and call["verb"] not in seen:
                seen.add(call["verb"])
                yield call


def known(setup: ExtenderSetup) -> Json:
    """Return the objects that the extender knows, with the fields that it reads."""

    async def read(api: Api) -> Json:
        nodes = [
            item for item in (await api.list(GPUNODES))["items"] if item["metadata"]["name"].startswith(setup.node(""))
        ]
        pods, trials = [(await api.list(kind, setup.namespace))["items"] for kind in (PODS, TRIALS)]
        return {
            "gpunodes": [_part(node, "name") | {"status": node["status"] | {"updatedAt": OBSERVED}} for node in nodes],
            "pods": [_part(pod, "name", "namespace", "uid", "labels") | {"spec": _spec(pod["spec"])} for pod in pods],
            "trials": [_part(trial, "name", "namespace") | {"status": trial["status"]} for trial in trials],
        }

    objects: Json = setup.api(read)
    return objects


def _part(item: Mapping[str, Any], *fields: str) -> Json:
    return {"metadata": {field: item["metadata"][field] for field in fields if field in item["metadata"]}}


def _spec(spec: Mapping[str, Any]) -> Json:
    return {field: spec[field] for field in ("nodeName", "schedulerName", "priority", "containers") if field in spec}


def settled(setup: ExtenderSetup) -> None:
    """Wait until the extender has observed every binding."""
    setup.wait(lambda: setup.metric("podium_extender_assumed_pods") == 0, "the extender has seen every binding")


def placing(setup: ExtenderSetup, pod: str, *, trial: bool) -> Json:
    """Place a pod among a broken node, a busy node and an idle one.

    A first pod on the latter two shows their state.
    """
    setup.add_node("broken", gpu(1, health="Unhealthy", healthReason="Xid 79"))
    setup.add_node("busy", gpu(2, trials=2))
    setup.add_node("idle", gpu(3))
    for node in ("busy", "idle"):
        setup.add_pod(f"first-on-{node}", on=node, trial=trial)
        setup.bound(f"first-on-{node}")
    settled(setup)
    before = known(setup)
    setup.add_pod(pod, trial=trial)
    setup.bound(pod)
    return before


def crowding(setup: ExtenderSetup, pod: str) -> Json:
    """Place a pod among more nodes than filter returns; nodes with earlier names are busier."""
    crowd = [f"n{i:02d}" for i in range(SCORED_NODES + 8)]
    setup.add_nodes({short: [gpu(i, smUtilization=2.0 * (len(crowd) - i))] for i, short in enumerate(crowd)})
    setup.add_pod("first", on=crowd[0])
    setup.bound("first")
    settled(setup)
    setup.wait(lambda: setup.selected_nodes(crowd) == crowd[-SCORED_NODES:], "filter returns the best nodes")
    before = known(setup)
    setup.add_pod(pod, among=crowd)
    setup.bound(pod)
    return before


def preempting(setup: ExtenderSetup, pod: str) -> Json:
    """Place an important pod where three trials hold all slots.

    One of the last two has a recent checkpoint.
    """
    setup.add_node("idle", gpu(1), slots=3)
    for name, saved in (("first", 0.0), ("second", 95.0), ("third", 60.0)):
        setup.add_trial(name, gpuSeconds=100.0, checkpoint={"step": 1, "at": now(), "gpuSeconds": saved})
        setup.add_pod(name, on="idle")
        setup.bound(name)
    settled(setup)
    before = known(setup)
    setup.add_pod(pod, on="idle", high_priority=True)
    setup.wait(
        lambda: setup.pod("second")["metadata"].get("deletionTimestamp"),
        "the trial with the latest checkpoint is deleted",
    )
    return before


SCENES = {
    "searching": lambda setup: placing(setup, "searching", trial=True),
    "plain": lambda setup: placing(setup, "plain", trial=False),
    "urgent": lambda setup: preempting(setup, "urgent"),
    "crowded": lambda setup: crowding(setup, "crowded"),
}
BY_NAMES_ALONE = {"crowded"}


@contextmanager
def scheduler_through(setup: ExtenderSetup, relay: Relay, by_name: bool) -> Iterator[None]:
    """Run the scheduler with the relay as its extender."""
    setup.start_scheduler(patience="20s", urlPrefix=relay.address, nodeCacheCapable=by_name)
    try:
        yield
    finally:
        setup.kill("scheduler")


def record(setup: ExtenderSetup, scenes: Collection[str]) -> list[Json]:
    """Play the scenes and return the recorded calls."""
    recorded: list[Json] = []
    setup.start_extender()
    for form, by_name in FORMS.items():
        relay = Relay(setup.extender_port)
        with scheduler_through(setup, relay, by_name):
            for scene in scenes:
                if not by_name and scene in BY_NAMES_ALONE:
                    continue
                objects = SCENES[scene](setup)
                for call in relay.first_about(scene):
                    recorded.append({"scene": scene, "form": form, "objects": objects, **call})
                    print(f"{scene}, {form}: {call['verb']}", flush=True)
                setup.clear()
                settled(setup)
        relay.server.shutdown()
    return recorded


def main() -> None:
    """Write the golden file of one version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    scenes = parser.parse_args().scenes
    path = FOLDER / f"{scheduler_version()}.json"
    kept = [call for call in json.loads(path.read_text()) if call["scene"] not in scenes] if path.exists() else []
    with open_setup("podium-golden") as setup:
        calls = kept + record(setup, scenes)
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(calls, indent=1) + "\n")
    print(f"{len(calls)} requests in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
