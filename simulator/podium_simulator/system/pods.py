"""Life of every trial's pod on its node: placement, gate, training, suspension, checkpoint, end, loss.

The simulated operator says what to create and delete; `agent.next_steps` says which trials run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium_core.domain.migration import MigrationPhase
from podium_core.domain.observe import FINAL_REPORT_SECONDS, retry_delay
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point
from podium_simulator.system.agent import Step, gpus_in_transition, next_steps
from podium_simulator.system.channels import Channels
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.faults import RandomFaults
from podium_simulator.system.outcome import Span, Value
from podium_simulator.system.scenario import Timing
from podium_simulator.system.scheduler import place
from podium_simulator.system.state import OCCUPIES, USES, Node, PodStage, SimMigration, Trial

_CAN_CRASH = frozenset({PodStage.STARTING, PodStage.LOADING, PodStage.RUNNING, PodStage.CHECKPOINTING})


class Pods:
    """All pods.

    `spans` and `values` are what happened. `requeues`: measured seconds of each requeue.
    """

    def __init__(
        self,
        queue: EventQueue,
        timing: Timing,
        nodes: Sequence[Node],
        chance: RandomFaults,
        channels: Channels,
    ) -> None:
        self._queue = queue
        self._timing = timing
        self._nodes = nodes
        self._chance = chance
        self._reports = channels.reports
        self._writer = channels.writer
        self._telemetry = channels.telemetry
        self._unplaced: list[Trial] = []
        self.spans: list[Span] = []
        self.values: list[Value] = []
        self.requeues: list[float] = []

    # Requests of the operator.

    def create(self, trial: Trial, attempt: int) -> None:
        migration = trial.migration
        if migration is not None and trial.in_image:
            migration.known_values = len(trial.points)
            if trial.state is not None:  # its old pod ends
                self.delete(trial)
        trial.attempt, trial.pod_since, trial.stuck = attempt, self._queue.now, False
        self._enter(trial, PodStage.PLACING)
        self._queue.after(self._timing.place, self._worst_position, trial, guard=trial)
        self._queue.after(self._chance.pod_lifetime(), self.lost, trial, attempt)

    def restore(self, trial: Trial, state: PodStage) -> None:
        """Put a trial that exists when the simulation begins into its present state."""
        self._enter(trial, state)
        if state is PodStage.RUNNING:
            self._schedule_evaluation(trial)

    def delete(self, trial: Trial) -> None:
        """Delete the pod without a checkpoint: the trial ends."""
        node = trial.node
        self._release(trial)
        self._writer.close(trial, node)

    def request_end(self, trial: Trial) -> None:
        """Ask the pod to end: the trial may checkpoint first, if it has started."""
        trial.terminating = True
        self._queue.after(self._timing.order, self._end_requested, trial, trial.attempt)

    def request_migration(self, trial: Trial, migration: SimMigration) -> None:
        """Tell the trial's agent to make an image of it."""
        if trial.migration is migration and migration.phase is MigrationPhase.REQUESTED and trial.node is not None:
            trial.asked_to_migrate = trial.attempt < migration.attempt
            self._run_agent_of(trial)

    def migration_failed(self, trial: Trial, migration: SimMigration) -> None:
        """Handle a failed migration: only state that an image alone holds is lost."""
        trial.asked_to_migrate = False
        if migration.pushed and trial.state is None and trial.attempt < migration.attempt:
            self._discard_unsaved(trial)
        self._run_agent_of(trial)

    def run_agent(self, node: Node) -> None:
        """Execute one pass of the node's agent."""
        for trial, step in next_steps(node):
            method = trial.job.spec.method
            if step is Step.START:
                fact, usual = trial.job.spec.fact(trial.number), self._timing
                self._queue.after(
                    usual.record_start if fact.record_start is None else fact.record_start,
                    self._agent_saw_start,
                    trial,
                    trial.attempt,
                )
                self._then(trial, PodStage.STARTING, self._seconds_until_found(trial), self._load)
                self._queue.after(self._chance.process_lifetime(), self._crash, trial, trial.attempt)
            elif step is Step.RESTORE:
                self._queue.after(self._timing.record_start, self._agent_saw_start, trial, trial.attempt)
                self._timed(trial, PodStage.RESTORING, method.migration_seconds / 2.0, self._restored)
                self._queue.after(self._chance.process_lifetime(), self._crash, trial, trial.attempt)
            elif step is Step.MAKE_IMAGE:
                self._timed(trial, PodStage.MAKING_IMAGE, method.migration_seconds / 2.0, self._pushed)
            elif step is Step.CANCEL_IMAGE:
                self._enter(trial, PodStage.SUSPENDED)
                self._queue.after(0.0, self.run_agent, node)  # it may be its time slice
            elif step is Step.SUSPEND:
                self._timed(trial, PodStage.SUSPENDING, method.suspend, self._suspended)
            elif step is Step.RESUME:
                self._timed(trial, PodStage.RESUMING, method.resume, self._resumed)
            else:
                self._then(trial, PodStage.CHECKPOINTING, self._timing.save, self._saved)
        self._record_reached(node)

    def _record_reached(self, node: Node) -> None:
        """Record the GPUs on which the agent has reached the newest run queue."""
        if not node.up or node.silent or all(gpu.effective_epoch == gpu.agent_epoch for gpu in node.gpus):
            return
        moving = gpus_in_transition(node)
        for gpu in node.gpus:
            if gpu.uuid not in moving and gpu.effective_epoch != gpu.agent_epoch:
                gpu.effective_epoch = gpu.agent_epoch
                self._reports.run_queue_reached(node)

    # Transitions between states.

    def _enter(self, trial: Trial, state: PodStage | None) -> None:
        now = self._queue.now
        if trial.node is not None and self._telemetry.lags:
            self._telemetry.record_change(trial.node)
        if trial.state is PodStage.RUNNING:
            trial.trained += now - trial.trains_from
        elif trial.state is PodStage.LOADING:
            trial.load_left -= now - trial.since
        use = None if trial.state is None else USES.get(trial.state)
        if use is not None and now > trial.since:
            for gpu in trial.gpus:
                self.spans.append(Span(gpu.uuid, trial.key, trial.number, trial.since, now, use))
        occupies = state in OCCUPIES
        if occupies and trial.held_since is None:
            trial.held_since = now
            trial.first_held = now if trial.first_held is None else trial.first_held
        elif not occupies and trial.held_since is not None:
            trial.gpu_seconds = trial.charged(now)
            trial.held_since = None
        before, trial.state, trial.since = trial.state, state, now
        trial.version += 1
        if state is not None:
            self._reports.state_changed(trial)
            if before is PodStage.LOADING and state is PodStage.RUNNING:
                return  # the agent has seen it running before
            # The trial's record grows when an allocation starts and when a suspension or a resumption is complete.
            self._writer.wake(
                trial, news=state in (PodStage.SUSPENDED, PodStage.RESUMING) or before is PodStage.RESUMING
            )

    def _then(self, trial: Trial, state: PodStage, seconds: float, call: Callable[[Trial], None]) -> None:
        self._enter(trial, state)
        self._queue.after(seconds, call, trial, guard=trial)

    def _timed(self, trial: Trial, state: PodStage, seconds: float, call: Callable[[Trial, float], None]) -> None:
        """Enter a state; `call` receives the duration, which is not known before."""
        jittered = self._chance.jittered(seconds, trial.job.spec.method)
        self._enter(trial, state)
        self._queue.after(jittered, call, trial, jittered, guard=trial)

    def _worst_position(self, trial: Trial) -> None:
        if not self._placed(trial):
            self._unplaced.append(trial)
            self._queue.after(self._timing.stuck, self._stuck, trial, guard=trial)

    def _placed(self, trial: Trial) -> bool:
        self._telemetry.refresh()
        gpus = place(trial, self._nodes)
        if not gpus:
            return False
        self._telemetry.record_change(gpus[0].node)
        trial.node, trial.gpus, trial.stuck = gpus[0].node, gpus, False
        trial.node.trials.append(trial)
        known = trial.job.spec.fact(trial.number).gate
        gate = self._timing.gate if known is None else max(0.0, trial.pod_since + known - self._queue.now)
        self._then(trial, PodStage.CREATING, gate, self._at_gate)
        return True

    def retry(self) -> None:
        """Retry pods without a node, the oldest first, when a slot is free or a node accepts trials again."""
        waiting, self._unplaced = self._unplaced, []
        for trial in waiting:
            if trial.state is PodStage.PLACING and not self._placed(trial):
                self._unplaced.append(trial)

    def _stuck(self, trial: Trial) -> None:
        trial.stuck = True
        self._reports.state_changed(trial)

    def _at_gate(self, trial: Trial) -> None:
        self._enter(trial, PodStage.GATED)
        self._run_agent_of(trial)

    def _seconds_until_found(self, trial: Trial) -> float:
        """Return the seconds until the trial can be suspended; the rest until its first step is `load_left`."""
        fact, usual = trial.job.spec.fact(trial.number), self._timing
        load = usual.load if fact.load is None else fact.load
        until_found = min(load, usual.processes_found if fact.processes_found is None else fact.processes_found)
        trial.load_left = load - until_found
        return until_found

    def _agent_saw_start(self, trial: Trial, attempt: int) -> None:
        if trial.attempt == attempt and trial.state not in (None, PodStage.ENDED):
            self._writer.start(trial)

    def _load(self, trial: Trial) -> None:
        if trial.load_left <= 0.0:
            self._begin(trial)
            return
        self._then(trial, PodStage.LOADING, trial.load_left, self._begin)
        self._run_agent_of(trial)  # its time slice may have passed meanwhile

    def _begin(self, trial: Trial) -> None:
        trial.load_left = 0.0
        if trial.attempt and trial.checkpoint_seconds is not None:
            self.requeues.append(self._timing.save + self._timing.gate + self._timing.load)
        self._train(trial)

    def _train(self, trial: Trial) -> None:
        self._enter(trial, PodStage.RUNNING)
        self._schedule_evaluation(trial)
        self._run_agent_of(trial)  # its time slice may have passed meanwhile

    def _schedule_evaluation(self, trial: Trial) -> None:
        trial.trains_from = self._queue.now
        left = trial.curve.seconds[trial.evaluations] - trial.trained
        self._queue.after(left, self._evaluate, trial, guard=trial)

    def _evaluate(self, trial: Trial) -> None:
        now, index = self._queue.now, trial.evaluations
        trial.trained = trial.curve.seconds[index]  # avoids accumulated rounding errors
        trial.trains_from = now
        trial.evaluations += 1
        # otherwise the trial repeats the step: the agent ignores steps that it has read before
        if index == len(trial.points):
            step, value = trial.steps[index], trial.curve.values[index]
            trial.points.append(Point(step, value, now))
            self.values.append(Value(now, trial.job.view.key, trial.key, step, value))
            self._writer.note_value(trial)
        if trial.evaluations < len(trial.curve.seconds):
            self._schedule_evaluation(trial)
            return
        trial.ended = now
        known = trial.job.spec.fact(trial.number).ended
        seen = self._timing.ended if known is None else known
        if trial.node is not None and trial.node.silent:
            seen += FINAL_REPORT_SECONDS
        self._then(trial, PodStage.ENDED, seen, self._succeeded)
        self._writer.process_ended(trial)
        self._run_agent_of(trial)  # the next trial gets the GPU without a round trip

    def end_reported(self, trial: Trial) -> None:
        """Handle the end after the silent agent has read it: no further wait is needed."""
        self._then(trial, PodStage.ENDED, self._timing.log, self._succeeded)

    def _succeeded(self, trial: Trial) -> None:
        self._end_pod(trial, TrialPhase.SUCCEEDED)

    def _suspended(self, trial: Trial, took: float) -> None:
        trial.suspensions += 1
        trial.suspend_seconds += took
        trial.recent.append((took, None))
        self._enter(trial, PodStage.SUSPENDED)
        self._run_agent_of(trial)

    def _pushed(self, trial: Trial, _: float) -> None:
        self._enter(trial, PodStage.SUSPENDED)
        if trial.asked_to_migrate and trial.migration is not None and trial.node is not None:
            trial.migration.pushed = True
            self._reports.node_changed(trial.node)

    def _restored(self, trial: Trial, _: float) -> None:
        trial.migrations += 1
        self._timed(trial, PodStage.RESUMING, trial.job.spec.method.resume, self._resumed)

    def _resumed(self, trial: Trial, took: float) -> None:
        trial.resumptions += 1
        trial.resume_seconds += took
        trial.recent[-1] = (trial.recent[-1][0], took)
        if trial.load_left > 0.0:
            self._load(trial)
        else:
            self._train(trial)

    def _end_requested(self, trial: Trial, attempt: int) -> None:
        if trial.attempt != attempt or trial.state in (None, PodStage.ENDED) or not trial.terminating:
            return
        if trial.state in (PodStage.PLACING, PodStage.CREATING, PodStage.GATED):
            self._pod_lost(trial)  # nothing of this attempt has run, or its node is down
            return
        trial.asked_to_end = True
        self._run_agent_of(trial)

    def _saved(self, trial: Trial) -> None:
        trial.checkpoint_seconds = trial.trained
        trial.checkpoints += 1
        self._end_pod(trial, TrialPhase.REQUEUED)

    # Ends of a pod.

    def _end_pod(self, trial: Trial, phase: TrialPhase, *, fault: bool = False) -> None:
        """End the pod. `fault`: by a fault, so the trial restarts from its last checkpoint."""
        node = trial.node
        self._release(trial)
        if fault and not trial.in_image:
            self._discard_unsaved(trial)
        self._writer.close(trial, node)
        self._reports.pod_changed(trial, phase)

    def lost(self, trial: Trial, attempt: int) -> None:
        """Lose a pod by the cluster's fault: another pod continues from the last checkpoint."""
        if trial.attempt == attempt and trial.state not in (None, PodStage.ENDED):
            self._delay_retry(trial)
            self._pod_lost(trial)

    def _pod_lost(self, trial: Trial) -> None:
        self._end_pod(trial, TrialPhase.REQUEUED, fault=True)

    def _delay_retry(self, trial: Trial) -> None:
        """Delay a retry as the operator does (`domain.observe`): from the second loss without progress on."""
        known = trial.written_status.curve
        step, before = known[-1].step if known else None, trial.disruption
        if before is None or (step is not None and (before[1] is None or step > before[1])):
            trial.disruption = (1, step)
            return
        trial.retry_at = self._queue.now + retry_delay(before[0])
        trial.disruption = (before[0] + 1, step)

    def _crash(self, trial: Trial, attempt: int) -> None:
        """Fail the process by its own fault: counted, and retried after a delay."""
        if trial.attempt != attempt or trial.state not in _CAN_CRASH:
            return
        trial.failures += 1
        if trial.failures > trial.job.view.limits.retries:
            trial.ended = self._queue.now
            self._end_pod(trial, TrialPhase.FAILED, fault=True)
            return
        trial.retry_at = self._queue.now + retry_delay(trial.failures)
        self._end_pod(trial, TrialPhase.REQUEUED, fault=True)

    def _discard_unsaved(self, trial: Trial) -> None:
        """Discard the training since the last checkpoint. Reported values remain, as in the trial's status."""
        done = trial.evaluations
        kept_seconds = trial.checkpoint_seconds or 0.0
        if trial.job.spec.checkpoints and done:
            kept_seconds = max(kept_seconds, trial.curve.seconds[done - 1])
            trial.checkpoint_seconds = kept_seconds
        trial.lost_seconds += trial.trained - kept_seconds
        trial.trained = kept_seconds
        while trial.evaluations and trial.curve.seconds[trial.evaluations - 1] > kept_seconds:
            trial.evaluations -= 1
        del trial.points[max(trial.evaluations, len(trial.written_status.curve)) :]

    def _release(self, trial: Trial) -> None:
        node = trial.node
        self._enter(trial, None)
        trial.node, trial.gpus = None, ()
        trial.terminating = trial.asked_to_end = trial.asked_to_migrate = trial.stuck = False
        if node is not None:
            node.trials.remove(trial)
            self._reports.node_changed(node)
            self.run_agent(node)
        self.retry()

    def _run_agent_of(self, trial: Trial) -> None:
        if trial.node is not None:
            self.run_agent(trial.node)

    def stop_with_node(self, trial: Trial) -> None:
        """Stop the trial of a failed node; this is not known yet."""
        if trial.state is PodStage.ENDED:
            self._succeeded(trial)  # its final values were read
            return
        now = self._queue.now
        if trial.state is PodStage.RUNNING:
            trial.trained += now - trial.trains_from
        use = None if trial.state is None else USES.get(trial.state)
        if use is not None:
            for gpu in trial.gpus:
                self.spans.append(Span(gpu.uuid, trial.key, trial.number, trial.since, now, use))
        trial.gpu_seconds, trial.held_since = trial.charged(now), None
        trial.since, trial.state = now, PodStage.CREATING  # so that no further time is counted
        trial.version += 1
