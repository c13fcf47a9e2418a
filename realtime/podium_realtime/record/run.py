"""The record of a run: every release with its outcome, every work with its times. The engine and executive make it."""

from __future__ import annotations

from dataclasses import dataclass

from podium_realtime.scheduling.work import JobEnd, Work


@dataclass(frozen=True, slots=True)
class Span:
    """One work: `began` is when it got SMs (or its core), `ended` when it was done; seconds since the run's start."""

    work: Work
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """All releases and what came of them, in the order in which they ended; `spans` of the works that were done."""

    seconds: float
    ends: tuple[JobEnd, ...]
    spans: tuple[Span, ...]
