"""The gate server with real sockets; the kernel identifies peers, and /proc is a folder of the test."""

# ruff: noqa: E501 - a table is read by its rows

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from podium_agent.schedule.gate import Gates
from podium_core.attempts.lost_work import CompletionMarker, GateReport

POD = "5f0a4d0e-0000-4000-8000-000000000001"


def proc_with(folder: Path, cgroup: str) -> Path:
    place = folder / str(os.getpid())
    place.mkdir(parents=True)
    (place / "cgroup").write_text(cgroup)
    return folder


async def lines_until(reader: asyncio.StreamReader, last: str) -> list[str]:
    seen: list[str] = []
    while not seen or seen[-1] != last:
        line = await asyncio.wait_for(reader.readline(), 300)
        if not line:
            break
        seen.append(line.decode().strip())
    return seen


def test_a_gate_waits_gets_its_reason_and_opens(tmp_path: Path) -> None:
    proc = proc_with(tmp_path / "proc", f"6:freezer:/kubepods/burstable/pod{POD}/{'ab' * 32}\n")

    async def talk() -> list[str]:
        changed = asyncio.Event()
        gates = Gates(proc, changed.set)
        async with gates.serve(tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "agent.sock"))
            writer.write(b"gate\n")
            await asyncio.wait_for(changed.wait(), 300)
            assert gates.waiting(POD)
            gates.tell(POD, "GPUInUse: a holds the GPU")
            first = await lines_until(reader, "wait GPUInUse: a holds the GPU")
            gates.open(POD)
            rest = await lines_until(reader, "go")
            writer.close()
            assert not gates.waiting(POD)
            assert gates.passed(POD)
            # its answer was lost: it comes again, and goes at once
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "agent.sock"))
            writer.write(b"gate\n")
            assert await lines_until(reader, "go") == ["go"]
            writer.close()
            gates.forget(frozenset())
            assert not gates.passed(POD)
            return first + rest

    assert asyncio.run(talk())[-2:] == ["wait GPUInUse: a holds the GPU", "go"]


@pytest.mark.parametrize(("cgroup", "hello", "answer"), [("0::/user.slice\n", b"gate\n", ["wait UnknownPod"]), (f"0::/kubepods/pod{POD}/{'ab' * 32}\n", b"open\n", [])])  # fmt: skip
def test_unknown_processes_get_no_answer(tmp_path: Path, cgroup: str, hello: bytes, answer: list[str]) -> None:
    proc = proc_with(tmp_path / "proc", cgroup)

    async def talk() -> list[str]:
        async with Gates(proc, lambda: None).serve(tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "agent.sock"))
            writer.write(hello)
            seen = await lines_until(reader, "go")
            writer.close()
            return [line.split(":")[0] for line in seen]

    assert asyncio.run(talk()) == answer


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (b"gate\n", None),
        (b'gate {"checkpoint": null}\n', GateReport(None)),
        (b'gate {"checkpoint": {"step": 3}}\n', GateReport(CompletionMarker(3.0))),
        (b'gate {"checkpoint": ' + b"9" * 4096 + b"}\n", GateReport(None)),
    ],
)
def test_the_checkpoint_that_a_gate_reports(tmp_path: Path, hello: bytes, said: GateReport | None) -> None:
    proc = proc_with(tmp_path / "proc", f"0::/kubepods/pod{POD}/{'ab' * 32}\n")

    async def talk() -> None:
        changed = asyncio.Event()
        gates = Gates(proc, changed.set)
        async with gates.serve(tmp_path):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "agent.sock"))
            writer.write(hello)
            await asyncio.wait_for(changed.wait(), 300)
            assert gates.gate_report(POD) == said
            gates.open(POD)
            assert (await lines_until(reader, "go"))[-1] == "go"
            writer.close()
            gates.forget(frozenset())
            assert gates.gate_report(POD) is None

    asyncio.run(talk())
