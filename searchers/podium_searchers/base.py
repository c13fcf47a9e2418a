"""Interface of a searcher: a proposal for trial number `number`, or None when the search space is exhausted.

A proposal depends only on the spec, the number and, for a searcher that learns, the results of the search's trials. The
operator keeps no memory of a search, so a restart changes no proposal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point, Scalar
from podium_core.schema.job import JobSpec

Proposal = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of a trial so far. `value`: its best value, as the metric reports it; None: no finite one.

    `number`: negative for a trial of an earlier search, by which `warmStart` begins. `step`: step of its last value,
    0 before the first. `completed`: trained to its end. `failed`: it ended with an error. `values`: those of several
    objectives, NaN where one is not known; empty if there is one objective.
    """

    number: int
    parameters: Proposal
    step: float = 0.0
    value: float | None = None
    completed: bool = False
    failed: bool = False
    values: tuple[float, ...] = ()

    @classmethod
    def at(
        cls,
        phase: TrialPhase,
        number: int,
        parameters: Proposal,
        step: float | None,
        best: Point | None,
        values: tuple[float, ...] = (),
    ) -> TrialResult:
        """Return the result of a trial in this phase; `step` and `best` are None before the first value."""
        return cls(
            number,
            parameters,
            step=step or 0.0,
            value=None if best is None else best.value,
            completed=phase is TrialPhase.SUCCEEDED,
            failed=phase in (TrialPhase.FAILED, TrialPhase.KILLED),
            values=values,
        )


class Searcher(Protocol):
    """Algorithm that proposes parameters."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return the parameters of trial `number` in the spec's order; None: nothing is left.

        `number` counts from 0, after the trials of `search.initialTrials`. `tried`: results of all trials that exist.
        An inactive parameter (`when`) is left out.
        """

    def size(self, spec: JobSpec) -> int | None:
        """Return the number of different trials; None if it is unlimited."""
