"""One search on the simulated system, made from a sample of recorded curves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from podium_core.domain.keys import JobKey
from podium_core.domain.snapshot import Abilities, GpuNeeds, JobLimits, JobState, JobView, Scalar
from podium_simulator.replay.samples import Sample
from podium_simulator.system.inputs.scenario import Method, NodeSpec, SimJob
from podium_simulator.system.operator import steps_of

NAMESPACE = "simulated"


def search_job(
    sample: Sample,
    policy: str,
    method: Method,
    settings: Mapping[str, Scalar] | None = None,
    created: float = 0.0,
    memory: int | None = None,
) -> SimJob:
    """Return a job that searches the whole sample, with as many trials at a time as there are slots.

    The job declares the longest trial's steps and no target: policies are compared to the end. `memory`: bytes that a
    trial declares on its GPU.
    """
    count = len(sample.trials)
    checkpoints = method.checkpoints or not method.suspends
    view = JobView(
        key=JobKey(NAMESPACE, sample.task),
        uid=f"{sample.task}-{sample.seed}",
        created=created,
        policy=policy,
        settings=MappingProxyType(dict(settings or {})),
        maximize=sample.maximize,
        target=None,
        max_steps=max(steps_of(trial)[-1] for trial in sample.trials),
        limits=JobLimits(max_trials=count, parallel=None, max_failed=count, retries=2),
        gpus=GpuNeeds(per_trial=1, memory=memory),
        abilities=Abilities(
            suspendable=method.suspends,
            checkpointable=checkpoints,
            checkpoint_scope="anywhere" if checkpoints else "nowhere",
            migratable=method.migrates,
            moves_memory=not method.keeps_memory,
        ),
        state=JobState(accepted=True, suspended=False),
    )
    return SimJob(view, sample.trials, method)


def even_nodes(gpus: int, nodes: int, slots: int, memory: int = 0) -> tuple[NodeSpec, ...]:
    """Return `gpus` GPUs spread over the nodes; the first ones get the remainder.

    Nodes without a GPU are left out.
    """
    sizes = [gpus // nodes + (index < gpus % nodes) for index in range(nodes)]
    return tuple(NodeSpec(f"node-{index}", size, slots, memory) for index, size in enumerate(sizes) if size)
