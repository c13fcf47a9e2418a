"""Registry of policies by name, and of their settings (`policy.settings` of a job).

The planner calls it, and the operator's validation, which turns errors into Accepted=False.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from podium_core.domain.snapshot import Scalar
from podium_core.policies.asha import Asha
from podium_core.policies.base import Policy
from podium_core.policies.best_so_far import BestSoFar
from podium_core.policies.envelope import Envelope
from podium_core.policies.fifo import Fifo
from podium_core.policies.hermes import Hermes
from podium_core.policies.hyperband import Hyperband
from podium_core.policies.median_stop import MedianStop
from podium_core.policies.pareto import Pareto
from podium_core.policies.pop import Pop
from podium_core.policies.round_robin import RoundRobin
from podium_core.policies.slaq import Slaq


class PolicyError(ValueError):
    code = "InvalidPolicy"


class UnknownPolicyError(PolicyError):
    code = "UnknownPolicy"


class UnknownSettingError(PolicyError):
    code = "UnknownPolicySetting"


class InvalidSettingError(PolicyError):
    code = "InvalidPolicySetting"


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting: the policy's field that it fills, and its type (a number, or one of some words)."""

    field: str
    kind: type[int] | type[float] | tuple[str, ...]

    def parse(self, value: Scalar) -> Scalar | None:
        """Return the value as the policy takes it; None where it has another type."""
        if isinstance(self.kind, tuple):
            return value if value in self.kind else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
        if self.kind is float:
            return float(value)
        return int(value) if value == int(value) else None

    @property
    def wanted(self) -> str:
        if isinstance(self.kind, tuple):
            return f"one of: {', '.join(self.kind)}"
        return "a whole number" if self.kind is int else "a number"


@dataclass(frozen=True, slots=True)
class _Entry:
    build: Callable[..., Policy]
    settings: Mapping[str, _Setting] = field(default_factory=dict)  # by the name that a user types


_ON_CUT = _Setting("on_cut", ("suspend", "stop"))
_TABLE: Mapping[str, _Entry] = MappingProxyType(
    {
        "asha": _Entry(Asha, {"eta": _Setting("eta", float), "rungs": _Setting("rungs", int), "onCut": _ON_CUT}),
        "best_so_far": _Entry(BestSoFar, {"warmup": _Setting("warmup", int)}),
        "envelope": _Entry(
            Envelope,
            {
                "warmup": _Setting("warmup", float),
                "hysteresis": _Setting("hysteresis_ratio", float),
                "minShare": _Setting("min_share", float),
            },
        ),
        "fifo": _Entry(Fifo),
        "hermes": _Entry(
            Hermes,
            {
                "warmup": _Setting("warmup", int),
                "minTimeSlice": _Setting("min_time_slice", float),
                "hysteresis": _Setting("hysteresis", float),
                "start": _Setting("start", ("own", "pool")),
            },
        ),
        "hyperband": _Entry(
            Hyperband,
            {
                "eta": _Setting("eta", float),
                "rungs": _Setting("rungs", int),
                "mode": _Setting("mode", ("sync", "async")),
                "onCut": _ON_CUT,
            },
        ),
        "median_stop": _Entry(
            MedianStop, {"grace": _Setting("grace", float), "peers": _Setting("peers", int), "onCut": _ON_CUT}
        ),
        "pareto": _Entry(Pareto, {"warmup": _Setting("warmup", int)}),
        "pop": _Entry(
            Pop,
            {
                "warmup": _Setting("warmup", int),
                "poor": _Setting("poor", float),
                "rounds": _Setting("rounds", int),
                "onCut": _ON_CUT,
            },
        ),
        "round_robin": _Entry(RoundRobin, {"quantum": _Setting("quantum", float)}),
        "slaq": _Entry(Slaq, {"warmup": _Setting("warmup", int), "window": _Setting("window", int)}),
    }
)
NAMES: tuple[str, ...] = tuple(sorted(_TABLE))
FOR_ONE_OBJECTIVE: tuple[str, ...] = tuple(name for name in NAMES if name != Pareto.name)


def create(name: str, settings: Mapping[str, Scalar]) -> Policy:
    """Return the policy of this name.

    Raises a PolicyError that names the field, the value and the cure.
    """
    entry = _entry(name)
    given: dict[str, Scalar] = {}
    for key, value in sorted(settings.items()):
        setting = entry.settings.get(key)
        if setting is None:
            known = ", ".join(sorted(entry.settings)) or "none"
            others = " or ".join(sorted(other for other, one in _TABLE.items() if key in one.settings))
            cure = f"; for this one set policy.name to {others}" if others else ""
            text = f"policy.settings.{key}: policy {name} has no such setting; its settings: {known}{cure}"
            raise UnknownSettingError(text)
        parsed = setting.parse(value)
        if parsed is None:
            raise InvalidSettingError(f"policy.settings.{key}: {value!r} is not {setting.wanted}")
        given[setting.field] = parsed
    try:
        return entry.build(**given)
    except ValueError as error:
        raise InvalidSettingError(f"policy.settings.{error}") from error


def _entry(name: str) -> _Entry:
    entry = _TABLE.get(name)
    if entry is None:
        raise UnknownPolicyError(f"policy.name: {name!r} is not known; choose one of: {', '.join(NAMES)}")
    return entry
