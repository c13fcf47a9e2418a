"""The record of one trial that is written to its status: curve, log cursor, holds, suspensions, saves. One per pod.

The conductor and the carrier note what happens; the trial writer loads what an earlier agent wrote, reads the log, and
patches. What happens before the status is known to hold this pod's record is kept, so that nothing is lost when the API
is away, or when the pod before this one had a last word to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from podium_agent.observe.cgroups import Container
from podium_agent.observe.logs.tail import Batch, Position
from podium_agent.observe.pods import TrialPod
from podium_agent.report.lost_work import CompletionMarker, GateReport
from podium_agent.report.usage_ledger import (
    SuspensionCost,
    UsageLedger,
    add_repeated_steps,
    follow,
    resumed,
    saw_marker,
    suspended,
)
from podium_core.curves.growing_curve import Curve, extend
from podium_core.curves.line_readers import Reader
from podium_core.curves.thinning import Grid
from podium_core.schema.gpunode import TrialState
from podium_core.schema.trial import ContainerCheckpoint


@dataclass(eq=False, slots=True)
class TrialRecord:
    """`urgent` wakes the writer at once; `version` grows with everything that deserves a patch."""

    pod: TrialPod
    node: str
    state: TrialState | None = None
    gpus: tuple[str, ...] = ()
    started: bool = False  # its gate was passed (or it has none): what the pod before did is over
    gate_report: GateReport | None = (
        None  # what its gate said of the checkpoint folder; None: this agent did not hear it
    )
    memory_shortage: str = ""  # the GPU memory that it waits for
    main: Container | None = None  # of its first container, once its processes were found
    ending: bool = False  # it was told to end
    ended: bool = False  # its processes are gone
    orphaned: bool = False  # it was gone before this agent began: its record is only to be brought to its end
    closed: bool = False  # the pod has ended or is gone, as the API says: no more log will come
    ledger: UsageLedger | None = None
    curve: Curve = field(default_factory=Curve)
    position: Position = field(default_factory=Position)
    pending_position: Position = field(default_factory=Position)  # of the line that gave the step of a value to come
    container_checkpoint: ContainerCheckpoint | None = None  # what came of its being asked to leave alive
    published_checkpoint: ContainerCheckpoint | None = None  # and what the next patch says of it
    owned: bool = False  # the status holds this pod's record: no other agent writes there any more
    version: int = 0
    urgent: asyncio.Event = field(default_factory=asyncio.Event)
    _changes: list[Callable[[UsageLedger], UsageLedger]] = field(default_factory=list)

    def load(self, ledger: UsageLedger, curve: Curve, position: Position) -> None:
        """Go on from what is written; again, with what has happened since, if another agent wrote it meanwhile."""
        for change in self._changes:
            ledger = change(ledger)
        self.ledger, self.curve, self.position, self.pending_position = ledger, curve, position, position

    def own(self) -> None:
        self.owned = True
        self._changes.clear()

    def add_lines(self, batch: Batch, read: Reader, grid: Grid) -> None:
        """These further lines of the log."""
        before, self.curve = self.curve, extend(self.curve, batch.lines, read, grid)
        self.position = batch.position
        announced = self.curve.step_pending
        if announced is not None and announced is not before.step_pending:
            start = next(line.start for line in batch.lines if line is announced.line)
            self.pending_position = replace(batch.position, offset=start)
        if self.ledger is not None and self.curve.repeated_steps > before.repeated_steps:
            back = self.curve.repeated_steps - before.repeated_steps
            self.ledger = add_repeated_steps(
                self.ledger, self.pod.attempt, before.current_step, back, batch.lines[-1].time
            )
            self.touch()
        if self.curve.accepted != before.accepted or self.curve.additional_metrics != before.additional_metrics:
            self.touch()

    def follow(self, state: TrialState | None, gpus: tuple[str, ...], now: float) -> None:
        """Note the state; called after every look, so only changes count."""
        if (state, gpus) == (self.state, self.gpus) and not (state is None and not self.ended):
            return
        self.state, self.gpus, self.ended = state, gpus, state is None
        self._note(lambda ledger: follow(ledger, state, gpus, self.node, now))

    def suspended(self, cost: SuspensionCost) -> None:
        self._note(lambda ledger: suspended(ledger, cost))

    def resumed(self, seconds: float) -> None:
        self._note(lambda ledger: resumed(ledger, seconds))

    def saw_marker(self, marker: CompletionMarker, now: float) -> None:
        self._note(lambda ledger: saw_marker(ledger, marker, self.node, self.pod.attempt, now))

    def set_container_checkpoint(self, answer: ContainerCheckpoint | None) -> None:
        """What the operator is to be told; None: it asks no more."""
        self.container_checkpoint = answer
        self.urgent.set()

    def publish_container_checkpoint(self) -> None:
        """Before the log is read: the operator is told only with all that was printed until then."""
        if self.published_checkpoint != self.container_checkpoint:
            self.published_checkpoint = self.container_checkpoint
            self.touch()

    def held_since(self) -> float | None:
        if self.ledger is None or not self.ledger.allocations or self.ledger.allocations[-1].end is not None:
            return None
        return self.ledger.allocations[-1].start

    def touch(self) -> None:
        self.version += 1

    def _note(self, change: Callable[[UsageLedger], UsageLedger]) -> None:
        if not self.owned:
            self._changes.append(change)
        before = self.ledger
        if before is not None:
            self.ledger = change(before)
        if before is None or self.ledger != before:
            self.touch()
        self.urgent.set()
