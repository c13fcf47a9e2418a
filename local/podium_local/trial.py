"""One trial of a run: its parameters, phase, curve and usage, and its present attempt.

It is stored as a HyperParamTrial after each change, and continues from what was stored.
"""

from __future__ import annotations

from dataclasses import replace

from podium_core.attempts.lost_work import AttemptStart, CompletionMarker, GateReport
from podium_core.attempts.trial_status import (
    curve_fields,
    curve_from,
    ledger_fields,
    ledger_from,
    position_fields,
    position_of,
)
from podium_core.attempts.unread_log import UnreadLogNotes, unread_message
from podium_core.attempts.usage_ledger import (
    SuspensionCost,
    UsageLedger,
    add_repeated_steps,
    begin_attempt,
    follow,
    resumed,
    saw_marker,
    suspended,
)
from podium_core.curves.best_value import best_point
from podium_core.curves.growing_curve import Curve, extend
from podium_core.curves.thinning import Grid
from podium_core.domain.actions import TrialRank
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.observe import TrialFacts
from podium_core.domain.phase import FINAL, LIVE, TrialPhase
from podium_core.domain.population import Lineage
from podium_core.domain.snapshot import Point, Scalar
from podium_core.domain.switch_costs import SwitchTotals, mean_switch
from podium_core.logs.skipping import SkippingReader
from podium_core.objectives.values import Measured, objective_values
from podium_core.schema.base import Condition, ObjectMeta
from podium_core.schema.gpunode import SlotState
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.lineage import parent_from
from podium_core.schema.trial import (
    JOB_LABEL,
    BestPoint,
    HyperParamTrial,
    LogCursor,
    TrialSpec,
    TrialStatus,
)
from podium_core.sources.batch import Batch
from podium_local.attempt import Attempt
from podium_local.clock import moment
from podium_local.metrics.place import metrics_place
from podium_local.metrics.source import Source, missing_text

MAX_FINAL_READS = 1 << 16
MAX_READS = 8  # reads of one source between two looks at the other trials
SILENT_SECONDS = 60.0  # without any line, after which a trial is reported


class MetricsReading:
    """How the metrics of a job's trials are read."""

    def __init__(self, job: HyperParamJob) -> None:
        self.spec = job.spec
        self.place = metrics_place(job)
        self.metrics = self.place.config
        self.grid = Grid(maximize=job.spec.objective.direction is Direction.MAXIMIZE)


class Trial:
    """One trial. `changed` is set by every change that has to be stored."""

    def __init__(self, stored: HyperParamTrial, reading: MetricsReading, node: str) -> None:
        status, meta = stored.status, stored.metadata
        self.key = TrialKey(meta.namespace, meta.name, meta.uid)
        self.job = JobKey(meta.namespace, stored.spec.job)
        self.metadata = meta
        self.spec = stored.spec
        self.phase = status.phase
        self.reason, self.message = status.reason, status.message
        self.number_of_attempt, self.failures, self.had_attempt = status.attempt, status.failures, bool(status.pod)
        self.retry_at = 0.0
        self.rank = status.rank
        self.started_at = status.started_at.timestamp() if status.started_at else None
        self.finished_at = status.finished_at.timestamp() if status.finished_at else None
        self.conditions: tuple[Condition, ...] = tuple(status.conditions)
        self.gpus = tuple(status.gpus)
        self.ledger: UsageLedger = ledger_from(status)
        self.curve: Curve = curve_from(status, None, continues=True)
        self.cursor = status.log_cursor
        self.attempt: Attempt | None = None
        self.changed = False
        self.shows_end = False  # the reason tells how the last attempt ended, and was not shown yet
        self.urgent = False  # the change has to be stored durably
        self.position = position_of(self.cursor)
        self._pending = self.position  # of the line with the step of a value to come
        self._reading = reading
        self._source: Source | None = None
        self._read = SkippingReader(lambda _: [])
        self._looked_at = ""  # why the source yielded nothing at its end
        self._node = node
        self._notes: UnreadLogNotes | None = None

    @property
    def number(self) -> int:
        """Return the trial's number in the job."""
        return self.spec.number

    @property
    def best(self) -> Point | None:
        """Return the trial's best point."""
        return best_point(self.curve.points, self._reading.grid.maximize)

    @property
    def switch_seconds(self) -> float | None:
        """Return the mean seconds of its suspension and resumption; None if it has had none."""
        return mean_switch([(one.suspend_seconds, one.resume_seconds) for one in self.ledger.recent])

    @property
    def switches(self) -> SwitchTotals:
        """Return the totals of its suspensions and resumptions."""
        ledger = self.ledger
        open_ones = sum(one.resume_seconds is None for one in ledger.recent)
        return SwitchTotals(ledger.count, ledger.suspend_seconds, ledger.count - open_ones, ledger.resume_seconds)

    def measured(self, now: float) -> Measured:
        """Return what is known of the values of several objectives."""
        return Measured(
            phase=self.phase,
            last_step=self.curve.last_step,
            last_value=self.curve.last_value,
            gpu_seconds=self.ledger.gpu_seconds(now),
            additional={one.metric: one.latest for one in self.curve.additional_metrics},
        )

    def objective_values(self, now: float) -> tuple[float, ...]:
        """Return the value of each of several objectives; empty if there is one."""
        return objective_values(self._reading.spec, self.measured(now))

    def open_source(self, source: Source) -> None:
        """Read the metrics from this source from now on."""
        self.close_source()
        self._source, self._read.parse, self.position = source, source.parse, source.position

    def close_source(self) -> None:
        """Close the source of the metrics; the position after the last line is kept."""
        source, self._source = self._source, None
        if source is not None:
            self._looked_at = source.explain()
            source.close()

    def read_metrics(self, now: float, *, complete: bool) -> bool:
        """Read further lines of the source, and return whether its present end was reached."""
        source = self._source
        if source is None:
            return True
        for _ in range(MAX_READS):
            batch = source.read(now, complete=complete)
            self._add_batch(batch, now)
            if self._notes is not None and not self.curve.points:
                self._notes.add(batch.lines, now, source.explain() or self._read.explain())
            if not batch.more:
                return True
        return False

    def end_with_runner(self, at: float) -> None:
        """Note that the last attempt ended when the runner was killed: it held its devices no longer."""
        before, self.ledger = self.ledger, follow(self.ledger, None, (), self._node, at)
        if self.ledger != before:
            self.touch(urgent=True)

    def finish_reading(self, source: Source, ended_at: float) -> None:
        """Read the source of an attempt that ended with the runner to its end."""
        assert self.cursor is not None
        self.open_source(source)
        now = max(ended_at, self.curve.points[-1].time if self.curve.points else 0.0)
        for _ in range(MAX_FINAL_READS):
            if self.read_metrics(now, complete=True):
                break
        self.cursor = self._present_cursor(self.cursor.pod_uid, complete=True)
        self.close_source()

    def start_attempt(self, marker: CompletionMarker | None, now: float) -> None:
        """Begin the record of the present attempt, which continues from this checkpoint."""
        assert self.attempt is not None
        start = AttemptStart(GateReport(marker), self._node, self.attempt.number)
        reached = self.curve.current_step if self.attempt.number else None
        self.ledger = begin_attempt(self.ledger, start, reached, self.ledger.gpu_seconds(now), now)
        begins_at = self.ledger.checkpoint.step if self.ledger.checkpoint is not None else 0.0
        self.curve = replace(
            self.curve,
            step_pending=None,
            step_missing=False,
            current_step=begins_at,
            awaiting_first_value=True,
            repeated_steps=0.0,
        )
        self._notes = UnreadLogNotes(self._reading.metrics)
        self.started_at = now if self.started_at is None else self.started_at
        self.touch(urgent=True)

    def follow(self, now: float) -> None:
        """Account the state of the present attempt."""
        attempt = self.attempt
        running = attempt is not None and attempt.exit_code is None
        state: SlotState | None = attempt.state if attempt is not None and running else None
        before, self.ledger = (
            self.ledger,
            follow(self.ledger, state, attempt.devices if attempt is not None else (), self._node, now),
        )
        if self.ledger != before:
            self.touch()

    def note_suspension(self, cost: SuspensionCost) -> None:
        """Account a suspension."""
        self.ledger = suspended(self.ledger, cost)
        self.touch()

    def note_resumption(self, seconds: float) -> None:
        """Account a resumption."""
        self.ledger = resumed(self.ledger, seconds)
        self.touch()

    def note_marker(self, marker: CompletionMarker, now: float) -> None:
        """Account a completion marker."""
        before = self.ledger
        self.ledger = saw_marker(before, marker, self._node, self.number_of_attempt, now)
        if self.ledger is not before:
            self.touch()

    def touch(self, *, urgent: bool = False) -> None:
        """Note a change."""
        self.changed = True
        self.urgent = self.urgent or urgent

    def drop_attempt(self) -> None:
        """Note that nothing of the present attempt runs any more."""
        self._cursor()
        self.close_source()
        self.attempt = None
        self.touch(urgent=True)

    def is_complete(self, max_steps: float | None) -> bool:
        """Return whether the present attempt has printed the last step."""
        return (
            max_steps is not None
            and not self.curve.awaiting_first_value
            and self.curve.last_step is not None
            and self.curve.attempt_step >= max_steps
        )

    def facts(self, retries: int, max_steps: float | None) -> TrialFacts:
        """Return the facts from which the trial's phase is derived."""
        attempt = self.attempt
        present = None if attempt is None else attempt.facts(self._node)
        state = attempt.state.value if attempt is not None and attempt.exit_code is None else None
        return TrialFacts(
            current=self.phase,
            pod=present,
            had_pod=self.had_attempt,
            agent_state=state,
            failures=self.failures,
            retries=retries,
            complete=self.is_complete(max_steps),
            reason=self.reason,
        )

    def set_phase(self, phase: TrialPhase, reason: str, message: str, now: float) -> None:
        """Set the trial's phase with the reason."""
        if (self.phase, self.reason, self.message) == (phase, reason, message):
            return
        self.touch(urgent=self.phase is not phase and (phase in FINAL or phase not in LIVE))
        self.phase, self.reason, self.message = phase, reason, message
        if phase in FINAL and self.finished_at is None:
            self.finished_at = now

    def requeue(self, reason: str, message: str, now: float) -> None:
        """Set the phase Requeued, whose reason is shown before the next rank replaces it."""
        self.shows_end = True
        self.set_phase(TrialPhase.REQUEUED, reason, message, now)

    def set_rank(self, ranking: TrialRank) -> None:
        """Set the trial's rank with the reason, as the plan gives them."""
        if (self.rank, self.reason, self.message) != (ranking.rank or None, ranking.reason, ranking.message):
            self.rank, self.reason, self.message = ranking.rank or None, ranking.reason, ranking.message
            self.touch()

    def manifest(self, now: float) -> HyperParamTrial:
        """Return the trial as it is stored and shown."""
        best = self.best
        status = TrialStatus(
            phase=self.phase,
            reason=self.reason,
            message=self.message,
            rank=self.rank,
            attempt=self.number_of_attempt,
            failures=self.failures,
            pod=f"{self.key.name}-{self.number_of_attempt}" if self.had_attempt else None,
            node=self._node if self.had_attempt else None,
            gpus=list(self.gpus),
            best=None if best is None else BestPoint(step=best.step, value=best.value),
            started_at=None if self.started_at is None else moment(self.started_at),
            finished_at=None if self.finished_at is None else moment(self.finished_at),
            conditions=self._present_conditions(now),
            log_cursor=self._cursor(),
            **curve_fields(self.curve),
            **ledger_fields(self.ledger, now),
        )
        return HyperParamTrial(metadata=self.metadata, spec=self.spec, status=status)

    def _present_conditions(self, now: float) -> list[Condition]:
        """Return the condition of a trial whose source yields no value of the objective: often a misspelled name."""
        metrics, phase = self._reading.metrics, self.phase
        if self.curve.points or (phase in FINAL and phase is not TrialPhase.SUCCEEDED):
            return []
        if phase is TrialPhase.SUCCEEDED:
            stored = [one for one in self.conditions if one.reason == "ObjectiveMissing"]
            return stored or [
                self._unavailable("ObjectiveMissing", missing_text(self._reading.spec, metrics, self._looked_at), now)
            ]
        unread = None if self._notes is None else self._notes.report(now)
        if unread is not None:
            text = unread_message(metrics.metric, metrics.source, metrics.format, unread)
            return [self._unavailable("NoValueRead", text, now)]
        silent = self.curve.lines == 0 and self.attempt is not None and metrics.source == "stdout"
        if silent and self.started_at is not None and now - self.started_at >= SILENT_SECONDS:
            text = f"The trial printed nothing in its first {SILENT_SECONDS:g} s; it must print {metrics.metric}."
            return [self._unavailable("NoValueRead", text, now)]
        return []

    def _unavailable(self, reason: str, text: str, now: float) -> Condition:
        stored = next((one for one in self.conditions if one.reason == reason), None)
        since = None if stored is None else stored.last_transition_time
        self.conditions = (
            Condition(
                type="MetricsUnavailable",
                status="True",
                reason=reason,
                message=text,
                last_transition_time=since or moment(now),
            ),
        )
        return self.conditions[0]

    def _cursor(self) -> LogCursor | None:
        if self.attempt is not None and self._source is not None:
            self.cursor = self._present_cursor(self.attempt.uid, complete=self.attempt.read_to_end)
        return self.cursor

    def _present_cursor(self, pod_uid: str, *, complete: bool) -> LogCursor:
        waiting = self.curve.awaited_step
        position = self.position if waiting is None else self._pending
        return LogCursor(
            pod_uid=pod_uid,
            **position_fields(position),
            lines=self.curve.lines if waiting is None else waiting.lines,
            step_pending=waiting is not None,
            step=self.curve.current_step,
            awaiting_first_value=self.curve.awaiting_first_value,
            complete=complete,
        )

    def _add_batch(self, batch: Batch, now: float) -> None:
        if batch.position != self.position:
            self.position = batch.position
            self.touch()
        if not batch.lines:
            return
        before = self.curve
        self.curve = extend(before, batch.lines, self._read, self._reading.grid)
        announced = self.curve.step_pending
        if announced is not None and announced is not before.step_pending:
            start = next(line.start for line in batch.lines if line is announced.line)
            self._pending = replace(batch.position, offset=start)
        if self.curve.repeated_steps > before.repeated_steps:
            back = self.curve.repeated_steps - before.repeated_steps
            self.ledger = add_repeated_steps(self.ledger, self.number_of_attempt, before.current_step, back, now)
        self.touch()


def new_trial(
    job: HyperParamJob, number: int, parameters: dict[str, Scalar], now: float, lineage: Lineage | None = None
) -> HyperParamTrial:
    """Return a new trial; its name and uid follow from those of the job and its number."""
    meta = job.metadata
    return HyperParamTrial(
        metadata=ObjectMeta(
            name=f"{meta.name}-{number}",
            namespace=meta.namespace,
            uid=f"{meta.uid}-{number}",
            creation_timestamp=moment(now),
            labels={JOB_LABEL: meta.name},
        ),
        spec=TrialSpec(job=meta.name, number=number, parameters=parameters, parent=parent_from(lineage)),
    )
