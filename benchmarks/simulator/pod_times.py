"""When each trial's first pod reached its gate and started, from the pods and logs that bench_reality saves.

Kubernetes keeps whole seconds. A moment is then the middle of what is possible, given the second and the events before
and after it. A log is finer: a gate prints a line as soon as it has asked for a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from podium_core.schema.template.pod_template import GATE_CONTAINER
from podium_core.schema.trial import rank_of

_LINE = re.compile(r"\[pod/(?P<pod>[^/]+)/[^\]]+\] (?P<second>[\d-]+T[\d:]+)(\.(?P<part>\d+))?Z ")
_RECORD_BEGAN = re.compile(r"\W(?P<pod>[\w.-]+): its record begins")
_PROCESSES_FOUND = re.compile(r"\W(?P<pod>[\w.-]+): Starting > Running")
TRIAL_LABEL, ATTEMPT_LABEL = "podium.dev/trial", "podium.dev/attempt"


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Moments of one pod in seconds since the epoch; None: not known.

    `gate`: when the gate's container started, cut to whole seconds. The others are exact to the microsecond: when the
    gate had `asked` for a GPU, when the agent `recorded` the pod's start, and when it knew the pod's `processes`.
    """

    gate: float | None
    asked: float | None = None
    recorded: float | None = None
    processes: float | None = None


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class _State(_Model):
    started_at: datetime | None = None


class _Container(_Model):
    name: str
    state: dict[str, _State] = Field(default_factory=dict)  # running, terminated or waiting


class _Status(_Model):
    init_container_statuses: tuple[_Container, ...] = ()


class _Meta(_Model):
    name: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class _Pod(_Model):
    metadata: _Meta
    status: _Status = _Status()


def first_pods(payloads: Iterable[Mapping[str, Any]], gates: str, agents: str) -> dict[str, PodTimes]:
    """Return the moments of each trial's first pod by the trial's name.

    Of several workers it is the pod of worker 0. Other pods and later attempts are left out.

    `gates`, `agents`: logs as `kubectl logs --prefix --timestamps` prints them. A pod that no longer existed when the
    objects were saved (its trial was stopped) is known from the logs alone.
    """
    asked, recorded, processes = _asked(gates), _logged(agents, _RECORD_BEGAN), _logged(agents, _PROCESSES_FOUND)
    times: dict[str, PodTimes] = {}
    for name in sorted(asked.keys() | recorded.keys() | processes.keys()):
        trial, _, attempt = name.rpartition("-")
        if attempt == "0":
            times[trial] = PodTimes(None, asked.get(name), recorded.get(name), processes.get(name))
    for payload in payloads:
        if payload.get("kind") != "Pod":
            continue
        pod = _Pod.model_validate(payload)
        labels = pod.metadata.labels
        if TRIAL_LABEL not in labels or labels.get(ATTEMPT_LABEL, "0") != "0" or rank_of(labels, {}) != 0:
            continue
        gate = _started([one for one in pod.status.init_container_statuses if one.name == GATE_CONTAINER])
        exact = (known.get(pod.metadata.name) for known in (asked, recorded, processes))
        times[labels[TRIAL_LABEL]] = PodTimes(gate, *exact)
    return times


def _asked(log: str) -> dict[str, float]:
    """Return the time of the first line of each gate by the pod's name."""
    times: dict[str, float] = {}
    for line in log.splitlines():
        if (match := _LINE.match(line)) is not None:
            times.setdefault(match["pod"], _time(match))
    return times


def _logged(log: str, pattern: re.Pattern[str]) -> dict[str, float]:
    """Return the time of the first line of an agent that matches, by the pod's name."""
    times: dict[str, float] = {}
    for line in log.splitlines():
        if (match := _LINE.match(line)) is not None and (message := pattern.search(line)) is not None:
            times.setdefault(message["pod"], _time(match))
    return times


def _time(match: re.Match[str]) -> float:
    return datetime.fromisoformat(f"{match['second']}.{(match['part'] or '0')[:6].ljust(6, '0')}+00:00").timestamp()


def _started(containers: Iterable[_Container]) -> float | None:
    times = [state.started_at.timestamp() for one in containers for state in one.state.values() if state.started_at]
    return min(times, default=None)


def moment(second: float, after: float, before: float) -> float:
    """Return the middle of the part of this second that lies after the one moment and before the other."""
    low, high = max(second, after), min(second + 1.0, before)
    return (low + high) / 2.0 if low <= high else low
