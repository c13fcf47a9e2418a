"""What a contender's search did: its trials, when they ended, and how long GPUs were held. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.katib.searches import METRIC, Point
from podium_devcluster.runtime import nvidia

KATIB_ENDED = ("EarlyStopped", "Succeeded", "Killed", "Failed", "MetricsUnavailable")  # the first one that is true
PODIUM_ENDED = ("Succeeded", "EarlyStopped", "Killed", "Failed")


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial that has ended.

    `final`: its last value, None without any; `phase`: how it ended; `ended`: seconds from the search's creation.
    """

    name: str
    point: Point
    final: float | None
    phase: str
    ended: float


@dataclass(frozen=True, slots=True)
class Search:
    """A search that has ended.

    `seconds`: from its creation to its end; `first`: until its first work on a GPU; `held` and `busy`: GPU-seconds.
    """

    trials: tuple[Trial, ...]
    seconds: float
    first: float
    held: float
    busy: float

    @property
    def best(self) -> Trial:
        """The trial with the best final value; of equals the one that ended first."""
        valued = [one for one in self.trials if one.final is not None]
        return max(valued, key=lambda one: (one.final, -one.ended))

    @property
    def stopped(self) -> int:
        """The number of trials that were stopped early."""
        return sum(one.phase == "EarlyStopped" for one in self.trials)

    def reached(self, value: float) -> float | None:
        """Return the seconds until a trial with at least this final value had ended; None if there is none."""
        return min((one.ended for one in self.trials if one.final is not None and one.final >= value), default=None)


def katib_phase(trial: Mapping[str, Any]) -> str:
    """Return how a Trial of Katib ended; empty if it has not."""
    conditions = trial.get("status", {}).get("conditions", [])
    true = {one["type"] for one in conditions if one["status"] == "True"}
    return next((one for one in KATIB_ENDED if one in true), "")


def katib_final(trial: Mapping[str, Any]) -> float | None:
    """Return the last value of the objective that Katib has of a Trial."""
    for metric in trial.get("status", {}).get("observation", {}).get("metrics", []):
        if metric["name"] == METRIC and metric["latest"] != "unavailable":
            return float(metric["latest"])
    return None


def katib_point(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the point of a list of Katib's parameter assignments."""
    return {one["name"]: one["value"] for one in parts}


def katib_points(suggestion: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the points of a Suggestion in the order in which its service gave them."""
    return [katib_point(one["parameterAssignments"]) for one in suggestion["status"]["suggestions"]]


def podium_phase(trial: Mapping[str, Any]) -> str:
    """Return how a HyperParamTrial ended; empty if it has not."""
    phase: str = trial.get("status", {}).get("phase", "")
    return phase if phase in PODIUM_ENDED else ""


def podium_point(trial: Mapping[str, Any]) -> dict[str, str]:
    """Return the point of a HyperParamTrial, with values as texts."""
    return {name: str(value) for name, value in trial["spec"]["parameters"].items()}


def whole_gpus(pod: Mapping[str, Any]) -> int:
    """Return the whole GPUs that a pod holds: from its binding to a node until its containers have ended."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    limits = [one.get("resources", {}).get("limits", {}) for one in pod["spec"]["containers"]]
    return sum(int(one.get(nvidia.RESOURCE, "0")) for one in limits)


@dataclass
class Watch:
    """What was seen of a search so far, all times in seconds of one clock.

    `ended`: when each trial was first seen with its end; `containers`: of all its pods.
    """

    created: float
    ended: dict[str, float] = field(default_factory=dict)
    containers: set[str] = field(default_factory=set)
    held: float = 0.0
    _last: tuple[float, int] | None = None

    def see(self, now: float, ended: Iterable[str], pods: Sequence[Mapping[str, Any]]) -> None:
        """Note the trials that have ended, and the pods of the search; GPUs count from one call to the next."""
        for name in ended:
            self.ended.setdefault(name, now)
        for pod in pods:
            states = pod["status"].get("containerStatuses", [])
            self.containers |= {one["containerID"].rpartition("/")[2] for one in states if one.get("containerID")}
        gpus = sum(map(whole_gpus, pods))
        if self._last is not None:
            before, held = self._last
            self.held += (now - before) * (held + gpus) / 2.0
        self._last = now, gpus
