"""The agent's disk is full or does not answer, and its file descriptors are used up, while trials share a GPU."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_checks import check_ledger, check_no_leaks, check_results
from bare_node import BareNode, Process
from extender_setup import free_port

pytestmark = pytest.mark.integration
STEPS = 60
EXHAUSTED_SECONDS = 8.0
MOST_CPU = 0.6  # of one processor, of a component without descriptors: a busy loop takes all of it
# a small file system of its own for the agent's notes, in a mount namespace that ends with the agent
SMALL_DISK = 'mount -t tmpfs -o size=16k none "$0" && exec "$@"'


def failures(process: Process, what: str, code: str) -> float:
    sample = f'podium_agent_failures_total{{code="{code}",what="{what}"}}'
    lines = (line.rsplit(" ", 1) for line in process.page("/metrics").splitlines() if not line.startswith("#"))
    return next((float(value) for name, value in lines if name == sample), 0.0)


def test_a_full_disk_and_unreadable_logs_stop_no_trial(bare_node: BareNode) -> None:
    node, agent = bare_node, bare_node.agent
    notes = node.kubelet.gates.parent.parent / "admissions"
    notes.mkdir()
    agent.prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", SMALL_DISK, str(notes))
    node.start()
    seen = Path(f"/proc/{agent.pid}/root{notes}")  # as the agent sees it
    (seen / ".ballast").write_bytes(bytes(16 << 10))
    job = node.search(trials=3, steps=STEPS, seconds=0.1)
    node.until(lambda: node.suspensions(job) >= 2, "suspensions")
    assert failures(agent, "note", "ENOSPC") >= 1
    assert "is let through without a note: [Errno 28] No space left on device" in agent.text()

    live = [path for path in node.kubelet.logs.rglob("main/0.log") if path.stat().st_size]
    asides = [path.rename(path.with_name("aside")) for path in live]
    for path in live:
        path.symlink_to("/proc/self/mem")  # its start answers EIO
    node.until(lambda: failures(agent, "metrics", "EIO") >= 1, "the metric")
    before = node.suspensions(job)
    node.until(lambda: node.suspensions(job) > before, "the switches continue")
    for path, aside in zip(live, asides, strict=True):
        path.unlink()
        aside.rename(path)
    assert agent.text().count("its metrics cannot be read now") <= 2 * len(live), (
        "once for each outage, not in each pass"
    )

    (seen / ".ballast").unlink()
    node.wait_for_end(job)
    check_results(node, job, STEPS)
    check_ledger(node, job)
    other = node.search(trials=1, steps=20, seconds=0.1)
    node.until(lambda: list(seen.iterdir()), "the notes are written again")
    node.wait_for_end(other)
    check_no_leaks(node)


def test_components_without_file_descriptors_serve_again_later(bare_node: BareNode) -> None:
    """New descriptors are refused; connections that are open remain. Nothing ends early, and no loop is busy."""
    node = bare_node
    node.start()
    extender = start_extender(node)
    components = {"agent": node.agent, "operator": node.operators["one"], "extender": extender}
    try:
        job = node.search(trials=3, steps=2 * STEPS, seconds=0.1)
        node.until(lambda: node.suspensions(job) >= 2, "suspensions")
        cpu = {name: one.cpu_seconds() for name, one in components.items()}
        limits = {name: exhaust(one.pid) for name, one in components.items()}
        began = time.monotonic()
        time.sleep(EXHAUSTED_SECONDS)  # duration of the fault
        seconds = time.monotonic() - began
        for name, one in components.items():
            assert one.code is None, f"{name} ended:\n{one.text()[-3000:]}"
            assert (one.cpu_seconds() - cpu[name]) / seconds < MOST_CPU, name
        for name, one in components.items():
            resource.prlimit(one.pid, resource.RLIMIT_NOFILE, limits[name])
        assert "Too many open files" in node.agent.text()
        for name, one in components.items():
            node.until(one.ready, f"{name} is ready")
        before = node.suspensions(job)
        node.until(lambda: node.suspensions(job) > before, "the switches continue")
        node.wait_for_end(job)
    finally:
        extender.kill()
    check_results(node, job, 2 * STEPS)
    check_ledger(node, job)
    check_no_leaks(node)


def start_extender(node: BareNode, kubeconfig: Path | None = None) -> Process:
    settings = {
        "PODIUM_KUBECONFIG": str(kubeconfig or node.kubeconfig),
        "PODIUM_EXTENDER_PORT": str(free_port()),
        "PODIUM_HTTP_HOST": "127.0.0.1",
        "PODIUM_HTTP_PORT": str(free_port()),
        "PODIUM_LOG_FORMAT": "console",
    }
    extender = Process("podium_extender.main", node.folder / "extender.log", os.environ | settings)
    extender.start()
    node.until(extender.ready, "the extender is ready")
    return extender


def exhaust(pid: int) -> tuple[int, int]:
    """Let the process open no further descriptor; return its limits before."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    lowest = next(number for number in range(len(used) + 1) if number not in used)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    return before
