"""The page of bench-katib. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.katib.measured import Search

KATIB_RANDOM, KATIB_TPE, PODIUM, PODIUM_MEDIAN = "katib-random", "katib-tpe", "podium", "podium-median"
TITLES = {
    KATIB_RANDOM: "Katib: random points, median stopping",
    KATIB_TPE: "Katib: TPE",
    PODIUM: "Podium: the same random points",
    PODIUM_MEDIAN: "Podium: the same random points, median stopping",
}
RIVALS = ((PODIUM, KATIB_RANDOM), (PODIUM, KATIB_TPE), (PODIUM_MEDIAN, KATIB_RANDOM))  # contenders that are compared
Searches = Sequence[Mapping[str, Search]]  # by contender, for each seed


def same_points(searches: Mapping[str, Search]) -> int:
    """Return the number of points that Katib and Podium both trained to the end, with equal final values.

    Raises ValueError if the values of a point differ: then the contenders did not do the same work.
    """

    def finals(contender: str) -> dict[tuple[tuple[str, float | str], ...], float | None]:
        trials = [one for one in searches[contender].trials if one.phase == "Succeeded"]
        return {_key(one.point): one.final for one in trials}

    podium = finals(PODIUM)
    others = {name: finals(name) for name in (KATIB_RANDOM, PODIUM_MEDIAN)}
    for name, values in others.items():
        for point in podium.keys() & values.keys():
            if podium[point] != values[point]:
                raise ValueError(
                    f"final values differ at {dict(point)}: {values[point]} in {name}, {podium[point]} in podium"
                )
    return len(podium.keys() & others[KATIB_RANDOM].keys())


def _key(point: Mapping[str, str]) -> tuple[tuple[str, float | str], ...]:
    return tuple(sorted((name, _number(value)) for name, value in point.items()))


def _number(text: str) -> float | str:
    try:
        return round(float(text), 6)
    except ValueError:
        return text


def seeds_table(searches: Searches) -> list[str]:
    """Return the rows of every search, the losses included."""
    titles = ["Seed", "Contender", "Best final value", "Best trial finished, s", "Search ended, s", "First work, s"]
    titles += ["Stopped early", "GPU-seconds held", "GPU-seconds busy"]
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for seed, one in enumerate(searches):
        for name, title in TITLES.items():
            found = one[name]
            cells = [f"{found.best.final:.4f}", f"{found.best.ended:.0f}", f"{found.seconds:.0f}", f"{found.first:.0f}"]
            cells += [f"{found.stopped} of {len(found.trials)}", f"{found.held:.0f}", f"{found.busy:.0f}"]
            lines.append(f"| {seed} | {title} | {' | '.join(cells)} |")
    return lines


def ratios(searches: Searches, own: str, rival: str) -> dict[str, Any]:
    """Return the figures of a search of Katib (`rival`) divided by those of one of Podium (`own`).

    Each is given by seed and as the geometric mean.

    `best`: until the eventually best trial of each has finished; `as_good`: until Podium has finished a trial at least
    as good as the rival's best, None where it never does; `end`: until the search has ended.
    """
    pairs = [(one[rival], one[own]) for one in searches]
    goal = [podium.reached(katib.best.final or -math.inf) for katib, podium in pairs]
    by_seed: dict[str, list[float | None]] = {
        "best": [katib.best.ended / podium.best.ended for katib, podium in pairs],
        "as_good": [
            None if mine is None else katib.best.ended / mine for mine, (katib, _) in zip(goal, pairs, strict=True)
        ],
        "end": [katib.seconds / podium.seconds for katib, podium in pairs],
        "held": [katib.held / podium.held for katib, podium in pairs],
        "busy": [katib.busy / podium.busy for katib, podium in pairs],
    }
    return {
        name: {"by_seed": [one if one is None else round(one, 2) for one in values], "mean": geometric_mean(values)}
        for name, values in by_seed.items()
    }


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean of the values that are given; None without any."""
    given = [math.log(one) for one in values if one is not None]
    return round(math.exp(statistics.fmean(given)), 2) if given else None


def comparison_table(searches: Searches) -> list[str]:
    """Return the rows of the ratios, with the seeds that Podium loses."""
    texts = {
        "best": "Until the eventually best trial has finished",
        "as_good": "Until a trial at least as good as Katib's best has finished",
        "end": "Until the search has ended",
        "held": "GPU-seconds held",
        "busy": "GPU-seconds busy",
    }
    lines = ["| Katib's figure divided by Podium's | Podium | Against | By seed | Geometric mean | Podium loses |"]
    lines.append("| --- " * 6 + "|")
    for own, rival in RIVALS:
        for name, found in ratios(searches, own, rival).items():
            by_seed = found["by_seed"]
            lost = sum(one is None or one < 1.0 for one in by_seed)
            shown = ", ".join("never" if one is None else f"{one:.2f}" for one in by_seed)
            mean = "" if found["mean"] is None else f"{found['mean']:.2f}"
            titles = f"{TITLES[own]} | {TITLES[rival]}".replace("Podium: ", "").replace("Katib: ", "")
            lines.append(f"| {texts[name]} | {titles} | {shown} | {mean} | {lost} of {len(by_seed)} |")
    return lines


def result(searches: Searches) -> dict[str, Any]:
    """Return the figures of the line RESULT."""
    figures = {
        name: {
            "best": [round(one[name].best.final or 0.0, 4) for one in searches],
            "seconds_to_best": [round(one[name].best.ended, 1) for one in searches],
            "seconds": [round(one[name].seconds, 1) for one in searches],
            "first_work": [round(one[name].first, 1) for one in searches],
            "stopped": [one[name].stopped for one in searches],
            "held": [round(one[name].held, 1) for one in searches],
            "busy": [round(one[name].busy, 1) for one in searches],
        }
        for name in TITLES
    }
    against: dict[str, dict[str, Any]] = {own: {} for own, _ in RIVALS}
    for own, rival in RIVALS:
        against[own][rival] = ratios(searches, own, rival)
    return {"bench": "katib", "contenders": figures, "against": against}
