"""What every plan must keep, whatever the policy: checked after each step in property tests and by the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
from podium_core.domain.phase import FINAL, REQUEUES, TrialPhase
from podium_core.domain.relocation import is_started
from podium_core.domain.snapshot import Snapshot, TrialKey
from podium_core.planning.completion import close
from podium_core.planning.migration import is_migrating_away
from podium_core.planning.ranking import Standing, standings


def violations(snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Sentences, one for each broken rule; empty for a sound plan. O(actions + places)."""
    found = [*_reasons(plan), *_pods(snapshot, plan), *_leaving(snapshot, plan)]
    seen: set[str] = set()
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            if action.node in seen:
                found.append(f"node {action.node} is written twice in one plan")
            seen.add(action.node)
            found += _order(snapshot, action)
    found += _consistent(plan)
    found += _idle(snapshot, plan)
    return tuple(found)


def _reasons(plan: Plan) -> list[str]:
    found = []
    for action in plan.actions:
        said = [p for _, places in action.gpus for p in places] if isinstance(action, WriteRunQueues) else [action]
        for one in (*said, *plan.ranks):
            if not one.reason or not one.reason[0].isupper() or not one.reason.isalnum() or not one.message:
                found.append(f"{one} lacks a CamelCase reason or a message")
    return found


def _order(snapshot: Snapshot, order: WriteRunQueues) -> list[str]:
    found = []
    trials = {trial.key: trial for trial in snapshot.trials}
    suspended = {job.key for job in snapshot.jobs if job.suspended}
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.node == order.node}
    if order.epoch != snapshot.epochs.get(order.node, 0) + 1:
        found.append(f"node {order.node}: epoch {order.epoch} does not follow {snapshot.epochs.get(order.node, 0)}")
    if sorted(gpus) != [uuid for uuid, _ in order.gpus]:
        found.append(f"node {order.node}: the order names other GPUs than the node has, or not sorted")
    changed = False
    for uuid, places in order.gpus:
        keys = tuple(place.trial for place in places)
        changed = changed or uuid not in gpus or keys != gpus[uuid].run_queue
        if len(set(keys)) != len(keys):
            found.append(f"GPU {uuid}: a trial has two places")
        for key in keys:
            trial = trials.get(key)
            if trial is None or uuid not in trial.gpus or trial.pod is None:
                found.append(f"GPU {uuid}: {key.name} is ordered but has no share of it")
            elif trial.suspend or trial.terminating or trial.job in suspended or trial.phase in FINAL:
                found.append(f"GPU {uuid}: {key.name} is suspended, leaving or finished but ordered")
    if not changed:
        found.append(f"node {order.node}: a new epoch for the order in force")
    return found


def _consistent(plan: Plan) -> list[str]:
    """Two trials that meet on two GPUs must stand in the same order on both."""
    before: set[tuple[object, object]] = set()
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            for _, places in action.gpus:
                keys = [place.trial for place in places]
                before |= {(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :]}
    return [f"{a} and {b} are ordered both ways: they could wait for each other" for a, b in before if (b, a) in before]


def _idle(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Work is conserved: whoever could work is first on its GPUs, or somebody is on one of them who could as well."""
    order = {gpu.uuid: gpu.run_queue for gpu in snapshot.gpus}
    for action in plan.actions:
        if isinstance(action, WriteRunQueues):
            order |= {uuid: tuple(place.trial for place in places) for uuid, places in action.gpus}
    lost = {gpu.uuid for gpu in snapshot.gpus if gpu.reservation_ended}
    over = {a.trial for a in plan.actions if isinstance(a, EndTrial)}
    able: dict[TrialKey, set[str]] = {}  # who could work now, and on which GPUs
    for key, standing in standings(snapshot, close(snapshot)).items():
        mine = order.keys() & set(standing.trial.gpus)
        if key not in over and mine and not mine & lost and _able(standing, snapshot):
            able[key] = mine
    busy: set[str] = set()
    for key in sorted(able, key=lambda k: (max(_place(order[u], k) for u in able[k]), k)):  # as an agent claims
        if busy.isdisjoint(able[key]) and all(key in order[uuid] for uuid in able[key]):
            busy |= able[key]
    return [
        f"{key.name} could work and nobody is to work on {', '.join(sorted(mine))}"
        for key, mine in sorted(able.items())
        if not mine & busy
    ]


def _place(order: Sequence[TrialKey], key: TrialKey) -> int:
    return order.index(key) if key in order else len(order)


def _able(standing: Standing, snapshot: Snapshot) -> bool:
    trial, uuids = standing.trial, set(standing.trial.gpus)
    if trial.pod is None or trial.terminating or trial.suspend or standing.job.suspended or standing.paused:
        return False
    holds = any(gpu.holder == trial.key for gpu in snapshot.gpus if gpu.uuid in uuids)
    return trial.phase is not TrialPhase.PENDING or holds


def _leaving(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Who is told to go has a pod, is told once, and loses nothing by it; no two that work share a GPU."""
    found = []
    jobs = {job.key: job for job in snapshot.jobs}
    trials = {trial.key: trial for trial in snapshot.trials}
    asked = [a for a in plan.actions if isinstance(a, Requeue)]
    over = {a.trial for a in plan.actions if isinstance(a, EndTrial | DeletePod | CreatePod)}
    going = Counter(uuid for t in snapshot.trials if t.terminating for uuid in set(t.gpus))
    twice = [key.name for key, n in Counter(a.trial for a in asked).items() if n > 1]
    found += [f"{name} is requeued twice" for name in twice]
    for action in asked:
        trial, name = trials[action.trial], action.trial.name
        if action.reason not in REQUEUES:
            found.append(f"{name}: {action.reason} is no reason for a requeue")
        if trial.pod is None or trial.terminating or trial.phase in FINAL or trial.key in over:
            found.append(f"{name} has no pod that could be taken away")
        # a pod that its trial was carried to and that cannot go on holds nothing
        holds_work = action.reason != "MigrationFailed" and is_started(trial.phase, migrated=trial.migrated)
        if (
            holds_work and not jobs[trial.job].checkpointable and action.reason != "ReservationEnded"
        ):  # on what is another's GPU now
            found.append(f"{name} would lose what it did: its job does not save")
        if holds_work:
            found += [f"GPU {uuid}: {name} cannot save beside another that goes" for uuid in trial.gpus if going[uuid]]
            going.update(set(trial.gpus))
    return found


def _pods(snapshot: Snapshot, plan: Plan) -> list[str]:
    found = []
    jobs = {job.key: job for job in snapshot.jobs}
    trials = {trial.key: trial for trial in snapshot.trials}
    ended = {a.trial for a in plan.actions if isinstance(a, EndTrial)}
    live = [t for t in snapshot.trials if t.phase not in FINAL and t.key not in ended]
    created = [a for a in plan.actions if isinstance(a, CreatePod)]
    shares = {gpu.uuid: gpu.slots for gpu in snapshot.gpus if gpu.health != "Unhealthy" and not gpu.reservation_ended}
    # a pod on a GPU that is gone, ill or lost takes nothing of what is there; one not placed yet will, unless stuck
    used = sum(
        sum(uuid in shares for uuid in t.gpus) if t.gpus else jobs[t.job].gpus_per_trial
        for t in live
        if t.pod is not None and t.job in jobs and (t.gpus or not t.stuck)
    )
    # one that is carried has two pods for a moment: what it leaves and what it goes to
    fresh = [a for a in created if not is_migrating_away(trials[a.trial])]
    new = sum(jobs[trials[a.trial].job].gpus_per_trial for a in fresh)
    if new and used + new > sum(shares.values()):
        found.append(f"{used} shares are used, {new} more asked for, there are {sum(shares.values())}")
    twice = [key.name for key, n in Counter(a.trial for a in created).items() if n > 1]
    found += [f"{name} gets two pods" for name in twice]
    found += [f"{a.trial.name} has a pod already" for a in fresh if trials[a.trial].pod is not None]
    for job in jobs.values():
        numbers = [a.number for a in plan.actions if isinstance(a, CreateTrial) and a.job == job.key]
        mine = [t for t in snapshot.trials if t.job == job.key]
        if len(mine) + len(numbers) > job.max_trials and numbers:
            found.append(f"{job.key.name}: more than {job.max_trials} trials")
        if len({*numbers, *(t.number for t in mine)}) != len(numbers) + len(mine):
            found.append(f"{job.key.name}: a trial number is used twice")
        unfinished = sum(t.job == job.key for t in live)
        if job.parallel is not None and numbers and unfinished + len(numbers) > job.parallel:
            found.append(f"{job.key.name}: more than {job.parallel} trials at a time")
    ends = Counter(a.job for a in plan.actions if isinstance(a, EndJob))
    found += [f"{key.name} ends twice" for key, n in ends.items() if n > 1]
    return found
