"""Reports from the SDK to the agent's socket, with agents that restart, and scripts that misbehave."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import podium
from podium.push import KEPT, Push
from podium_agent.observe.sources.push import MAX_FLUSHES, MAX_QUEUED, PushQueue, PushQueues, PushSource, Record
from podium_agent.observe.sources.push_server import BURST, PushServer
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import Position

POD = "5f0a4d0e-0000-4000-8000-000000000001"
METRICS = MetricsConfig.model_validate(
    {"metric": "acc", "direction": "maximize", "container": "train", "source": "push"}
)


def proc_with(folder: Path, pid: int) -> Path:
    place = folder / "proc" / str(pid)
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup").write_text(f"0::/kubepods/pod{POD}/{'ab' * 32}\n")
    return folder / "proc"


class Agent:
    """The parts of one agent: its queues, and the source of the pod."""

    def __init__(self, position: Position = Position()) -> None:  # noqa: B008 - a frozen value
        self.queues = PushQueues()
        self.hurried = 0
        self.source = PushSource(self.queues, POD, METRICS, position, self._hurry)

    def _hurry(self) -> None:
        self.hurried += 1

    async def texts(self, number: int) -> list[str]:
        """Wait for this many records."""
        texts: list[str] = []
        while len(texts) < number:
            batch = await self.source.read(False)
            texts += [line.text for line in batch.lines]
            self.position = batch.position
            await asyncio.sleep(0.005)
        return texts


@asynccontextmanager
async def serving(agent: Agent, folder: Path) -> AsyncIterator[None]:
    async with PushServer(proc_with(folder, os.getpid()), agent.queues).serve(folder):
        yield


async def in_thread(push: Push, seconds: float) -> bool:
    return await asyncio.to_thread(push.finish, seconds)


def test_reports_are_kept_until_they_are_stored(tmp_path: Path) -> None:
    async def scene() -> None:
        push = Push(str(tmp_path / "metrics.sock"))
        push.add('{"step": 1, "acc": 0.5}')  # before any agent is there
        first = Agent()
        async with serving(first, tmp_path):
            push.add('{"step": 2, "acc": 0.75}')
            assert await asyncio.wait_for(first.texts(2), 300) == [
                '{"step": 1, "acc": 0.5}',
                '{"step": 2, "acc": 0.75}',
            ]
            assert first.source.parse('{"step": 2, "acc": 0.75}')[0].value == 0.75
            assert not await in_thread(push, 0.05), "taken, but not stored"
        first.source.close()
        second = Agent()  # the first one died with them
        async with serving(second, tmp_path):
            assert len(await asyncio.wait_for(second.texts(2), 300)) == 2
            second.source.stored(second.position)
            assert await in_thread(push, 300)
        second.source.close()
        third = Agent(second.position)
        async with serving(third, tmp_path):
            push.add('{"step": 3, "acc": 0.8}')
            assert await asyncio.wait_for(third.texts(1), 300) == ['{"step": 3, "acc": 0.8}']

    asyncio.run(scene())


def test_the_end_of_a_script_asks_to_be_stored_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        agent = Agent()
        async with serving(agent, tmp_path):
            environment = {
                "PYTHONPATH": str(Path(podium.__file__).parents[1]),
                "PODIUM_METRICS_SOCKET": str(tmp_path / "metrics.sock"),
            }
            script = "from podium import trial; trial.report(step=1, acc=0.5); trial.report(step=2, acc=float('nan'))"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-S", "-c", script, env=environment, stdout=subprocess.PIPE
            )
            proc_with(tmp_path, process.pid)
            assert len(await asyncio.wait_for(agent.texts(2), 300)) == 2
            while not agent.hurried:
                await agent.source.read(False)
                await asyncio.sleep(0.005)
            agent.source.stored(agent.position)
            out, _ = await asyncio.wait_for(process.communicate(), 300)
            assert (process.returncode, out) == (0, b""), "nothing is printed"

    asyncio.run(scene())


def test_without_an_agent_reports_are_thinned_and_return_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push = Push(str(tmp_path / "none.sock"))
    for step in range(5 * KEPT):
        push.add(f'{{"step": {step}}}')
    assert len(push._reports) <= KEPT
    assert push._reports[-1].text == f'{{"step": {5 * KEPT - 1}}}'
    assert push._reports[0].number == 1
    assert capsys.readouterr().err.count("dropping some reports") == 1
    with pytest.raises(ValueError, match="ReportTooLong"):
        push.add("x" * 5000)


def test_a_queue_that_is_full_makes_the_script_wait() -> None:
    queue = PushQueue()
    assert all(queue.add(Record("a", number, 0.0, "{}")) for number in range(1, MAX_QUEUED + 1))
    assert not queue.add(Record("a", MAX_QUEUED + 1, 0.0, "{}"))
    assert queue.add(Record("a", 5, 0.0, "{}")), "it has been received before"
    for _ in range(MAX_FLUSHES):
        queue.ask_to_flush()
        assert queue.flush
        queue.flush = False
    queue.ask_to_flush()
    assert not queue.flush


@pytest.mark.parametrize(
    "sent",
    [
        b"gate\n",
        b"push zz\n",
        b"push ab\nnonsense\n",
        b"push ab\n1 nan {}\n",
        b"push ab\n" + b"9" * 20000,
        b"push ab\n\xff\xfe\n",
    ],
)
def test_a_script_that_breaks_the_protocol_is_disconnected(tmp_path: Path, sent: bytes) -> None:
    async def scene() -> None:
        agent = Agent()
        async with serving(agent, tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "metrics.sock"))
            writer.write(sent)
            while True:
                try:
                    if not await asyncio.wait_for(reader.read(1 << 16), 300):
                        break
                except ConnectionError:
                    break
            writer.close()
            assert (await agent.source.read(False)).lines == ()

    asyncio.run(scene())


def test_a_script_that_ends_again_and_again_does_not_occupy_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that are in the buffer are read without a pause, so their number is limited, whatever they ask for."""
    asked: list[int] = []
    monkeypatch.setattr(PushQueue, "ask_to_flush", lambda _: asked.append(1))

    async def scene() -> None:
        agent = Agent()
        async with PushServer(proc_with(tmp_path, os.getpid()), agent.queues, lambda: 0.0).serve(tmp_path):
            _, writer = await asyncio.open_unix_connection(str(tmp_path / "metrics.sock"))
            writer.write(b"push ab\n" + b"end\n" * 100_000)
            while len(asked) < BURST:  # noqa: ASYNC110 - the server sets it
                await asyncio.sleep(0)
            assert len(asked) <= BURST + 10
            writer.transport.abort()

    asyncio.run(asyncio.wait_for(scene(), 300))


def test_a_process_of_another_pod_is_not_heard(tmp_path: Path) -> None:
    async def scene() -> None:
        agent = Agent()
        proc = tmp_path / "other"
        (proc / str(os.getpid())).mkdir(parents=True)
        (proc / str(os.getpid()) / "cgroup").write_text("0::/user.slice\n")
        async with PushServer(proc, agent.queues).serve(tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "metrics.sock"))
            writer.write(b'push ab\n1 0 {"step": 1, "acc": 1}\n')
            assert await asyncio.wait_for(reader.read(), 300) == b""
            writer.close()
        assert (await agent.source.read(False)).lines == ()

    asyncio.run(scene())


def test_threads_of_reports_are_daemons(tmp_path: Path) -> None:
    push = Push(str(tmp_path / "none.sock"))
    push.add("{}")
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "podium-push")
