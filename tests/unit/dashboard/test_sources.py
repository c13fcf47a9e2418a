"""Sources: folders that change, broken files, and one watch of a cluster for each kind."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_server import ApiServer, status, with_version
from dashboard_scene import DEADLINE, write_objects

from podium_cli.samples import search_at
from podium_cluster.access.kubeconfig import find_target
from podium_cluster.client import connect
from podium_cluster.settings import ClusterSettings
from podium_dashboard.hub import Hub
from podium_dashboard.sources.cluster import ClusterSource
from podium_dashboard.sources.folder import FolderError, FolderSource
from podium_dashboard.sources.object_files import ObjectFiles
from podium_dashboard.sources.source import TAIL_LINES, LogTail


def test_only_changed_files_are_parsed_again(tmp_path: Path) -> None:
    objects = search_at(50.0)
    for number, one in enumerate(objects):
        (tmp_path / f"{number}.json").write_text(json.dumps(one, default=str))
    files = ObjectFiles(tmp_path)
    assert files.refresh()
    before = list(files.objects)
    assert len(before) == len(objects)
    assert not files.refresh()
    (tmp_path / "1.json").write_text(json.dumps(search_at(80.0)[1], default=str) + " ")
    assert files.refresh()
    after = list(files.objects)
    assert sum(one is not two for one, two in zip(before, after, strict=True)) == 1
    (tmp_path / "1.json").unlink()
    assert files.refresh()
    assert len(list(files.objects)) == len(objects) - 1


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.json", "{", "a.json"),
        ("a.yaml", "{]", "a.yaml"),
        ("a.json", '{"kind": "HyperParamJob", "metadata": {"name": "x"}}', "spec"),
        ("a.json", "[" * 100_000, "a.json"),
        ("a.json", "\udcff", "a.json"),
    ],
)
def test_a_broken_file_is_a_problem_on_the_page_and_hides_nothing_else(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    write_objects(tmp_path)
    (tmp_path / name).write_text(content, errors="surrogateescape")
    state = FolderSource(tmp_path).state()
    assert len(state.searches) == 1
    assert problem in " ".join(state.problems)


def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    write_objects(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    assert len(FolderSource(tmp_path).state().searches) == 1


def test_a_folder_without_a_search_is_refused_with_the_cure(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FolderError, match="podium run"):
            FolderSource(folder)


def test_the_end_of_a_log_is_bounded() -> None:
    content = b"".join(b"line %d\n" % number for number in range(1000))
    tail = LogTail.of(content, complete=True)
    assert tail.text.splitlines() == [f"line {number}" for number in range(1000 - TAIL_LINES, 1000)]
    assert str(TAIL_LINES) in tail.note
    assert LogTail.of(b"half\nwhole\n", complete=False).text == "whole"
    assert LogTail.of(b"", complete=True).note
    assert LogTail.of(b"\xff\xfe", complete=True).text == "��"


class WatchedServer(ApiServer):
    """The API server of the CLI's tests, with watches that can send events."""

    def __init__(self) -> None:
        super().__init__()
        self.watches: list[tuple[str, web.StreamResponse]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a watch with a stream that remains open."""
        if "watch" not in request.query:
            return await super().handle(request)
        response = web.StreamResponse()
        await response.prepare(request)
        self.watches.append((request.path.rpartition("/")[2], response))
        await asyncio.sleep(DEADLINE)
        return response


async def _cluster(server: WatchedServer, tmp_path: Path, namespace: str | None, work: Any) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        async with connect(ClusterSettings(), find_target(path, None)) as api:
            source, hub = ClusterSource(api, "x", namespace), Hub()
            following = asyncio.create_task(source.run(hub.changed))
            try:
                async with asyncio.timeout(DEADLINE):
                    await work(source, hub)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
    finally:
        await runner.cleanup()


def test_a_cluster_is_watched_once_for_each_kind_and_changes_arrive(tmp_path: Path) -> None:
    server = WatchedServer()
    server.put(*(with_version(one) for one in json.loads(json.dumps(search_at(50.0), default=str))))

    async def work(source: ClusterSource, hub: Hub) -> None:
        while not (source.state().ready and source.state().nodes and len(server.watches) == 3):  # nodes may come later
            await hub.wait_newer(hub.version, 0.05)
        (search,) = source.state().searches
        assert len(search.trials) == 12
        assert len(source.state().nodes) == 2
        before = hub.version
        newer = next(one for one in search_at(80.0) if one["metadata"]["name"] == "digits-3")
        newer["metadata"]["resourceVersion"] = "7"
        event = json.dumps({"type": "MODIFIED", "object": newer}, default=str).encode() + b"\n"
        (stream,) = [response for plural, response in server.watches if plural == "hyperparamtrials"]
        await stream.write(event)
        while hub.version == before:
            await hub.wait_newer(before, 1.0)
        found = source.state().trial("default", "digits-3")
        assert found is not None
        assert found[1].status.last_step == newer["status"]["lastStep"]
        assert sorted(plural for plural, _ in server.watches) == ["gpunodes", "hyperparamjobs", "hyperparamtrials"]

    asyncio.run(_cluster(server, tmp_path, "default", work))


def test_a_reader_without_the_right_to_nodes_sees_the_searches_and_a_sentence(tmp_path: Path) -> None:
    class Refusing(WatchedServer):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            if "gpunodes" in request.path:
                return status(403, "Forbidden", "gpunodes is forbidden")
            return await super().handle(request)

    server = Refusing()
    server.put(*(with_version(one) for one in json.loads(json.dumps(search_at(50.0), default=str))))

    async def work(source: ClusterSource, hub: Hub) -> None:
        while not source.state().problems or not source.state().ready:
            await hub.wait_newer(hub.version, 0.05)
        assert len(source.state().searches) == 1
        assert "gpunodes is forbidden" in source.state().problems[0]

    asyncio.run(_cluster(server, tmp_path, "default", work))


def test_the_events_of_a_trial_and_of_its_pod_are_read_once_for_all_browsers(tmp_path: Path) -> None:
    asked: list[str] = []

    class WithEvents(WatchedServer):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            if not request.path.endswith("/namespaces/default/events"):
                return await super().handle(request)
            asked.append(request.query["fieldSelector"])
            if refused:
                return status(403, "Forbidden", "events is forbidden")
            kind = "Pod" if "kind=Pod" in asked[-1] else "HyperParamTrial"
            items = [
                {"metadata": {"name": "e"}, "involvedObject": {"kind": kind}, "reason": f"Of{kind}", "count": 2}
                | {"lastTimestamp": "2026-01-15T09:30:00Z", "message": "x" * 5000, "type": "Normal"},
                {"metadata": {"name": "empty"}},
            ]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    server, refused = WithEvents(), False
    server.put(*(with_version(one) for one in json.loads(json.dumps(search_at(50.0), default=str))))

    async def work(source: ClusterSource, hub: Hub) -> None:
        nonlocal refused
        while not source.state().ready:
            await hub.wait_newer(hub.version, 0.05)
        found = source.state().trial("default", "digits-3")
        other = source.state().trial("default", "digits-4")
        assert found is not None
        assert other is not None
        first = await source.events(found[1])
        assert {one.reason for one in first.lines[:2]} == {"OfPod", "OfHyperParamTrial"}
        assert {one.about for one in first.lines[:2]} == {"pod", "trial"}
        assert (first.lines[0].count, len(first.lines[0].message)) == (2, 1024)
        assert first.lines[-1].at is None
        assert await source.events(found[1]) is first
        assert sorted(asked) == sorted(
            [
                "involvedObject.kind=HyperParamTrial,involvedObject.name=digits-3",
                f"involvedObject.kind=Pod,involvedObject.name={found[1].status.pod}",
            ]
        )
        refused = True
        assert "events is forbidden" in (await source.events(other[1])).note

    asyncio.run(_cluster(server, tmp_path, "default", work))


def test_the_log_of_a_pod_is_read_once_for_all_browsers(tmp_path: Path) -> None:
    server = WatchedServer()
    objects = json.loads(json.dumps(search_at(50.0), default=str))
    server.put(*(with_version(one) for one in objects))
    pod = next(one["status"]["pod"] for one in objects if one["metadata"]["name"] == "digits-3")
    server.put(
        with_version(
            {
                "kind": "Pod",
                "metadata": {"name": pod, "namespace": "default"},
                "spec": {"containers": [{"name": "main"}]},
            }
        )
    )
    asked: list[dict[str, str]] = []

    async def log(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        return web.Response(body=b"one\ntwo\n")

    server.log = log

    async def work(source: ClusterSource, hub: Hub) -> None:
        while not source.state().ready:
            await hub.wait_newer(hub.version, 0.05)
        found = source.state().trial("default", "digits-3")
        assert found is not None
        first = await source.log_tail(found[1])
        assert first.text == "one\ntwo"
        assert await source.log_tail(found[1]) is first
        assert asked == [{"tailLines": str(TAIL_LINES), "container": "main"}]

    asyncio.run(_cluster(server, tmp_path, "default", work))
