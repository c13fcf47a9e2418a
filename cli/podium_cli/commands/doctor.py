"""Command `podium doctor [NODE]`: check a cluster before and after the installation of Podium. It writes nothing."""

from __future__ import annotations

from typing import Annotated

import typer

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
from podium_cli.views import doctor as doctor_view

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

    Looks at the version of Kubernetes, at webhooks, at the chart with its CRDs and
    pods, and at each node with GPUs: driver, container runtime, CDI, cgroups,
    kubelet, and other plugins that give out the same GPUs. It changes nothing.

    A check that cannot be made is skipped with the reason; it never counts as
    passed. The checks of a kubelet need the right to get nodes/proxy. The exit code
    is 1 if there is an error, and 0 with warnings. docs/reference/doctor.md lists
    all checks.
    """
    session = Session.of(None, kubeconfig, context)
    results = diagnose(run_with_cluster(_read(session, node, namespace)))
    if output == "table":
        show(doctor_view.table(results))
        print(f"\n{doctor_view.summary(results)}")
    else:
        print_data(doctor_view.data(results), output)
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
