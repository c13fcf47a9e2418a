"""What every searcher is: a proposal for trial number `number`, or None when the space is exhausted.

A proposal depends on the spec, the number and, of a searcher that learns, on what the search's trials have shown, and
on nothing else: the operator keeps no memory of a search, so that a restart changes no proposal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point
from podium_core.schema.job import JobSpec, Scalar

Proposal = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that exists, as far as it has come. `value`: its best so far, in the metric's own direction; None:
    nothing finite. `step`: of its last value, 0 before the first. `completed`: trained to its end; `failed`: it ended,
    and not well.
    """

    number: int
    parameters: Proposal
    step: float = 0.0
    value: float | None = None
    completed: bool = False
    failed: bool = False

    @classmethod
    def at(cls, phase: TrialPhase, number: int, parameters: Proposal, step: float | None, best: Point | None) -> Tried:
        """One in this phase. `step`, `best`: of its last value, and of its finite ones; None: there is none."""
        return cls(
            number,
            parameters,
            step=step or 0.0,
            value=None if best is None else best.value,
            completed=phase is TrialPhase.SUCCEEDED,
            failed=phase in (TrialPhase.FAILED, TrialPhase.KILLED),
        )


class Searcher(Protocol):
    def propose(self, spec: JobSpec, number: int, tried: Sequence[Tried] = ()) -> Proposal | None:
        """Parameters of trial `number` (from 0), keys in the spec's order; None: there is nothing left to try. `tried`:
        the trials that are there, by number.
        """

    def size(self, spec: JobSpec) -> int | None:
        """How many different trials there are; None = no end."""
