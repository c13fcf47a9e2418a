"""Command `podium doctor [NODE]`: check a cluster before and after the installation of Podium. It writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from podium_cli.doctor.check_table import BY_CODE, Outcome, Result
from podium_cli.doctor.diagnosis import diagnose, has_errors
from podium_cli.doctor.facts import ClusterFacts, Unread
from podium_cli.doctor.reader import read_facts
from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import Kubeconfig, KubeContext, Output, examples
from podium_cli.options.names import node_names
from podium_cli.output import show
from podium_cli.progress import progress
from podium_cli.session import Session, run_with_cluster
from podium_cli.structured import print_data
from podium_cli.views.plain_table import plain_table
from podium_views import formatting

STYLES = {Outcome.ERROR: "bold red", Outcome.WARNING: "yellow", Outcome.SKIPPED: "dim", Outcome.OK: "green"}
app = typer.Typer()


@app.command(
    epilog=examples(
        "podium doctor",
        "podium doctor node-a",
        "podium doctor -o json | jq '.items[] | select(.result == \"error\")'",
    )
)
def doctor(
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", help="Check this node only, also if it shows no GPU.", autocompletion=node_names
        ),
    ] = None,
    output: Output = "table",
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of Podium.",
            show_default="that of the installed chart, then podium-system",
            rich_help_panel="Cluster",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Check a cluster for Podium, before or after its installation, and print what is wrong with the cure.

    Looks at the version of Kubernetes, at webhooks, at the chart with its CRDs
    and pods, and at each node with GPUs: driver, container runtime, CDI, cgroups,
    kubelet, and other plugins that give out the same GPUs. It changes nothing.

    A check that cannot be made is skipped with the reason; it never counts as
    passed. The checks of a kubelet need the right to get nodes/proxy. The exit
    code is 1 if there is an error, and 0 with warnings. docs/reference/doctor.md
    lists all checks.
    """
    session = Session.of(None, kubeconfig, context)
    results = diagnose(run_with_cluster(_read(session, node, namespace)))
    if output == "table":
        show(table(results))
        print(f"\n{summary(results)}")
    else:
        print_data(data(results), output)
    if has_errors(results):
        raise typer.Exit(Exit.FAILED)


async def _read(session: Session, node: str | None, namespace: str | None) -> ClusterFacts:
    async with session.api() as api:
        with progress("reading the cluster"):
            facts = await read_facts(api, only=node or "", namespace=namespace)
    if node and not isinstance(facts.nodes, Unread) and not facts.nodes:
        text = f"there is no node {node}; see kubectl get nodes"
        raise CliError(Exit.NOT_FOUND, "NodeNotFound", text)
    return facts


def table(results: Sequence[Result]) -> Table:
    """Return the results as a table; a cure follows the sentence of what is wrong."""
    made = plain_table("RESULT", "CHECK", "WHERE", "WHY")
    for one in results:
        why = f"{one.message}. {one.cure}" if one.cure else one.message
        made.add_row(Text(one.outcome, style=STYLES[one.outcome]), Text(one.check), Text(one.subject), Text(why))
    return made


def summary(results: Sequence[Result]) -> str:
    """Return the number of results by outcome as a sentence."""
    counts = {outcome: sum(one.outcome is outcome for one in results) for outcome in Outcome}
    return (
        f"{formatting.count(counts[Outcome.ERROR], 'error')}, {formatting.count(counts[Outcome.WARNING], 'warning')}, "
        f"{counts[Outcome.SKIPPED]} skipped, {counts[Outcome.OK]} ok"
    )


def data(results: Sequence[Result]) -> dict[str, Any]:
    """Return the results for programs."""
    counts = {outcome.value: sum(one.outcome is outcome for one in results) for outcome in Outcome}
    rows = [
        {
            "check": one.check,
            "group": BY_CODE[one.check].group,
            "where": one.subject,
            "result": one.outcome.value,
            "message": one.message,
            "cure": one.cure or None,
        }
        for one in results
    ]
    return {"counts": counts, "items": rows}
