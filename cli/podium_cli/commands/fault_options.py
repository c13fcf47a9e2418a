"""What befalls nodes, pods and agents of the simulated system: options of `podium simulate --system` and `podium plan`,
and what they mean. Called by `simulate`, for both.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence

from podium_cli.exit_codes import CliError, Exit
from podium_simulator.system.scenario import Drain, Faults, NodeSpec

OPTIONS = ("node_fails", "pod_fails", "crashes", "agent_silent", "drain")
LATEST = 1e10  # seconds, three centuries: from 1e15 on a clock would not tell a trial's steps apart
_SECONDS = r"(\d+(?:\.\d*)?)"
_DRAIN = re.compile(rf"(?P<node>.+)@{_SECONDS}(?:-{_SECONDS})?")


def options(parser: argparse.ArgumentParser) -> None:
    text = "mean hours between two failures of a node; its trials begin anew, or where a requeue saved (default: never)"
    parser.add_argument("--node-fails", type=float, metavar="HOURS", help=text)
    text = "mean hours until a pod is lost by the cluster's fault: evicted, preempted (default: never)"
    parser.add_argument("--pod-fails", type=float, metavar="HOURS", help=text)
    text = "mean hours until a trial's process ends in an error of its own, which its retries count (default: never)"
    parser.add_argument("--crashes", type=float, metavar="HOURS", help=text)
    text = f"mean hours until a node's agent falls silent, for {Faults().silent / 60.0:g} minutes in the mean: what"
    text += " works works on, nobody is let in or suspended (default: never)"
    parser.add_argument("--agent-silent", type=float, metavar="HOURS", help=text)
    text = "a node (node-0, node-1, ...) takes no trials from this second on, or between two, as podium drain has it:"
    text += " node-1@600, node-1@600-1800; also several (default: none)"
    parser.add_argument("--drain", action="append", metavar="NODE@SECONDS[-SECONDS]", help=text)


def faults(arguments: argparse.Namespace) -> Faults:
    node, pod, crash, silence = (_mean(arguments, name) for name in OPTIONS[:4])
    return Faults(node=node, pod=pod, crash=crash, silence=silence)


def drains(arguments: argparse.Namespace, nodes: Sequence[NodeSpec]) -> tuple[Drain, ...]:
    return tuple(_drain(text, [node.name for node in nodes]) for text in arguments.drain or ())


def _drain(text: str, nodes: Sequence[str]) -> Drain:
    found = _DRAIN.fullmatch(text)
    if found is None:
        told = f"--drain: {text!r} is not NODE@SECONDS or NODE@SECONDS-SECONDS; give such as {nodes[-1]}@600-1800"
        raise CliError(Exit.USAGE, "InvalidDrain", told)
    node, at, until = found[1], float(found[2]), math.inf if found[3] is None else float(found[3])
    if node not in nodes:
        names = nodes[0] if len(nodes) == 1 else f"{nodes[0]} to {nodes[-1]}"
        told = f"--drain: {node} is none of the nodes, which are {names} (--nodes); name one of these"
        raise CliError(Exit.USAGE, "UnknownNode", told)
    if until <= at:
        told = f"--drain: {text} ends before it begins; give a later second after the dash, or leave it out: for good"
        raise CliError(Exit.USAGE, "InvalidTime", told)
    last = at if math.isinf(until) and found[3] is None else until
    if last > LATEST:
        told = f"--drain: {text[:60]}: second {last:g} is centuries away; give {LATEST:.0f} at most"
        raise CliError(Exit.USAGE, "InvalidTime", f"{told}, or leave the second after the dash out: for good")
    return Drain(node, at, until)


def _mean(arguments: argparse.Namespace, name: str) -> float:
    """Seconds between two accidents of a kind; infinity: never."""
    hours: float | None = getattr(arguments, name)
    if hours is None:
        return math.inf
    if not hours > 0.0:
        option = "--" + name.replace("_", "-")
        raise CliError(Exit.USAGE, "InvalidTime", f"{option}: {hours:g} hours is no time; give more than 0")
    return 3600.0 * hours
