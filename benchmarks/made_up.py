"""A GPU cluster made up: its objects as the API server lists them, a stand-in that lists them and passes changes on,
and a connection of kube-scheduler's without a socket. Used by bench_extender, bench_scheduler and bench_malformed.
"""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from uvicorn.server import ServerState

from podium_cluster.resources import Resource
from podium_extender.app import create_app
from podium_extender.server.endpoint import Endpoint
from podium_extender.server.fast_path import fast_path_protocol

GPUS, SHARES = 8, 4
GIB = 2**30
PIECE = 2**18  # bytes that asyncio reads from a socket at most
RECORDED = Path(__file__).resolve().parents[1] / "tests" / "golden" / "extender" / "filter-nodenames.json"
Json = dict[str, Any]


class Live:
    """A stand-in for the API server: lists what there is, once, then passes events on. Objects that are made while they
    are listed take no memory afterwards.
    """

    def __init__(self, objects: Mapping[Resource, Iterable[Json]]) -> None:
        self.objects = objects
        self.events: dict[Resource, asyncio.Queue[Json]] = {resource: asyncio.Queue() for resource in objects}

    async def list(self, resource: Resource, *_: Any, **__: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": self.objects[resource]}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()
            self.events[resource].task_done()

    async def change(self, resource: Resource, *payloads: Json) -> None:
        for payload in payloads:
            self.events[resource].put_nowait({"type": "MODIFIED", "object": payload})
        await self.events[resource].join()


def _meta(name: str, namespace: str = "default", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "2"} | more


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def seats(name: str, trials: int) -> list[str]:
    """The names of the trials of a node."""
    return [f"{name}-{number}" for number in range(trials)]


def gpunode(chance: np.random.Generator, name: str, trials: int) -> Json:
    """Eight GPUs; the trials are dealt round."""
    dealt = [[_seat(trial) for trial in seats(name, trials)[g::GPUS]] for g in range(GPUS)]
    gpus = [
        {
            "uuid": f"GPU-{name}-{g}",
            "index": g,
            "product": "NVIDIA-H100-80GB-HBM3",
            "memoryTotal": 80 * GIB,
            "memoryUsed": int(chance.integers(0, 70)) * GIB,
            "memoryReserved": len(dealt[g]) * 10 * GIB,
            "smUtilization": float(chance.uniform(0, 100)),
            "temperature": float(chance.uniform(40, 85)),
            "health": "Unhealthy" if chance.random() < 0.01 else "Healthy",
            "slots": SHARES,
            "trials": dealt[g],
        }
        for g in range(GPUS)
    ]
    return {"metadata": _meta(name, ""), "status": {"updatedAt": now(), "gpus": gpus}}


def _seat(trial: str) -> Json:
    where = {"namespace": "default", "trial": trial, "uid": f"uid-{trial}", "pod": f"{trial}-0"}
    return where | {"podUID": f"uid-{trial}-0", "state": "Suspended", "since": now()}


def trial(chance: np.random.Generator, name: str) -> Json:
    return {"metadata": _meta(name), "status": {"rank": int(chance.integers(1, 40))}}


def pod(name: str, node: str = "", of_trial: bool = True) -> Json:
    """As far as the extender reads it; of a trial it bears the trial's name and -0."""
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1", "cpu": "4"}}}
    labels = {"podium.dev/trial": name.removesuffix("-0")} if of_trial else {}
    meta = _meta(name, labels=labels, annotations={"podium.dev/gpu-memory": str(10 * GIB)})
    return {"metadata": meta, "spec": {"nodeName": node, "schedulerName": "podium", "containers": [container]}}


def as_sent(made: Json, **spec: Any) -> Json:
    """The pod as kube-scheduler sends it, with all that the API server adds. `spec`: more of it."""
    whole: Json = copy.deepcopy(json.loads(RECORDED.read_text())["request"]["Pod"])
    whole["metadata"] |= made["metadata"]
    whole["spec"]["containers"][0] |= made["spec"]["containers"][0]
    whole["spec"] |= spec
    return whole


def lease(node: str, beat: int) -> Json:
    return {"metadata": _meta(f"podium-agent-{node}", "podium-system"), "spec": {"renewTime": now(), "beat": beat}}


class _Wire(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.said.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Connection:
    """One that kube-scheduler keeps, from the bytes that come to the bytes that go
    (`podium_extender.server.fast_path`)."""

    def __init__(self, front: Endpoint) -> None:
        kind = fast_path_protocol(front)
        config = uvicorn.Config(
            create_app(front), http=kind, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=600
        )
        self._wire = _Wire()
        self._protocol = kind(config, ServerState(), {})
        self._protocol.connection_made(self._wire)

    async def post(self, verb: str, body: bytes) -> tuple[bytes, float]:
        """The answer, and the process's milliseconds of CPU from the first byte of the request to the last of it."""
        pieces = list(_pieces(_HEAD % (verb.encode(), len(body)) + body))
        self._wire.said.clear()
        started = time.process_time()
        for piece in pieces:
            self._protocol.data_received(piece)
        await asyncio.sleep(0)  # its answer is due in the next turn of the loop
        spent = 1000 * (time.process_time() - started)
        head, _, said = b"".join(self._wire.said).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{verb} was answered {head.decode()}: {said.decode()}")
        return said, spent


_HEAD = (
    b"POST /%b HTTP/1.1\r\nHost: 127.0.0.1:8888\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


def _pieces(sent: bytes) -> Iterator[bytes]:
    for at in range(0, len(sent), PIECE):
        yield sent[at : at + PIECE]
