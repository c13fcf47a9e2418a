"""What a trial has saved, and what it lost when a pod of it ended: values that the account holds. Pure.

A loss is what a new attempt has to do again: the steps printed after the save that it goes on from, and the GPU-seconds
since that save. It is counted when the attempt's record begins (its first status patch), so once and by one agent only,
whichever node it is on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_RECENT = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What a marker says: `step` is saved at `path` in the trial's folder; `on_request`: the script can be asked."""

    step: float
    path: str = "."
    on_request: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What a gate said of the folder before its trial started; `mark` None: there was no save in it."""

    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Save:
    """The newest save that was seen. `gpu_seconds` of the trial at that moment, `attempt` that wrote it."""

    step: float
    at: float
    path: str = "."
    node: str = ""
    gpu_seconds: float = 0.0
    attempt: int = 0

    def is_of(self, mark: Mark) -> bool:
        return (self.step, self.path) == (mark.step, mark.path)


@dataclass(frozen=True, slots=True)
class Loss:
    """What attempt number `attempt` has to do again: from `resumed_from` to `step`, the last that was printed."""

    attempt: int
    at: float
    step: float
    resumed_from: float
    steps: float
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class Losses:
    """`count` and `recent` are of attempts that lost steps; `gpu_seconds` also holds what led to no further step.

    `accounted_gpu_seconds`: the trial's GPU-seconds at the last count, so that none is counted twice.
    """

    count: int = 0
    steps: float = 0.0
    gpu_seconds: float = 0.0
    accounted_gpu_seconds: float = 0.0
    recent: tuple[Loss, ...] = ()


def going_on_from(
    said: Said | None, known: Save | None, node: str, attempt: int, reached: float | None, spent: float, now: float
) -> Save | None:
    """The save that this attempt goes on from, None: it begins anew. `said` None: the gate was not heard.

    The folder, as found on this `node`, knows better than the status: a node may have died between a save and the
    agent's look at it. When such a save was written is not known; its GPU-seconds are set between those of the save
    before it and the end (`spent`), as its step is.
    """
    if said is None or (said.mark is not None and known is not None and known.is_of(said.mark)):
        return known
    if said.mark is None:
        return None
    begin, gpu = (known.step, known.gpu_seconds) if known is not None else (0.0, 0.0)
    if said.mark.step < begin:  # somebody put an older save back
        return Save(said.mark.step, now, said.mark.path, node, gpu * said.mark.step / begin, max(0, attempt - 1))
    part = 1.0
    if reached is not None and reached > begin:
        part = min(1.0, max(0.0, (said.mark.step - begin) / (reached - begin)))
    return Save(said.mark.step, now, said.mark.path, node, gpu + part * max(0.0, spent - gpu), max(0, attempt - 1))


def count(losses: Losses, save: Save | None, attempt: int, reached: float | None, spent: float, now: float) -> Losses:
    """The losses once this attempt goes on from `save`, and the one before ended at step `reached`; `spent`: the
    trial's GPU-seconds so far."""
    step = 0.0 if reached is None else reached
    resumed_from = 0.0 if save is None else save.step
    since = max(losses.accounted_gpu_seconds, 0.0 if save is None else save.gpu_seconds)
    loss = Loss(attempt, now, step, resumed_from, max(0.0, step - resumed_from), max(0.0, spent - since))
    losses = replace(
        losses,
        gpu_seconds=losses.gpu_seconds + loss.gpu_seconds,
        accounted_gpu_seconds=max(spent, losses.accounted_gpu_seconds),
    )
    if loss.steps <= 0.0:
        return losses
    recent = (*losses.recent, loss)[-MOST_RECENT:]
    return replace(losses, count=losses.count + 1, steps=losses.steps + loss.steps, recent=recent)


def further_back(losses: Losses, attempt: int, begun_at: float, steps: float, now: float) -> Losses:
    """The losses once this attempt is seen to do `steps` more again than from the save at step `begun_at`: the script
    went on from an older one (its `PODIUM_RESUME`, where a node died before the newest was seen), or from none.
    """
    known = losses.recent[-1] if losses.recent and losses.recent[-1].attempt == attempt else None
    loss = known or Loss(attempt, now, begun_at, begun_at, 0.0, 0.0)
    gpu_seconds = losses.accounted_gpu_seconds * min(1.0, steps / loss.step)
    loss = replace(
        loss,
        resumed_from=loss.resumed_from - steps,
        steps=loss.steps + steps,
        gpu_seconds=loss.gpu_seconds + gpu_seconds,
    )
    return replace(
        losses,
        count=losses.count + (known is None),
        steps=losses.steps + steps,
        gpu_seconds=losses.gpu_seconds + gpu_seconds,
        recent=(*(losses.recent if known is None else losses.recent[:-1]), loss)[-MOST_RECENT:],
    )
