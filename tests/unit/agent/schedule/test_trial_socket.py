"""The gate's socket under load: connections of one pod are limited, slow peers are cut off, others are served."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from podium_agent.observe.cgroup_paths import Peer
from podium_agent.schedule import gate, gate_peer, trial_socket
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.gate_peer import identify
from podium_agent.schedule.trial_socket import BURST, MAX_PER_POD, ConnectionLimits

POD = "5f0a4d0e-0000-4000-8000-000000000001"
CGROUP = f"0::/kubepods/pod{POD}/{'ab' * 32}\n"


def proc_with(folder: Path, cgroup: str, pid: int) -> Path:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "cgroup").write_text(cgroup)
    return folder


class Node:
    """A gate server for this process, which is in a pod by the test's /proc; `now` is the clock of its limits."""

    def __init__(self, tmp_path: Path) -> None:
        self.path, self.now, self.changes = tmp_path, 0.0, 0
        self.changed = asyncio.Event()
        self.gates = Gates(proc_with(tmp_path / "proc", CGROUP, os.getpid()), self._changed, lambda: self.now)

    def _changed(self) -> None:
        self.changes += 1
        self.changed.set()

    async def connect(self, hello: bytes = b"gate\n") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(self.path / "agent.sock"))
        writer.write(hello)
        return reader, writer


async def closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the agent closes the connection without a line."""
    try:
        return await asyncio.wait_for(reader.readline(), 60) == b""
    except ConnectionError:
        return True


def test_a_pod_keeps_its_newest_connections(tmp_path: Path) -> None:
    async def play() -> None:
        node = Node(tmp_path)
        async with node.gates.serve(tmp_path):
            every = []
            for _ in range(MAX_PER_POD + 2):
                every.append(await node.connect())
                assert (await every[-1][0].readline()).startswith(b"wait ")
            for reader, _ in every[:2]:
                await asyncio.wait_for(reader.read(), 60)
            assert node.gates.waiting(POD)
            node.gates.open(POD)
            assert (await asyncio.wait_for(every[-1][0].read(), 60)).endswith(b"go\n")
            for _, writer in every:
                writer.close()

    asyncio.run(play())


def test_a_pod_that_connects_all_the_time_wakes_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        node = Node(tmp_path)
        async with node.gates.serve(tmp_path):
            for _ in range(BURST):
                reader, writer = await node.connect()
                assert (await reader.readline()).startswith(b"wait ")
                writer.close()
            while node.changes < 2 * BURST:  # each one came and went
                node.changed.clear()
                await asyncio.wait_for(node.changed.wait(), 60)
            changes = node.changes
            for _ in range(50):
                reader, writer = await node.connect()
                assert await closed(reader)
                writer.close()
            assert node.changes == changes
            node.now += 1.0
            reader, writer = await node.connect()
            assert (await reader.readline()).startswith(b"wait ")
            writer.close()

    asyncio.run(play())


@pytest.mark.parametrize("dripped", [b"", b"gate {", b"x"])
def test_a_slow_hello_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dripped: bytes) -> None:
    monkeypatch.setattr(gate, "READ_SECONDS", 0.2)

    async def play() -> None:
        node = Node(tmp_path)
        async with node.gates.serve(tmp_path):
            reader, writer = await node.connect(b"")
            ends = asyncio.create_task(closed(reader))
            while not ends.done():
                writer.write(dripped[:1])
                await asyncio.sleep(0.02)
            assert ends.result()
            writer.close()
        assert node.changes == 0

    asyncio.run(play())


def test_a_hello_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        node = Node(tmp_path)
        async with node.gates.serve(tmp_path):
            reader, writer = await node.connect(b"gate " + b"x" * 2**20)
            assert await closed(reader)
            writer.close()
        assert node.changes == 0

    asyncio.run(play())


def test_limits_of_one_pod_do_not_affect_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_socket, "MAX_CONNECTIONS", 6)
    limits: ConnectionLimits[int] = ConnectionLimits(lambda: 0.0)
    answers = [limits.admit("a", number) for number in range(20)]
    assert [accepted for accepted, _ in answers] == [True] * BURST + [False] * (20 - BURST)
    assert [oldest for _, oldest in answers[:BURST]] == [None] * MAX_PER_POD + list(range(BURST - MAX_PER_POD))
    assert limits.admit("b", 100) == (True, None)
    assert limits.admit("b", 101) == (True, None)
    assert limits.admit("c", 102) == (False, None), "six are open"
    limits.release("a", 0)  # was replaced
    assert limits.admit("c", 102) == (False, None)
    limits.release("a", BURST - 1)
    assert limits.admit("c", 102) == (True, None)


def connected_child(path: Path) -> tuple[socket.socket, int]:
    """Return a connection from a child process, and the child's pid."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        pid = os.fork()
        if pid == 0:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(path))
            client.recv(1)
            os._exit(0)
        return listener.accept()[0], pid


@pytest.mark.parametrize("option", [gate_peer.SO_PEERPIDFD, 9999], ids=["peer's pidfd", "older kernel"])
@pytest.mark.parametrize("reaped", [False, True])
def test_a_process_that_has_ended_is_in_no_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: int, reaped: bool
) -> None:
    """Its pid may belong to a process of another pod; the folder in /proc stays as if it did."""
    monkeypatch.setattr(gate_peer, "SO_PEERPIDFD", option)
    connection, pid = connected_child(tmp_path / "socket")
    proc = proc_with(tmp_path / "proc", CGROUP, pid)
    with connection:
        assert identify(proc, connection) == Peer(POD, "ab" * 32)
        connection.send(b"x")
        os.waitid(os.P_PID, pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
        assert identify(proc, connection) is None
    if not reaped:
        os.waitpid(pid, 0)


def test_a_pid_that_changes_its_process_meanwhile_is_in_no_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, other = socket.socketpair(socket.AF_UNIX)
    proc = proc_with(tmp_path / "proc", CGROUP, os.getpid())
    stat = proc / str(os.getpid()) / "stat"
    stat.write_text(f"1 (a ) b) S {' '.join(['0'] * 18)} 77 0\n")
    read = gate_peer.peer_of

    def peer_of(folder: Path, pid: int) -> Peer | None:
        stat.write_text(stat.read_text().replace(" 77 ", " 78 "))
        return read(folder, pid)

    with connection, other:
        assert identify(proc, connection) == Peer(POD, "ab" * 32)
        monkeypatch.setattr(gate_peer, "peer_of", peer_of)
        assert identify(proc, connection) is None
