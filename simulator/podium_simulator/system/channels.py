"""The ways by which operator and placement learn what happens on the nodes."""

from __future__ import annotations

from dataclasses import dataclass

from podium_simulator.system.reports import Reports
from podium_simulator.system.status_writer import StatusWriter
from podium_simulator.system.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Channels:
    """Writers of states, of the trials' own records, and of the use of GPUs."""

    reports: Reports
    writer: StatusWriter
    telemetry: Telemetry
