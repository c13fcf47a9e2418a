"""The long-lived processes of one cluster: started detached, recorded in files, found and ended for certain.

A record holds the pid together with the start time that the kernel gives it: when both match it is our process, when
not the pid was recycled and nothing is signalled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from podium_devcluster.shell import CommandError

PROC = Path("/proc")
# Joins the cluster's control group first, so that every child is in it too; the shell then ends and the program
# belongs to pid 1: no zombies in a long test run.
_LAUNCH = 'echo 0 > "$1" || exit 1; log=$2; shift 2; "$@" </dev/null >>"$log" 2>&1 & echo $!'


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What /proc/PID/stat says, as far as it matters here."""

    pid: int
    parent: int
    state: str
    start: int


@dataclass(frozen=True, slots=True)
class Record:
    """A started program: enough to know it again, and to start it again."""

    component: str
    argv: tuple[str, ...]
    env: dict[str, str]
    log: str
    pid: int
    start: int


def parse_stat(text: str) -> ProcessState:
    """The name stands in parentheses and may hold anything, so count from the last one."""
    pid, rest = text.split(" ", 1)
    fields = rest[rest.rindex(")") + 2 :].split()
    return ProcessState(int(pid), int(fields[1]), fields[0], int(fields[19]))


def state_of(pid: int) -> ProcessState | None:
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text())
    except (OSError, ValueError):
        return None


def is_same(record: Record, now: ProcessState | None) -> bool:
    """Whether the record's process runs. Pure."""
    return now is not None and now.start == record.start and now.state not in "ZX"


def children(pid: int) -> list[int]:
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            state = state_of(int(entry.name))
            if state is not None and state.parent == pid and state.state not in "ZX":
                found.append(state.pid)
    return found


class Processes:
    """All programs of one cluster. `run_dir` keeps a record each."""

    def __init__(self, run_dir: Path, log_dir: Path, cgroup_procs: Path) -> None:
        self._run, self._log, self._procs = run_dir, log_dir, cgroup_procs

    def start(
        self,
        component: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Record:
        self._run.mkdir(parents=True, exist_ok=True)
        self._log.mkdir(parents=True, exist_ok=True)
        log = self._log / f"{component}.log"
        environment = dict(os.environ) if env is None else dict(env)
        launched = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, "sh", str(self._procs), str(log), *argv],
            env=environment, capture_output=True, text=True, start_new_session=True, pass_fds=pass_fds, timeout=20,
        )  # fmt: skip
        if launched.returncode:
            raise CommandError(argv, f"could not be started as {component}", launched.stderr)
        pid = int(launched.stdout)
        state = state_of(pid)
        kept = {} if env is None else dict(env)
        record = Record(component, tuple(argv), kept, str(log), pid, state.start if state else 0)
        target = self._run / f"{component}.json"
        temporary = target.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(record)))
        temporary.replace(target)
        return record

    def records(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for file in sorted(self._run.glob("*.json")):
            try:
                raw = json.loads(file.read_text())
                record = Record(**{**raw, "argv": tuple(raw["argv"])})
            except (OSError, ValueError, TypeError, KeyError):
                continue  # a half-written record of a killed run: its process is found by its control group
            found[record.component] = record
        return found

    def get(self, component: str) -> Record:
        records = self.records()
        if component not in records:
            raise KeyError(f"no component {component!r}; there are: {', '.join(sorted(records)) or 'none'}")
        return records[component]

    def alive(self, component: str) -> bool:
        record = self.records().get(component)
        return record is not None and is_same(record, state_of(record.pid))

    def payload(self, component: str) -> int:
        """The pid of the program itself: for what runs in a node that is the child of nsenter or unshare."""
        record = self.get(component)
        if not is_same(record, state_of(record.pid)):
            raise ProcessLookupError(f"{component} is not running (log: {record.log})")
        if Path(record.argv[0]).name != "nsenter":
            return record.pid
        pid = record.pid
        while Path(f"/proc/{pid}/exe").exists() and _exe(pid) in ("nsenter", "unshare"):
            below = children(pid)
            if not below:
                break
            pid = below[0]
        return pid

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL, timeout: float = 10.0) -> None:
        """Signal the program and wait until it is gone."""
        record = self.get(component)
        try:
            os.kill(self.payload(component), number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + timeout
        while is_same(record, state_of(record.pid)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{component} (process {record.pid}) outlived signal {number.name} by {timeout:g} s")
            time.sleep(0.02)

    def again(self, component: str) -> Record:
        """Start a program as it was started before."""
        record = self.get(component)
        if self.alive(component):
            raise RuntimeError(f"{component} is running already (process {record.pid})")
        return self.start(component, record.argv, record.env or None)

    def log(self, component: str) -> str:
        """All it has said, over all its lives; "" before its first."""
        try:
            return (self._log / f"{component}.log").read_text(errors="replace")
        except OSError:
            return ""

    def tail(self, component: str, lines: int = 15) -> str:
        return "\n".join(self.log(component).splitlines()[-lines:]) or "(no log)"


def _exe(pid: int) -> str:
    try:
        return Path(os.readlink(PROC / str(pid) / "exe")).name
    except OSError:
        return ""
