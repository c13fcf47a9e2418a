"""Invariants of every plan, for every policy. Property tests and the simulator check them after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from podium_core.domain.actions import (
    CreatePod,
    CreateTrial,
    DeletePod,
    EndJob,
    EndTrial,
    Plan,
    Requeue,
    WriteRunQueues,
)
from podium_core.domain.fitting import fits, trials_that_fit
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL, REQUEUES, TrialPhase
from podium_core.domain.relocation import is_started
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.completion import close
from podium_core.planning.migration import is_migrating_away
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.ranking import Standing, standings


def violations(snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Return one sentence for each broken invariant; empty for a sound plan.

    O(actions + run queue entries).
    """
    broken = [*_reasons(plan), *_pods(snapshot, plan), *_requeues(snapshot, plan)]
    written_nodes: set[str] = set()
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            if action.node in written_nodes:
                broken.append(f"node {action.node} is written twice in one plan")
            written_nodes.add(action.node)
            broken += _order(snapshot, action)
    broken += _consistent(plan)
    broken += _together(snapshot, plan)
    broken += _work_conserving(snapshot, plan)
    return tuple(broken)


def _reasons(plan: Plan) -> list[str]:
    broken = []
    for action in plan.actions:
        reasons = [p for _, entries in action.gpus for p in entries] if isinstance(action, WriteRunQueues) else [action]
        for one in (*reasons, *plan.ranks):
            if not one.reason or not one.reason[0].isupper() or not one.reason.isalnum() or not one.message:
                broken.append(f"{one} has no CamelCase reason or no message")
    return broken


def _order(snapshot: Snapshot, order: WriteRunQueues) -> list[str]:
    broken = []
    trials = {trial.key: trial for trial in snapshot.trials}
    suspended = {job.key for job in snapshot.jobs if job.state.suspended}
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.node == order.node}
    if order.epoch != snapshot.epochs.get(order.node, 0) + 1:
        broken.append(f"node {order.node}: epoch {order.epoch} does not follow {snapshot.epochs.get(order.node, 0)}")
    if sorted(gpus) != [uuid for uuid, _ in order.gpus]:
        broken.append(f"node {order.node}: the run queues name other GPUs than the node has, or are not sorted")
    changed = False
    for uuid, entries in order.gpus:
        keys = tuple(entry.trial for entry in entries)
        on_hold = {entry.trial for entry in entries if entry.on_hold}
        before = gpus[uuid].run_queue if uuid in gpus else None
        changed = changed or before is None or keys != before.trials or on_hold != before.on_hold
        if len(set(keys)) != len(keys):
            broken.append(f"GPU {uuid}: a trial has two entries")
        for key in keys:
            trial = trials.get(key)
            if trial is None or uuid not in trial.gpus or trial.pod is None:
                broken.append(f"GPU {uuid}: {key.name} is in the run queue but has no slot")
            elif trial.intent.suspend or trial.terminating or trial.job in suspended or trial.phase in FINAL:
                broken.append(f"GPU {uuid}: {key.name} is suspended, terminating or finished but in the run queue")
    if not changed:
        broken.append(f"node {order.node}: a new epoch for unchanged run queues")
    return broken


def _consistent(plan: Plan) -> list[str]:
    """Check that two trials that meet on two GPUs are in the same order on both."""
    before: set[tuple[object, object]] = set()
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            for _, entries in action.gpus:
                keys = [entry.trial for entry in entries]
                before |= {(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :]}
    return [
        f"{a} and {b} are in different orders: they could wait for each other" for a, b in before if (b, a) in before
    ]


def _together(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Check that a trial of several workers holds the GPUs of all of them or none: entries on hold hold none."""
    workers = {job.key: job.gpus.workers for job in snapshot.jobs}
    if all(count == 1 for count in workers.values()) and not any(gpu.run_queue.on_hold for gpu in snapshot.gpus):
        return []
    order = {gpu.uuid: [(key, key in gpu.run_queue.on_hold) for key in gpu.run_queue.trials] for gpu in snapshot.gpus}
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            order |= {uuid: [(entry.trial, entry.on_hold) for entry in entries] for uuid, entries in action.gpus}
    broken = []
    for trial in snapshot.trials:
        entries = {uuid: dict(order.get(uuid, ())).get(trial.key) for uuid in trial.gpus}
        states, name = set(entries.values()), trial.key.name
        if workers.get(trial.job, 1) == 1:
            if True in states:
                broken.append(f"{name} has one worker and is on hold")
        elif len(states) > 1:
            broken.append(f"{name} is on hold on some of its GPUs only, or has no entry there: {entries}")
        elif states == {False}:
            broken += [
                f"{name} is not on hold, but {queue[0][0].name} is before it on GPU {uuid}"
                for uuid in trial.gpus
                if (queue := order[uuid])[0][0] != trial.key
            ]
    return broken


def _work_conserving(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Check that no GPU idles.

    A trial that can run is first on its GPUs, or another trial that can run has one of them.
    """
    order = {gpu.uuid: gpu.run_queue.trials for gpu in snapshot.gpus}
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            order |= {uuid: tuple(entry.trial for entry in entries) for uuid, entries in action.gpus}
    lost = {gpu.uuid for gpu in snapshot.gpus if gpu.reservation_ended}
    over = {a.trial for a in plan.actions if isinstance(a, EndTrial)}
    exclusive = {gpu.uuid for gpu in snapshot.gpus if gpu.availability.exclusive_pod is not None}
    able: dict[TrialKey, set[str]] = {}  # trials that can run now, and their GPUs
    for key, standing in standings(snapshot, close(snapshot)).items():
        mine = order.keys() & set(standing.trial.gpus)
        blocked = len(mine) < len(standing.trial.gpus) or not exclusive.isdisjoint(mine)
        if blocked and standing.job.gpus.workers > 1:
            continue  # not all of its workers can run
        if key not in over and mine and not mine & lost and _can_run(standing, snapshot):
            able[key] = mine
    busy: set[str] = set()
    for key in sorted(
        able, key=lambda k: (max(_position(order[u], k) for u in able[k]), k)
    ):  # in the order of the agents
        if busy.isdisjoint(able[key]) and all(key in order[uuid] for uuid in able[key]):
            busy |= able[key]
    rules = QueueRules.of(snapshot)
    idle = {key: mine for key, mine in sorted(able.items()) if not mine & busy}
    if rules is not None and idle:
        idle = _within_quota(snapshot, rules, idle, {key: able[key] for key in able if able[key] <= busy})
    return [
        f"{key.name} can run, but no trial is to hold {', '.join(sorted(mine))}" for key, mine in sorted(idle.items())
    ]


def _within_quota(
    snapshot: Snapshot, rules: QueueRules, idle: Mapping[TrialKey, set[str]], busy: Mapping[TrialKey, set[str]]
) -> dict[TrialKey, set[str]]:
    """Return the idle trials whose queue may hold their GPUs beside those that its trials may hold."""
    name_of = {t.key: rules.queue_of[t.job] for t in snapshot.trials if t.job in rules.queue_of}
    held: dict[str, set[str]] = {}
    for key, mine in busy.items():
        held.setdefault(name_of[key], set()).update(mine)
    within = {}
    for key, mine in idle.items():
        most = rules.queues[name_of[key]].most
        if most is None or len(held.get(name_of[key], ())) + len(mine) <= most:
            within[key] = mine
    return within


def _position(order: Sequence[TrialKey], key: TrialKey) -> int:
    return order.index(key) if key in order else len(order)


def _can_run(standing: Standing, snapshot: Snapshot) -> bool:
    trial, uuids = standing.trial, set(standing.trial.gpus)
    if trial.pod is None or trial.pod.terminating or standing.paused:
        return False
    if standing.suspended_by_user:
        return False
    holds = any(gpu.holder == trial.key for gpu in snapshot.gpus if gpu.uuid in uuids)
    return trial.phase is not TrialPhase.PENDING or holds


def _requeues(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Check requeued trials: each has a pod, is requeued once and loses no work.

    No two started ones share a GPU.
    """
    broken = []
    jobs = {job.key: job for job in snapshot.jobs}
    trials = {trial.key: trial for trial in snapshot.trials}
    asked = [a for a in plan.actions if isinstance(a, Requeue)]
    over = {a.trial for a in plan.actions if isinstance(a, EndTrial | DeletePod | CreatePod)}
    going = Counter(uuid for t in snapshot.trials if t.terminating for uuid in set(t.gpus))
    twice = [key.name for key, n in Counter(a.trial for a in asked).items() if n > 1]
    broken += [f"{name} is requeued twice" for name in twice]
    for action in asked:
        trial, name = trials[action.trial], action.trial.name
        if action.reason not in REQUEUES:
            broken.append(f"{name}: {action.reason} is not a reason of a requeue")
        if trial.pod is None or trial.terminating or trial.phase in FINAL or trial.key in over:
            broken.append(f"{name} has no pod that could be deleted")
        # A pod to which its trial was migrated, and which cannot continue, holds no work.
        holds_work = action.reason != "MigrationFailed" and is_started(trial.phase, migrated=trial.relocation.migrated)
        if (
            holds_work and not jobs[trial.job].abilities.checkpointable and action.reason != "ReservationEnded"
        ):  # its GPU belongs to another pod now
            broken.append(f"{name} would lose its work: its job does not checkpoint")
        if holds_work:
            broken += [
                f"GPU {uuid}: {name} cannot checkpoint beside another terminating pod"
                for uuid in trial.gpus
                if going[uuid]
            ]
            going.update(set(trial.gpus))
    return broken


def _pods(snapshot: Snapshot, plan: Plan) -> list[str]:
    broken = []
    jobs = {job.key: job for job in snapshot.jobs}
    trials = {trial.key: trial for trial in snapshot.trials}
    ended = {a.trial for a in plan.actions if isinstance(a, EndTrial)}
    live = [t for t in snapshot.trials if t.phase not in FINAL and t.key not in ended]
    created = [a for a in plan.actions if isinstance(a, CreatePod)]
    slots = {gpu.uuid: gpu.slots for gpu in snapshot.gpus if gpu.health != "Unhealthy" and not gpu.reservation_ended}
    # A pod on a missing, unhealthy or unreserved GPU uses none of these slots. A GPU whose slots were reduced may have
    # more pods than slots; they use no slot of another GPU.
    with_pod = [t for t in live if t.pod is not None and t.job in jobs]
    placed = Counter(uuid for t in with_pod if t.pod is not None for uuid in t.pod.slots if uuid in slots)
    free = {uuid: max(0, count - placed[uuid]) for uuid, count in slots.items()}
    # During a migration a trial has two pods for a moment.
    fresh = [a for a in created if not is_migrating_away(trials[a.trial])]
    new = Counter[JobKey]()
    for action in fresh:
        new[trials[action.trial].job] += jobs[trials[action.trial].job].gpus.per_trial
    fitting = {job.key: frozenset(gpu.uuid for gpu in snapshot.gpus if fits(job, gpu)) for job in jobs.values()}
    awaited = Counter[frozenset[str]]()  # slots of unplaced pods, by the GPUs that fit them
    for trial in with_pod:
        if trial.pod is not None and not trial.gpus and not trial.pod.stuck and not trial.in_migration:
            awaited[fitting[trial.job]] += jobs[trial.job].gpus.per_trial - len(trial.pod.slots)
    for key, wide in ((key, fitting[key]) for key, requested in new.items() if requested):
        # Pods that can go to these GPUs alone. Of those that wait, there may be more than GPUs that fit them.
        waiting = sum(min(n, sum(free.get(uuid, 0) for uuid in some)) for some, n in awaited.items() if some <= wide)
        asked = sum(requested for other, requested in new.items() if fitting[other] <= wide)
        there = sum(free.get(uuid, 0) for uuid in wide)
        if waiting + asked > there:
            broken.append(f"{key.name}: {waiting} slots are awaited, {asked} requested, {there} that fit are free")
        job, nodes = jobs[key], dict[str, list[int]]()
        for gpu in snapshot.gpus:
            if gpu.uuid in wide:
                nodes.setdefault(gpu.node, []).append(free.get(gpu.uuid, 0))
        most = trials_that_fit(job.gpus, nodes.values()) if job.gpus.per_trial else 0
        if new[key] > most * job.gpus.per_trial:
            broken.append(f"{key.name}: {new[key]} slots are requested, and {most} trials find theirs")
    twice = [key.name for key, n in Counter(a.trial for a in created).items() if n > 1]
    broken += [f"{name} gets two pods" for name in twice]
    broken += [f"{a.trial.name} has a pod already" for a in fresh if trials[a.trial].pod is not None]
    for job in jobs.values():
        numbers = [a.number for a in plan.actions if isinstance(a, CreateTrial) and a.job == job.key]
        mine = [t for t in snapshot.trials if t.job == job.key]
        if len(mine) + len(numbers) > job.limits.max_trials and numbers:
            broken.append(f"{job.key.name}: more than {job.limits.max_trials} trials")
        if len({*numbers, *(t.number for t in mine)}) != len(numbers) + len(mine):
            broken.append(f"{job.key.name}: a trial number is used twice")
        unfinished = sum(t.job == job.key for t in live)
        founding = [a for a in plan.actions if isinstance(a, CreateTrial) and a.job == job.key and a.lineage is None]
        if job.limits.parallel is not None and founding and unfinished + len(founding) > job.limits.parallel:
            broken.append(f"{job.key.name}: more than {job.limits.parallel} trials at a time")
    ends = Counter(a.job for a in plan.actions if isinstance(a, EndJob))
    broken += [f"{key.name} ends twice" for key, n in ends.items() if n > 1]
    return broken
