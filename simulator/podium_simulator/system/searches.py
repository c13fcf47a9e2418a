"""One search on the simulated system, made from a sample of recorded curves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from podium_core.domain.snapshot import JobKey, JobView, Scalar
from podium_simulator.replay.samples import Pool
from podium_simulator.system.operator import steps_of
from podium_simulator.system.scenario import Method, NodeSpec, SimJob

NAMESPACE = "simulated"


def search(
    pool: Pool,
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
    saves = method.saves or not method.stays
    view = JobView(
        key=JobKey(NAMESPACE, pool.task),
        uid=f"{pool.task}-{pool.seed}",
        created=created,
        policy=policy,
        settings=MappingProxyType(dict(settings or {})),
        maximize=pool.maximize,
        target=None,
        max_trials=len(pool.trials),
        parallel=None,
        max_steps=max(steps_of(trial)[-1] for trial in pool.trials),
        max_failed=len(pool.trials),
        retries=2,
        gpus_per_trial=1,
        accepted=True,
        suspended=False,
        memory=memory,
        moves_memory=not method.keeps_memory,
        suspendable=method.stays,
        checkpointable=saves,
        checkpoint_scope="anywhere" if saves else "nowhere",
        migratable=method.carries,
    )
    return SimJob(view, pool.trials, method)


def even_nodes(gpus: int, nodes: int, shares: int, memory: int = 0) -> tuple[NodeSpec, ...]:
    """Return `gpus` GPUs spread over the nodes; the first ones get the remainder. Nodes without a GPU are left out."""
    sizes = [gpus // nodes + (place < gpus % nodes) for place in range(nodes)]
    return tuple(NodeSpec(f"node-{place}", size, shares, memory) for place, size in enumerate(sizes) if size)
