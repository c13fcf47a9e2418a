"""Serves generated objects as an API server does: lists in pages, watches that send changes, and a count of watches.

It runs in a thread of its own. The dashboard reads it with the real client over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from benchmarks.dashboard.objects import Manifest

SECONDS = 3600.0  # of a watch


class ObjectServer:
    """The objects by the plural of their kind, already as JSON, and the open watches."""

    def __init__(self, objects: Mapping[str, Sequence[Manifest]]) -> None:
        self._texts = {plural: [json.dumps(one) for one in given] for plural, given in objects.items()}
        self._watches: list[tuple[str, web.StreamResponse]] = []
        self._version = 1
        self._loop: asyncio.AbstractEventLoop | None = None
        self.most: Counter[str] = Counter()  # watches of a kind that were open at the same time
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        plural = request.path.rpartition("/")[2]
        if plural not in self._texts:
            raise web.HTTPNotFound
        if "watch" in request.query:
            return await self._watch(request, plural)
        texts = self._texts[plural]
        begin, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "500"))
        after = str(begin + limit) if begin + limit < len(texts) else ""
        items = ",".join(texts[begin : begin + limit])
        meta = json.dumps({"resourceVersion": "1", "continue": after})
        return web.Response(text=f'{{"metadata":{meta},"items":[{items}]}}', content_type="application/json")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self._watches.append((plural, response))
        self.most[plural] = max(self.most[plural], sum(kind == plural for kind, _ in self._watches))
        try:
            await asyncio.sleep(float(request.query.get("timeoutSeconds", SECONDS)))
        finally:
            self._watches.remove((plural, response))
        return response

    def change(self, plural: str, changed: Sequence[Manifest]) -> None:
        """Send changed objects to the watches, from any thread."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._send(plural, changed), self._loop).result(60.0)

    async def _send(self, plural: str, changed: Sequence[Manifest]) -> None:
        lines = b""
        for one in changed:
            self._version += 1
            one["metadata"]["resourceVersion"] = str(self._version)
            lines += json.dumps({"type": "MODIFIED", "object": one}).encode() + b"\n"
        for kind, response in self._watches:
            if kind == plural:
                await response.write(lines)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve during the block."""
        started = threading.Event()
        ended = asyncio.Event()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            app = web.Application()
            app.router.add_get("/{path:.*}", self.handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            started.set()
            await ended.wait()
            await runner.cleanup()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        started.wait()
        try:
            yield
        finally:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(ended.set)
            thread.join(10.0)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig of this server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path
