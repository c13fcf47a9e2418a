"""Checkpoints of a trial, and the work that it lost when one of its pods ended, as values of the usage ledger. Pure.

Lost work is what a new attempt must repeat: the steps printed after the checkpoint that it continues from, and the
GPU-seconds since that checkpoint. It is counted when the attempt's record begins (its first status patch). So it is
counted once and by one agent, on whichever node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_RECENT = 16


@dataclass(frozen=True, slots=True)
class CompletionMarker:
    """Content of a completion marker: `step` was saved at `path` in the trial's folder.

    `on_request`: the script writes a checkpoint when asked.
    """

    step: float
    path: str = "."
    on_request: bool = False


@dataclass(frozen=True, slots=True)
class GateReport:
    """Report of a gate on the folder before its trial started.

    `marker` None: the folder had no checkpoint.
    """

    marker: CompletionMarker | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest checkpoint seen, with the trial's GPU-seconds then and the `attempt` that wrote it."""

    step: float
    at: float
    path: str = "."
    node: str = ""
    gpu_seconds: float = 0.0
    attempt: int = 0

    def is_of(self, marker: CompletionMarker) -> bool:
        """Return whether this marker belongs to the checkpoint."""
        return (self.step, self.path) == (marker.step, marker.path)


@dataclass(frozen=True, slots=True)
class AttemptLostWork:
    """Work that attempt number `attempt` repeats: from step `resumed_from` to the last printed `step`."""

    attempt: int
    at: float
    step: float
    resumed_from: float
    steps: float
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class LostWorkTotals:
    """Lost work of a trial; `count` and `recent` are of attempts that lost steps.

    `gpu_seconds` also holds GPU time that led to no further step. `accounted_gpu_seconds`: the trial's GPU-seconds at
    the last count, so that none is counted twice.
    """

    count: int = 0
    steps: float = 0.0
    gpu_seconds: float = 0.0
    accounted_gpu_seconds: float = 0.0
    recent: tuple[AttemptLostWork, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """Start of an attempt on a node. `gate_report`: what its gate said; None: the gate was not heard."""

    gate_report: GateReport | None
    node: str
    attempt: int


def resumed_checkpoint(
    start: AttemptStart,
    known: Checkpoint | None,
    reached: float | None,
    spent: float,
    now: float,
) -> Checkpoint | None:
    """Return the checkpoint that this attempt continues from; None: it starts from the beginning.

    The folder, as read on this node, is more reliable than the status: a
    node may have died between a checkpoint and the agent's next read. The time of such a checkpoint is unknown. Its
    GPU-seconds are interpolated by its step between the previous checkpoint and the end (`spent`).
    """
    gate_report, node, earlier = start.gate_report, start.node, max(0, start.attempt - 1)
    if gate_report is None or (
        gate_report.marker is not None and known is not None and known.is_of(gate_report.marker)
    ):
        return known
    if gate_report.marker is None:
        return None
    begin, gpu = (known.step, known.gpu_seconds) if known is not None else (0.0, 0.0)
    if gate_report.marker.step < begin:  # an older checkpoint was put back
        return Checkpoint(
            gate_report.marker.step,
            now,
            gate_report.marker.path,
            node,
            gpu * gate_report.marker.step / begin,
            earlier,
        )
    part = 1.0
    if reached is not None and reached > begin:
        part = min(1.0, max(0.0, (gate_report.marker.step - begin) / (reached - begin)))
    return Checkpoint(
        gate_report.marker.step,
        now,
        gate_report.marker.path,
        node,
        gpu + part * max(0.0, spent - gpu),
        earlier,
    )


def count(
    totals: LostWorkTotals, checkpoint: Checkpoint | None, attempt: int, reached: float | None, spent: float, now: float
) -> LostWorkTotals:
    """Return the lost work once this attempt continues from `checkpoint`.

    The previous attempt ended at step `reached`; `spent`: the trial's GPU-seconds so far.
    """
    step = 0.0 if reached is None else reached
    resumed_from = 0.0 if checkpoint is None else checkpoint.step
    since = max(totals.accounted_gpu_seconds, 0.0 if checkpoint is None else checkpoint.gpu_seconds)
    attempt_lost_work = AttemptLostWork(
        attempt, now, step, resumed_from, max(0.0, step - resumed_from), max(0.0, spent - since)
    )
    totals = replace(
        totals,
        gpu_seconds=totals.gpu_seconds + attempt_lost_work.gpu_seconds,
        accounted_gpu_seconds=max(spent, totals.accounted_gpu_seconds),
    )
    if attempt_lost_work.steps <= 0.0:
        return totals
    recent = (*totals.recent, attempt_lost_work)[-MAX_RECENT:]
    return replace(totals, count=totals.count + 1, steps=totals.steps + attempt_lost_work.steps, recent=recent)


def add_repeated_work(
    totals: LostWorkTotals, attempt: int, begun_at: float, steps: float, now: float
) -> LostWorkTotals:
    """Return the lost work once this attempt repeats `steps` more than expected.

    Expected are those after the checkpoint at step `begun_at`. The script continued from an older checkpoint (its
    `PODIUM_RESUME`, if a node died before the newest one was seen), or from none.
    """
    known = totals.recent[-1] if totals.recent and totals.recent[-1].attempt == attempt else None
    attempt_lost_work = known or AttemptLostWork(attempt, now, begun_at, begun_at, 0.0, 0.0)
    gpu_seconds = totals.accounted_gpu_seconds * min(1.0, steps / attempt_lost_work.step)
    attempt_lost_work = replace(
        attempt_lost_work,
        resumed_from=attempt_lost_work.resumed_from - steps,
        steps=attempt_lost_work.steps + steps,
        gpu_seconds=attempt_lost_work.gpu_seconds + gpu_seconds,
    )
    return replace(
        totals,
        count=totals.count + (known is None),
        steps=totals.steps + steps,
        gpu_seconds=totals.gpu_seconds + gpu_seconds,
        recent=(*(totals.recent if known is None else totals.recent[:-1]), attempt_lost_work)[-MAX_RECENT:],
    )
