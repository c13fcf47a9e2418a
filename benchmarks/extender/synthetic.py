"""A synthetic GPU cluster: its objects, stand-ins for the API server, and a socketless connection."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from podium_cluster.client import Api
from podium_cluster.resources import NODES, PODS, Page, Resource, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.free_cpus import cpu_request_of, node_cpus_of
from podium_extender.state.free_cpus import FreeCpus

GPUS, SLOTS = 8, 4
GIB = 2**30
CHUNK = 2**18  # bytes that asyncio reads from a socket at most
RECORDED = Path(__file__).resolve().parents[2] / "tests" / "golden" / "extender" / "filter-nodenames.json"
Json = dict[str, Any]

_versions = itertools.count(100)


def _modified(payload: Json) -> Json:
    """Return an event of a watch about an object, with a version of its own."""
    about = {**payload["metadata"], "resourceVersion": str(next(_versions))}
    return {"type": "MODIFIED", "object": {**payload, "metadata": about}}


class Live:
    """A stand-in for the API server: it lists its objects once, then passes events on.

    Objects that are created by a generator while they are listed take no memory afterwards.
    """

    def __init__(self, objects: Mapping[Resource, Iterable[Json]]) -> None:
        self.objects = objects
        self.events: dict[Resource, asyncio.Queue[Json]] = {resource: asyncio.Queue() for resource in objects}
        self._listing: dict[Resource, Iterator[Json]] = {}

    async def list(self, resource: Resource, *_: Any, page: Page, **__: Any) -> Json:
        if not page.after:
            self._listing[resource] = iter(self.objects[resource])
        items = [*itertools.islice(self._listing[resource], page.limit)]
        more = {"continue": f"{page.after}+"} if len(items) == page.limit else {}
        return {"metadata": {"resourceVersion": "1"} | more, "items": items}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()
            self.events[resource].task_done()

    async def change(self, resource: Resource, *payloads: Json) -> None:
        """Send a MODIFIED event for each object and wait until all are handled."""
        for payload in payloads:
            self.events[resource].put_nowait(_modified(payload))
        await self.events[resource].join()


def _meta(name: str, namespace: str = "default", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "2"} | more


def now() -> str:
    """Return the present time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def trial_names(name: str, trials: int) -> list[str]:
    """Return the names of the trials of a node."""
    return [f"{name}-{number}" for number in range(trials)]


def gpunode(chance: np.random.Generator, name: str, trials: int) -> Json:
    """Return a GPUNode with eight GPUs over which the trials are spread."""
    spread = [[_on_gpu(one) for one in trial_names(name, trials)[g::GPUS]] for g in range(GPUS)]
    gpus = [
        {
            "uuid": f"GPU-{name}-{g}",
            "index": g,
            "product": "NVIDIA-H100-80GB-HBM3",
            "memoryTotal": 80 * GIB,
            "memoryUsed": int(chance.integers(0, 70)) * GIB,
            "memoryReserved": len(spread[g]) * 10 * GIB,
            "smUtilization": float(chance.uniform(0, 100)),
            "temperature": float(chance.uniform(40, 85)),
            "health": "Unhealthy" if chance.random() < 0.01 else "Healthy",
            "slots": SLOTS,
            "trials": spread[g],
        }
        for g in range(GPUS)
    ]
    return {"metadata": _meta(name, ""), "status": {"updatedAt": now(), "gpus": gpus}}


def _on_gpu(name: str) -> Json:
    where = {"namespace": "default", "trial": name, "uid": f"uid-{name}", "pod": f"{name}-0"}
    return where | {"podUID": f"uid-{name}-0", "state": "Suspended", "since": now()}


def trial(chance: np.random.Generator, name: str) -> Json:
    """Return a HyperParamTrial with a rank."""
    return {"metadata": _meta(name), "status": {"rank": int(chance.integers(1, 40))}}


def pod(name: str, node: str = "", of_trial: bool = True) -> Json:
    """Return the parts of a pod that the extender reads; a trial's pod has the trial's name and -0."""
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1", "cpu": "4"}}}
    labels = {"podium.dev/trial": name.removesuffix("-0")} if of_trial else {}
    meta = _meta(name, labels=labels, annotations={"podium.dev/gpu-memory": str(10 * GIB)})
    return {"metadata": meta, "spec": {"nodeName": node, "schedulerName": "podium", "containers": [container]}}


def as_sent(made: Json, **spec: Any) -> Json:
    """Return the pod as kube-scheduler sends it, with all that the API server adds.

    `spec`: further fields.
    """
    whole: Json = copy.deepcopy(json.loads(RECORDED.read_text())["request"]["Pod"])
    whole["metadata"] |= made["metadata"]
    whole["spec"]["containers"][0] |= made["spec"]["containers"][0]
    whole["spec"] |= spec
    return whole


def lease(node: str, beat: int) -> Json:
    """Return the Lease by which a node's agent sends its heartbeat."""
    return {"metadata": _meta(f"podium-agent-{node}", "podium-system"), "spec": {"renewTime": now(), "beat": beat}}


class _RecordingTransport(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Do nothing: the whole request has been received."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Connection:
    """A kept-alive connection of kube-scheduler without a socket: from request bytes to response bytes."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app, proxy_headers=False, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=600
        )
        self._transport = _RecordingTransport()
        self._protocol = HttpToolsProtocol(config, ServerState(), {})
        self._protocol.connection_made(self._transport)

    async def post(self, verb: str, body: bytes) -> tuple[bytes, float]:
        """Return the answer, and the CPU milliseconds from the first byte of the request to the whole answer."""
        chunks = list(_chunks(_HEAD % (verb.encode(), len(body)) + body))
        self._transport.written.clear()
        started = time.process_time()
        for chunk in chunks:
            self._protocol.data_received(chunk)
        while not self._transport.written:  # noqa: ASYNC110 - uvicorn offers no event; all is written at once
            await asyncio.sleep(0)
        spent = 1000 * (time.process_time() - started)
        head, _, answer = b"".join(self._transport.written).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"{verb} was answered {head.decode()}: {answer.decode()}")
        return answer, spent


_HEAD = (
    b"POST /%b HTTP/1.1\r\nHost: 127.0.0.1:8888\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


def _chunks(sent: bytes) -> Iterator[bytes]:
    for at in range(0, len(sent), CHUNK):
        yield sent[at : at + CHUNK]


class OtherPods:
    """A stand-in for an Api with nodes and very many pods of other schedulers, created as they are listed.

    So their size in memory is that of the extender's cache alone. `pods`: how many; each is on one of the nodes.
    """

    def __init__(self, nodes: Sequence[str], pods: int) -> None:
        self._nodes = nodes
        self._pods = pods
        self.events: dict[Resource, asyncio.Queue[Json]] = {NODES: asyncio.Queue(), PODS: asyncio.Queue()}

    def free_cpus(self) -> FreeCpus:
        """Return the extender's account of free CPUs over these objects."""
        api = cast(Api, self)
        return FreeCpus(
            WatchCache(api, Selection(NODES), node_cpus_of),
            WatchCache(api, Selection(PODS), cpu_request_of),
        )

    async def list(self, resource: Resource, *_: Any, page: Page, **__: Any) -> Json:
        begin, whole = int(page.after or 0), len(self._nodes) if resource is NODES else self._pods
        end = min(begin + page.limit, whole)
        items = [self._node(i) if resource is NODES else self.pod(i) for i in range(begin, end)]
        return {"metadata": {"resourceVersion": "1"} | ({"continue": str(end)} if end < whole else {}), "items": items}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()
            self.events[resource].task_done()

    async def change(self, number: int, cpu: str) -> None:
        """Resize one of the pods in place."""
        self.events[PODS].put_nowait(_modified(self.pod(number, cpu)))
        await self.events[PODS].join()

    def pod(self, number: int, cpu: str = "250m") -> Json:
        """Return one of the pods."""
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        spec = {"nodeName": self._nodes[number % len(self._nodes)], "containers": [container]}
        meta = {"name": f"service-{number % 97}-5d9c7b8f6-{number:06d}", "namespace": f"team-{number % 50}"}
        return {"metadata": meta | {"resourceVersion": "2"}, "spec": spec, "status": {"phase": "Running"}}

    def _node(self, number: int) -> Json:
        return {"metadata": {"name": self._nodes[number]}, "status": {"allocatable": {"cpu": "96", "memory": "1Ti"}}}
