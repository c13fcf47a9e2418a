"""`search.settings`: what each algorithm can be told; and which of them learn. Called by `validation`, `job_view`, the
actuator and the searchers.
"""

from __future__ import annotations

from collections.abc import Iterator

from podium_core.schema.job import JobSpec
from podium_core.schema.rules import Refusal

STARTUP, MOST_STARTUP, USUAL_STARTUP = "startupTrials", 10_000, 10
KNOWN = {"random": (), "grid": (), "tpe": (STARTUP,)}
LEARNING = frozenset({"tpe"})


def learns(spec: JobSpec) -> bool:
    """Whether proposals depend on what the search's trials have shown: then a trial is better made late."""
    return spec.search.algorithm in LEARNING


def startup_trials(spec: JobSpec) -> int:
    """How many trials must have shown a value before tpe chooses by values."""
    return int(spec.search.settings.get(STARTUP, USUAL_STARTUP))


def setting_refusals(spec: JobSpec) -> Iterator[Refusal]:
    algorithm, settings = spec.search.algorithm, spec.search.settings
    known = KNOWN[algorithm]
    for name in sorted(settings.keys() - set(known)):
        knows = f"knows {', '.join(known)} alone" if known else "has no settings"
        message = f"algorithm {algorithm} {knows}: remove {name}"
        yield Refusal("UnknownSetting", f"spec.search.settings.{name}", message)
    value = settings.get(STARTUP, USUAL_STARTUP)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if STARTUP in known and not (whole and 1 <= int(value) <= MOST_STARTUP):
        message = f"startupTrials is {value!r}: give a whole number from 1 to {MOST_STARTUP}"
        yield Refusal("InvalidSetting", f"spec.search.settings.{STARTUP}", message)
