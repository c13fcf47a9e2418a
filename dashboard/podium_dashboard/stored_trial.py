"""A trial in a twentieth of its memory: what lists need as fields, and the whole object packed.

A whole trial with a curve of 60 points takes 40 kB of objects. Ten thousand of them would not fit into the limit of the
dashboard, and pages need few of them at a time.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime

from podium_core.domain.phase import is_final
from podium_core.schema.trial import HyperParamTrial

LEVEL = 1  # of zlib: a third of the size in 40 us
MAX_TIME = 4102444800.0  # the year 2100: an object may hold any number


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """One trial.

    `newest`: the latest time in it, in seconds since the Unix epoch. `packed`: its JSON, compressed.
    """

    namespace: str
    name: str
    job: str
    number: int
    ended: bool
    newest: float
    packed: bytes

    @classmethod
    def of(cls, trial: HyperParamTrial) -> StoredTrial:
        """Return the trial packed."""
        return cls(
            namespace=trial.metadata.namespace,
            name=trial.metadata.name,
            job=trial.spec.job,
            number=trial.spec.number,
            ended=is_final(trial.status.phase),
            newest=_newest(trial),
            packed=zlib.compress(trial.model_dump_json(exclude_defaults=True, by_alias=True).encode(), LEVEL),
        )

    @classmethod
    def parse(cls, payload: object) -> StoredTrial:
        """Return the trial of a payload, packed. Raises ValueError for an invalid one."""
        return cls.of(HyperParamTrial.model_validate(payload))

    def whole(self) -> HyperParamTrial:
        """Return the whole trial.

        It takes an eighth of a millisecond.
        """
        return HyperParamTrial.model_validate_json(zlib.decompress(self.packed))


def _newest(trial: HyperParamTrial) -> float:
    status = trial.status
    moments: list[datetime | None] = [status.started_at, status.finished_at]
    moments += [one.end or one.start for one in status.allocations]
    times = [moment.timestamp() for moment in moments if moment is not None]
    times += [min(max(point.time, 0.0), MAX_TIME) for point in status.curve.points[-1:]]
    return max(times, default=0.0)
