"""Metrics that the SGPRS and DARIS papers report: deadline misses, frames a second and response times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from podium_realtime.model.task import Priority
from podium_realtime.scheduling.jobs import JobOutcome, JobResult

DROPPED = (JobOutcome.REJECTED, JobOutcome.SHED)


@dataclass(frozen=True, slots=True)
class Summary:
    """Metrics of a run. Ratios are from 0 to 1, times in seconds.

    `missed`: ratio of releases that did not finish in time (late, skipped, rejected or shed).
    `accepted_missed`: the same for releases that were neither rejected nor shed (the measure of DARIS).
    `fps`: frames a second that finished, late ones included.
    `fps_in_time`: frames a second that met their deadline.
    `dropped`: ratio of releases that were rejected or shed.
    p99_response: 99th percentile of the response times.
    """

    releases: int
    missed: float
    accepted_missed: float
    fps: float
    fps_in_time: float
    dropped: float
    p99_response: float


def summarise(
    jobs: Iterable[JobResult], seconds: float, warm_up: float = 0.0, priority: Priority | None = None
) -> Summary:
    """Return the metrics of the jobs between `warm_up` and `seconds`.

    Misses are counted for releases whose deadline lies in (warm_up, seconds], so that none is judged early. Frames are
    counted by their finish time.

    `priority`: count only tasks of this priority.
    """
    chosen = [result for result in jobs if priority is None or result.job.task.priority is priority]
    judged = [result for result in chosen if warm_up < result.job.deadline <= seconds]
    met = sum(result.outcome is JobOutcome.MET for result in judged)
    dropped = sum(result.outcome in DROPPED for result in judged)
    finished = [result for result in chosen if result.finished is not None and warm_up < result.finished <= seconds]
    in_time = sum(result.outcome is JobOutcome.MET for result in finished)
    responses = sorted(result.response_time for result in finished if result.response_time is not None)
    duration = seconds - warm_up
    accepted = len(judged) - dropped
    return Summary(
        len(judged),
        1.0 - met / len(judged) if judged else 0.0,
        1.0 - met / accepted if accepted else 0.0,
        len(finished) / duration,
        in_time / duration,
        dropped / len(judged) if judged else 0.0,
        responses[min(len(responses) - 1, int(0.99 * len(responses)))] if responses else 0.0,
    )
