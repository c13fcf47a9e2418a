"""One attempt at a trial: its process, its state, and how it ends. The counterpart of a pod.

State changes are in `TRANSITIONS`; `suspension` suspends and resumes. The order to end is followed as on a cluster (the
checkpoint contract): first a request for a checkpoint where the script answers one, then SIGTERM, then SIGKILL when the
grace period is over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from podium_core.attempts.completion_marker import MARKER, MARKER_BYTES, REQUEST, parse_completion_marker
from podium_core.attempts.local_trial import Gate, LocalPod, LocalTrial, Termination, TrialMemory, TrialSuspension
from podium_core.attempts.lost_work import CompletionMarker
from podium_core.domain.keys import TrialKey
from podium_core.domain.observe import GPU_DRIVER_ERROR, ContainerEnd, PodFacts
from podium_core.schema.gpunode import SlotState
from podium_local.processes.log_follower import last_lines
from podium_local.processes.process import NOT_EXECUTED, Guardian, Launch, TrialProcess
from podium_local.processes.stopping import ProcessTree
from podium_local.suspension import Suspender
from podium_suspension.base import SuspensionOutcome

RETRY_SECONDS = 5.0  # until a suspension that failed is tried again
SIGTERM_FRACTION = 0.1  # part of the grace period that remains for SIGTERM after a request
MIN_SIGTERM_SECONDS = 2.0
STARTUP_FRACTION = 1 / 3  # part of the grace period in which a script that is still starting may set its handler
MAX_STARTUP_SECONDS = 10.0
ERROR_LINES = 5

G, R, OFF = SlotState.GATED, SlotState.RUNNING, SlotState.SUSPENDED
TRANSITIONS: Mapping[tuple[SlotState, SlotState], str] = MappingProxyType(
    {(G, R): "Started", (R, OFF): "Suspended", (OFF, R): "Resumed"}
)


@dataclass(slots=True)
class Ending:
    """Order to end. Times are of a monotonic clock.

    `requested`: the completion marker when a checkpoint was requested; empty: no request was made. `asked_at`: when
    SIGTERM was sent.
    """

    reason: str
    since: float
    deadline: float
    requested: bytes = b""
    asked_at: float | None = None
    killed: bool = False


class Attempt:
    """One attempt. `number` counts from 0; `devices` are the uuids of its devices, sorted."""

    def __init__(self, key: TrialKey, number: int, devices: tuple[str, ...], created: float, log: Path) -> None:
        self.key = key
        self.number = number
        self.uid = f"{key.uid}-{number}"
        self.name = f"{key.name}-{number}"
        self.devices = devices
        self.created = created
        self.state = SlotState.GATED
        self.since = created
        self.process: TrialProcess | None = None
        self.log = log
        self.port: int | None = None  # for its page of metrics
        self.ending: Ending | None = None
        self.exit_code: int | None = None
        self.ended_at: float | None = None
        self.read_to_end = False
        self.retry_at = 0.0
        self.trouble = ""
        self.problem = ""  # why the command could not be executed
        self.failed_methods: set[str] = set()  # of suspension, for this attempt
        self.is_partly_suspended = False  # a suspension or resumption failed, and was not undone
        self.driver_error = ""  # what the GPU driver did to a process

    @property
    def runs(self) -> bool:
        """Return whether the attempt's process exists and has not ended."""
        return self.process is not None and self.exit_code is None

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it runs or will run."""
        return self.exit_code is not None or (self.ending is not None and self.process is None)

    @property
    def occupies(self) -> bool:
        """Return whether the attempt holds its devices now."""
        return self.state is SlotState.RUNNING and self.exit_code is None

    def answering(self) -> int | None:
        """Return the pid of the attempt's process; None while it cannot answer."""
        return self.process.pid if self.process is not None and self.occupies else None

    def start(self, launch: Launch, guardian: Guardian, now: float) -> None:
        """Start the process; a command that cannot be executed is an end with exit code 127, as in a shell."""
        self._enter(SlotState.RUNNING, now)
        try:
            self.process = TrialProcess(launch, self.log, guardian)
        except OSError as error:
            self.exit_code, self.ended_at = NOT_EXECUTED, now
            self.problem = f"{launch.command[0]} cannot be executed: {error.strerror}"

    def refuse(self, problem: str, now: float) -> None:
        """End the attempt before its process starts, as a failure of the trial."""
        self._enter(SlotState.RUNNING, now)
        self.exit_code, self.ended_at, self.problem = NOT_EXECUTED, now, problem

    @property
    def tree(self) -> ProcessTree:
        """Return the attempt's processes; it must have some."""
        assert self.process is not None
        return ProcessTree(self.uid, self.process.pid)

    def suspend(self, suspender: Suspender, method: str, now: float) -> SuspensionOutcome:
        """Stop the processes, or let them run on and try the next method at once, or this one later."""
        outcome = suspender.suspend(method, self.tree)
        self._note(outcome, SlotState.SUSPENDED, suspender, now)
        if not (outcome.ok or outcome.is_shortage):
            self.failed_methods.add(method)
            if suspender.choose(self.failed_methods) != method:
                self.retry_at = now
        return outcome

    def resume(self, suspender: Suspender, now: float) -> SuspensionOutcome:
        """Continue the processes. If that fails they remain suspended, and are resumed later."""
        outcome = suspender.resume(self.tree)
        self._note(outcome, SlotState.RUNNING, suspender, now)
        return outcome

    def _note(self, outcome: SuspensionOutcome, wanted: SlotState, suspender: Suspender, now: float) -> None:
        if outcome.ended:
            self.driver_error = f"The GPU driver ended process {outcome.ended[0]} while it moved the trial's memory."
        self.is_partly_suspended = not outcome.ok and suspender.is_partly_suspended(self.tree)
        reached = wanted if outcome.ok else SlotState.RUNNING if self.is_partly_suspended else self.state
        if reached is not self.state:
            self._enter(reached, now)
        if not outcome.ok:
            self.retry_at, self.trouble = now + RETRY_SECONDS, f"{outcome.code}: {outcome.message}"

    def end(self, reason: str, grace: float) -> None:
        """Order the attempt to end; an order that was given before remains."""
        if self.ending is None:
            begin = time.monotonic()
            self.ending = Ending(reason, begin, begin + grace)

    def follow_end(self, checkpoints: Path | None) -> None:
        """Carry out the next step of the order to end. Call it often while there is one."""
        ending, process = self.ending, self.process
        if ending is None or process is None or not self.runs:
            return
        now = time.monotonic()
        if now >= ending.deadline:
            if not ending.killed:
                ending.killed = True
                process.kill()
        elif ending.asked_at is None and self.state is SlotState.RUNNING and self._may_ask(ending, checkpoints, now):
            ending.asked_at = now
            process.terminate()

    def observe_exit(self, now: float) -> bool:
        """Return whether the attempt's process has ended since the last call."""
        if self.process is None or self.exit_code is not None:
            return False
        code = self.process.exit_code()
        if code is None:
            return False
        self.exit_code, self.ended_at = code, now
        return True

    def facts(self, node: str) -> PodFacts:
        """Return what is known of the attempt, as the facts about a pod."""
        phase = "Pending" if self.process is None else "Running"
        if self.exit_code is not None:
            phase = "Succeeded" if self.exit_code == 0 else "Failed"
        return PodFacts(
            phase=phase,
            deleting=self.ending is not None,
            node=node,
            gate="Running" if self.process is None and self.exit_code is None else "Done",
            end=ContainerEnd(self.exit_code, message=self.last_output() if self.exit_code else ""),
            requeue=self.ending.reason if self.ending is not None else "",
            disruption=GPU_DRIVER_ERROR if self.driver_error else "",
        )

    def last_output(self) -> str:
        """Return the last lines of the log, or why there is none."""
        return self.problem or "\n".join(last_lines(self.log, ERROR_LINES))

    def local_trial(self, suspender: Suspender | None, *, memory: int, grace: float, now: float) -> LocalTrial:
        """Return the attempt as the local scheduler sees it.

        `suspender`: None if the job allows no method that suspends. `memory`: bytes that each trial declares.
        """
        deadline = None if self.ending is None else now + self.ending.deadline - time.monotonic()
        started = self.process is not None
        method = "" if suspender is None else suspender.choose(self.failed_methods)
        return LocalTrial(
            self.key,
            LocalPod(self.name, self.uid, self.number),
            self.devices,
            self.state,
            self.since,
            gate=Gate.PASSED if started else Gate.WAITING,
            termination=Termination(deleting=self.ending is not None, deadline=deadline, grace=grace),
            memory=TrialMemory(
                memory,
                moves=suspender is not None and suspender.moves(method),
                is_checkpointed=suspender is not None and started and suspender.is_checkpointed(self.tree),
            ),
            suspension=TrialSuspension(
                method, partial=self.is_partly_suspended, retry_at=self.retry_at, trouble=self.trouble
            ),
        )

    def _enter(self, state: SlotState, now: float) -> None:
        if (self.state, state) not in TRANSITIONS:
            raise AssertionError(f"{self.name}: {self.state} cannot change to {state}")
        self.state, self.since, self.retry_at, self.trouble = state, now, 0.0, ""

    def _may_ask(self, ending: Ending, checkpoints: Path | None, now: float) -> bool:
        """Return whether SIGTERM may come now: the request is answered, or there is no point in waiting longer."""
        grace = ending.deadline - ending.since
        if checkpoints is not None and not ending.requested:
            marker = read_marker(checkpoints)
            parsed = None if marker is None else parse_completion_marker(marker)
            if marker is not None and parsed is not None and parsed.on_request and _request(checkpoints):
                ending.requested = marker
        if ending.requested and checkpoints is not None:
            answered = not (checkpoints / REQUEST).exists() or read_marker(checkpoints) != ending.requested
            return answered or now >= ending.deadline - max(MIN_SIGTERM_SECONDS, SIGTERM_FRACTION * grace)
        assert self.process is not None
        waited = now - ending.since >= min(MAX_STARTUP_SECONDS, STARTUP_FRACTION * grace)
        return checkpoints is None or waited or self.process.handles_sigterm()


def read_marker(folder: Path) -> bytes | None:
    """Return the content of the completion marker in a checkpoint folder; None without one."""
    with suppress(OSError):
        descriptor = os.open(folder / MARKER, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, MARKER_BYTES + 1)
        finally:
            os.close(descriptor)
        return text if len(text) <= MARKER_BYTES else None
    return None


def checkpoint_in(folder: Path | None) -> CompletionMarker | None:
    """Return the newest complete checkpoint in a folder."""
    text = None if folder is None else read_marker(folder)
    return None if text is None else parse_completion_marker(text)


def _request(folder: Path) -> bool:
    """Ask the script for a checkpoint, and return whether that was possible."""
    with suppress(OSError):
        (folder / REQUEST).touch()
        return True
    return False
