"""Execution time of a stage by number of SMs, alone and with busy neighbours, as SGPRS measures it offline.

`simulation.profiling` makes profiles for the simulated GPU, `runtime.profiling` for real cores. Schedulers know
execution times from profiles alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from podium_realtime.model.errors import RealtimeError, require_positive


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of one stage at each number of SMs (ascending).

    As in SGPRS, the times are made non-increasing in the number of SMs.
    """

    sms: tuple[int, ...]
    alone: tuple[float, ...]
    occupied: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.sms or not len(self.sms) == len(self.alone) == len(self.occupied):
            problem = (
                f"{len(self.sms)} SM counts with {len(self.alone)} times alone and {len(self.occupied)} occupied; "
                "give one of each for every SM count"
            )
            raise RealtimeError("InvalidProfile", "profile: sms", problem)
        if list(self.sms) != sorted(set(self.sms)) or self.sms[0] < 1:
            raise RealtimeError("InvalidProfile", "profile: sms", f"must ascend from 1 or more (got {self.sms})")
        for name in ("alone", "occupied"):
            times: tuple[float, ...] = getattr(self, name)
            for value in times:
                require_positive(value, f"profile: {name}", "s")
            object.__setattr__(self, name, _non_increasing(times))

    def time(self, sms: int, occupied: bool = True) -> float:
        """Return the seconds on `sms` SMs.

        Between two measured counts the time is linear in 1/sms, as in Amdahl's law. Outside the measured range it is
        the time at the nearest measured count.
        """
        times = self.occupied if occupied else self.alone
        upper = bisect_left(self.sms, sms)
        if upper == len(self.sms):
            return times[-1]
        if self.sms[upper] == sms or upper == 0:
            return times[upper]
        low, high = self.sms[upper - 1], self.sms[upper]
        fraction = (1.0 / low - 1.0 / sms) / (1.0 / low - 1.0 / high)
        return times[upper - 1] + fraction * (times[upper] - times[upper - 1])


def _non_increasing(times: tuple[float, ...]) -> tuple[float, ...]:
    """Return the running maximum from the end: a longer time on more SMs is measurement noise."""
    monotone = list(times)
    for index in range(len(monotone) - 2, -1, -1):
        monotone[index] = max(monotone[index], monotone[index + 1])
    return tuple(monotone)


# profiles of all stages of a network, by name of the network
Profiles = Mapping[str, tuple[Profile, ...]]
