"""Rebalancing: which trial moves to another GPU so that all GPUs have about equally many trials, and where to.

The planner calls it last: all other changes come first, and their effect is awaited. A trial that can continue from a
checkpoint is requeued. One that cannot is migrated alive (`domain.migration`), if its job and both nodes allow it. The
goal is that of Hermes' migration; the rule is Podium's:

- Each GPU that is left has at least `MIN_DIFFERENCE` more trials than each that is taken. So the sum of squares of the
  counts falls with every move, no move makes the fullest GPU fuller, and no trial moves back and forth.
- The trial does not hold its GPU, and will not next. Unstarted trials come first (no work to save), then the best by
  rank, which runs first on its new GPU. Its remaining training must justify the cost of the move.
- Each job and each node has one move at a time, and a trial remains in a new pod for some time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from podium_core.domain.actions import Action, CreatePod, CreateTrial, Migrate, Requeue
from podium_core.domain.fitting import fits_now
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.migration import IN_PROGRESS
from podium_core.domain.phase import TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.rebalancing import MIN_DIFFERENCE, MIN_REMAINING_MOVES, REBALANCING
from podium_core.domain.relocation import is_migratable, is_relocatable, is_started
from podium_core.domain.snapshot import CheckpointScope, JobView, Snapshot, TrialView
from podium_core.planning.eta import remaining, typical_pace
from podium_core.planning.ranking import Standing

_WAITS = frozenset({TrialPhase.GATED, TrialPhase.SUSPENDED})
# in which a migrated trial does not run (`make bench-migration`); more for each GiB: 2 GiB took 70 s
MIGRATION_SECONDS = 2.0
MIGRATION_SECONDS_PER_GIB = 35.0


def migration_seconds(memory: int) -> float:
    """Return the seconds for which a live migration stops a trial with `memory` bytes of GPU memory."""
    return MIGRATION_SECONDS + MIGRATION_SECONDS_PER_GIB * memory / 2**30


@dataclass(frozen=True, slots=True)
class RebalancingMoves:
    """Moves of one cycle."""

    actions: tuple[Requeue | Migrate, ...] = ()
    wake_at: float | None = None  # when the first trial that would move has remained long enough


@dataclass(frozen=True, slots=True)
class _Site:
    """The GPUs with the fewest trials of one node, for a trial of a job.

    `most`: number of trials on the fullest.
    """

    most: int
    node: str
    gpus: tuple[GpuView, ...]


@dataclass(frozen=True, slots=True)
class _Move:
    standing: Standing
    site: _Site
    least: int  # trials on the emptiest GPU that it leaves
    alive: bool


def rebalance(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    planned: Sequence[Action],
) -> RebalancingMoves:
    """Return the moves. O(trials + jobs * GPUs).

    `claims`: trials that are to hold their GPUs now. `planned`: the other actions of this plan.
    """
    rules = snapshot.rebalancing
    if rules is None or _in_motion(standings, planned):
        return RebalancingMoves()
    load_map = _LoadMap.of(snapshot, standings)
    if max(load_map.load.values(), default=0) - min(load_map.load.values(), default=0) < MIN_DIFFERENCE:
        return RebalancingMoves()  # the usual case
    growing = _growing(snapshot, planned)
    by_job: dict[JobKey, list[Standing]] = {}
    for standing in standings.values():
        by_job.setdefault(standing.job.key, []).append(standing)
    moves: list[Requeue | Migrate] = []
    wake_times: list[float] = []
    for mine in sorted(by_job.values(), key=lambda group: (group[0].job.created, group[0].job.key)):
        job = mine[0].job
        closed = job.gpus.per_trial == 0 or job.gpus.workers > 1 or job.state.suspended or job.key in growing
        if closed or any(_on_its_way(s.trial) for s in mine if not _is_held_back(s)):
            continue
        sites = load_map.sites(job)
        usual = partial(typical_pace, job, [s.trial for s in mine])
        for move in load_map.moves(sorted(mine, key=_move_order), sites, claims):
            sentence = _benefit(snapshot, move, usual)
            if sentence is None:
                continue
            trial = move.standing.trial
            move_at = trial.pod_since + rules.min_stay_after(trial.relocation.rebalance_count)
            if snapshot.now < move_at:
                wake_times.append(move_at)
                continue
            moves.append(_action(move, sentence))
            load_map.busy.update((move.site.node, *(gpu.node for gpu in load_map.left_by(move))))
            break
    return RebalancingMoves(tuple(moves), min(wake_times, default=None))


def _in_motion(standings: Mapping[TrialKey, Standing], planned: Sequence[Action]) -> bool:
    """Return whether some trial is on its way to an unknown GPU, which may be the one that is empty now."""
    if any(isinstance(action, Requeue | Migrate) for action in planned):
        return True
    for standing in standings.values():
        trial = standing.trial
        if standing.job.gpus.per_trial == 0 or trial.relocation.destination is not None:
            continue
        pod = trial.pod
        unplaced = pod is not None and pod.node is None and not pod.gpus and not pod.stuck
        if trial.ends_soon or unplaced:
            return True
    return False


def _growing(snapshot: Snapshot, planned: Sequence[Action]) -> Collection[JobKey]:
    """Return the jobs that get new pods. Others need not wait: a quota may refuse the pods in every cycle."""
    jobs = {a.job for a in planned if isinstance(a, CreateTrial)}
    pods = {a.trial for a in planned if isinstance(a, CreatePod)}
    return jobs | {trial.job for trial in snapshot.trials if trial.key in pods} if pods else jobs


def _on_its_way(trial: TrialView) -> bool:
    """Return whether the trial gets a new pod, which may balance the GPUs by itself."""
    starting = trial.pod is not None and trial.phase is TrialPhase.PENDING
    starting = starting or (trial.phase is TrialPhase.REQUEUED and not trial.intent.suspend)
    return (
        starting
        or trial.ends_soon
        or trial.relocation.destination is not None
        or trial.relocation.migration in IN_PROGRESS
    )


def _is_held_back(standing: Standing) -> bool:
    """Return whether a user suspended the trial, for an unknown time: no move waits for it."""
    return standing.trial.pod is None and standing.suspended_by_user


def _move_order(standing: Standing) -> tuple[bool, int, TrialKey]:
    trial = standing.trial
    return is_started(trial.phase, migrated=trial.relocation.migrated), standing.ranked.rank, trial.key


@dataclass(slots=True)
class _LoadMap:
    """Load of the GPUs. `load`: trials that share each GPU; `busy`: nodes that a trial leaves or moves to."""

    gpus: Mapping[str, GpuView]
    load: Mapping[str, int]
    full_nodes: Collection[tuple[JobKey, str]]
    busy: set[str] = field(default_factory=set)

    @staticmethod
    def of(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> _LoadMap:
        gpus = {gpu.uuid: gpu for gpu in sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))}
        load = dict.fromkeys(gpus, 0)
        busy: set[str] = set()
        for standing in standings.values():
            trial = standing.trial
            placed = trial.pod is not None and trial.node is not None
            arriving = placed and not trial.gpus and standing.job.gpus.per_trial > 0
            if (trial.relocation.destination is not None or arriving) and not _is_held_back(standing):
                busy.update(node for node in (trial.relocation.destination, trial.node) if node is not None)
            if trial.termination_overdue and trial.node is not None:  # a kubelet that ends no pods starts none either
                busy.add(trial.node)
            if not (standing.suspended_by_user or trial.terminating):
                for uuid in trial.gpus:
                    if uuid in load:
                        load[uuid] += 1
        return _LoadMap(gpus, load, snapshot.full_nodes, busy)

    def sites(self, job: JobView) -> list[_Site]:
        """Return possible sites, the emptiest first: healthy GPUs with a free slot and enough free memory."""
        nodes: dict[str, list[GpuView]] = {}
        for gpu in self.gpus.values():
            free = self._open(gpu) and gpu.free_slots > 0 and (job.key, gpu.node) not in self.full_nodes
            if free and fits_now(job, gpu):
                nodes.setdefault(gpu.node, []).append(gpu)
        result = []
        for node, there in nodes.items():
            chosen = sorted(there, key=lambda gpu: (self.load[gpu.uuid], gpu.uuid))[: job.gpus.per_trial]
            if len(chosen) == job.gpus.per_trial:
                result.append(_Site(self.load[chosen[-1].uuid], node, tuple(chosen)))
        return sorted(result, key=lambda site: (site.most, site.node))

    def moves(self, mine: Sequence[Standing], sites: Sequence[_Site], claims: Collection[TrialKey]) -> Iterator[_Move]:
        """Yield the moves that would balance the load, each to the emptiest possible site."""
        if not sites:
            return
        for standing in mine:
            trial = standing.trial
            left = [self.gpus[uuid] for uuid in trial.gpus if uuid in self.gpus]
            if len(left) != standing.job.gpus.per_trial or trial.phase not in _WAITS or trial.key in claims:
                continue
            least = min(self.load[gpu.uuid] for gpu in left)
            stuck = trial.pod is not None and trial.pod.stuck
            if least < sites[0].most + MIN_DIFFERENCE or trial.intent.suspend or stuck or standing.paused:
                continue
            if any(gpu.holder == trial.key or gpu.availability.draining or not self._open(gpu) for gpu in left):
                continue
            for site in sites:
                if least < site.most + MIN_DIFFERENCE:
                    break
                alive = _is_live_move(standing, left, site)
                if alive is not None:
                    yield _Move(standing, site, least, alive)
                    break

    def left_by(self, move: _Move) -> Iterator[GpuView]:
        return (self.gpus[uuid] for uuid in move.standing.trial.gpus)

    def _open(self, gpu: GpuView) -> bool:
        return (
            gpu.health == "Healthy"
            and gpu.availability.exclusive_pod is None
            and not gpu.reservation_ended
            and gpu.node not in self.busy
        )


def _is_live_move(standing: Standing, left: Sequence[GpuView], site: _Site) -> bool | None:
    """Return False for a move by a requeue, True for a live migration, None if it cannot move there."""
    trial, job = standing.trial, standing.job
    here = all(gpu.node == site.node for gpu in left)
    # A checkpoint in a folder of the node can be read on its other GPUs.
    able = job.abilities
    scope: CheckpointScope = "anywhere" if here and able.checkpoint_scope == "node" else able.checkpoint_scope
    has_checkpoint = trial.attempts.checkpoint_step is not None
    if is_relocatable(
        trial.phase,
        checkpointable=able.checkpointable,
        checkpoint_scope=scope,
        has_checkpoint=has_checkpoint,
        migrated=trial.relocation.migrated,
    ):
        return False
    if here or job.gpus.memory is None or trial.relocation.migration is not None:
        return None
    supported = all(gpu.supports_migration for gpu in (*left, *site.gpus))
    same_product = (
        len({gpu.product for gpu in (*left, *site.gpus)}) == 1
    )  # GPU memory can be restored on the same product only
    possible = is_migratable(trial.phase, migratable=able.migratable, supported=supported)
    return True if same_product and possible else None


def _benefit(snapshot: Snapshot, move: _Move, usual: Callable[[], float | None]) -> str | None:
    """Return why the move is worth its cost, as half a sentence; None if it is not, or if that is unknown."""
    standing, job = move.standing, move.standing.job
    if not is_started(standing.trial.phase, migrated=standing.trial.relocation.migrated):
        return "it has not started, so it has no work to save"
    left = remaining(job, standing.trial, usual)
    cost = snapshot.costs.requeue
    if move.alive:
        cost = migration_seconds(job.gpus.memory or 0)
    if left is None or left < MIN_REMAINING_MOVES * cost:
        return None
    how = "it is migrated there" if move.alive else "it checkpoints and continues there"
    return f"{how}: about {left:.0f} s of training are left, the move costs {cost:.0f} s"


def _action(move: _Move, sentence: str) -> Requeue | Migrate:
    trial, site = move.standing.trial, move.site
    text = f"Its GPU on {trial.node} has {count(move.least, 'trial')}, the one on {site.node} {site.most}; {sentence}."
    if len(site.gpus) > 1:
        each = f"Each of its GPUs on {trial.node} has {count(move.least, 'trial')} or more"
        text = f"{each}, those on {site.node} {site.most} at most; {sentence}."
    if move.alive:
        return Migrate(trial.key, site.node, REBALANCING, text)
    return Requeue(trial.key, REBALANCING, text, site.node)
