"""What every searcher is: a proposal for trial number `number`, or None when the space is exhausted.

A proposal may depend on the spec and the number, and on nothing else: the operator keeps no memory of a search, so
that trial k gets the same parameters before and after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from podium.schema.job import JobSpec, Scalar

Proposal = Mapping[str, Scalar]


class Searcher(Protocol):
    def propose(self, spec: JobSpec, number: int) -> Proposal | None:
        """Parameters of trial `number` (from 0), keys in the spec's order; None: there is nothing left to try."""

    def size(self, spec: JobSpec) -> int | None:
        """How many different trials there are; None = no end."""
