"""Changes that reach the API at once: states from agents, and what the operator sees of pods.

It stands between the nodes, which know the truth, and the operator, which plans on `view`s. Both call it. A trial's own
record (curve, GPU-seconds, costs) is written by `status_writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from podium_core.domain.gpu_view import Availability, GpuMemory, GpuView, RunQueueView
from podium_core.domain.phase import TrialPhase, check
from podium_core.domain.tenure import held, idle
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.scenario import Timing
from podium_simulator.system.stages import PHASES, PodStage
from podium_simulator.system.state import Gpu, Node, Trial
from podium_simulator.system.telemetry import reserved_bytes

_ON_THE_WAY = frozenset(
    {
        PodStage.STARTING,
        PodStage.LOADING,
        PodStage.RUNNING,
        PodStage.SUSPENDING,
        PodStage.SUSPENDED,
        PodStage.RESTORING,
        PodStage.RESUMING,
    }
)  # part of a switch that was ordered: no slot is gained or lost
_BY_ITSELF = frozenset(
    {PodStage.CREATING, PodStage.GATED, PodStage.STARTING, PodStage.RESTORING}
)  # the operator sees these itself


class Reports:
    """Writer of states.

    After a write that the operator sees it calls `changed`, or `progress` for these trials where that is all.
    """

    def __init__(
        self,
        queue: EventQueue,
        timing: Timing,
        changed: Callable[[], None],
        progress: Callable[[Collection[Trial]], None],
    ) -> None:
        self._queue = queue
        self._timing = timing
        self._changed = changed
        self._progress = progress
        self._states: dict[Trial, None] = {}  # in the order of the changes
        self._nodes: dict[str, Node] = {}
        self._due = False
        self._more = False  # more than progress

    def state_changed(self, trial: Trial) -> None:
        """Report a trial's changed state at once."""
        self._states[trial] = None
        self._more |= trial.pod.stage not in _ON_THE_WAY
        for node in trial.pod.nodes:
            self._nodes[node.spec.name] = node
        self._soon()

    def node_changed(self, node: Node) -> None:
        """Report a node that has other trials, or is away or back."""
        self._more = True
        self.run_queue_reached(node)

    def run_queue_reached(self, node: Node) -> None:
        """Report that the node's agent has reached a run queue."""
        self._nodes[node.spec.name] = node
        self._soon()

    def drain_changed(self, node: Node) -> None:
        """Report the start or end of a drain: a person writes it, so the operator sees it at once."""
        for gpu in node.gpus:
            gpu.view = replace(gpu.view, availability=Availability(draining=node.draining))
        self._changed()

    def pod_changed(self, trial: Trial, phase: TrialPhase) -> None:
        """Report what the operator sees of the pod, or has written itself, at once."""
        self._see(trial, phase)
        self._changed()

    def migrated(self, trial: Trial) -> None:
        """Report the new pod of a migrated trial.

        Its phases start again, without a transition from the old pod's.
        """
        trial.publish(TrialPhase.PENDING)
        self._changed()

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self._queue.after(self._timing.notice, self._write_states)

    def _write_states(self) -> None:
        self._due = False
        states, nodes, more = self._states, self._nodes, self._more
        self._states, self._nodes, self._more = {}, {}, False
        for trial in states:
            stage = trial.pod.stage
            # otherwise no agent is left to report it
            if stage is not None and all(n.up and (not n.silent or stage in _BY_ITSELF) for n in trial.pod.nodes):
                self._see(trial, PHASES[stage])
        for node in nodes.values():
            for gpu in node.gpus:
                gpu.view = _old_view(gpu, node) if node.silent else _gpu_view(gpu, node, self._queue.now)
        if more:
            self._changed()
        else:
            self._progress({*states, *[trial for node in nodes.values() for trial in node.trials]})

    def _see(self, trial: Trial, phase: TrialPhase) -> None:
        if phase is not trial.view.phase:
            check(trial.view.phase, phase)
        trial.publish(phase)


def _old_view(gpu: Gpu, node: Node) -> GpuView:
    """Return the agent's last report: it can start nothing."""
    return replace(gpu.view, health="Unknown" if node.unheard else gpu.view.health)


def _gpu_view(gpu: Gpu, node: Node, now: float) -> GpuView:
    old = gpu.view
    here = [trial for trial in gpu.trials if trial.pod.stage is not PodStage.ENDED]
    at_work = [t for t in here if t.gpu_time.held_since is not None]
    holder = min(at_work, key=lambda t: (t.gpu_time.held_since, t.key), default=None)
    if holder is not None and (since := holder.gpu_time.held_since) is not None:
        gpu.tenure = held(gpu.tenure, holder.job.view.key, holder.key, since)
    else:
        gpu.tenure = idle(gpu.tenure, now)
    return GpuView(
        node=old.node,
        uuid=old.uuid,
        health="Healthy" if node.up else "Unknown",
        slots=old.slots,
        free_slots=max(0, old.slots - len(here)),
        holder=None if holder is None else holder.key,
        holder_since=None if holder is None else holder.gpu_time.held_since,
        tenure=None if holder is None else gpu.tenure,
        trials=tuple([trial.key for trial in here]),
        run_queue=RunQueueView(
            old.run_queue.trials,
            in_effect=gpu.effective_epoch == gpu.newest_epoch,
            no_preemption=gpu.agent_epoch == gpu.newest_epoch and not gpu.preempts,
            on_hold=old.run_queue.on_hold,
        ),
        memory=GpuMemory(old.memory.total, reserved_bytes(here)),
        availability=old.availability,
        supports_migration=old.supports_migration,
    )
