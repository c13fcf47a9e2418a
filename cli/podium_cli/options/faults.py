"""Options of `podium simulate --system` and `podium plan` for faults and drains of the simulated system."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_simulator.system.inputs.scenario import Drain, Faults, NodeSpec

PANEL = "Faults and drains of the simulated system"
MAX_DRAIN_SECOND = 1e10  # seconds, three centuries: from 1e15 on a float cannot separate the steps of a trial
_SECONDS = r"(\d+(?:\.\d*)?)"
_DRAIN = re.compile(rf"(?P<node>.+)@{_SECONDS}(?:-{_SECONDS})?")

NodeFails = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        help="Mean hours between two failures of a node; its trials restart, or continue from a checkpoint.",
        show_default="never",
        rich_help_panel=PANEL,
    ),
]
PodFails = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        help="Mean hours until the cluster ends a pod by an eviction or preemption.",
        show_default="never",
        rich_help_panel=PANEL,
    ),
]
Crashes = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        help="Mean hours until a trial's process fails, which counts against its retries.",
        show_default="never",
        rich_help_panel=PANEL,
    ),
]
AgentSilent = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        help=f"Mean hours until a node's agent is unresponsive, for {Faults().silent / 60.0:g} minutes on average: "
        "running trials continue, none is admitted or suspended.",
        show_default="never",
        rich_help_panel=PANEL,
    ),
]
Drains = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NODE@SECONDS[-SECONDS]",
        help="Drain a node (node-0, node-1, ...) from this second on, or between two seconds, as podium drain does: "
        "node-1@600, node-1@600-1800; can be repeated.",
        show_default="none",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """Mean hours between faults of each kind, and the drains."""

    node_fails: float | None
    pod_fails: float | None
    crashes: float | None
    agent_silent: float | None
    drain: tuple[str, ...]


def rates(options: FaultOptions) -> Faults:
    """Return the rates of faults that the options give."""
    return Faults(
        node=_mean("--node-fails", options.node_fails),
        pod=_mean("--pod-fails", options.pod_fails),
        crash=_mean("--crashes", options.crashes),
        silence=_mean("--agent-silent", options.agent_silent),
    )


def drains(options: FaultOptions, nodes: Sequence[NodeSpec]) -> tuple[Drain, ...]:
    """Return the drains that the options give; raise CliError for an unknown node or a wrong time."""
    return tuple(_drain(text, [node.name for node in nodes]) for text in options.drain)


def _drain(text: str, nodes: Sequence[str]) -> Drain:
    match = _DRAIN.fullmatch(text)
    if match is None:
        message = f"--drain: must be NODE@SECONDS or NODE@SECONDS-SECONDS (got {text!r}); example: {nodes[-1]}@600-1800"
        raise CliError(Exit.USAGE, "InvalidDrain", message)
    node, at, until = match[1], float(match[2]), math.inf if match[3] is None else float(match[3])
    if node not in nodes:
        names = nodes[0] if len(nodes) == 1 else f"{nodes[0]} to {nodes[-1]}"
        message = f"--drain: node {node} does not exist; the nodes are {names} (--nodes)"
        raise CliError(Exit.USAGE, "UnknownNode", message)
    if until <= at:
        message = (
            f"--drain: {text} ends before it starts; give a later second after the dash, or omit it to drain to the end"
        )
        raise CliError(Exit.USAGE, "InvalidTime", message)
    last = at if math.isinf(until) and match[3] is None else until
    if last > MAX_DRAIN_SECOND:
        message = f"--drain: {text[:60]}: second {last:g} is too large; give {MAX_DRAIN_SECOND:.0f} at most"
        raise CliError(Exit.USAGE, "InvalidTime", f"{message}, or omit the second after the dash to drain to the end")
    return Drain(node, at, until)


def _mean(option: str, hours: float | None) -> float:
    """Return the mean seconds between two faults of a kind; infinity if there are none."""
    if hours is None:
        return math.inf
    if not hours > 0.0:
        raise CliError(Exit.USAGE, "InvalidTime", f"{option}: must be greater than 0 hours (got {hours:g})")
    return 3600.0 * hours
