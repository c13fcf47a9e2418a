"""A watch ends soon after its API server is gone without a word, and a write too: nothing closes their connections."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from podium_cluster.access.connections import DEAD_SECONDS, PROBE_AFTER_SECONDS, PROBE_SECONDS
from podium_cluster.client import ApiError, connect
from podium_cluster.resources import PODS
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
SERVER_ADDRESS, CLIENT_ADDRESS, PORT = "198.18.77.2", "198.18.77.1", 8099
# It sends the headers of a watch and one bookmark, and then nothing more.
SERVER = """
import socket
listener = socket.create_server(("0.0.0.0", 8099))
print("ready", flush=True)
held = []
while True:
    peer, _ = listener.accept()
    held.append(peer)
    peer.recv(65536)
    line = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}\\n'
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
    peer.sendall(b"%x\\r\\n%s\\r\\n" % (len(line), line))
"""


@dataclass(frozen=True)
class Machine:
    """A machine with an API server, in a network namespace; `cut` takes its cable out."""

    namespace: str

    def cut(self) -> None:
        ip("-n", self.namespace, "link", "set", "far", "down")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@pytest.fixture
def machine() -> Iterator[Machine]:
    namespace, near = f"dead-{uuid.uuid4().hex[:6]}", f"n{uuid.uuid4().hex[:8]}"
    ip("netns", "add", namespace)
    server = None
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", "far", "netns", namespace)
        ip("address", "add", f"{CLIENT_ADDRESS}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", namespace, "address", "add", f"{SERVER_ADDRESS}/30", "dev", "far")
        ip("-n", namespace, "link", "set", "far", "up")
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", SERVER]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield Machine(namespace)
    finally:
        if server is not None:
            server.kill()
            server.communicate()
        ip("link", "delete", near)  # at once, with its address: the namespace ends only later
        ip("netns", "delete", namespace)


def test_a_watch_notices_within_a_minute_that_the_server_is_gone(machine: Machine, tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://{SERVER_ADDRESS}:{PORT}"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(config))

    async def follow() -> float:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            events = api.watch(PODS, None, version="1", labels=None, fields=None, seconds=240)
            await anext(events)
            machine.cut()
            cut_at = time.monotonic()
            with pytest.raises(ApiError) as ended:
                await anext(events)
            assert (ended.value.reason, ended.value.transient) == ("Unreachable", True)
        return time.monotonic() - cut_at

    seconds = asyncio.run(follow())
    assert PROBE_AFTER_SECONDS < seconds < PROBE_AFTER_SECONDS + DEAD_SECONDS + PROBE_SECONDS + 5.0 < 60.0
