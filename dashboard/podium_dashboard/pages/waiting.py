"""Card of one search: why it does not run now, and when it will, as `podium explain job` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from podium_core.waiting.explanation import QueuedTrial, Reason
from podium_dashboard.background.runner import Result
from podium_dashboard.background.tasks import Explained
from podium_dashboard.pages.page import Fragment, fragment
from podium_views import formatting
from podium_views.waiting import ahead_text, interval_text

MAX_AHEAD, MAX_QUEUE = 8, 8


@dataclass(frozen=True, slots=True)
class WaitTexts:
    """What the card shows. `facts`: names with their texts."""

    state: str
    summary: str
    reasons: tuple[Reason, ...]
    facts: tuple[tuple[str, str], ...]
    queue: tuple[QueuedTrial, ...]
    more: int
    interval: str
    assumptions: tuple[str, ...]


def waiting_card(result: Result | None, *, partial: bool = False) -> Fragment:
    """Return the card; it is empty for a search that has ended.

    `partial`: other searches may be ahead, unseen.
    """
    found = result.value if result is not None else None
    shown = waiting(found) if isinstance(found, Explained) else None
    hidden = isinstance(found, Explained) and found.explanation.state == "Ended"
    problem = "" if result is None else result.problem
    return fragment("waiting", "waiting.html.j2", waiting=shown, hidden=hidden, problem=problem, partial=partial)


def waiting(explained: Explained) -> WaitTexts:
    """Return the texts of an explanation."""
    made, times = explained.explanation, explained.times
    facts = []
    if made.position is not None:
        total = formatting.count(len(made.queue), "waiting trial")
        facts.append(("Position", f"{made.position} of {total} of all searches"))
    facts += [("Ahead", ahead_text(one)) for one in made.ahead[:MAX_AHEAD]]
    interval, assumptions = "", tuple[str, ...]()
    if times is not None and times.unknown:
        facts.append(("Expected", times.unknown))
    elif times is not None:
        if times.start is not None:
            facts.append(("Next start", interval_text(times.start, explained.now)))
        if times.end is not None:
            facts.append(("End", interval_text(times.end, explained.now)))
        interval = f"{100 * times.level:.0f} % of {formatting.count(times.samples, 'simulated sample')}"
        assumptions = times.assumptions
    facts.append(("As of", f"{datetime.fromtimestamp(explained.now, UTC):%Y-%m-%d %H:%M:%S} UTC"))
    return WaitTexts(
        state=made.state,
        summary=made.summary,
        reasons=made.reasons,
        facts=tuple(facts),
        queue=made.queue[:MAX_QUEUE],
        more=len(made.queue) - MAX_QUEUE,
        interval=interval,
        assumptions=assumptions,
    )
