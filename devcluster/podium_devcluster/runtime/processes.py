"""The long-lived processes of one cluster, started detached and recorded in files.

A record holds the pid and the start time from the kernel. If both match, the process is the recorded one. If not, the
pid was recycled, and the process is not signalled.
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
# The shell joins the cluster's control group first, so that every child is in it too. It ends at once, and pid 1 adopts
# the program: a long test run leaves no zombies.
_LAUNCH = 'echo 0 > "$1" || exit 1; log=$2; shift 2; "$@" </dev/null >>"$log" 2>&1 & echo $!'


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The fields of /proc/PID/stat that are needed here."""

    pid: int
    parent: int
    state: str
    start: int


@dataclass(frozen=True, slots=True)
class Record:
    """A started program: what is needed to identify it and to start it again."""

    component: str
    argv: tuple[str, ...]
    env: dict[str, str]
    log: str
    pid: int
    start: int


def parse_stat(text: str) -> ProcessState:
    """Parse /proc/PID/stat.

    The name is in parentheses and may contain anything, so fields count from the last one.
    """
    pid, rest = text.split(" ", 1)
    fields = rest[rest.rindex(")") + 2 :].split()
    return ProcessState(int(pid), int(fields[1]), fields[0], int(fields[19]))


def state_of(pid: int) -> ProcessState | None:
    """Return the state of a process, or None if it does not exist."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text())
    except (OSError, ValueError):
        return None


def is_same(record: Record, now: ProcessState | None) -> bool:
    """Return whether `now` is the record's process and it runs. Pure."""
    return now is not None and now.start == record.start and now.state not in "ZX"


def children(pid: int) -> list[int]:
    """Return the running children of a process."""
    states = [state_of(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [state.pid for state in states if state is not None and state.parent == pid and state.state not in "ZX"]


class Processes:
    """All programs of one cluster. `run_dir` holds one record per program."""

    def __init__(self, run_dir: Path, log_dir: Path, cgroup_procs: Path) -> None:
        self._run, self._log, self._procs = run_dir, log_dir, cgroup_procs

    def start(
        self,
        component: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Record:
        """Start a program, detached and in the cluster's control group. `env` replaces the whole environment."""
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
        """Return the records by component."""
        records: dict[str, Record] = {}
        for file in sorted(self._run.glob("*.json")):
            try:
                raw = json.loads(file.read_text())
                record = Record(**{**raw, "argv": tuple(raw["argv"])})
            except (OSError, ValueError, TypeError, KeyError):
                continue  # a killed run left half a record; the control group holds its process
            records[record.component] = record
        return records

    def get(self, component: str) -> Record:
        """Return a component's record. Raises KeyError with the known names."""
        records = self.records()
        if component not in records:
            raise KeyError(f"no component {component!r}; choose from: {', '.join(sorted(records)) or 'none'}")
        return records[component]

    def alive(self, component: str) -> bool:
        """Return whether the component's process runs."""
        record = self.records().get(component)
        return record is not None and is_same(record, state_of(record.pid))

    def payload(self, component: str) -> int:
        """Return the pid of the program itself. In a node that is a child of nsenter or unshare."""
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
        """Signal the program and wait until it has ended. Raises TimeoutError."""
        record = self.get(component)
        try:
            os.kill(self.payload(component), number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + timeout
        while is_same(record, state_of(record.pid)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{component} (process {record.pid}) still runs {timeout:g} s after {number.name}")
            time.sleep(0.02)

    def start_again(self, component: str) -> Record:
        """Start a program with its recorded command line and environment."""
        record = self.get(component)
        if self.alive(component):
            raise RuntimeError(f"{component} is running already (process {record.pid})")
        return self.start(component, record.argv, record.env or None)

    def log(self, component: str) -> str:
        """Return the component's log over all its starts; "" if it was never started."""
        try:
            return (self._log / f"{component}.log").read_text(errors="replace")
        except OSError:
            return ""

    def tail(self, component: str, lines: int = 15) -> str:
        """Return the last lines of the component's log."""
        return "\n".join(self.log(component).splitlines()[-lines:]) or "(no log)"


def _exe(pid: int) -> str:
    try:
        return Path(os.readlink(PROC / str(pid) / "exe")).name
    except OSError:
        return ""
