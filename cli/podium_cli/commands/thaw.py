"""`podium thaw`: let everything on a node go on, and suspend nothing there until it is undone. Also the chart's hook.

It writes one field, GPUNode.spec.released, under a field manager of its own; the node's agent does the thawing.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command, seconds
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_node
from podium_cli.session import MANAGER, Session, carry_out, kind_missing
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES
from podium_core.schema.gpunode import GPUNode, TrialState

LOOK_SECONDS = 0.5
FROZEN = frozenset({TrialState.SUSPENDED, TrialState.SUSPENDING})


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "thaw",
        _run,
        says=SAYS["thaw"],
        examples="""
            podium thaw node-a
            podium thaw --all --wait 120
            podium thaw --all --undo
        """,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("node", nargs="?", help="name of the node")
    which.add_argument("--all", action="store_true", dest="everywhere", help="every node that has a GPUNode")
    parser.add_argument(
        "--wait", type=seconds, default=60.0, metavar="SECONDS", help="how long to wait (default 60; 0: not)"
    )
    parser.add_argument("--undo", action="store_true", help="let Podium suspend again")


def _run(arguments: argparse.Namespace) -> Exit:
    return carry_out(_thaw(Session.of(arguments), arguments.node, arguments.wait, undo=arguments.undo))


async def _thaw(session: Session, node: str | None, wait: float, *, undo: bool) -> Exit:
    async with session.api() as api:
        names = await _names(api, node)
        if not names:
            return Exit.OK
        for name in names:
            # existing objects only: server-side apply would create a GPUNode that no agent looks after
            manifest = {"metadata": {"name": name}, "spec": {"released": not undo}}
            await api.apply(GPUNODES, manifest, manager=MANAGER)
            print(
                f"{name}: {'Podium may suspend again' if undo else 'released: nothing more is suspended here'}",
                flush=True,
            )
        if undo or wait <= 0:
            return Exit.OK
        return await _until_thawed(api, frozenset(names), wait)


async def _names(api: Api, node: str | None) -> list[str]:
    """The nodes meant. A cluster without Podium has nothing frozen by Podium: that is no failure for a hook."""
    try:
        there = [parse_node(item).metadata.name for item in (await api.list(GPUNODES))["items"]]
    except ApiError as error:
        if not kind_missing(error):
            raise
        print("this cluster knows no GPUNode: Podium is not installed, and nothing is suspended by it")
        return []
    if node is None:
        if not there:
            print("there is no GPUNode: nothing is suspended by Podium")
        return sorted(there)
    if node not in there:
        known = ", ".join(sorted(there)) or "none"
        raise CliError(Exit.NOT_FOUND, "GPUNodeNotFound", f"there is no GPUNode {node}; there: {known}")
    return [node]


async def _until_thawed(api: Api, names: frozenset[str], wait: float) -> Exit:
    deadline = time.monotonic() + wait
    while True:
        # every look may fail once the API server is busy with an uninstall: only the last word counts
        try:
            nodes = [parse_node(item) for item in (await api.list(GPUNODES))["items"]]
        except ApiError as error:
            if kind_missing(error):
                return Exit.OK
            if time.monotonic() > deadline:
                raise
        else:
            left = frozen([node for node in nodes if node.metadata.name in names])
            if not left:
                print("nothing is suspended")
                return Exit.OK
            if time.monotonic() > deadline:
                message = (
                    f"still suspended after {wait:g} s: {', '.join(left)}; is the agent of that node running? "
                    "Without it, thaw by hand: docs/reference/cli.md, section `podium thaw`"
                )
                raise CliError(Exit.TIMEOUT, "StillSuspended", message)
        await asyncio.sleep(LOOK_SECONDS)


def frozen(nodes: list[GPUNode]) -> list[str]:
    """`node: namespace/trial` of every trial that the agents report as suspended, each once."""
    found = {
        f"{node.metadata.name}: {trial.namespace}/{trial.trial}"
        for node in nodes
        for gpu in node.status.gpus
        for trial in gpu.trials
        if trial.state in FROZEN
    }
    return sorted(found)
