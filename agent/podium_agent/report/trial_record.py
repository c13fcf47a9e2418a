"""Record of one pod of a trial, for the trial's status.

It holds the curve, log cursor, GPU allocations, suspensions and checkpoints. The node reconciler and the executor note
what happens. The trial writer loads what an earlier agent wrote, reads the log, and patches the status. Changes before
the status is known to hold this pod's record are kept. So none is lost while the API server is away, or when the
previous pod still had a final report to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from podium_agent.observe.cgroups import Container
from podium_agent.observe.pods import TrialPod
from podium_core.attempts.lost_work import CompletionMarker, GateReport
from podium_core.attempts.usage_ledger import (
    SuspensionCost,
    UsageLedger,
    add_repeated_steps,
    follow,
    resumed,
    saw_marker,
    suspended,
)
from podium_core.curves.growing_curve import Curve, extend
from podium_core.curves.thinning import Grid
from podium_core.logs.line_reader import Reader
from podium_core.schema.gpunode import SlotState
from podium_core.schema.trial import ContainerCheckpoint, UnreadLog
from podium_core.sources.batch import Batch, Position

DRIVER_ERROR_SECONDS = 30.0  # after the driver has ended a process, in which the pod ends for that reason


@dataclass(slots=True)
class PodLife:
    """How far the life of a pod has come."""

    started: bool = False  # its gate was passed (or it has none): the previous pod has ended
    gate_report: GateReport | None = None  # what its gate reported of the checkpoint folder; None: not to this agent
    ending: bool = False  # it is being deleted
    ended: bool = False  # its processes are gone
    orphaned: bool = False  # it was gone before this agent started: its record only needs its end
    closed: bool = False  # it has ended or is gone according to the API: its log is complete


@dataclass(slots=True)
class DriverError:
    """The GPU driver has just ended a process of the trial."""

    message: str = ""  # as a sentence; empty: it has not
    at: float = 0.0  # by a monotonic clock


@dataclass(slots=True)
class MetricsProgress:
    """How far the metrics of the trial have been read."""

    curve: Curve = field(default_factory=Curve)
    position: Position = field(default_factory=Position)
    pending_position: Position = field(default_factory=Position)  # of the line with the step of a value to come
    unread_log: UnreadLog | None = None  # the log has yielded no value for some time


@dataclass(slots=True)
class CheckpointResult:
    """Result of a container checkpoint, as it is now and as the next patch has it."""

    result: ContainerCheckpoint | None = None
    published: ContainerCheckpoint | None = None


@dataclass(slots=True)
class Writing:
    """What the writer knows of the trial's status; `version` grows with every change worth a patch."""

    owned: bool = False  # the status holds this pod's record: no other agent writes it
    version: int = 0
    changes: list[Callable[[UsageLedger], UsageLedger]] = field(default_factory=list)  # while it is not owned


@dataclass(eq=False, slots=True)
class TrialRecord:
    """Record of one pod; `urgent` wakes the writer at once."""

    pod: TrialPod
    node: str
    state: SlotState | None = None
    gpus: tuple[str, ...] = ()
    memory_shortage: str = ""  # the GPU memory that it waits for
    main: Container | None = None  # its first container, once its processes were seen
    life: PodLife = field(default_factory=PodLife)
    driver_error: DriverError = field(default_factory=DriverError)
    ledger: UsageLedger | None = None
    metrics: MetricsProgress = field(default_factory=MetricsProgress)
    container_checkpoint: CheckpointResult = field(default_factory=CheckpointResult)
    writing: Writing = field(default_factory=Writing)
    urgent: asyncio.Event = field(default_factory=asyncio.Event)

    def load(self, ledger: UsageLedger, curve: Curve, position: Position) -> None:
        """Continue from what is written, with all changes since; again if another agent wrote it meanwhile."""
        for change in self.writing.changes:
            ledger = change(ledger)
        self.ledger, metrics = ledger, self.metrics
        metrics.curve, metrics.position, metrics.pending_position = curve, position, position

    def own(self) -> None:
        """Note that the status holds this pod's record, so that no other agent writes it any more."""
        self.writing.owned = True
        self.writing.changes.clear()

    def add_lines(self, batch: Batch, read: Reader, grid: Grid) -> None:
        """Add further lines of the log."""
        before = self.metrics.curve
        after = extend(before, batch.lines, read, grid)
        self.metrics.curve, self.metrics.position = after, batch.position
        announced = after.step_pending
        if announced is not None and announced is not before.step_pending:
            start = next(line.start for line in batch.lines if line is announced.line)
            self.metrics.pending_position = replace(batch.position, offset=start)
        if self.ledger is not None and after.repeated_steps > before.repeated_steps:
            back = after.repeated_steps - before.repeated_steps
            self.ledger = add_repeated_steps(
                self.ledger, self.pod.attempt, before.current_step, back, batch.lines[-1].time
            )
            self.touch()
        if after.accepted != before.accepted or after.additional_metrics != before.additional_metrics:
            self.touch()

    def set_unread_log(self, unread_log: UnreadLog | None) -> None:
        """Set what is reported of a log without a value; None once there is a value."""
        if self.metrics.unread_log != unread_log:
            self.metrics.unread_log = unread_log
            self.touch()

    def follow(self, state: SlotState | None, gpus: tuple[str, ...], now: float) -> None:
        """Note the trial's state; called after every observation, so only changes count."""
        if (state, gpus) == (self.state, self.gpus) and not (state is None and not self.life.ended):
            return
        self.state, self.gpus, self.life.ended = state, gpus, state is None
        self._note(lambda ledger: follow(ledger, state, gpus, self.node, now))

    def suspended(self, cost: SuspensionCost) -> None:
        """Note a suspension."""
        self._note(lambda ledger: suspended(ledger, cost))

    def resumed(self, seconds: float) -> None:
        """Note a resumption that took this long."""
        self._note(lambda ledger: resumed(ledger, seconds))

    def saw_marker(self, marker: CompletionMarker, now: float) -> None:
        """Note a completion marker."""
        self._note(lambda ledger: saw_marker(ledger, marker, self.node, self.pod.attempt, now))

    def note_driver_error(self, message: str, now: float) -> None:
        """Note that the driver has just ended a process of the trial; `now` is a time of a monotonic clock."""
        self.driver_error.message, self.driver_error.at = message, now
        self.urgent.set()

    def driver_disruption(self, now: float) -> str:
        """Return what the driver did to the trial, if the pod has ended for that reason or may still do so."""
        error = self.driver_error
        if error.message and not self.life.ended and now - error.at > DRIVER_ERROR_SECONDS:
            error.message = ""  # the trial continues without that process
        return error.message

    def set_container_checkpoint(self, answer: ContainerCheckpoint | None) -> None:
        """Set the result of a container checkpoint for the operator; None: the operator asks for it no more."""
        self.container_checkpoint.result = answer
        self.urgent.set()

    def publish_container_checkpoint(self) -> None:
        """Publish the result before the log is read.

        The operator gets it together with all lines printed until then.
        """
        checkpoint = self.container_checkpoint
        if checkpoint.published != checkpoint.result:
            checkpoint.published = checkpoint.result
            self.touch()

    def held_since(self) -> float | None:
        """Return since when the trial holds its GPUs, or None if it holds none."""
        if self.ledger is None or not self.ledger.allocations or self.ledger.allocations[-1].end is not None:
            return None
        return self.ledger.allocations[-1].start

    def touch(self) -> None:
        """Mark the record as changed."""
        self.writing.version += 1

    def _note(self, change: Callable[[UsageLedger], UsageLedger]) -> None:
        if not self.writing.owned:
            self.writing.changes.append(change)
        before = self.ledger
        if before is not None:
            self.ledger = change(before)
        if before is None or self.ledger != before:
            self.touch()
        self.urgent.set()
