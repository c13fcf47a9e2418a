"""What-if page of one search: its curves replayed under every policy, and what the default saved against fifo."""

from __future__ import annotations

from dataclasses import dataclass

from podium_core.schema.job import PolicySpec
from podium_dashboard.background.replay import MEASURE_TEXT, PolicyResult, Replay
from podium_dashboard.pages.page import Extra, Fragment, fragment
from podium_dashboard.state import Key, State
from podium_simulator.replay.comparison import BASE
from podium_views import formatting

DEFAULT = PolicySpec().name
EQUAL = 1.0  # a ratio of 1: as fast as fifo
FEW = 5  # repetitions: fewer give an interval that is too narrow


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy in the table."""

    name: str
    mark: str
    seconds: str
    ratio: str
    interval: str
    worst: str


def fragments(state: State, key: Key, extra: Extra) -> tuple[Fragment, ...]:
    """Return the fragments of the page; none if there is no such search."""
    search = state.by_key.get(key)
    if search is None:
        return ()
    result = extra.replay
    replay = result.value if result is not None and isinstance(result.value, Replay) else None
    own = search.job.spec.policy.name
    values = {
        "namespace": key[0],
        "name": key[1],
        "replaying": extra.replaying,
        "problem": "" if result is None else result.problem,
        "replay": replay,
        "outdated": result is not None and result.stamp != search.done,
        "verdict": "" if replay is None else verdict(replay),
        "measure": MEASURE_TEXT,
        "rows": [] if replay is None else [row(one, own) for one in replay.policies],
        "unknown": [] if replay is None else unknowns(replay),
    }
    return (fragment("whatif", "what_if.html.j2", **values),)


def row(one: PolicyResult, own: str) -> PolicyRow:
    """Return the row of one policy; `own` is the policy of the search."""
    marks = [text for name, text in ((own, "of this search"), (DEFAULT, "default")) if one.name == name]
    ratio = one.ratio
    return PolicyRow(
        name=one.name,
        mark=", ".join(marks),
        seconds=formatting.duration(one.seconds),
        ratio=formatting.NOTHING if ratio is None else f"{ratio.mean:.2f}",
        interval=formatting.NOTHING if ratio is None else f"{ratio.low:.2f} to {ratio.high:.2f}",
        worst=formatting.NOTHING if ratio is None else f"{ratio.worst:.2f}",
    )


def verdict(replay: Replay) -> str:
    """Return what the default saves against first come, first served, as one sentence."""
    default, base = replay.of(DEFAULT), replay.of(BASE)
    if default is None or base is None or default.ratio is None or default.seconds is None or base.seconds is None:
        return "No repetition completed its best trial, so nothing can be said."
    ratio, saved = default.ratio, base.seconds - default.seconds
    interval = f"{ratio.low:.2f} to {ratio.high:.2f} times as fast"
    if replay.repetitions < FEW:
        shown = formatting.count(replay.repetitions, "repetition")
        return f"Only {shown} fitted into the time: {DEFAULT} is about {ratio.mean:.2f} times as fast as {BASE}."
    if ratio.low <= EQUAL <= ratio.high:
        return f"No difference is certain: {DEFAULT} is {interval} as {BASE} on these curves."
    word = "saves" if saved >= 0 else "costs"
    shown = formatting.duration(abs(saved))
    return f"{DEFAULT} {word} {shown} against {BASE} until the best trial has completed: it is {interval}."


def unknowns(replay: Replay) -> list[str]:
    """Return what the replay does not know, as sentences."""
    known = [
        "The interval (95 %) is over random orders of the same trials. It says nothing about other searches.",
        "Pods that fail, other searches on the same GPUs and the start of pods are not replayed.",
        "The search algorithm would have proposed other trials under another policy; here they are the same.",
    ]
    if replay.repetitions < FEW:
        known.insert(0, "The interval comes from few repetitions and is too narrow.")
    if replay.left_out:
        were = "trial has" if replay.left_out == 1 else "trials have"
        text = f"{replay.left_out} {were} no whole curve and are left out."
        known.insert(0, f"{text} A policy that ends bad trials early saves less on the rest.")
    return known
