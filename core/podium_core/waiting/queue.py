"""Order of the waiting trials of all jobs that compete for the same GPUs. Pure.

The order follows the planner. A trial with a slot waits in the run queue of its GPU. A trial without one waits for a
slot, and the job with the fewest pods gets the next one (`planning.slots.pod_quota`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from podium_core.domain.keys import JobKey
from podium_core.domain.phase import ON_GPU
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.trial import HyperParamTrial
from podium_core.waiting.explanation import QueuedTrial
from podium_core.waiting.objects import StoredObjects, job_of, key_of, live, view_of

PAUSED = frozenset({"PausedByPolicy", "PausedAtRung", "RungIncomplete"})  # reasons of trials that wait for their policy
_LAST = 1 << 30  # rank or position of a trial that has none


def is_waiting(trial: HyperParamTrial) -> bool:
    """Return whether a live trial waits for a slot or for its GPU; one that its user suspended does not."""
    return trial.status.phase not in ON_GPU and not trial.spec.suspend and not trial.spec.stopped


def waiting_queue(objects: StoredObjects, jobs: Collection[JobKey]) -> tuple[QueuedTrial, ...]:
    """Return the waiting trials of these jobs, the next one first. O(trials * log(trials) + slots * jobs)."""
    mine = {key: live(objects.trials_of(key)) for key in jobs}
    waiting = [trial for trials in mine.values() for trial in trials if is_waiting(trial)]
    turns = _turns(objects.nodes)
    held = {key: sum(t.status.phase in ON_GPU for t in trials) for key, trials in mine.items()}

    def turn(trial: HyperParamTrial) -> tuple[int, int, int, str, str]:
        at = [turns.get((uuid, trial.metadata.uid), _LAST) for uuid in trial.status.gpus]
        return (max(at, default=_LAST), held[job_of(trial)], _rank(trial), *_name(trial))

    active = [trial for trial in waiting if trial.status.reason not in PAUSED]
    with_slot = sorted((trial for trial in active if trial.status.gpus), key=turn)
    without = _slot_order(objects, jobs, mine)
    paused = sorted((trial for trial in waiting if trial.status.reason in PAUSED), key=turn)
    return tuple(
        QueuedTrial(
            position=position,
            namespace=trial.metadata.namespace,
            trial=trial.metadata.name,
            job=trial.spec.job,
            has_slot=bool(trial.status.gpus),
            reason=trial.status.reason,
            message=trial.status.message,
        )
        for position, trial in enumerate((*with_slot, *without, *paused), start=1)
    )


def _turns(nodes: Iterable[GPUNode]) -> Mapping[tuple[str, str], int]:
    """Return the position of each trial in the run queue of each GPU, by the uuids of both."""
    return {
        (gpu.uuid, entry.uid): at for node in nodes for gpu in node.spec.gpus for at, entry in enumerate(gpu.run_queue)
    }


def _slot_order(
    objects: StoredObjects, jobs: Collection[JobKey], alive: Mapping[JobKey, Sequence[HyperParamTrial]]
) -> Iterator[HyperParamTrial]:
    """Yield the trials without a slot in the order in which they get one."""
    line: dict[JobKey, list[HyperParamTrial]] = {}
    pods: dict[JobKey, int] = {}
    for job in (job for job in objects.open_jobs() if key_of(job) in jobs):
        key = key_of(job)
        by_rank = view_of(job).reclaims_slots
        without = [t for t in alive[key] if is_waiting(t) and not t.status.gpus and t.status.reason not in PAUSED]
        line[key] = sorted(without, key=lambda t: _priority(t, by_rank=by_rank), reverse=True)  # the next one last
        pods[key] = sum(bool(trial.status.gpus) for trial in alive[key])
    order = {key: place for place, key in enumerate(line)}  # the older job first among equals
    while any(line.values()):
        key = min((key for key, rest in line.items() if rest), key=lambda key: (pods[key], order[key]))
        pods[key] += 1
        yield line[key].pop()


def _priority(trial: HyperParamTrial, *, by_rank: bool) -> tuple[bool, int, int, str]:
    """Return the key by which the planner orders the trials of a job that have no pod."""
    if by_rank:
        return (not trial.spec.pinned, _rank(trial), trial.spec.number, trial.metadata.name)
    return (not trial.spec.pinned, int(trial.status.attempt == 0), trial.spec.number, trial.metadata.name)


def _rank(trial: HyperParamTrial) -> int:
    return _LAST if trial.status.rank is None else trial.status.rank


def _name(trial: HyperParamTrial) -> tuple[str, str]:
    return trial.metadata.namespace, trial.metadata.name
