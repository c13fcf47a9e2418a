"""Output of `podium explain job`: reasons with cures, position, what is ahead, GPUs and expected times."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from podium_cli.structured import time
from podium_core.waiting.explanation import GpuState
from podium_simulator.expected.times import ExpectedTimes, Interval
from podium_views import formatting
from podium_views.waiting import ahead_text, interval_text

if TYPE_CHECKING:
    from podium_cli.commands.explain_job import ExplainedJob

SHOWN_QUEUE, SHOWN_GPUS, SHOWN_AHEAD = 8, 16, 8


def lines(explained: ExplainedJob) -> list[str]:
    """Return the lines of the explanation."""
    made, now = explained.explanation, explained.now
    output = [f"job          {made.namespace}/{made.job}", f"state        {made.state}  {made.summary}"]
    for reason in made.reasons:
        output.append(f"reason       {reason.code}: {formatting.clean(reason.message)}")
        output.append(f"cure         {formatting.clean(reason.cure)}")
    if not made.reasons:
        output.append("reason       none: nothing of the search waits")
    if made.position is not None:
        output.append(
            f"position     {made.position} of {formatting.count(len(made.queue), 'waiting trial')} of all jobs"
        )
    output += [f"ahead        {ahead_text(one)}" for one in made.ahead[:SHOWN_AHEAD]]
    for one in made.queue[:SHOWN_QUEUE]:
        where = "on its GPU" if one.has_slot else "for a slot"
        mine = "" if (one.namespace, one.job) == (made.namespace, made.job) else f" of {one.namespace}/{one.job}"
        output.append(f"queue        {one.position}. {one.trial}{mine} waits {where}: {one.reason}")
    if len(made.queue) > SHOWN_QUEUE:
        output.append(f"             and {formatting.count(len(made.queue) - SHOWN_QUEUE, 'trial')} behind them")
    output += [f"GPU          {formatting.clean(_gpu(gpu, now))}" for gpu in made.gpus[:SHOWN_GPUS]]
    if len(made.gpus) > SHOWN_GPUS:
        output.append(f"             and {formatting.count(len(made.gpus) - SHOWN_GPUS, 'GPU')} more")
    if not explained.all_namespaces:
        output.append("note         jobs of other namespaces are not counted, because you may not read them")
    return [*output, *_times(explained.times, now)]


def _gpu(gpu: GpuState, now: float) -> str:
    held = "" if gpu.since is None else f" Since {formatting.duration(now - gpu.since)}."
    return f"{gpu.message}{held}"


def _times(times: ExpectedTimes | None, now: float) -> list[str]:
    if times is None:
        return []
    if times.unknown:
        return [f"expected     {times.unknown}"]
    output = []
    if times.start is not None:
        output.append(f"next start   {interval_text(times.start, now)}")
    if times.end is not None:
        output.append(f"end          {interval_text(times.end, now)}")
    level = f"{100 * times.level:.0f} %"
    output.append(f"interval     {level} of {formatting.count(times.samples, 'simulated sample')}; it assumes that")
    return [*output, *(f"             - {one}" for one in times.assumptions)]


def data(explained: ExplainedJob) -> dict[str, Any]:
    """Return the explanation for programs; unknown values are null."""
    made, now = explained.explanation, explained.now
    return {
        "namespace": made.namespace,
        "name": made.job,
        "state": made.state,
        "summary": made.summary,
        "trials": {"running": made.running, "waiting": made.waiting, "toCome": made.to_come},
        "reasons": [asdict(one) | {"trials": list(one.trials)} for one in made.reasons],
        "position": made.position,
        "waiting": len(made.queue),
        "ahead": [asdict(one) for one in made.ahead],
        "queue": [
            {
                "position": one.position,
                "namespace": one.namespace,
                "trial": one.trial,
                "job": one.job,
                "hasSlot": one.has_slot,
                "reason": one.reason,
                "message": one.message,
            }
            for one in made.queue
        ],
        "gpus": [_gpu_data(gpu) for gpu in made.gpus],
        "allNamespaces": explained.all_namespaces,
        "expected": None if explained.times is None else _times_data(explained.times, now),
    }


def _gpu_data(gpu: GpuState) -> dict[str, Any]:
    return {
        "gpu": gpu.name,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "use": gpu.use,
        "reason": gpu.code,
        "message": gpu.message,
        "by": gpu.by or None,
        "job": gpu.job or None,
        "since": None if gpu.since is None else time(datetime.fromtimestamp(gpu.since, UTC)),
        "freeSlots": gpu.free_slots,
    }


def _times_data(times: ExpectedTimes, now: float) -> dict[str, Any]:
    return {
        "nextStart": _interval_data(times.start, now),
        "end": _interval_data(times.end, now),
        "trials": [{"trial": one.trial, "start": _interval_data(one.start, now)} for one in times.starts],
        "level": times.level,
        "samples": times.samples,
        "assumptions": list(times.assumptions),
        "unknown": times.unknown or None,
    }


def _interval_data(interval: Interval | None, now: float) -> dict[str, Any] | None:
    """Return seconds and times; null where it is never reached."""
    if interval is None:
        return None
    named = {"low": interval.low, "median": interval.median, "high": interval.high}
    finite = {name: None if math.isinf(one) else round(one, 3) for name, one in named.items()}
    at = {name: None if one is None else time(datetime.fromtimestamp(now + one, UTC)) for name, one in finite.items()}
    return {"seconds": finite, "at": at}
