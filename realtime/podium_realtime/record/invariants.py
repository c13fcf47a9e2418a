"""What must hold of every run under every policy. `violations` lists what does not, as sentences.

Held by the property tests on the simulated GPU and by the contract tests on real cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podium_realtime.record.run import Run, Span
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.pool import ContextSpec
from podium_realtime.scheduling.work import Outcome, ReadyStage

_ROUNDING = 1e-9  # seconds


def violations(run: Run, pool: Sequence[ContextSpec], policy: Policy, shared_queue: bool) -> list[str]:
    """Empty for a sound run. `shared_queue`: the policy binds stages to contexts only when they start."""
    return [
        *_precedence(run),
        *_room(run, pool),
        *_streams(run),
        *_order(run, policy, shared_queue),
        *_outcomes(run),
    ]


def _precedence(run: Run) -> Iterator[str]:
    """No stage begins before its predecessors are done, none runs twice."""
    done: dict[tuple[tuple[str, int], int], float] = {}
    for span in run.spans:
        for ready in span.work.stages:
            if (ready.job.key, ready.index) in done:
                yield f"{_name(ready)} ran twice"
            done[(ready.job.key, ready.index)] = span.ended
    for span in run.spans:
        for ready in span.work.stages:
            for before in ready.stage.after:
                ended = done.get((ready.job.key, before))
                if ended is None or ended > span.began + _ROUNDING:
                    yield f"{_name(ready)} began at {span.began:.6f}, stage {before} ended at {ended}"


def _room(run: Run, pool: Sequence[ContextSpec]) -> Iterator[str]:
    """No context has more works on the device than its `in_flight`, nor more committed than that times `depth`."""
    for context in pool:
        mine = [span for span in run.spans if span.work.context == context.number]
        running = _most([(span.began, span.ended) for span in mine])
        if running > context.in_flight:
            yield f"context {context.number} ran {running} works at once, {context.in_flight} are allowed"
        committed = _most([(span.work.committed, span.ended) for span in mine])
        if committed > context.in_flight * context.depth:
            yield f"context {context.number} had {committed} works, {context.in_flight} x {context.depth} are allowed"


def _streams(run: Run) -> Iterator[str]:
    """A stream runs one work at a time, in the order of their commitment."""
    last: dict[tuple[int, int], Span] = {}
    for span in sorted(run.spans, key=lambda span: span.work.number):
        place = (span.work.context, span.work.stream)
        before = last.get(place)
        if before is not None and span.began < before.ended - _ROUNDING:
            yield f"stream {place} began work {span.work.number} before work {before.work.number} was done"
        last[place] = span


def _order(run: Run, policy: Policy, shared_queue: bool) -> Iterator[str]:
    """What was committed had the smallest key (EDF within its level) of what waited for the same streams."""
    spans = sorted(run.spans, key=lambda span: span.work.number)
    for place, span in enumerate(spans):
        head, moment = span.work.stages[0], span.work.committed
        for later in spans[place + 1 :]:
            if not shared_queue and later.work.context != span.work.context:
                continue
            for ready in later.work.stages:
                waited = ready.ready < moment - _ROUNDING and policy.stream(ready) is policy.stream(head)
                if waited and policy.key(ready, moment) < policy.key(head, moment):
                    yield f"{_name(head)} went before {_name(ready)} at {moment:.6f}"


def _outcomes(run: Run) -> Iterator[str]:
    """Each release ends once, in number order of its task or skipped; MET means in time and LATE late."""
    seen: set[tuple[str, int]] = set()
    for end in run.ends:
        if end.job.key in seen:
            yield f"{end.job.key} ended twice"
        seen.add(end.job.key)
        if (end.finished is not None) != (end.outcome in (Outcome.MET, Outcome.LATE)):
            yield f"{end.job.key} is {end.outcome.value} and finished at {end.finished}"
        if end.finished is not None and (end.finished <= end.job.deadline) != (end.outcome is Outcome.MET):
            yield f"{end.job.key} is {end.outcome.value}, finished {end.finished:.6f}, deadline {end.job.deadline:.6f}"


def _most(intervals: Sequence[tuple[float, float]]) -> int:
    """How many of these overlap at most; touching is no overlap."""
    events = sorted([(end - _ROUNDING, -1) for _, end in intervals] + [(start, 1) for start, _ in intervals])
    most = now = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most


def _name(ready: ReadyStage) -> str:
    return f"stage {ready.index} of {ready.job.task.name} #{ready.job.number}"
