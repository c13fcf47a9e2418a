"""Life of every trial's pod on its node: placement, gate, training, suspension, checkpoint, end, loss.

The simulated operator says what to create and delete; `agent.next_steps` says which trials run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium_core.domain.migration import MigrationPhase
from podium_core.domain.observe import FINAL_REPORT_SECONDS, retry_delay
from podium_core.domain.phase import TrialPhase
from podium_simulator.system.agent import Step, gpus_in_transition, next_steps
from podium_simulator.system.channels import Channels
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.faults import RandomFaults
from podium_simulator.system.inputs.scenario import Timing
from podium_simulator.system.results.outcome import Span, Value
from podium_simulator.system.scheduler import place
from podium_simulator.system.stages import OCCUPIES, USES, PodStage
from podium_simulator.system.state import Node, Trial
from podium_simulator.system.trial_state import SimMigration

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
            migration.known_values = len(trial.training.points)
            if trial.pod.stage is not None:  # its old pod ends
                self.delete(trial)
        pod = trial.pod
        trial.attempts.number, pod.created, pod.stuck = attempt, self._queue.now, False
        self._enter(trial, PodStage.PLACING)
        self._queue.after(self._timing.place, self._place, trial, guard=pod)
        self._queue.after(self._chance.pod_lifetime(), self.lost, trial, attempt)

    def restore(self, trial: Trial, stage: PodStage) -> None:
        """Put a trial that exists when the simulation begins into its present stage."""
        self._enter(trial, stage)
        if stage is PodStage.RUNNING:
            self._schedule_evaluation(trial)

    def delete(self, trial: Trial) -> None:
        """Delete the pod without a checkpoint: the trial ends."""
        node = trial.pod.node
        self._release(trial)
        self._writer.close(trial, node)

    def request_end(self, trial: Trial) -> None:
        """Ask the pod to end: the trial may checkpoint first, if it has started."""
        trial.pod.terminating = True
        self._queue.after(self._timing.order, self._end_requested, trial, trial.attempts.number)

    def request_migration(self, trial: Trial, migration: SimMigration) -> None:
        """Tell the trial's agent to make an image of it."""
        if trial.migration is migration and migration.phase is MigrationPhase.REQUESTED and trial.pod.node is not None:
            trial.pod.asked_to_migrate = trial.attempts.number < migration.attempt
            self._run_agent_of(trial)

    def migration_failed(self, trial: Trial, migration: SimMigration) -> None:
        """Handle a failed migration: only state that an image alone holds is lost."""
        trial.pod.asked_to_migrate = False
        if migration.pushed and trial.pod.stage is None and trial.attempts.number < migration.attempt:
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
                    trial.attempts.number,
                )
                self._then(trial, PodStage.STARTING, self._seconds_until_found(trial), self._load)
                self._queue.after(self._chance.process_lifetime(), self._crash, trial, trial.attempts.number)
            elif step is Step.RESTORE:
                self._queue.after(self._timing.record_start, self._agent_saw_start, trial, trial.attempts.number)
                self._timed(trial, PodStage.RESTORING, method.migration_seconds / 2.0, self._restored)
                self._queue.after(self._chance.process_lifetime(), self._crash, trial, trial.attempts.number)
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

    # Transitions between stages.

    def _enter(self, trial: Trial, stage: PodStage | None) -> None:
        now, pod, gpu_time = self._queue.now, trial.pod, trial.gpu_time
        if self._telemetry.lags:
            for node in pod.nodes:
                self._telemetry.record_change(node)
        before = pod.stage
        if before is PodStage.RUNNING:
            trial.training.pause(now)
        elif before is PodStage.LOADING:
            pod.load_left -= now - pod.since
        use = None if before is None else USES.get(before)
        if use is not None and now > pod.since:
            for gpu in pod.gpus:
                self.spans.append(Span(gpu.uuid, trial.key, trial.number, pod.since, now, use))
        if stage not in OCCUPIES:
            gpu_time.stop(now, len(pod.gpus))
        elif gpu_time.held_since is None:
            gpu_time.start(now)
        pod.stage, pod.since = stage, now
        pod.version += 1
        if stage is not None:
            self._reports.state_changed(trial)
            if before is PodStage.LOADING and stage is PodStage.RUNNING:
                return  # the agent has seen it running before
            # The trial's record grows when an allocation starts and when a suspension or a resumption is complete.
            self._writer.wake(
                trial, news=stage in (PodStage.SUSPENDED, PodStage.RESUMING) or before is PodStage.RESUMING
            )

    def _then(self, trial: Trial, stage: PodStage, seconds: float, call: Callable[[Trial], None]) -> None:
        self._enter(trial, stage)
        self._queue.after(seconds, call, trial, guard=trial.pod)

    def _timed(self, trial: Trial, stage: PodStage, seconds: float, call: Callable[[Trial, float], None]) -> None:
        """Enter a stage; `call` receives the duration, which is not known before."""
        jittered = self._chance.jittered(seconds, trial.job.spec.method)
        self._enter(trial, stage)
        self._queue.after(jittered, call, trial, jittered, guard=trial.pod)

    def _place(self, trial: Trial) -> None:
        if not self._placed(trial):
            self._unplaced.append(trial)
            self._queue.after(self._timing.stuck, self._stuck, trial, guard=trial.pod)

    def _placed(self, trial: Trial) -> bool:
        self._telemetry.refresh()
        gpus = place(trial, self._nodes)
        if not gpus:
            return False
        pod = trial.pod
        pod.bind(gpus)
        pod.stuck = False
        for node in pod.nodes:
            self._telemetry.record_change(node)
            node.trials.append(trial)
        known = trial.job.spec.fact(trial.number).gate
        gate = self._timing.gate if known is None else max(0.0, pod.created + known - self._queue.now)
        self._then(trial, PodStage.CREATING, gate, self._at_gate)
        return True

    def retry(self) -> None:
        """Retry pods without a node, the oldest first, when a slot is free or a node accepts trials again."""
        waiting, self._unplaced = self._unplaced, []
        for trial in waiting:
            if trial.pod.stage is PodStage.PLACING and not self._placed(trial):
                self._unplaced.append(trial)

    def _stuck(self, trial: Trial) -> None:
        trial.pod.stuck = True
        self._reports.state_changed(trial)

    def _at_gate(self, trial: Trial) -> None:
        self._enter(trial, PodStage.GATED)
        self._run_agent_of(trial)

    def _seconds_until_found(self, trial: Trial) -> float:
        """Return the seconds until the trial can be suspended; the rest until its first step is `load_left`."""
        fact, usual = trial.job.spec.fact(trial.number), self._timing
        load = usual.load if fact.load is None else fact.load
        until_found = min(load, usual.processes_found if fact.processes_found is None else fact.processes_found)
        trial.pod.load_left = load - until_found
        return until_found

    def _agent_saw_start(self, trial: Trial, attempt: int) -> None:
        if trial.attempts.number == attempt and trial.pod.alive:
            self._writer.start(trial)

    def _load(self, trial: Trial) -> None:
        if trial.pod.load_left <= 0.0:
            self._begin(trial)
            return
        self._then(trial, PodStage.LOADING, trial.pod.load_left, self._begin)
        self._run_agent_of(trial)  # its time slice may have passed meanwhile

    def _begin(self, trial: Trial) -> None:
        trial.pod.load_left = 0.0
        if trial.attempts.number and trial.training.checkpoint_seconds is not None:
            self.requeues.append(self._timing.save + self._timing.gate + self._timing.load)
        self._train(trial)

    def _train(self, trial: Trial) -> None:
        self._enter(trial, PodStage.RUNNING)
        self._schedule_evaluation(trial)
        self._run_agent_of(trial)  # its time slice may have passed meanwhile

    def _schedule_evaluation(self, trial: Trial) -> None:
        training = trial.training
        training.trains_from = self._queue.now
        left = training.curve.seconds[training.evaluations] - training.trained
        self._queue.after(left, self._evaluate, trial, guard=trial.pod)

    def _evaluate(self, trial: Trial) -> None:
        now = self._queue.now
        point = trial.training.evaluate(now)
        if point is not None:
            self.values.append(Value(now, trial.job.view.key, trial.key, point.step, point.value))
            self._writer.note_value(trial)
        if not trial.training.complete:
            self._schedule_evaluation(trial)
            return
        trial.ended = now
        known = trial.job.spec.fact(trial.number).ended
        seen = self._timing.ended if known is None else known
        if trial.pod.node is not None and trial.pod.node.silent:
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
        trial.switches.suspended(took)
        self._enter(trial, PodStage.SUSPENDED)
        self._run_agent_of(trial)

    def _pushed(self, trial: Trial, _: float) -> None:
        self._enter(trial, PodStage.SUSPENDED)
        pod, migration = trial.pod, trial.migration
        if pod.asked_to_migrate and migration is not None and pod.node is not None:
            migration.pushed = True
            self._reports.node_changed(pod.node)

    def _restored(self, trial: Trial, _: float) -> None:
        trial.attempts.migrations += 1
        self._timed(trial, PodStage.RESUMING, trial.job.spec.method.resume, self._resumed)

    def _resumed(self, trial: Trial, took: float) -> None:
        trial.switches.resumed(took)
        if trial.pod.load_left > 0.0:
            self._load(trial)
        else:
            self._train(trial)

    def _end_requested(self, trial: Trial, attempt: int) -> None:
        pod = trial.pod
        if trial.attempts.number != attempt or not (pod.alive and pod.terminating):
            return
        if pod.stage in (PodStage.PLACING, PodStage.CREATING, PodStage.GATED):
            self._pod_lost(trial)  # nothing of this attempt has run, or its node is down
            return
        pod.asked_to_end = True
        self._run_agent_of(trial)

    def _saved(self, trial: Trial) -> None:
        trial.training.checkpoint_seconds = trial.training.trained
        trial.training.checkpoints += 1
        self._end_pod(trial, TrialPhase.REQUEUED)

    # Ends of a pod.

    def _end_pod(self, trial: Trial, phase: TrialPhase, *, fault: bool = False) -> None:
        """End the pod. `fault`: by a fault, so the trial restarts from its last checkpoint."""
        node = trial.pod.node
        self._release(trial)
        if fault and not trial.in_image:
            self._discard_unsaved(trial)
        self._writer.close(trial, node)
        self._reports.pod_changed(trial, phase)

    def lost(self, trial: Trial, attempt: int) -> None:
        """Lose a pod by the cluster's fault: another pod continues from the last checkpoint."""
        if trial.attempts.number == attempt and trial.pod.alive:
            known = trial.written_status.curve
            trial.attempts.count_loss(self._queue.now, known[-1].step if known else None)
            self._pod_lost(trial)

    def _pod_lost(self, trial: Trial) -> None:
        self._end_pod(trial, TrialPhase.REQUEUED, fault=True)

    def _crash(self, trial: Trial, attempt: int) -> None:
        """Fail the process by its own fault: counted, and retried after a delay."""
        if trial.attempts.number != attempt or trial.pod.stage not in _CAN_CRASH:
            return
        attempts = trial.attempts
        attempts.failures += 1
        if attempts.failures > trial.job.view.limits.retries:
            trial.ended = self._queue.now
            self._end_pod(trial, TrialPhase.FAILED, fault=True)
            return
        attempts.retry_at = self._queue.now + retry_delay(attempts.failures)
        self._end_pod(trial, TrialPhase.REQUEUED, fault=True)

    def _discard_unsaved(self, trial: Trial) -> None:
        written, saves = len(trial.written_status.curve), trial.job.spec.checkpoints
        trial.training.discard_unsaved(written, saves_evaluations=saves)

    def _release(self, trial: Trial) -> None:
        nodes = trial.pod.nodes
        self._enter(trial, None)
        trial.pod.release()
        for node in nodes:
            node.trials.remove(trial)
            self._reports.node_changed(node)
        for node in nodes:
            self.run_agent(node)
        self.retry()

    def _run_agent_of(self, trial: Trial) -> None:
        for node in trial.pod.nodes:
            self.run_agent(node)

    def stop_with_node(self, trial: Trial) -> None:
        """Stop the trial of a failed node; this is not known yet."""
        now, pod = self._queue.now, trial.pod
        if pod.stage is PodStage.ENDED:
            self._succeeded(trial)  # its final values were read
            return
        if pod.stage is PodStage.RUNNING:
            trial.training.pause(now)
        use = None if pod.stage is None else USES.get(pod.stage)
        if use is not None:
            for gpu in pod.gpus:
                self.spans.append(Span(gpu.uuid, trial.key, trial.number, pod.since, now, use))
        trial.gpu_time.stop(now, len(pod.gpus))
        pod.since, pod.stage = now, PodStage.CREATING  # so that no further time is counted
        pod.version += 1
