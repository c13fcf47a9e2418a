"""When each trial's first pod was at its gate and began, from the pods and the gates' logs that bench_reality saves.
Used by reality_starts and reality_compare.

Kubernetes keeps whole seconds: a moment is the middle of what is possible, by the second and by what came before and
after it. A log has finer ones: a gate prints a line as soon as it has asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from podium_core.schema.template import GATE_CONTAINER

_LINE = re.compile(r"\[pod/(?P<pod>[^/]+)/[^\]]+\] (?P<second>[\d-]+T[\d:]+)(\.(?P<part>\d+))?Z ")
_BEGUN = re.compile(r"\W(?P<pod>[\w.-]+): its record begins")
_FOUND = re.compile(r"\W(?P<pod>[\w.-]+): Starting > Running")
TRIAL_LABEL, ATTEMPT_LABEL = "podium.dev/trial", "podium.dev/attempt"


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Seconds since the epoch; None: not known. `gate`: when its gate's container started, cut to whole seconds. To the
    microsecond: when its gate had `asked` for a GPU, and when its agent `recorded` that it has begun and had `found`
    its processes.
    """

    gate: float | None
    asked: float | None = None
    recorded: float | None = None
    found: float | None = None


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
    """By the trial's name; other pods and later attempts are left out. `gates`, `agents`: logs as `kubectl logs
    --prefix --timestamps` prints them. A pod that was gone when the objects were saved (its trial was stopped) is known
    by the logs alone.
    """
    asked, recorded, processes = _asked(gates), _told(agents, _BEGUN), _told(agents, _FOUND)
    found: dict[str, PodTimes] = {}
    for name in sorted(asked.keys() | recorded.keys() | processes.keys()):
        trial, _, attempt = name.rpartition("-")
        if attempt == "0":
            found[trial] = PodTimes(None, asked.get(name), recorded.get(name), processes.get(name))
    for payload in payloads:
        if payload.get("kind") != "Pod":
            continue
        pod = _Pod.model_validate(payload)
        labels = pod.metadata.labels
        if TRIAL_LABEL not in labels or labels.get(ATTEMPT_LABEL, "0") != "0":
            continue
        gate = _started([one for one in pod.status.init_container_statuses if one.name == GATE_CONTAINER])
        exact = (known.get(pod.metadata.name) for known in (asked, recorded, processes))
        found[labels[TRIAL_LABEL]] = PodTimes(gate, *exact)
    return found


def _asked(log: str) -> dict[str, float]:
    """By the pod's name: the first line of each gate."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        if (told := _LINE.match(line)) is not None:
            found.setdefault(told["pod"], _time(told))
    return found


def _told(log: str, what: re.Pattern[str]) -> dict[str, float]:
    """By the pod's name: the first line of an agent that says so."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        if (told := _LINE.match(line)) is not None and (said := what.search(line)) is not None:
            found.setdefault(said["pod"], _time(told))
    return found


def _time(told: re.Match[str]) -> float:
    return datetime.fromisoformat(f"{told['second']}.{(told['part'] or '0')[:6].ljust(6, '0')}+00:00").timestamp()


def _started(containers: Iterable[_Container]) -> float | None:
    found = [state.started_at.timestamp() for one in containers for state in one.state.values() if state.started_at]
    return min(found, default=None)


def moment(second: float, after: float, before: float) -> float:
    """The middle of that second, as far as it lies after the one and before the other."""
    low, high = max(second, after), min(second + 1.0, before)
    return (low + high) / 2.0 if low <= high else low
