"""Engine of the simulated system: from a scenario's first arrival to its last job's end.

Deterministic to the last bit: all randomness comes from the scenario's seed, and events at equal times happen in the
order in which they were scheduled.
"""

from __future__ import annotations

from podium_core.domain.gpu_view import GpuMemory, GpuView
from podium_core.domain.phrases import count
from podium_simulator.system.channels import Channels
from podium_simulator.system.event_queue import EventQueue
from podium_simulator.system.inputs.faults import RandomFaults
from podium_simulator.system.inputs.scenario import NodeSpec, PlannerRules, Scenario, SimulationError
from podium_simulator.system.nodes import NodeEvents
from podium_simulator.system.operator import Operator
from podium_simulator.system.pods import Pods
from podium_simulator.system.reports import Reports
from podium_simulator.system.results.outcome import JobEnd, Outcome, TrialEnd
from podium_simulator.system.state import Gpu, Job, Node, Trial
from podium_simulator.system.status_writer import StatusWriter
from podium_simulator.system.telemetry import Telemetry


def simulate(scenario: Scenario, *, checked: bool = False) -> Outcome:
    """Return the outcome of a scenario.

    Raises SimulationError where jobs do not end. `checked`: check every plan against `planning.invariants`.
    """
    migrates = any(job.method.migrates for job in scenario.jobs)
    queue, nodes = EventQueue(), [_node(spec, migrates=migrates) for spec in scenario.nodes]
    operator = Operator(queue, scenario.timing, nodes, PlannerRules(scenario.rebalancing, scenario.queues), checked)
    reports = Reports(queue, scenario.timing, operator.changed, operator.progress)
    writer = StatusWriter(queue, scenario.timing, operator.progress)
    chance, telemetry = RandomFaults(scenario.faults, scenario.seed), Telemetry(queue, scenario.timing.telemetry, nodes)
    channels = Channels(reports, writer, telemetry)
    pods = Pods(queue, scenario.timing, nodes, chance, channels)
    NodeEvents(queue, scenario, nodes, chance, pods, channels)
    operator.connect(pods, reports, writer)
    for job in sorted(scenario.jobs, key=lambda job: (job.view.created, job.key)):
        queue.at(job.view.created, operator.add_job, job)
    while operator.ended < len(scenario.jobs):
        if not queue.step() or queue.now > scenario.longest:
            raise SimulationError(_unfinished(operator, queue.now, scenario))
    return Outcome(
        jobs=tuple(_job_end(job) for job in operator.jobs.values()),
        trials=tuple(_trial_end(trial) for trial in operator.trials.values()),
        values=tuple(pods.values),
        spans=tuple(pods.spans),
        decisions=tuple(operator.decisions),
        gpus=tuple(gpu.uuid for node in nodes for gpu in node.gpus),
        events=queue.events,
        plans=operator.plans,
        broken=tuple(operator.broken),
    )


def _node(spec: NodeSpec, *, migrates: bool) -> Node:
    node, slots = Node(spec), spec.slots
    for index in range(spec.gpus):
        uuid = f"{spec.name}-gpu{index}"
        view = GpuView(
            node=spec.name,
            uuid=uuid,
            health="Healthy",
            slots=slots,
            free_slots=slots,
            memory=GpuMemory(total=spec.memory),
            supports_migration=migrates,
        )
        node.gpus.append(Gpu(uuid, node, view))
    return node


def _unfinished(operator: Operator, now: float, scenario: Scenario) -> str:
    names = ", ".join(key.name for key, job in operator.jobs.items() if job.ended is None)
    left = sum(trial.ended is None for trial in operator.trials.values())
    text = f"after {now:.0f} virtual seconds {names} has not ended ({count(left, 'trial')} left)"
    drained = ", and is there one that does not drain" if scenario.drains else ""
    budgets = ", and do the budgets of the queues last" if any(q.budget for q in scenario.queues) else ""
    return f"{text}; do its trials fit a node, and do nodes live longer{drained}{budgets}?"


def _job_end(job: Job) -> JobEnd:
    assert job.ended is not None
    return JobEnd(job.view.key, job.view.created, job.ended, job.succeeded, job.reason)


def _trial_end(trial: Trial) -> TrialEnd:
    first_held = trial.gpu_time.first_held
    return TrialEnd(
        trial=trial.key,
        job=trial.job.view.key,
        number=trial.number,
        gpus=trial.job.view.gpus.per_trial,
        phase=trial.view.phase,
        started=first_held,
        ended=trial.ended,
        evaluations=trial.training.evaluations,
        gpu_seconds=trial.gpu_time.seconds,
        lost_seconds=trial.training.lost_seconds,
        suspensions=trial.switches.suspensions,
        checkpoints=trial.training.checkpoints,
        attempts=trial.attempts.number + 1 if trial.pod.created or first_held is not None else 0,
        migrations=trial.attempts.migrations,
    )
