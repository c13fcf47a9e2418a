"""An API server for the tests of commands: it serves objects and logs over HTTP to the real client.

It runs in a thread of its own. A test changes `objects` and `logs` while a command runs.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from podium_cluster.resources import GPUNODES, GPUQUEUES, JOBS, LEASES, NAMESPACES, NODES, PODS, TRIALS, Resource

KINDS = (JOBS, TRIALS, GPUNODES, GPUQUEUES, PODS, LEASES, NODES, NAMESPACES)
LogHandler = Callable[[web.Request], "asyncio.Future[web.StreamResponse] | Any"]


class ApiServer:
    """Objects by kind, and a handler of the logs of pods."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.log: LogHandler | None = None
        self.before: Callable[[str], None] = lambda path: None  # called with the path of each request
        self.requests: list[str] = []
        self.kinds: tuple[Resource, ...] = ()  # besides KINDS
        self.answers: dict[str, Callable[[], web.Response]] = {}  # to paths that name no object
        self.token = ""  # if given, requests with another one are refused
        self.url = ""

    def put(self, *objects: dict[str, Any]) -> None:
        """Add objects, or replace those of the same kind, namespace and name."""
        new = {_key(one) for one in objects}
        self.objects = [one for one in self.objects if _key(one) not in new] + list(objects)

    def remove(self, kind: str, name: str) -> None:
        """Remove an object."""
        self.objects = [one for one in self.objects if (one["kind"], one["metadata"]["name"]) != (kind, name)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to get or list objects, or for a log."""
        self.requests.append(request.path)
        self.before(request.path)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return status(401, "Unauthorized", "Unauthorized")
        if request.path in self.answers:
            return self.answers[request.path]()
        for resource in (*KINDS, *self.kinds):
            parts = self._below(resource, request.path)
            if parts is None:
                continue
            namespace, rest = parts
            if len(rest) == 2 and rest[1] == "log" and self.log is not None:
                return await self.log(request)  # type: ignore[no-any-return]
            found = [one for one in self.objects if one["kind"] == resource.kind]
            found = [one for one in found if namespace in (None, one["metadata"].get("namespace"))]
            if not rest:
                return web.json_response({"metadata": {"resourceVersion": "1"}, "items": found})
            for one in found:
                if one["metadata"]["name"] == rest[0]:
                    return web.json_response(one)
            return status(404, "NotFound", f'{resource.plural} "{rest[0]}" not found')
        return status(404, "NotFound", "404 page not found")

    @staticmethod
    def _below(resource: Resource, path: str) -> tuple[str | None, list[str]] | None:
        """Return the namespace and the rest of a path of this kind; None for a path of another kind."""
        words = path.removeprefix(resource.path().removesuffix(resource.plural)).split("/")
        if not path.startswith(resource.path().removesuffix(resource.plural)):
            return None
        namespace = None
        if words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        return (namespace, words[1:]) if words[0] == resource.plural else None


def status(code: int, reason: str, message: str) -> web.Response:
    """Return the refusal of a request as an API server writes it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


def with_version(one: dict[str, Any]) -> dict[str, Any]:
    """Return the object as an API server would, with a version."""
    return one | {"metadata": {"resourceVersion": "1", **one["metadata"]}}


def kubeconfig_of(server: ApiServer, folder: Path) -> Path:
    """Write a kubeconfig for the server and return its path."""
    path = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))
    return path


@contextmanager
def serving() -> Iterator[ApiServer]:
    """Run a server during the block."""
    server, loop = ApiServer(), asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{path:.*}", server.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def _key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]
