"""Envelope: who is most likely to end best for the least training still needed goes first.

1. Trials are compared at equal training only (`curves/equal_training.py`): the deficit to the best of all at that step.
2. A deficit counts as much as it is large against what is still gained there in a doubling of training. While
   everything moves, nobody is judged and the order is that of fifo; on flat curves losers are put off at once.
3. A trial's index is its probability of being the best over what it still has to train. A trial that has not been
   opened has the value of what the opened ones turned out to be, with the option to drop it after a look, and more or
   less as those of them did whose parameters are like its own (`curves/kin.py`).
4. Trials that have completed tell whether early order means anything here, and whose curves look like those that ended
   best (`curves/alike.py`), each with what it is worth among themselves. As far as neither says anything, all are worth
   the same.
5. A floor: a trial that has waited too long for its next value goes first, one at a time, for `minShare` of the job's
   GPU time at most, however much the trials' speeds differ. No live trial starves.

No paper has it; kin of freeze-thaw optimisation (Swersky et al. 2014) and of index policies (Gittins 1979). Formulas
and how the constants were found: docs/explanation/envelope.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import EqualTraining, equal_training, middle
from podium_core.curves.curve_table import Board, Floats, board
from podium_core.curves.final_value import width
from podium_core.curves.similar_configurations import company
from podium_core.curves.similar_curves import alike
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import OVERDUE, Ranking, shortest_turn
from podium_core.policies.newcomers import Newcomers, Scale
from podium_core.policies.starvation_guard import overdue
from podium_core.policies.trial_length import horizon

LOOK, RANKED = 0, 1
SHORTEST_TURN = 2.0  # seconds
LONGEST_LOOK = 0.9  # of a trial
LEAST_PACE = 1e-100  # seconds a step; nothing is so fast, and what is divided by it stays a number
_TINY = 1e-12
_ODDS = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants chosen on recorded curves, not settings for users (docs/explanation/envelope.md explains them)."""

    unit: float = 1.0  # a deficit of so many units makes a trial e times less likely to be the best
    spread: float = 0.28  # how much less a deficit counts where trials gain more than they differ
    slope: float = 0.8  # doublings that a trial's own gain, less the leader's, is carried on
    newcomer: float = 0.3  # weight of being behind a less trained trial at that trial's step
    evaluations: float = 1.5  # a look lasts at least so many evaluations
    prior: float = 0.1  # probability, after a look, that all that is seen says nothing
    trust: float = 2.0  # completed trials that it takes to doubt the order


@dataclass(frozen=True, slots=True)
class Envelope:
    """`look`: share of a whole trial that everyone who is opened gets before it is judged; `hysteresis_ratio`: how much
    better a rival's index must be, as a ratio less 1; `min_share`: share of the job's GPU time that may go to who has
    waited longest, 0 switches the floor off (`floor.py` states the bound of the wait).
    """

    look: float = 0.03
    hysteresis_ratio: float = 0.6
    min_share: float = 0.03
    constants: Constants = Constants()

    name: ClassVar[str] = "envelope"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.look <= 1.0:
            raise ValueError(f"warmup: {self.look:g} is no share of a trial; give 0 to 1")
        if not 0.0 <= self.hysteresis_ratio <= 10.0:
            raise ValueError(f"hysteresis: {self.hysteresis_ratio:g} is no ratio less 1; give 0 to 10")
        if not 0.0 <= self.min_share <= 0.5:
            raise ValueError(f"minShare: {self.min_share:g} is no share for those that are not wanted; give 0 to 0.5")

    @property
    def hysteresis(self) -> float:
        """Scores are logarithms of the index."""
        return math.log1p(self.hysteresis_ratio)

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, SHORTEST_TURN)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(n log n), and the rungs that new points reach."""
        seen = board(job, trials, snapshot)
        table = equal_training(seen, horizon(job, seen))
        length = table.horizon
        opened, live = seen.opened, ~seen.done
        pace, gap, width = _pace(seen), _gap(seen), max(1, job.gpus_per_trial)
        trained = _trained(seen, pace, gap, length)
        least = max(self.look * length, self.constants.evaluations * gap)
        paused = trained[opened & live & ~seen.running]
        looked = min(LONGEST_LOOK, max(least, middle(paused) if len(paused) else 0.0) / length)
        open_questions = undecided(np.maximum(trained, least) / length, least / length)
        chance = probabilities(seen, table, opened, open_questions, self.constants)
        chance = trusted(seen, table, chance, opened & live, 2.0 * looked, self.constants.trust)
        costs = snapshot.costs.of(job)
        handover = (costs.suspend + costs.resume) / max(pace / width * length, LEAST_PACE)
        left = 1.0 - np.minimum(trained / length, 0.999)
        index = chance / (left + np.where(seen.running, 0.0, handover))
        new = live & ~opened
        if np.count_nonzero(new):  # a third of what `any` takes
            index[new] = option_value(chance[opened], looked) * company(seen, new, opened, chance, trained / length)
        levels = np.where(opened & ~seen.diverged & (seen.step < least * (1 - 1e-9)), LOOK, RANKED)
        late = overdue(seen, live, job, snapshot, self.min_share, SHORTEST_TURN)
        if late:
            levels[list(late)] = OVERDUE

        def say(row: int) -> tuple[str, str]:
            """Coarse on purpose: a figure that moves with every cycle would be a write of every trial's status."""
            if row in late:
                return "LongestWait", "has waited longest for its next value; the floor gives it a turn."
            if levels[row] == LOOK:
                return "WarmUp", "is looked at before it is judged."
            if not opened[row]:
                return (
                    "Unstarted",
                    "is new: it counts as much as those opened before it, above all those alike, turned out.",
                )
            share = 5 * int(20.0 * trained[row] / length)
            text = f"will be the best of those opened with probability {odds(float(chance[row]))}"
            return "Envelope", f"{text} and has trained {share} % or more."

        return Ranking(seen, np.log(np.maximum(index, 1e-300)), levels, say)


def odds(chance: float) -> str:
    """A probability in the few steps in which its sentence may change."""
    least = next((step for step in _ODDS if chance >= step), None)
    return f"below {_ODDS[-1]:g}" if least is None else f"{least:g} or more"


def undecided(trained: Floats, look: float) -> Floats:
    """By row, from 1 after a look to 0 at the end: how wide what is still to come is, against what it was after a look.
    `trained` and `look` are shares of a trial.
    """
    return np.where(trained < 1.0, np.minimum(1.0, _width_at(trained) / _first_width(look)), 0.0)


def _width_at(trained: Floats) -> Floats:
    return width(-np.log2(np.minimum(np.maximum(trained, _TINY), 0.999)))


@lru_cache(maxsize=64)
def _first_width(look: float) -> float:
    return float(_width_at(np.array([look]))[0])


def probabilities(
    seen: Board, table: EqualTraining, opened: NDArray[np.bool_], open_questions: Floats, constants: Constants
) -> Floats:
    """Of each opened trial, to be the best of them in the end; by row, sum 1 at most. Steps 1 and 2 of the policy."""
    count = int(np.count_nonzero(opened))
    if not count:
        return np.zeros(len(seen))
    lost = seen.diverged
    chance: Floats = weights(table, opened, lost, constants) + np.where(
        opened & ~lost, open_questions * constants.prior / count, 0.0
    )
    return chance


def weights(table: EqualTraining, opened: NDArray[np.bool_], lost: NDArray[np.bool_], constants: Constants) -> Floats:
    """By row, what is seen says of its chance. Kept until the table changes: do not write into it."""
    question = ("weights", constants, opened.tobytes(), lost.tobytes())
    if question not in table.derived:
        lag = lags(table, lost, constants)
        least = float(lag[opened].min())
        # of those that are not opened some may be far ahead of all that are
        behind = np.minimum(np.maximum(lag - (least if math.isfinite(least) else 0.0), 0.0), 700.0)
        weight = np.where(opened, np.exp(-behind), 0.0)
        table.derived[question] = (1.0 - constants.prior) * weight / weight.sum()
    return cast(Floats, table.derived[question])


def lags(table: EqualTraining, lost: NDArray[np.bool_], constants: Constants) -> Floats:
    """By row, how far behind, in units; infinite for the `lost`, 0 where there is nothing to be judged by yet."""
    at = table.standings()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unit = constants.unit * (np.maximum(at.gain, at.leader_gain) + _TINY) * at.ratio**constants.spread
        lag: Floats = (at.deficit - constants.slope * (at.gain - at.leader_gain)) / unit
        lag = np.where(at.deficit <= 0.0, np.minimum(lag, 0.0), lag)
        if constants.newcomer > 0.0:
            scale = Scale(constants.unit, constants.spread, constants.slope)
            newcomers = table.keep(scale, lambda: Newcomers(table, scale))
            lag = np.maximum(lag, constants.newcomer * newcomers.largest_lag(at, lost))
    lag[np.isnan(lag)] = np.inf
    lag[at.rung < 0] = 0.0
    lag[lost] = np.inf
    return lag


def trusted(
    seen: Board, table: EqualTraining, chance: Floats, live: NDArray[np.bool_], share: float, trust: float
) -> Floats:
    """Step 4, for those that are not complete: their chances by value count as far as the completed trials' order at
    this share of training was their final order (Kendall's tau, turned into a correlation by Greiner's relation), and
    as far as the trials alike do not know better. In their place come the chances by what trials alike became, as far
    as that holds among the completed ones, and the mean.
    """
    rows = seen.complete.nonzero()[0]
    if len(rows) < 3 or not np.count_nonzero(live):
        return chance
    column = min(len(table.rungs) - 1, bisect_left(table.rungs, share * table.horizon))
    facts = (column, rows.tobytes(), seen.version[rows].tobytes())
    known: dict[tuple[int, bytes, bytes], float] = seen.keep(("agreement", table.horizon), dict)
    if facts not in known:
        known.clear()
        early, late = table.best[rows, column], seen.best[rows]
        told = np.isfinite(early) & np.isfinite(late)
        known[facts] = agreement(early[told], late[told])
    tau = known[facts]
    rho = math.sin(0.5 * math.pi * tau)
    weight = max(0.0, (rho * len(rows) + trust) / (len(rows) + trust))
    answers = alike(seen, table, live)
    if answers is None:
        return np.where(live, weight * chance + (1.0 - weight) * _mean(chance[live]), chance)
    skill = answers.skill * len(rows) / (len(rows) + trust)
    weight *= 1.0 - skill
    told = answers.told
    company = skill * answers.chance / answers.total + (1.0 - skill) / answers.count
    instead = np.where(told, company * chance[told].sum(), _mean(chance[live]))
    return np.where(live, weight * chance + (1.0 - weight) * instead, chance)


def _mean(values: Floats) -> float:
    """numpy's own, a few times faster."""
    return float(values.sum() / len(values))


def agreement(early: Floats, late: Floats) -> float:
    """Kendall's tau of two orders, ties left out; 1 where nothing can be said. O(n^2), for at most 64 of them."""
    if len(early) > 64:  # evenly spaced over the ranks: the figure does not change, the cost would
        pick = np.argsort(late, kind="stable")[np.linspace(0, len(late) - 1, 64).astype(np.intp)]
        early, late = early[pick], late[pick]
    with np.errstate(over="ignore"):  # the difference of two huge values is infinite, and has its sign
        agree = np.sign(early[:, None] - early) * np.sign(late[:, None] - late)
    pairs = np.count_nonzero(agree)
    return float(agree.sum()) / pairs if pairs else 1.0


def option_value(chance: Floats, look: float) -> float:
    """The index of a trial that has not been opened: had n trials been opened for the best k of them, the others
    dropped after a look, this is the probability that a unit of training would have bought; for the best k.
    """
    n = len(chance)
    if not n:
        return 1.0
    falling = chance.copy()
    falling.sort()
    bought = falling[::-1].cumsum()
    return float((bought / (n * look + np.arange(1, n + 1) * (1.0 - look))).max())


def _pace(seen: Board) -> float:
    """GPU seconds of one step, over all trials that have shown any."""
    told = (seen.step > 0.0).nonzero()[0]
    steps, seconds = float(seen.step[told].sum()), float(seen.seconds[told].sum())
    pace = seconds / steps if steps > 0.0 else 0.0
    return pace if pace > LEAST_PACE else 1.0


def _gap(seen: Board) -> float:
    """Median steps between two values of a trial; 0 before any."""
    told = seen.points.nonzero()[0]
    return middle(seen.step[told] / seen.evaluations[told]) if len(told) else 0.0


def _trained(seen: Board, pace: float, gap: float, length: float) -> Floats:
    """By row, in steps. A trial may have trained beyond its last value, by one distance of values at most: one that is
    slower than the others, or has done steps twice, has had more seconds without being further.
    """
    shown = np.maximum(seen.step, 0.0)
    ahead = shown + np.maximum(shown / seen.evaluations, gap)
    return cast(Floats, np.minimum(np.maximum(shown, np.minimum(seen.seconds / pace, ahead)), length))
