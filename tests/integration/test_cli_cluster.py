"""`podium` with a real kube-apiserver: the test writes objects and runs the command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from podium_cli.samples import search_at
from podium_cluster.client import Api, connect
from podium_cluster.resources import GPUNODES, JOBS, NAMESPACES, TRIALS
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
KINDS = {"HyperParamJob": JOBS, "HyperParamTrial": TRIALS, "GPUNode": GPUNODES}
PATIENCE = 60
Command = Callable[..., "subprocess.Popen[str]"]


def call(kubeconfig: Path, body: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            await body(api)

    asyncio.run(main())


@pytest.fixture
def namespace(kubeconfig: Path) -> Iterator[str]:
    """A namespace for one test.

    GPUNodes, which have no namespace, have its name as a prefix and are deleted too.
    """
    name = f"cli-{uuid.uuid4().hex[:8]}"

    async def make(api: Api) -> None:
        await api.apply(NAMESPACES, {"metadata": {"name": name}}, manager="test")

    async def remove(api: Api) -> None:
        for item in (await api.list(GPUNODES))["items"]:
            if item["metadata"]["name"].startswith(name):
                await api.delete(GPUNODES, item["metadata"]["name"])
        for resource in (TRIALS, JOBS):
            for item in (await api.list(resource, name))["items"]:
                await api.delete(resource, item["metadata"]["name"], name)
        await api.delete(NAMESPACES, name)

    call(kubeconfig, make)
    yield name
    call(kubeconfig, remove)


def write(kubeconfig: Path, namespace: str, elapsed: float, changes: Mapping[str, Any] | None = None) -> None:
    """Write the sample search as of `elapsed` seconds; `changes` are added to the job's status."""

    async def body(api: Api) -> None:
        for one in reversed(search_at(elapsed)):  # the job last, so that its trials have ended before it
            resource = KINDS[one["kind"]]
            meta = {"name": one["metadata"]["name"], "namespace": namespace}
            meta |= {key: value for key, value in one["metadata"].items() if key == "labels"}
            if resource is GPUNODES:
                meta = {"name": f"{namespace}-{meta['name']}"}
            status = one["status"] | (dict(changes or {}) if resource is JOBS else {})
            await api.apply(resource, {"metadata": meta, "spec": one["spec"]}, manager="test")
            await api.apply_status(resource, {"metadata": meta, "status": status}, manager="test")

    call(kubeconfig, body)


@pytest.fixture
def podium(kubeconfig: Path, namespace: str) -> Iterator[Command]:
    """A function that starts `podium` with arguments. Processes that still run at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "podium_cli.main", *arguments, "-n", namespace, "--kubeconfig", str(kubeconfig)]
        environment = os.environ | {"COLUMNS": "160", "LINES": "50", "TERM": "xterm-256color"}
        process = subprocess.Popen(
            line,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # a shell ignores SIGINT for processes that it starts with &
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Return the output of a process up to the line with these words."""
    assert process.stdout is not None
    seen = ""
    deadline = time.monotonic() + PATIENCE
    while words not in seen:
        line = process.stdout.readline()
        assert line, f"ended before {words!r}: {seen}"
        assert time.monotonic() < deadline, seen
        seen += line
    return seen


def test_watch_until_done_prints_changes_and_ends_with_the_job(
    kubeconfig: Path, namespace: str, podium: Command
) -> None:
    write(kubeconfig, namespace, 30)
    process = podium("watch", "digits", "--until-done")
    read_until(process, "new best")
    write(kubeconfig, namespace, 100)
    read_until(process, "new best")
    write(kubeconfig, namespace, 600)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert "job digits Succeeded (AllTrialsEnded" in out
    assert "-> Succeeded" in out


def test_watch_on_a_terminal_draws_the_table_and_restores_the_terminal(
    kubeconfig: Path, namespace: str, podium: Command
) -> None:
    write(kubeconfig, namespace, 600)
    terminal, child_side = pty.openpty()
    process = podium("watch", "digits", "--until-done", stdout=child_side)
    os.close(child_side)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other end was closed
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.close(terminal)
    assert process.wait(PATIENCE) == 0
    for text in (b"Succeeded", b"digits-11", b"12/12 trials", b"node-a/0"):
        assert text in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "the cursor is visible again"


@pytest.mark.parametrize("phase", ["Failed", "Refused"])
def test_watch_of_a_failed_job_prints_the_reason(phase: str, kubeconfig: Path, namespace: str, podium: Command) -> None:
    write(kubeconfig, namespace, 30, {"phase": phase, "reason": "TooManyFailed", "message": "4 trials have failed"})
    code, _, err = finish(podium("watch", "digits", "--until-done"))
    assert code == 1
    assert "TooManyFailed: job digits: 4 trials have failed" in err


def test_watch_ends_on_interrupt_on_deletion_of_the_job_and_on_timeout(
    kubeconfig: Path, namespace: str, podium: Command
) -> None:
    write(kubeconfig, namespace, 30)
    interrupted, orphaned = podium("watch", "digits"), podium("watch", "digits")
    for process in (interrupted, orphaned):
        read_until(process, "new best")
    interrupted.send_signal(signal.SIGINT)
    code, _, err = finish(interrupted)
    assert (code, err) == (130, "")
    code, _, err = finish(podium("watch", "digits", "--until-done", "--timeout", "1"))
    assert code == 5
    assert "TimedOut" in err

    async def delete(api: Api) -> None:
        await api.delete(JOBS, "digits", namespace)

    call(kubeconfig, delete)
    code, _, err = finish(orphaned)
    assert code == 1
    assert "JobDeleted" in err


@pytest.mark.parametrize(
    "arguments",
    [("watch", "none"), ("report", "none"), ("explain", "trial", "none"), ("pin", "none"), ("thaw", "none")],
)
def test_a_missing_object_is_reported(arguments: tuple[str, ...], podium: Command) -> None:
    code, _, err = finish(podium(*arguments))
    assert code == 3
    assert "none" in err


def test_report_summary_get_and_explain(kubeconfig: Path, namespace: str, podium: Command, tmp_path: Path) -> None:
    write(kubeconfig, namespace, 100)
    code, out, _ = finish(podium("get", "trials", "digits", "--sort-by", "value"))
    assert code == 0
    assert out.splitlines()[1].startswith("digits-9")
    code, out, _ = finish(podium("get", "jobs"))
    assert code == 0
    assert out.splitlines()[1].split()[:6] == [namespace, "digits", "Running", "0/12", "2", "0.9612"]
    code, out, _ = finish(podium("get", "jobs", "-A", "-o", "json"))
    assert code == 0
    assert namespace in [job["namespace"] for job in json.loads(out)["items"]]
    code, out, _ = finish(podium("best", "digits", "-o", "args"))
    assert code == 0
    assert set(out.split()) == {"--lr=0.005406", "--width=64", "--batch=64", "--activation=tanh"}
    code, _, err = finish(podium("logs", "digits-9"))
    assert code == 3
    assert "LogGone" in err or "LogNotReady" in err
    code, out, _ = finish(podium("get", "gpus"))
    assert code == 0
    assert f"{namespace}-node-a/0" in out
    code, out, _ = finish(podium("explain", "trial", "digits-9"))
    assert code == 0
    assert "rank         1" in out
    write(kubeconfig, namespace, 600)
    output = tmp_path / "report.html"
    code, out, err = finish(podium("report", "digits", "-o", str(output)))
    assert code == 0, err
    assert "Holder of each GPU" in output.read_text(encoding="utf-8")
    code, out, _ = finish(podium("summary", "digits"))
    assert code == 0
    assert "best         digits-9" in out


def test_commands_write_only_their_own_field(kubeconfig: Path, namespace: str, podium: Command) -> None:
    write(kubeconfig, namespace, 30)
    for arguments in (("suspend", "digits"), ("pin", "digits-3"), ("stop", "digits-4")):
        code, _, err = finish(podium(*arguments))
        assert code == 0, err

    async def suspended(api: Api) -> None:
        assert (await api.get(JOBS, "digits", namespace))["spec"]["suspend"] is True
        assert (await api.get(TRIALS, "digits-3", namespace))["spec"]["pinned"] is True
        assert (await api.get(TRIALS, "digits-4", namespace))["spec"]["stopped"] is True

    call(kubeconfig, suspended)
    for arguments in (("resume", "digits"), ("pin", "digits-3", "--undo")):
        assert finish(podium(*arguments))[0] == 0

    async def resumed(api: Api) -> None:
        assert (await api.get(JOBS, "digits", namespace))["spec"]["suspend"] is False
        assert (await api.get(TRIALS, "digits-3", namespace))["spec"]["pinned"] is False

    call(kubeconfig, resumed)


def test_thaw_waits_for_the_agent_and_can_be_undone(kubeconfig: Path, namespace: str, podium: Command) -> None:
    write(kubeconfig, namespace, 100)
    node = f"{namespace}-node-a"
    code, _, err = finish(podium("thaw", node, "--wait", "1"))
    assert code == 5
    assert "StillSuspended" in err
    assert "digits-" in err
    waiting = podium("thaw", node, "--wait", "50")
    read_until(waiting, "thawed")

    async def as_the_agent_would(api: Api) -> None:
        assert (await api.get(GPUNODES, node))["spec"]["released"] is True
        status = (await api.get(GPUNODES, node))["status"]
        for gpu in status["gpus"]:
            for trial in gpu["trials"]:
                trial["state"] = "Running"
        await api.apply_status(GPUNODES, {"metadata": {"name": node}, "status": status}, manager="test")

    call(kubeconfig, as_the_agent_would)
    code, out, err = finish(waiting)
    assert (code, err) == (0, "")
    assert "nothing is suspended" in out
    assert finish(podium("thaw", node, "--undo"))[0] == 0

    async def undone(api: Api) -> None:
        spec = (await api.get(GPUNODES, node))["spec"]
        assert spec["released"] is False
        assert spec["gpus"], "the operator's part is untouched"

    call(kubeconfig, undone)
