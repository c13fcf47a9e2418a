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

from podium.schema.template import GATE_CONTAINER

_LINE = re.compile(r"\[pod/(?P<pod>[^/]+)/[^\]]+\] (?P<second>[\d-]+T[\d:]+)(\.(?P<part>\d+))?Z ")
TRIAL_LABEL, ATTEMPT_LABEL = "podium.dev/trial", "podium.dev/attempt"


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Seconds since the epoch; None: not known. `gate`, `begun`: when its gate's container started, and the first of
    the others, cut to whole seconds; `asked`: when its gate had asked for a GPU, to the microsecond.
    """

    gate: float | None
    begun: float | None = None
    asked: float | None = None


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class _State(_Model):
    started_at: datetime | None = None


class _Container(_Model):
    name: str
    state: dict[str, _State] = Field(default_factory=dict)  # running, terminated or waiting


class _Status(_Model):
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _Meta(_Model):
    name: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class _Pod(_Model):
    metadata: _Meta
    status: _Status = _Status()


def first_pods(payloads: Iterable[Mapping[str, Any]], asked: Mapping[str, float]) -> dict[str, PodTimes]:
    """By the trial's name; other pods and later attempts are left out. `asked`: of `gates_asked`."""
    found: dict[str, PodTimes] = {}
    for payload in payloads:
        if payload.get("kind") != "Pod":
            continue
        pod = _Pod.model_validate(payload)
        labels = pod.metadata.labels
        if TRIAL_LABEL not in labels or labels.get(ATTEMPT_LABEL, "0") != "0":
            continue
        gates = [one for one in pod.status.init_container_statuses if one.name == GATE_CONTAINER]
        begun = _started(pod.status.container_statuses)
        found[labels[TRIAL_LABEL]] = PodTimes(_started(gates), begun, asked.get(pod.metadata.name))
    return found


def gates_asked(log: str) -> dict[str, float]:
    """By the pod's name, of lines as `kubectl logs --prefix --timestamps` prints them: the first one of each."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        if (told := _LINE.match(line)) is not None:
            moment_of = datetime.fromisoformat(f"{told['second']}.{(told['part'] or '0')[:6].ljust(6, '0')}+00:00")
            found.setdefault(told["pod"], moment_of.timestamp())
    return found


def _started(containers: Iterable[_Container]) -> float | None:
    found = [state.started_at.timestamp() for one in containers for state in one.state.values() if state.started_at]
    return min(found, default=None)


def moment(second: float, after: float, before: float) -> float:
    """The middle of that second, as far as it lies after the one and before the other."""
    low, high = max(second, after), min(second + 1.0, before)
    return (low + high) / 2.0 if low <= high else low
