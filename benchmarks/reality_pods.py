"""When each trial's first pod was made and was at its gate, from the pods that bench_reality saves. Used by
reality_compare.

Kubernetes keeps whole seconds: a moment is the middle of what is possible, by the second and by what came before and
after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from podium.schema.template import GATE_CONTAINER

TRIAL_LABEL, ATTEMPT_LABEL = "podium.dev/trial", "podium.dev/attempt"


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Seconds since the epoch, cut to whole ones; `gate`: when its gate's container started, None: it has not."""

    created: float
    gate: float | None


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
    labels: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: datetime


class _Pod(_Model):
    metadata: _Meta
    status: _Status = _Status()


def first_pods(payloads: Iterable[Mapping[str, Any]]) -> dict[str, PodTimes]:
    """By the trial's name; other pods and later attempts are left out."""
    found: dict[str, PodTimes] = {}
    for payload in payloads:
        if payload.get("kind") != "Pod":
            continue
        pod = _Pod.model_validate(payload)
        labels = pod.metadata.labels
        if TRIAL_LABEL not in labels or labels.get(ATTEMPT_LABEL, "0") != "0":
            continue
        gates = [one for one in pod.status.init_container_statuses if one.name == GATE_CONTAINER]
        started = [state.started_at.timestamp() for one in gates for state in one.state.values() if state.started_at]
        created = pod.metadata.creation_timestamp.timestamp()
        found[labels[TRIAL_LABEL]] = PodTimes(created, min(started, default=None))
    return found


def moment(second: float, after: float, before: float) -> float:
    """The middle of that second, as far as it lies after the one and before the other."""
    low, high = max(second, after), min(second + 1.0, before)
    return (low + high) / 2.0 if low <= high else low


def seconds_to_gate(pod: PodTimes, applied: float, first_hold: float) -> float | None:
    """From its creation, which came after the job's, to its gate, which came before its first turn."""
    if pod.gate is None:
        return None
    created = moment(pod.created, applied, first_hold)
    return moment(pod.gate, created, first_hold) - created
