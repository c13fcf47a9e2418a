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

from podium_core.domain.actions import Action, Carry, CreatePod, CreateTrial, Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.migration import OPEN
from podium_core.domain.phase import TrialPhase
from podium_core.domain.phrases import count
from podium_core.domain.rebalancing import MARGIN, REBALANCING, WORTH
from podium_core.domain.relocation import begun, carriable, movable
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.eta import remaining, typical_pace
from podium_core.planning.ranking import Standing

_WAITS = frozenset({TrialPhase.GATED, TrialPhase.SUSPENDED})
CARRY_SECONDS = 2.0  # that a carried trial stands still (`make bench-moving`), and for each GiB: 2 GiB took 70 s
CARRY_SECONDS_PER_GIB = 35.0


def carry_seconds(memory: int) -> float:
    """That a trial with so many bytes of GPU memory stands still when it is carried to another node alive."""
    return CARRY_SECONDS + CARRY_SECONDS_PER_GIB * memory / 2**30


@dataclass(frozen=True, slots=True)
class Levelled:
    actions: tuple[Requeue | Carry, ...] = ()
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


def level(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    planned: Sequence[Action],
) -> Levelled:
    """`claims`: who is to hold its GPUs now; `planned`: what this plan does besides. O(trials + jobs * GPUs)."""
    rules = snapshot.levelling
    if rules is None or _in_motion(standings, planned):
        return Levelled()
    ground = _Ground.of(snapshot, standings)
    if max(ground.load.values(), default=0) - min(ground.load.values(), default=0) < MARGIN:
        return Levelled()  # nearly always
    growing = _growing(snapshot, planned)
    by_job: dict[JobKey, list[Standing]] = {}
    for standing in standings.values():
        by_job.setdefault(standing.job.key, []).append(standing)
    told: list[Requeue | Carry] = []
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
            rest = move.standing.trial.pod_since + rules.stays(move.standing.trial.moves)
            if snapshot.now < rest:
                wakes.append(rest)
                continue
            told.append(_action(move, sentence))
            ground.busy.update((move.site.node, *(gpu.node for gpu in ground.left_by(move))))
            break
    return Levelled(tuple(told), min(wakes, default=None))


def _in_motion(standings: Mapping[TrialKey, Standing], planned: Sequence[Action]) -> bool:
    """Whether some trial is on its way to nobody knows which GPU: it may be the one that is empty now."""
    if any(isinstance(action, Requeue | Carry) for action in planned):
        return True
    for standing in standings.values():
        trial = standing.trial
        if standing.job.gpus_per_trial == 0 or trial.bound_for is not None:
            continue
        unplaced = trial.pod is not None and trial.node is None and not trial.gpus and not trial.stuck
        if (trial.leaving and not trial.overdue) or unplaced:
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
    return comes or (trial.leaving and not trial.overdue) or trial.bound_for is not None or trial.carrying in OPEN


def _rests(standing: Standing) -> bool:
    """Its user lets it not go on, for nobody knows how long: nobody waits for it."""
    return standing.trial.pod is None and (standing.trial.suspend or standing.job.suspended)


def _who_first(standing: Standing) -> tuple[bool, int, TrialKey]:
    trial = standing.trial
    return begun(trial.phase, carried=trial.carried), standing.ranked.rank, trial.key


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
            if (trial.bound_for is not None or arrives) and not _rests(standing):
                busy.update(node for node in (trial.bound_for, trial.node) if node is not None)
            if trial.overdue and trial.node is not None:  # whose kubelet ends no pods takes none either
                busy.add(trial.node)
            if not (trial.suspend or trial.leaving or standing.job.suspended):
                for uuid in trial.gpus:
                    if uuid in load:
                        load[uuid] += 1
        return _Ground(gpus, load, snapshot.no_room, busy)

    def sites(self, job: JobView) -> list[_Site]:
        """The emptiest first: healthy GPUs whose agent is heard, with a free share, and memory beside what is there."""
        nodes: dict[str, list[GpuView]] = {}
        for gpu in self.gpus.values():
            free = self._open(gpu) and gpu.free_shares > 0 and (job.key, gpu.node) not in self.no_room
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
            if least < sites[0].most + MARGIN or trial.suspend or trial.stuck or standing.waits:
                continue
            if any(gpu.holder == trial.key or gpu.draining or not self._open(gpu) for gpu in left):
                continue
            for site in sites:
                if least < site.most + MARGIN:
                    break
                alive = _how(standing, left, site)
                if alive is not None:
                    yield _Move(standing, site, least, alive)
                    break

    def left_by(self, move: _Move) -> Iterator[GpuView]:
        return (self.gpus[uuid] for uuid in move.standing.trial.gpus)

    def _open(self, gpu: GpuView) -> bool:
        return gpu.health == "Healthy" and gpu.exclusive is None and not gpu.lost and gpu.node not in self.busy


def _has_memory(job: JobView, gpu: GpuView) -> bool:
    beside = gpu.memory_reserved - (gpu.memory_movable if job.moves_memory else 0)
    return gpu.memory_total == 0 or (job.memory or 0) + beside <= gpu.memory_total


def _how(standing: Standing, left: Sequence[GpuView], site: _Site) -> bool | None:
    """False: by a requeue; True: alive; None: it cannot go there."""
    trial, job = standing.trial, standing.job
    here = all(gpu.node == site.node for gpu in left)
    # a save in a folder of the node is found on its other GPUs
    saves_at = "anywhere" if here and job.saves_at == "node" else job.saves_at
    has_save = trial.saved is not None
    if movable(trial.phase, saves=job.saves, saves_at=saves_at, has_save=has_save, carried=trial.carried):
        return False
    if here or job.memory is None or trial.carrying is not None:
        return None
    carries = all(gpu.carries for gpu in (*left, *site.gpus))
    alike = len({gpu.product for gpu in (*left, *site.gpus)}) == 1  # memory comes back on the same product only
    return True if alike and carriable(trial.phase, carries=job.carries, node_carries=carries) else None


def _worth(snapshot: Snapshot, move: _Move, usual: Callable[[], float | None]) -> str | None:
    """Why the move pays, as half a sentence; None: it does not, or nobody can say."""
    standing, job = move.standing, move.standing.job
    if not begun(standing.trial.phase, carried=standing.trial.carried):
        return "it has not begun, so nothing is to be saved"
    left = remaining(job, standing.trial, usual)
    cost = snapshot.costs.requeue
    if move.alive:
        cost = carry_seconds(job.memory or 0)
    if left is None or left < WORTH * cost:
        return None
    how = "it is carried there alive" if move.alive else "it saves and goes on there"
    return f"{how}: about {left:.0f} s of training are left, the move costs {cost:.0f} s"


def _action(move: _Move, sentence: str) -> Requeue | Carry:
    trial, site = move.standing.trial, move.site
    text = f"Its GPU on {trial.node} has {count(move.least, 'trial')}, the one on {site.node} {site.most}; {sentence}."
    if len(site.gpus) > 1:
        each = f"Each of its GPUs on {trial.node} has {count(move.least, 'trial')} or more"
        text = f"{each}, those on {site.node} {site.most} at most; {sentence}."
    if move.alive:
        return Carry(trial.key, site.node, REBALANCING, text)
    return Requeue(trial.key, REBALANCING, text, site.node)
