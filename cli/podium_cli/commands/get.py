"""Commands `podium get jobs`, `trials JOB`, `gpus` and `queues`: plain tables for terminals and pipes, or data."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from podium_cli.objects import parse_job, parse_node, parse_queue, read_searches, saved_at
from podium_cli.options.common import AllNamespaces, Kubeconfig, KubeContext, Namespace, Output, examples, one_of
from podium_cli.options.source import FromFiles, Job, Sample, Source, snapshot
from podium_cli.output import show
from podium_cli.session import Session, run_with_cluster
from podium_cli.structured import print_data
from podium_cli.views import gpus as gpus_view
from podium_cli.views import jobs as jobs_view
from podium_cli.views import queues as queues_view
from podium_cli.views.trials import ORDERS, trials_data, trials_table
from podium_cluster import clock
from podium_cluster.resources import GPUNODES, GPUQUEUES, JOBS
from podium_core.schema.job import HyperParamJob

app = typer.Typer()
get = typer.Typer(
    help="List jobs, the trials of a job, or the GPUs and queues of the cluster.",
    no_args_is_help=True,
    epilog=examples(
        "podium get jobs -A",
        "podium get trials digits",
        "podium get trials digits --sort-by value | head",
        "podium get gpus",
        "podium get queues",
    ),
)
app.add_typer(get, name="get")


@get.command(
    epilog=examples(
        "podium get jobs",
        "podium get jobs -A",
        "podium get jobs -n research -o json",
        "podium get jobs --from-files podium-runs    the searches of this machine",
    )
)
def jobs(
    output: Output = "table",
    from_files: FromFiles = None,
    all_namespaces: AllNamespaces = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """List jobs with their progress, best value and GPUs."""
    if from_files is not None:
        saved = read_searches(from_files)
        named = [one for one in map(parse_job, saved) if namespace in (None, one.metadata.namespace)]
        _show_jobs(named, saved_at(saved), output, str(from_files))
        return
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_jobs(session, None if all_namespaces else session.namespace, output))


@get.command(
    epilog=examples(
        "podium get trials digits",
        "podium get trials digits --sort-by value | head",
        "podium get trials --from-files podium-runs/digits",
    ),
)
def trials(
    job: Job = None,
    sort_by: Annotated[str, one_of(tuple(ORDERS), help=f"Order of the trials: {', '.join(ORDERS)}.")] = "rank",
    output: Output = "table",
    from_files: FromFiles = None,
    sample: Sample = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """List the trials of a job."""
    seen = snapshot(Source(job, from_files, sample, namespace, kubeconfig, context))
    if output == "table":
        show(trials_table(seen, sort_by))
    else:
        print_data(trials_data(seen, sort_by), output)


@get.command(epilog=examples("podium get gpus", "podium get gpus -o yaml"))
def gpus(
    output: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """List the GPUs of all nodes with an agent."""
    run_with_cluster(_gpus(Session.of(namespace, kubeconfig, context), output))


@get.command(epilog=examples("podium get queues", "podium get queues -o json"))
def queues(
    output: Output = "table",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """List the queues that share the GPUs, with what each deserves and uses."""
    run_with_cluster(_queues(Session.of(namespace, kubeconfig, context), output))


async def _jobs(session: Session, namespace: str | None, output: str) -> None:
    async with session.api() as api:
        found = (await api.list(JOBS, namespace))["items"]
    where = "" if namespace is None else f"namespace {namespace}; -A lists those of all namespaces"
    _show_jobs(map(parse_job, found), datetime.fromtimestamp(clock.now(), UTC), output, where)


def _show_jobs(found: Iterable[HyperParamJob], now: datetime, output: str, where: str) -> None:
    """Print jobs; `where`: the place in the message that there are none."""
    listed = jobs_view.in_order(found)
    if output != "table":
        print_data(jobs_view.data(listed), output)
    elif listed:
        show(jobs_view.table(listed, now))
    else:
        print(f"no HyperParamJob in {where}" if where else "no HyperParamJob", file=sys.stderr)


async def _gpus(session: Session, output: str) -> None:
    async with session.api() as api:
        nodes = [parse_node(item) for item in (await api.list(GPUNODES))["items"]]
    if output == "table":
        show(gpus_view.table(nodes, datetime.fromtimestamp(clock.now(), UTC)))
    else:
        print_data(gpus_view.data(nodes), output)


async def _queues(session: Session, output: str) -> None:
    async with session.api() as api:
        found = [parse_queue(item) for item in (await api.list(GPUQUEUES))["items"]]
    found.sort(key=lambda queue: queue.metadata.name)
    if output != "table":
        print_data(queues_view.data(found), output)
    elif found:
        show(queues_view.table(found))
    else:
        print("no GPUQueue: jobs share the GPUs without queues", file=sys.stderr)
