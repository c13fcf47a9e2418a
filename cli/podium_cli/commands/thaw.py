"""Command `podium thaw`: resume everything on a node and suspend nothing there. Also the chart's uninstall hook.

It writes one field, GPUNode.spec.released, under a field manager of its own; the node's agent resumes the trials.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_node
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples, seconds
from podium_cli.options.names import node_names
from podium_cli.session import MANAGER, Session, kind_missing, run_with_cluster
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES
from podium_core.schema.gpunode import GPUNode, SlotState

POLL_SECONDS = 0.5
SUSPENDED_STATES = frozenset({SlotState.SUSPENDED, SlotState.SUSPENDING})


app = typer.Typer()


@app.command(epilog=examples("podium thaw node-a", "podium thaw --all --wait 120", "podium thaw --all --undo"))
def thaw(
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=node_names)
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Every node that has a GPUNode.")] = False,
    wait: Annotated[
        float, typer.Option(parser=seconds, metavar="SECONDS", help="How long to wait; 0: do not wait.")
    ] = 60,
    undo: Annotated[bool, typer.Option("--undo", help="Allow Podium to suspend trials there again.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Resume every suspended trial of a node and suspend nothing there until --undo.

    While a node is thawed, its trials run at the same time. The command waits
    until its agent reports that nothing is suspended there.
    """
    if (node is not None) == everywhere:
        raise typer.BadParameter("give either a node or --all")
    run_with_cluster(_thaw(Session.of(namespace, kubeconfig, context), node, wait, undo=undo))


async def _thaw(session: Session, node: str | None, wait: float, *, undo: bool) -> None:
    async with session.api() as api:
        names = await _names(api, node)
        if not names:
            return
        for name in names:
            # existing objects only: server-side apply would create a GPUNode without an agent
            manifest = {"metadata": {"name": name}, "spec": {"released": not undo}}
            await api.apply(GPUNODES, manifest, manager=MANAGER)
            print(
                f"{name}: {'Podium may suspend trials again' if undo else 'thawed: Podium suspends nothing here'}",
                flush=True,
            )
        if not undo and wait > 0:
            await _until_thawed(api, frozenset(names), wait)


async def _names(api: Api, node: str | None) -> list[str]:
    """Return the names of the nodes; none in a cluster without Podium, which is a success for a hook."""
    try:
        names = [parse_node(item).metadata.name for item in (await api.list(GPUNODES))["items"]]
    except ApiError as error:
        if not kind_missing(error):
            raise
        print("this cluster has no GPUNode kind: Podium is not installed, so nothing is suspended")
        return []
    if node is None:
        if not names:
            print("there is no GPUNode, so nothing is suspended")
        return sorted(names)
    if node not in names:
        known = ", ".join(sorted(names)) or "none"
        raise CliError(Exit.NOT_FOUND, "GPUNodeNotFound", f"GPUNode {node} does not exist; the GPUNodes are: {known}")
    return [node]


async def _until_thawed(api: Api, names: frozenset[str], wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        # a request may fail while the API server handles an uninstall: only the last error counts
        try:
            nodes = [parse_node(item) for item in (await api.list(GPUNODES))["items"]]
        except ApiError as error:
            if kind_missing(error):
                return
            if time.monotonic() > deadline:
                raise
        else:
            left = suspended_trials([node for node in nodes if node.metadata.name in names])
            if not left:
                print("nothing is suspended")
                return
            if time.monotonic() > deadline:
                message = (
                    f"still suspended after {wait:g} s: {', '.join(left)}; check that the agent of that node runs. "
                    "Without an agent, thaw by hand: docs/reference/cli.md, section `podium thaw`"
                )
                raise CliError(Exit.TIMEOUT, "StillSuspended", message)
        await asyncio.sleep(POLL_SECONDS)


def suspended_trials(nodes: list[GPUNode]) -> list[str]:
    """Return `node: namespace/trial` of every trial that the agents report as suspended, each once."""
    suspended = {
        f"{node.metadata.name}: {trial.namespace}/{trial.trial}"
        for node in nodes
        for gpu in node.status.gpus
        for trial in gpu.trials
        if trial.state in SUSPENDED_STATES
    }
    return sorted(suspended)
