"""What one trial has used, saved and lost, and what its suspensions cost: a value that grows with what happens. Pure.

Kept by the conductor's records, written to the trial's status by the reporter, read back when an agent starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from podium_agent.observe.trials import OCCUPYING
from podium_agent.report.lost_work import Losses, Mark, Said, Save, count, further_back, going_on_from
from podium_core.schema.gpunode import TrialState

MOST_HOLDS = 512
MOST_RECENT = 32


@dataclass(frozen=True, slots=True)
class Hold:
    """One turn on the GPUs; `end` None: it lasts."""

    gpus: tuple[str, ...]
    node: str
    start: float
    end: float | None = None

    def seconds(self, now: float) -> float:
        return max(0.0, (now if self.end is None else self.end) - self.start) * len(self.gpus)


@dataclass(frozen=True, slots=True)
class Cost:
    """One suspension: what it took to get off the GPU, and (once resumed) back on it."""

    method: str
    at: float
    suspend_seconds: float
    resume_seconds: float | None = None
    freed: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """`settled` are the GPU-seconds of holds that have ended, also of those no longer in the list."""

    holds: tuple[Hold, ...] = ()
    settled: float = 0.0
    count: int = 0
    suspend_seconds: float = 0.0
    resume_seconds: float = 0.0
    recent: tuple[Cost, ...] = ()
    saved: Save | None = None
    losses: Losses = field(default_factory=Losses)

    def gpu_seconds(self, now: float) -> float:
        return self.settled + sum(hold.seconds(now) for hold in self.holds[-1:] if hold.end is None)


def follow(account: Account, state: TrialState | None, gpus: tuple[str, ...], node: str, now: float) -> Account:
    """The account after the trial is in this state (None: it has ended). Nothing changes while it stays in a kind."""
    last = account.holds[-1] if account.holds and account.holds[-1].end is None else None
    holds = state in OCCUPYING
    if last is not None and (not holds or (last.gpus, last.node) != (gpus, node)):
        ended = replace(last, end=max(now, last.start))
        account = replace(account, holds=(*account.holds[:-1], ended), settled=account.settled + ended.seconds(now))
        last = None
    if holds and last is None and gpus:
        account = replace(account, holds=(*account.holds, Hold(gpus, node, now))[-MOST_HOLDS:])
    return account


def suspended(account: Account, cost: Cost) -> Account:
    return replace(
        account,
        count=account.count + 1,
        suspend_seconds=account.suspend_seconds + cost.suspend_seconds,
        recent=(*account.recent, cost)[-MOST_RECENT:],
    )


def resumed(account: Account, seconds: float) -> Account:
    recent = account.recent
    if recent and recent[-1].resume_seconds is None:
        recent = (*recent[:-1], replace(recent[-1], resume_seconds=seconds))
    return replace(account, resume_seconds=account.resume_seconds + seconds, recent=recent)


def saw(account: Account, mark: Mark, node: str, attempt: int, now: float) -> Account:
    """The account after this marker was seen; the one that is known already changes nothing."""
    if account.saved is not None and account.saved.is_of(mark):
        return account
    return replace(account, saved=Save(mark.step, now, mark.path, node, account.gpu_seconds(now), attempt))


def taken_over(
    account: Account,
    said: Said | None,
    node: str,
    attempt: int,
    reached: float | None,
    spent: float,
    now: float,
    *,
    carried: bool = False,
) -> Account:
    """The account as an attempt begins: what the one before lost is counted. `reached`: the step at which it ended,
    `spent`: the GPU-seconds it reported. `carried`: its process goes on in this attempt, so nothing is lost.

    A hold that nobody ended was on a node that died: it lasted for what was reported of it.
    """
    last = account.holds[-1] if account.holds and account.holds[-1].end is None else None
    if last is not None:
        part = max(0.0, spent - account.settled) / len(last.gpus) if last.gpus else 0.0
        ended = replace(last, end=last.start + part)
        settled = account.settled + ended.seconds(now)
        account = replace(account, holds=(*account.holds[:-1], ended), settled=settled)
    if carried:
        return account
    save = going_on_from(said, account.saved, node, attempt, reached, account.settled, now)
    losses = count(account.losses, save, attempt, reached, account.settled, now)
    return replace(account, saved=save, losses=losses)


def fell_back(account: Account, attempt: int, begun_at: float, steps: float, now: float) -> Account:
    """The account once the script was seen to begin so many steps before the save that it could go on from."""
    return replace(account, losses=further_back(account.losses, attempt, begun_at, steps, now))
