"""How long a stage takes by SM count, alone and with its neighbours busy: what SGPRS measures offline.

Made by `simulation.profiling` for the simulated GPU and by `runtime.profiling` on real cores; read by the schedulers,
which know nothing else about time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from podium_realtime.model.refusal import RealtimeError, require_positive


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of one stage at each SM count, ascending; forced non-increasing in the SM count, as in SGPRS."""

    sms: tuple[int, ...]
    alone: tuple[float, ...]
    occupied: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.sms or not len(self.sms) == len(self.alone) == len(self.occupied):
            told = f"{len(self.sms)} SM counts with {len(self.alone)} and {len(self.occupied)} times; give one of each"
            raise RealtimeError("InvalidProfile", "profile: sms", told)
        if list(self.sms) != sorted(set(self.sms)) or self.sms[0] < 1:
            raise RealtimeError("InvalidProfile", "profile: sms", f"{self.sms} must ascend from 1 or more")
        for name in ("alone", "occupied"):
            times: tuple[float, ...] = getattr(self, name)
            for value in times:
                require_positive(value, f"profile: {name}", "s")
            object.__setattr__(self, name, _non_increasing(times))

    def time(self, sms: int, occupied: bool = True) -> float:
        """Seconds on `sms` SMs. Between measured counts linear in 1/sms (Amdahl's law is a line there); outside them
        the nearest measured count.
        """
        times = self.occupied if occupied else self.alone
        place = bisect_left(self.sms, sms)
        if place == len(self.sms):
            return times[-1]
        if self.sms[place] == sms or place == 0:
            return times[place]
        low, high = self.sms[place - 1], self.sms[place]
        share = (1.0 / low - 1.0 / sms) / (1.0 / low - 1.0 / high)
        return times[place - 1] + share * (times[place] - times[place - 1])


def _non_increasing(times: tuple[float, ...]) -> tuple[float, ...]:
    """More SMs never take longer: a larger time there is noise of the measurement."""
    found = list(times)
    for place in range(len(found) - 2, -1, -1):
        found[place] = max(found[place], found[place + 1])
    return tuple(found)


# profiles of all stages of a network, by the network's name
Profiles = Mapping[str, tuple[Profile, ...]]
