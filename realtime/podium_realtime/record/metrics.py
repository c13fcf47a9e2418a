"""What the papers report of a run: missed deadlines, frames a second, responses. Called by scenarios and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from podium_realtime.model.task import Priority
from podium_realtime.scheduling.work import JobEnd, Outcome

REJECTED = (Outcome.REFUSED, Outcome.SHED)


@dataclass(frozen=True, slots=True)
class Summary:
    """`missed`: share of releases that did not finish in time (late, skipped, refused, shed). `accepted_missed`: the
    same of the releases that were neither refused nor shed (DARIS' measure). `fps`: all frames that finished, late ones
    too; `fps_in_time`: without them.
    """

    releases: int
    missed: float
    accepted_missed: float
    fps: float
    fps_in_time: float
    rejected: float
    p99_response: float


def summarise(
    ends: Iterable[JobEnd], seconds: float, warm_up: float = 0.0, priority: Priority | None = None
) -> Summary:
    """Of releases whose deadline lies in (warm_up, seconds], so none is judged before its time; frames count by when
    they finished. Times in seconds.
    """
    chosen = [end for end in ends if priority is None or end.job.task.priority is priority]
    judged = [end for end in chosen if warm_up < end.job.deadline <= seconds]
    met = sum(end.outcome is Outcome.MET for end in judged)
    rejected = sum(end.outcome in REJECTED for end in judged)
    finished = [end for end in chosen if end.finished is not None and warm_up < end.finished <= seconds]
    in_time = sum(end.outcome is Outcome.MET for end in finished)
    responses = sorted(end.response for end in finished if end.response is not None)
    span = seconds - warm_up
    accepted = len(judged) - rejected
    return Summary(
        len(judged),
        1.0 - met / len(judged) if judged else 0.0,
        1.0 - met / accepted if accepted else 0.0,
        len(finished) / span,
        in_time / span,
        rejected / len(judged) if judged else 0.0,
        responses[min(len(responses) - 1, int(0.99 * len(responses)))] if responses else 0.0,
    )
