"""Metrics of real pods that print nothing: from a file, an event file, the agent's socket, and a page of the pod."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import NODE, Node, node, until
from event_files import event

from podium_devcluster.runtime.network import netns_path
from podium_devcluster.runtime.node_config import API_SERVER

__all__ = ["node"]
pytestmark = pytest.mark.integration

WAIT = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
FILE = f"mkdir /logs; echo step,acc > /logs/a.csv; echo 1,0.5 >> /logs/a.csv; echo 2,0.75 >> /logs/a.csv; {WAIT}"
EVENTS = base64.b64encode(event(1, acc=0.5) + event(2, acc=0.75)).decode()
TENSORBOARD = f"mkdir /logs; echo {EVENTS} | base64 -d > /logs/events.out.tfevents.1.h; {WAIT}"
PAGE = f"mkdir /www; printf 'acc 0.75\\nstep 2\\n' > /www/metrics; httpd -p 8000 -h /www; {WAIT}"
# sends two reports and waits until they are stored, as podium/push.py does; the image has no Python
PUSH = r"""
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(void) {
    struct sockaddr_un name = {AF_UNIX, "/podium/metrics.sock"};
    const char *text = "push ab\n1 0.5 {\"step\": 1, \"acc\": 0.5}\n2 0 {\"step\": 2, \"acc\": 0.75}\n";
    for (;;) {
        char answer[4096];
        int stored = -1, number = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(number, (struct sockaddr *)&name, sizeof name) == 0) {
            FILE *file = fdopen(number, "r");
            write(number, text, strlen(text));
            while (stored < 2 && fgets(answer, sizeof answer, file)) sscanf(answer, "stored %d", &stored);
            if (stored == 2) for (;;) pause();
            fclose(file);
        }
        sleep(1);
    }
}
"""


def changed(command: list[str], **reading: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of a pod: what it runs, and how its metrics are read."""

    def change(pod: dict[str, Any]) -> None:
        notes = pod["metadata"]["annotations"]
        notes["podium.dev/metrics"] = json.dumps(
            json.loads(notes["podium.dev/metrics"]) | {"stepKey": "step"} | reading
        )
        pod["spec"]["terminationGracePeriodSeconds"] = 1
        main = pod["spec"]["containers"][0]
        main["command"] = command
        main["volumeMounts"] = [{"name": "programs", "mountPath": "/programs"}]
        pod["spec"]["volumes"].append({"name": "programs", "hostPath": {"path": "/var/lib/programs"}})

    return change


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_values_arrive_from_every_source(node: Node, tmp_path: Path) -> None:
    programs = node.cluster.node_root(NODE) / "var/lib/programs"
    programs.mkdir(parents=True)
    (tmp_path / "push.c").write_text(PUSH)
    subprocess.run(["gcc", "-static", "-o", str(programs / "push"), str(tmp_path / "push.c")], check=True, timeout=120)
    node.wait_until_ready()
    changes = {
        "file": changed(shell(FILE), source="file", path="/logs/a.csv", format="csv"),
        "tensorboard": changed(shell(TENSORBOARD), source="tensorboard", path="/logs"),
        "push": changed(["/programs/push"], source="push"),
        "missing": changed(shell(WAIT), source="file", path="/logs/none"),
    }
    for number, change in enumerate(changes.values()):
        node.add_trial(number, tmp_path, change=change)
    names = [f"count-{number}" for number in range(len(changes))]
    for name, source in zip(names, changes, strict=True):
        node.set_run_queue(name, *(other for other in names if other != name))

        def status(name: str = name) -> dict[str, Any]:
            found: dict[str, Any] = node.get("hpt", name).get("status", {})
            return found

        if source == "missing":
            until(lambda: "does not exist" in status().get("unreadLog", {}).get("reason", ""), "what is missing", 90)
            continue
        until(lambda: status().get("lastStep") == 2.0, f"the values of source {source}", 90)
        assert [(one["step"], one["value"]) for one in status()["curve"]["points"]] == [(1.0, 0.5), (2.0, 0.75)]


def enter_node(node: Node, folder: Path) -> None:
    """Restart the agent in the network of its node, where the DaemonSet runs it: pods are reached from there."""
    text = Path(node.cluster.kubeconfig).read_text()
    inside = folder / "kubeconfig"
    inside.write_text(re.sub(r"(?m)^(\s*server:) .*$", rf"\1 {API_SERVER}", text))
    node.kill()
    node.environment = node.environment | {"PODIUM_KUBECONFIG": str(inside)}
    node.prefix = ("nsenter", f"--net={netns_path(node.cluster.name, NODE)}", "--")
    node.start()
    node.wait_until_ready()


def test_a_page_of_a_pod_is_read(node: Node, tmp_path: Path) -> None:
    enter_node(node, tmp_path)
    change = changed(shell(PAGE), source="prometheus", path="/metrics", port=8000, periodSeconds=5)
    node.cluster.kubectl("delete", "pod", "count-3-0", "--grace-period=1")
    until(lambda: "count-3" not in node.states(), "a free slot", 90)
    node.add_trial(4, tmp_path, change=change)
    node.set_run_queue("count-4", "count-0", "count-1", "count-2")
    until(lambda: node.get("hpt", "count-4").get("status", {}).get("lastStep") == 2.0, "the values of the page", 90)
