"""Command `podium explain trial NAME`: phase, reason, position in the run queue, holder and history of a trial.

The explanation of `podium explain job NAME` is in `explain_job`, that of `podium explain pod NAME` in `explain_pod`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from podium_cli.commands.explain_job import explained_job
from podium_cli.commands.explain_pod import pod_explanation
from podium_cli.objects import parse_job, parse_node, parse_trial
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, Output, examples, one_of
from podium_cli.options.names import trial_names
from podium_cli.options.source import FromFiles, Job, Sample, Source
from podium_cli.output import show
from podium_cli.session import Session, fetch, gpu_nodes, run_with_cluster
from podium_cli.structured import print_data
from podium_cli.views import explain as explain_view
from podium_cli.views import explain_job as explain_job_view
from podium_cluster import clock
from podium_cluster.resources import JOBS, TRIALS
from podium_core.placement.policies.registry import DEFAULT, POLICIES, placement_policy
from podium_views.job_snapshot import JobSnapshot

app = typer.Typer()
explain = typer.Typer(
    help="Explain why a search or a trial runs or waits, or how the nodes are scored for a pod.",
    no_args_is_help=True,
    epilog=examples("podium explain job digits", "podium explain trial digits-3", "podium explain pod digits-3-0"),
)
app.add_typer(explain, name="explain")


@explain.command(
    "job",
    epilog=examples(
        "podium explain job digits",
        "podium explain job --from-files digits-run",
        "podium explain job digits -o json --samples 0",
        "podium explain job --sample",
    ),
)
def explain_job(
    job: Job = None,
    output: Output = "table",
    samples: Annotated[
        int, typer.Option(metavar="N", help="Simulated samples of the expected times; 0: no times.")
    ] = 19,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the samples.", min=0)] = 0,
    step_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds of one step, for a search in which no trial has made one.",
            show_default="as measured",
        ),
    ] = None,
    from_files: FromFiles = None,
    sample: Sample = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Explain why a search does not run now, and when it will.

    Shows each reason with its cure, the position among all waiting trials, what
    holds the GPUs, and when the next trial starts and the search ends: simulated
    from its present state, with an interval that holds 80 % of the samples.
    """
    source = Source(job, from_files, sample, namespace, kubeconfig, context)
    explained = explained_job(source, samples, seed, step_seconds)
    if output == "table":
        print("\n".join(explain_job_view.lines(explained)))
    else:
        print_data(explain_job_view.data(explained), output)


@explain.command("trial", epilog=examples("podium explain trial digits-3", "podium explain trial digits-3 -o json"))
def explain_trial(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the HyperParamTrial.", autocompletion=trial_names)
    ],
    output: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Explain why a trial runs or waits.

    Shows phase and reason, rank, progress, position in the run queue, holder of
    the GPU, suspensions, lost work and the last GPU allocations.
    """
    run_with_cluster(_explain(Session.of(namespace, kubeconfig, context), name, output))


@explain.command("pod", epilog=examples("podium explain pod digits-3-0"))
def explain_pod(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Pod.")],
    policy: Annotated[str, one_of(POLICIES, help=f"Placement policy: {', '.join(POLICIES)}.")] = DEFAULT,
    podium_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the agents' heartbeats.")
    ] = "podium-system",
    output: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Explain how the nodes are scored for a pod.

    Shows the extender's score or refusal of each node.
    """
    session = Session.of(namespace, kubeconfig, context)
    explained = run_with_cluster(pod_explanation(session, name, placement_policy(policy), podium_namespace))
    if output == "table":
        show(explained)
    else:
        print_data(explained.data(), output)


async def _explain(session: Session, name: str, output: str) -> None:
    async with session.api() as api:
        trial = parse_trial(await fetch(api, TRIALS, name, session.namespace))
        job = parse_job(await fetch(api, JOBS, trial.spec.job, session.namespace))
        nodes = tuple(parse_node(item) for item in await gpu_nodes(api))
    snapshot = JobSnapshot(job, (trial,), nodes, datetime.fromtimestamp(clock.now(), UTC))
    if output == "table":
        print("\n".join(explain_view.lines(snapshot, trial)))
    else:
        print_data(explain_view.data(snapshot, trial), output)
