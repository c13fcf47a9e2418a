"""Which trial changes its GPUs so that all carry about equally many (Hermes' migration; issue 5, item 6), and where to.

Called by the planner last: whatever else changes goes first, and is looked at again when it has settled. A trial that
can go on from a save is requeued, one that cannot is carried alive (`domain.carrying`), where its job and both nodes
allow that. The paper's text on migration could not be had; the rule is ours:

- each GPU that is left carries at least `MARGIN` trials more than each that is taken, so the sum of squares of the
  counts falls with every move, no move makes the fullest fuller, and no trial goes to and fro;
- who goes does not hold its GPU, and is not about to: those that have not begun first (nothing is to be saved), then
  the best by rank, which goes first where it comes to; and has enough left to train that the move is small beside it;
- one move at a time of a job, and of a node; none of a trial that has only just come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from podium_core.domain.actions import Action, CreatePod, CreateTrial, Migrate, Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.migration import IN_PROGRESS
from podium_core.domain.phase import TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.rebalancing import MIN_DIFFERENCE, MIN_REMAINING_MOVES, REBALANCING
from podium_core.domain.relocation import is_migratable, is_relocatable, is_started
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.eta import remaining, typical_pace
from podium_core.planning.ranking import Standing

_WAITS = frozenset({TrialPhase.GATED, TrialPhase.SUSPENDED})
MIGRATION_SECONDS = 2.0  # that a carried trial stands still (`make bench-moving`), and for each GiB: 2 GiB took 70 s
MIGRATION_SECONDS_PER_GIB = 35.0


def migration_seconds(memory: int) -> float:
    """That a trial with so many bytes of GPU memory stands still when it is carried to another node alive."""
    return MIGRATION_SECONDS + MIGRATION_SECONDS_PER_GIB * memory / 2**30


@dataclass(frozen=True, slots=True)
class RebalancingMoves:
    actions: tuple[Requeue | Migrate, ...] = ()
    wake_at: float | None = None  # when the first that would go has stayed long enough


@dataclass(frozen=True, slots=True)
class _Site:
    """Where on one node a trial of a job would be: its GPUs with the fewest trials; `most`: trials on the fullest."""

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
    """`claims`: who is to hold its GPUs now; `planned`: what this plan does besides. O(trials + jobs * GPUs)."""
    rules = snapshot.rebalancing
    if rules is None or _in_motion(standings, planned):
        return RebalancingMoves()
    ground = _Ground.of(snapshot, standings)
    if max(ground.load.values(), default=0) - min(ground.load.values(), default=0) < MIN_DIFFERENCE:
        return RebalancingMoves()  # nearly always
    growing = _growing(snapshot, planned)
    by_job: dict[JobKey, list[Standing]] = {}
    for standing in standings.values():
        by_job.setdefault(standing.job.key, []).append(standing)
    told: list[Requeue | Migrate] = []
    wakes: list[float] = []
    for mine in sorted(by_job.values(), key=lambda group: (group[0].job.created, group[0].job.key)):
        job = mine[0].job
        closed = job.gpus_per_trial == 0 or job.suspended or job.key in growing
        if closed or any(_on_its_way(s.trial) for s in mine if not _rests(s)):
            continue
        sites = ground.sites(job)
        usual = partial(typical_pace, job, [s.trial for s in mine])
        for move in ground.moves(sorted(mine, key=_who_first), sites, claims):
            sentence = _worth(snapshot, move, usual)
            if sentence is None:
                continue
            rest = move.standing.trial.pod_since + rules.min_stay_after(move.standing.trial.rebalance_count)
            if snapshot.now < rest:
                wakes.append(rest)
                continue
            told.append(_action(move, sentence))
            ground.busy.update((move.site.node, *(gpu.node for gpu in ground.left_by(move))))
            break
    return RebalancingMoves(tuple(told), min(wakes, default=None))


def _in_motion(standings: Mapping[TrialKey, Standing], planned: Sequence[Action]) -> bool:
    """Whether some trial is on its way to nobody knows which GPU: it may be the one that is empty now."""
    if any(isinstance(action, Requeue | Migrate) for action in planned):
        return True
    for standing in standings.values():
        trial = standing.trial
        if standing.job.gpus_per_trial == 0 or trial.destination is not None:
            continue
        unplaced = trial.pod is not None and trial.node is None and not trial.gpus and not trial.stuck
        if (trial.terminating and not trial.termination_overdue) or unplaced:
            return True
    return False


def _growing(snapshot: Snapshot, planned: Sequence[Action]) -> Collection[JobKey]:
    """Jobs that get new pods. Others need not wait for them: some are refused, by a quota, cycle after cycle."""
    jobs = {a.job for a in planned if isinstance(a, CreateTrial)}
    pods = {a.trial for a in planned if isinstance(a, CreatePod)}
    return jobs | {trial.job for trial in snapshot.trials if trial.key in pods} if pods else jobs


def _on_its_way(trial: TrialView) -> bool:
    """Its job waits for it: a pod that comes may level by itself."""
    comes = trial.pod is not None and trial.phase is TrialPhase.PENDING
    comes = comes or (trial.phase is TrialPhase.REQUEUED and not trial.suspend)
    return (
        comes
        or (trial.terminating and not trial.termination_overdue)
        or trial.destination is not None
        or trial.migration in IN_PROGRESS
    )


def _rests(standing: Standing) -> bool:
    """Its user lets it not go on, for nobody knows how long: nobody waits for it."""
    return standing.trial.pod is None and (standing.trial.suspend or standing.job.suspended)


def _who_first(standing: Standing) -> tuple[bool, int, TrialKey]:
    trial = standing.trial
    return is_started(trial.phase, migrated=trial.migrated), standing.ranked.rank, trial.key


@dataclass(slots=True)
class _Ground:
    """`load`: trials that take turns on each GPU; `busy`: nodes that a trial goes from or to."""

    gpus: Mapping[str, GpuView]
    load: Mapping[str, int]
    no_room: Collection[tuple[JobKey, str]]
    busy: set[str] = field(default_factory=set)

    @staticmethod
    def of(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> _Ground:
        gpus = {gpu.uuid: gpu for gpu in sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))}
        load = dict.fromkeys(gpus, 0)
        busy: set[str] = set()
        for standing in standings.values():
            trial = standing.trial
            placed = trial.pod is not None and trial.node is not None
            arrives = placed and not trial.gpus and standing.job.gpus_per_trial > 0
            if (trial.destination is not None or arrives) and not _rests(standing):
                busy.update(node for node in (trial.destination, trial.node) if node is not None)
            if trial.termination_overdue and trial.node is not None:  # whose kubelet ends no pods takes none either
                busy.add(trial.node)
            if not (trial.suspend or trial.terminating or standing.job.suspended):
                for uuid in trial.gpus:
                    if uuid in load:
                        load[uuid] += 1
        return _Ground(gpus, load, snapshot.full_nodes, busy)

    def sites(self, job: JobView) -> list[_Site]:
        """The emptiest first: healthy GPUs whose agent is heard, with a free share, and memory beside what is there."""
        nodes: dict[str, list[GpuView]] = {}
        for gpu in self.gpus.values():
            free = self._open(gpu) and gpu.free_slots > 0 and (job.key, gpu.node) not in self.no_room
            if free and fits(job, gpu) and _has_memory(job, gpu):
                nodes.setdefault(gpu.node, []).append(gpu)
        found = []
        for node, there in nodes.items():
            chosen = sorted(there, key=lambda gpu: (self.load[gpu.uuid], gpu.uuid))[: job.gpus_per_trial]
            if len(chosen) == job.gpus_per_trial:
                found.append(_Site(self.load[chosen[-1].uuid], node, tuple(chosen)))
        return sorted(found, key=lambda site: (site.most, site.node))

    def moves(self, mine: Sequence[Standing], sites: Sequence[_Site], claims: Collection[TrialKey]) -> Iterator[_Move]:
        """What would level, each trial to the emptiest place that it can go to."""
        if not sites:
            return
        for standing in mine:
            trial = standing.trial
            left = [self.gpus[uuid] for uuid in trial.gpus if uuid in self.gpus]
            if len(left) != standing.job.gpus_per_trial or trial.phase not in _WAITS or trial.key in claims:
                continue
            least = min(self.load[gpu.uuid] for gpu in left)
            if least < sites[0].most + MIN_DIFFERENCE or trial.suspend or trial.stuck or standing.paused:
                continue
            if any(gpu.holder == trial.key or gpu.draining or not self._open(gpu) for gpu in left):
                continue
            for site in sites:
                if least < site.most + MIN_DIFFERENCE:
                    break
                alive = _how(standing, left, site)
                if alive is not None:
                    yield _Move(standing, site, least, alive)
                    break

    def left_by(self, move: _Move) -> Iterator[GpuView]:
        return (self.gpus[uuid] for uuid in move.standing.trial.gpus)

    def _open(self, gpu: GpuView) -> bool:
        return (
            gpu.health == "Healthy"
            and gpu.exclusive_pod is None
            and not gpu.reservation_ended
            and gpu.node not in self.busy
        )


def _has_memory(job: JobView, gpu: GpuView) -> bool:
    beside = gpu.memory_reserved - (gpu.memory_movable if job.moves_memory else 0)
    return gpu.memory_total == 0 or (job.memory or 0) + beside <= gpu.memory_total


def _how(standing: Standing, left: Sequence[GpuView], site: _Site) -> bool | None:
    """False: by a requeue; True: alive; None: it cannot go there."""
    trial, job = standing.trial, standing.job
    here = all(gpu.node == site.node for gpu in left)
    # a save in a folder of the node is found on its other GPUs
    saves_at = "anywhere" if here and job.checkpoint_scope == "node" else job.checkpoint_scope
    has_save = trial.checkpoint_step is not None
    if is_relocatable(
        trial.phase,
        checkpointable=job.checkpointable,
        checkpoint_scope=saves_at,
        has_checkpoint=has_save,
        migrated=trial.migrated,
    ):
        return False
    if here or job.memory is None or trial.migration is not None:
        return None
    carries = all(gpu.supports_migration for gpu in (*left, *site.gpus))
    alike = len({gpu.product for gpu in (*left, *site.gpus)}) == 1  # memory comes back on the same product only
    return True if alike and is_migratable(trial.phase, migratable=job.migratable, supported=carries) else None


def _worth(snapshot: Snapshot, move: _Move, usual: Callable[[], float | None]) -> str | None:
    """Why the move pays, as half a sentence; None: it does not, or nobody can say."""
    standing, job = move.standing, move.standing.job
    if not is_started(standing.trial.phase, migrated=standing.trial.migrated):
        return "it has not begun, so nothing is to be saved"
    left = remaining(job, standing.trial, usual)
    cost = snapshot.costs.requeue
    if move.alive:
        cost = migration_seconds(job.memory or 0)
    if left is None or left < MIN_REMAINING_MOVES * cost:
        return None
    how = "it is carried there alive" if move.alive else "it saves and goes on there"
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
