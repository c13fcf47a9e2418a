"""Katib's `pbt`: a population of Podium, or random search where Katib's never leaves its first generation.

Katib starts a new trial for every member of every generation, from a copy of a folder. In Podium a member trains to its
end as one trial, and only a part of them is replaced at each interval.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from podium_core.conversion.fields import Fields, Manifest, Report, number_of, shown
from podium_core.conversion.katib.settings import Setting
from podium_core.schema.search.population_settings import (
    INTERVAL,
    MAX_POPULATION,
    MAX_QUANTILE,
    PBT,
    POPULATION,
    QUANTILE,
    RESAMPLE,
)

FOLDER, SIZE, THRESHOLD, PROBABILITY = (
    "suggestion_trial_dir",
    "n_population",
    "truncation_threshold",
    "resample_probability",
)


class KatibPopulation(NamedTuple):
    """The search, and the folder in which each trial expects its checkpoint.

    `size`: members of the population; 0 for random search.
    """

    search: Manifest
    folder: str | None = None
    size: int = 0


def katib_population(
    settings: Mapping[str, Setting], source: Fields, most: int | float | None, length: float | None
) -> KatibPopulation:
    """Return the search for Katib's `pbt`.

    `most`: number of trials. `length`: steps of a trial, as the caller gives it.
    """
    path, report = source.at("algorithmSettings"), source.report
    missing = [name for name in (FOLDER, SIZE, THRESHOLD) if name not in settings]
    if missing:
        report.refuse(path, f"pbt needs the setting {missing[0]}: add it", "Required")
        return KatibPopulation({})
    folder = posixpath.normpath(settings[FOLDER].value)
    if not folder.startswith("/") or folder == "/":
        text = f"{FOLDER} must be a folder such as /checkpoints, not {shown(settings[FOLDER].value)}"
        report.refuse(settings[FOLDER].path, text, "InvalidValue")
    size, chosen = number_of(settings[SIZE].value), _settings(settings, report)
    if not isinstance(size, int) or not 2 <= size <= MAX_POPULATION:
        text = f"{SIZE} must be a whole number from 2 to {MAX_POPULATION}, not {shown(settings[SIZE].value)}"
        report.refuse(settings[SIZE].path, text, "InvalidValue")
        return KatibPopulation({})
    if most is None:
        return KatibPopulation({})  # `maxTrialCount` is refused
    if most <= size:
        text = (
            f"maxTrialCount = {most:g} is not above {SIZE} = {size}, so Katib never leaves its first generation, which "
            f"is random, and so is this search: give --max-trials N above {size}, and --max-steps N, for algorithm pbt"
        )
        report.note(source.at("algorithmName"), text)
        return KatibPopulation({"algorithm": "random"}, folder)
    if length is None or not math.isfinite(length):
        text = "pbt compares trials at parts of their length, a number that no Experiment has: give --max-steps N"
        report.refuse(source.at("algorithmName"), text, "MaxStepsMissing")
        return KatibPopulation({})
    interval = length / -(-most // size)
    interval = interval if interval < 1.0 else number_of(float(int(interval))) or 1
    report.note(
        source.at("algorithmName"),
        f"a trial trains to step {length:g}, and the worst are replaced every {interval:g} steps; Katib starts a new "
        "trial for every member of every generation, and changes the survivors, too. Let the script train to step "
        f"{length:g}, and print values and write checkpoints at least every {interval:g} steps",
    )
    return KatibPopulation(
        {"algorithm": PBT, "settings": {POPULATION: size, INTERVAL: interval, **chosen}}, folder, size
    )


def _settings(settings: Mapping[str, Setting], report: Report) -> dict[str, int | float]:
    """Return the quantile and the probability."""
    threshold, given = settings[THRESHOLD], settings.get(PROBABILITY)
    quantile, probability = number_of(threshold.value), 0 if given is None else number_of(given.value)
    if quantile is None or not 0.0 < quantile <= MAX_QUANTILE:
        text = (
            f"{THRESHOLD} must be above 0, or no trial is replaced, and at most {MAX_QUANTILE}, or the worst trials "
            f"are among the best, not {shown(threshold.value)}"
        )
        report.refuse(threshold.path, text, "InvalidValue")
    if given is not None:
        if probability is None or not 0.0 <= probability <= 1.0:
            text = f"{PROBABILITY} must be a number from 0 to 1, not {shown(given.value)}"
            report.refuse(given.path, text, "InvalidValue")
        text = "a parameter that is not drawn at random is multiplied by 0.8 or 1.2; Katib leaves it as it is"
        report.note(given.path, text)
    return {QUANTILE: quantile or 0, RESAMPLE: probability or 0}
