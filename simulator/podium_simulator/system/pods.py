"""Life of every trial's pod on its node: placement, gate, training, suspension, checkpoint, end, loss.

The simulated operator says what to create and delete; `agent.next_steps` says which trials run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium_core.domain.migration import MigrationPhase
from podium_core.domain.observe import FINAL_REPORT_SECONDS, retry_delay
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point
from podium_simulator.system.agent import Step, decide, unsettled
from podium_simulator.system.event_queue import Queue
from podium_simulator.system.faults import Chance
from podium_simulator.system.outcome import Span, Value
from podium_simulator.system.reports import Reports
from podium_simulator.system.scenario import Timing
from podium_simulator.system.scheduler import place
from podium_simulator.system.state import OCCUPIES, USES, Node, State, Trial, Way
from podium_simulator.system.status_writer import Writer
from podium_simulator.system.telemetry import Telemetry

_CAN_CRASH = frozenset({State.STARTING, State.LOADING, State.RUNNING, State.SAVING})


class Pods:
    """All pods.

    `spans` and `values` are what happened. `requeues`: measured seconds of each requeue.
    """

    def __init__(
        self,
        queue: Queue,
        timing: Timing,
        nodes: Sequence[Node],
        chance: Chance,
        reports: Reports,
        writer: Writer,
        telemetry: Telemetry,
    ) -> None:
        self._queue = queue
        self._timing = timing
        self._nodes = nodes
        self._chance = chance
        self._reports = reports
        self._writer = writer
        self._telemetry = telemetry
        self._unplaced: list[Trial] = []
        self.spans: list[Span] = []
        self.values: list[Value] = []
        self.requeues: list[float] = []

    # Requests of the operator.

    def create(self, trial: Trial, attempt: int) -> None:
        way = trial.way
        if way is not None and trial.in_image:
            way.known = len(trial.points)
            if trial.state is not None:  # its old pod ends
                self.delete(trial)
        trial.attempt, trial.pod_since, trial.stuck = attempt, self._queue.now, False
        self._enter(trial, State.PLACING)
        self._queue.after(self._timing.place, self._place, trial, guard=trial)
        self._queue.after(self._chance.pod_lives(), self.lost, trial, attempt)

    def delete(self, trial: Trial) -> None:
        """Delete the pod without a checkpoint: the trial ends."""
        node = trial.node
        self._release(trial)
        self._writer.close(trial, node)

    def leave(self, trial: Trial) -> None:
        """Ask the pod to end: the trial may checkpoint first, if it has started."""
        trial.leaving = True
        self._queue.after(self._timing.order, self._told, trial, trial.attempt)

    def asked(self, trial: Trial, way: Way) -> None:
        """Tell the trial's agent to make an image of it."""
        if trial.way is way and way.phase is MigrationPhase.REQUESTED and trial.node is not None:
            trial.asked = trial.attempt < way.attempt
            self._act_on(trial)

    def fell_back(self, trial: Trial, way: Way) -> None:
        """Handle a failed migration. A trial that still has its pod loses nothing.

        State that only an image holds is lost, unless a pod continues from it.
        """
        trial.asked = False
        if way.pushed and trial.state is None and trial.attempt < way.attempt:
            self._throw_back(trial)
        self._act_on(trial)

    def act(self, node: Node) -> None:
        """Execute one pass of the node's agent."""
        for trial, step in decide(node):
            method = trial.job.spec.method
            if step is Step.GRANT:
                fact, usual = trial.job.spec.fact(trial.number), self._timing
                self._queue.after(usual.begun if fact.begun is None else fact.begun, self._begun, trial, trial.attempt)
                self._then(trial, State.STARTING, self._until_found(trial), self._load)
                self._queue.after(self._chance.process_lives(), self._crash, trial, trial.attempt)
            elif step is Step.RESTORE:
                self._queue.after(self._timing.begun, self._begun, trial, trial.attempt)
                self._timed(trial, State.RESTORING, method.carry / 2.0, self._restored)
                self._queue.after(self._chance.process_lives(), self._crash, trial, trial.attempt)
            elif step is Step.LEAVE:
                self._timed(trial, State.LEAVING, method.carry / 2.0, self._pushed)
            elif step is Step.STAY:
                self._enter(trial, State.SUSPENDED)
                self._queue.after(0.0, self.act, node)  # it may be its time slice
            elif step is Step.SUSPEND:
                self._timed(trial, State.SUSPENDING, method.suspend, self._suspended)
            elif step is Step.RESUME:
                self._timed(trial, State.RESUMING, method.resume, self._resumed)
            else:
                self._then(trial, State.SAVING, self._timing.save, self._saved)
        self._settle(node)

    def _settle(self, node: Node) -> None:
        """Record the GPUs on which the agent has reached the newest run queue."""
        if not node.up or node.silent or all(gpu.reached == gpu.known for gpu in node.gpus):
            return
        moving = unsettled(node)
        for gpu in node.gpus:
            if gpu.uuid not in moving and gpu.reached != gpu.known:
                gpu.reached = gpu.known
                self._reports.settled(node)

    # Transitions between states.

    def _enter(self, trial: Trial, state: State | None) -> None:
        now = self._queue.now
        if trial.node is not None and self._telemetry.lags:
            self._telemetry.changes(trial.node)
        if trial.state is State.RUNNING:
            trial.trained += now - trial.trains_from
        elif trial.state is State.LOADING:
            trial.loads -= now - trial.since
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
        trial.act += 1
        if state is not None:
            self._reports.state(trial)
            if before is State.LOADING and state is State.RUNNING:
                return  # the agent has seen it running before
            # The trial's record grows when an allocation starts and when a suspension or a resumption is complete.
            self._writer.wake(trial, news=state in (State.SUSPENDED, State.RESUMING) or before is State.RESUMING)

    def _then(self, trial: Trial, state: State, seconds: float, call: Callable[[Trial], None]) -> None:
        self._enter(trial, state)
        self._queue.after(seconds, call, trial, guard=trial)

    def _timed(self, trial: Trial, state: State, seconds: float, call: Callable[[Trial, float], None]) -> None:
        """Enter a state; `call` receives the duration, which is not known before."""
        takes = self._chance.takes(seconds, trial.job.spec.method)
        self._enter(trial, state)
        self._queue.after(takes, call, trial, takes, guard=trial)

    def _place(self, trial: Trial) -> None:
        if not self._placed(trial):
            self._unplaced.append(trial)
            self._queue.after(self._timing.stuck, self._stuck, trial, guard=trial)

    def _placed(self, trial: Trial) -> bool:
        self._telemetry.refresh()
        gpus = place(trial, self._nodes)
        if not gpus:
            return False
        self._telemetry.changes(gpus[0].node)
        trial.node, trial.gpus, trial.stuck = gpus[0].node, gpus, False
        trial.node.trials.append(trial)
        known = trial.job.spec.fact(trial.number).gate
        gate = self._timing.gate if known is None else max(0.0, trial.pod_since + known - self._queue.now)
        self._then(trial, State.CREATING, gate, self._at_gate)
        return True

    def retry(self) -> None:
        """Retry pods without a node, the oldest first, when a slot is free or a node accepts trials again."""
        waiting, self._unplaced = self._unplaced, []
        for trial in waiting:
            if trial.state is State.PLACING and not self._placed(trial):
                self._unplaced.append(trial)

    def _stuck(self, trial: Trial) -> None:
        trial.stuck = True
        self._reports.state(trial)

    def _at_gate(self, trial: Trial) -> None:
        self._enter(trial, State.GATED)
        self._act_on(trial)

    def _until_found(self, trial: Trial) -> float:
        """Return the seconds until the trial can be suspended; the rest until its first step is `loads`."""
        fact, usual = trial.job.spec.fact(trial.number), self._timing
        load = usual.load if fact.load is None else fact.load
        found = min(load, usual.found if fact.found is None else fact.found)
        trial.loads = load - found
        return found

    def _begun(self, trial: Trial, attempt: int) -> None:
        if trial.attempt == attempt and trial.state not in (None, State.ENDED):
            self._writer.begin(trial)

    def _load(self, trial: Trial) -> None:
        if trial.loads <= 0.0:
            self._begin(trial)
            return
        self._then(trial, State.LOADING, trial.loads, self._begin)
        self._act_on(trial)  # its time slice may have passed meanwhile

    def _begin(self, trial: Trial) -> None:
        trial.loads = 0.0
        if trial.attempt and trial.saved is not None:
            self.requeues.append(self._timing.save + self._timing.gate + self._timing.load)
        self._train(trial)

    def _train(self, trial: Trial) -> None:
        self._enter(trial, State.RUNNING)
        self._go_on(trial)
        self._act_on(trial)  # its time slice may have passed meanwhile

    def _go_on(self, trial: Trial) -> None:
        trial.trains_from = self._queue.now
        left = trial.curve.seconds[trial.evaluations] - trial.trained
        self._queue.after(left, self._evaluate, trial, guard=trial)

    def _evaluate(self, trial: Trial) -> None:
        now, place = self._queue.now, trial.evaluations
        trial.trained = trial.curve.seconds[place]  # avoids accumulated rounding errors
        trial.trains_from = now
        trial.evaluations += 1
        # otherwise the trial repeats the step: the agent ignores steps that it has read before
        if place == len(trial.points):
            step, value = trial.steps[place], trial.curve.values[place]
            trial.points.append(Point(step, value, now))
            self.values.append(Value(now, trial.job.view.key, trial.key, step, value))
            self._writer.line(trial)
        if trial.evaluations < len(trial.curve.seconds):
            self._go_on(trial)
            return
        trial.ended = now
        known = trial.job.spec.fact(trial.number).ended
        seen = self._timing.ended if known is None else known
        if trial.node is not None and trial.node.silent:
            seen += FINAL_REPORT_SECONDS
        self._then(trial, State.ENDED, seen, self._succeeded)
        self._writer.end(trial)
        self._act_on(trial)  # the next trial gets the GPU without a round trip

    def end_is_read(self, trial: Trial) -> None:
        """Handle the end after the silent agent has read it: no further wait is needed."""
        self._then(trial, State.ENDED, self._timing.log, self._succeeded)

    def _succeeded(self, trial: Trial) -> None:
        self._over(trial, TrialPhase.SUCCEEDED)

    def _suspended(self, trial: Trial, took: float) -> None:
        trial.suspensions += 1
        trial.out += took
        trial.recent.append((took, None))
        self._enter(trial, State.SUSPENDED)
        self._act_on(trial)

    def _pushed(self, trial: Trial, _: float) -> None:
        self._enter(trial, State.SUSPENDED)
        if trial.asked and trial.way is not None and trial.node is not None:
            trial.way.pushed = True
            self._reports.node(trial.node)

    def _restored(self, trial: Trial, _: float) -> None:
        trial.carries += 1
        self._timed(trial, State.RESUMING, trial.job.spec.method.resume, self._resumed)

    def _resumed(self, trial: Trial, took: float) -> None:
        trial.resumptions += 1
        trial.back += took
        trial.recent[-1] = (trial.recent[-1][0], took)
        if trial.loads > 0.0:
            self._load(trial)
        else:
            self._train(trial)

    def _told(self, trial: Trial, attempt: int) -> None:
        if trial.attempt != attempt or trial.state in (None, State.ENDED) or not trial.leaving:
            return
        if trial.state in (State.PLACING, State.CREATING, State.GATED):
            self._gone(trial)  # nothing of this attempt has run, or its node is down
            return
        trial.told = True
        self._act_on(trial)

    def _saved(self, trial: Trial) -> None:
        trial.saved = trial.trained
        trial.saves += 1
        self._over(trial, TrialPhase.REQUEUED)

    # Ends of a pod.

    def _over(self, trial: Trial, phase: TrialPhase, *, back: bool = False) -> None:
        """End the pod. `fault`: by a fault, so the trial restarts from its last checkpoint."""
        node = trial.node
        self._release(trial)
        if back and not trial.in_image:
            self._throw_back(trial)
        self._writer.close(trial, node)
        self._reports.pod(trial, phase)

    def lost(self, trial: Trial, attempt: int) -> None:
        """Lose a pod by the cluster's fault: another pod continues from the last checkpoint."""
        if trial.attempt == attempt and trial.state not in (None, State.ENDED):
            self._pause(trial)
            self._gone(trial)

    def _gone(self, trial: Trial) -> None:
        self._over(trial, TrialPhase.REQUEUED, back=True)

    def _pause(self, trial: Trial) -> None:
        """Delay a retry as the operator does (`domain.observe`).

        The first loss causes no delay; each further one without progress in between does.
        """
        known = trial.written.curve
        step, before = known[-1].step if known else None, trial.disrupted
        if before is None or (step is not None and (before[1] is None or step > before[1])):
            trial.disrupted = (1, step)
            return
        trial.retry_at = self._queue.now + retry_delay(before[0])
        trial.disrupted = (before[0] + 1, step)

    def _crash(self, trial: Trial, attempt: int) -> None:
        """Fail the process by its own fault: counted, and retried after a delay."""
        if trial.attempt != attempt or trial.state not in _CAN_CRASH:
            return
        trial.failures += 1
        if trial.failures > trial.job.view.retries:
            trial.ended = self._queue.now
            self._over(trial, TrialPhase.FAILED, back=True)
            return
        trial.retry_at = self._queue.now + retry_delay(trial.failures)
        self._over(trial, TrialPhase.REQUEUED, back=True)

    def _throw_back(self, trial: Trial) -> None:
        """Discard the training since the last checkpoint. Reported values remain, as in the trial's status."""
        done = trial.evaluations
        kept = trial.saved or 0.0
        if trial.job.spec.checkpoints and done:
            kept = max(kept, trial.curve.seconds[done - 1])
            trial.saved = kept
        trial.lost_seconds += trial.trained - kept
        trial.trained = kept
        while trial.evaluations and trial.curve.seconds[trial.evaluations - 1] > kept:
            trial.evaluations -= 1
        del trial.points[max(trial.evaluations, len(trial.written.curve)) :]

    def _release(self, trial: Trial) -> None:
        node = trial.node
        self._enter(trial, None)
        trial.node, trial.gpus = None, ()
        trial.leaving = trial.told = trial.asked = trial.stuck = False
        if node is not None:
            node.trials.remove(trial)
            self._reports.node(node)
            self.act(node)
        self.retry()

    def _act_on(self, trial: Trial) -> None:
        if trial.node is not None:
            self.act(trial.node)

    def stop_dead(self, trial: Trial) -> None:
        """Stop the trial of a failed node; this is not known yet."""
        if trial.state is State.ENDED:
            self._succeeded(trial)  # its final values were read
            return
        now = self._queue.now
        if trial.state is State.RUNNING:
            trial.trained += now - trial.trains_from
        use = None if trial.state is None else USES.get(trial.state)
        if use is not None:
            for gpu in trial.gpus:
                self.spans.append(Span(gpu.uuid, trial.key, trial.number, trial.since, now, use))
        trial.gpu_seconds, trial.held_since = trial.charged(now), None
        trial.since, trial.state = now, State.CREATING  # so that no further time is counted
        trial.act += 1
