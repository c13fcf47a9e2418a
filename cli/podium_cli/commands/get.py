"""Commands `podium get trials JOB` and `podium get gpus`: plain tables for terminals and pipes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from podium_cli.job_snapshot import JobSnapshot
from podium_cli.objects import parse_node
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples, one_of
from podium_cli.options.names import job_names
from podium_cli.output import show
from podium_cli.session import Session, run_with_cluster
from podium_cli.views import additional_metrics, formatting
from podium_cli.views.watch import HEALTH_STYLE, utilization, why
from podium_cluster import clock
from podium_cluster.resources import GPUNODES
from podium_core.schema.trial import HyperParamTrial

Order = Callable[[JobSnapshot], tuple[HyperParamTrial, ...]]
ORDERS: dict[str, Order] = {
    "rank": lambda snapshot: snapshot.by_rank,
    "value": lambda snapshot: snapshot.by_value,
    "predicted": lambda snapshot: _descending(snapshot, lambda trial: _predicted(snapshot, trial)),
    "number": lambda snapshot: snapshot.trials,
    "steps": lambda snapshot: _descending(snapshot, lambda trial: trial.status.last_step),
    "gpu-seconds": lambda snapshot: _descending(snapshot, lambda trial: trial.status.gpu_seconds),
    "suspensions": lambda snapshot: _descending(snapshot, lambda trial: trial.status.suspensions.count),
}


app = typer.Typer()
get = typer.Typer(
    help="List the trials of a job, or the GPUs of the cluster.",
    no_args_is_help=True,
    epilog=examples("podium get trials digits", "podium get trials digits --sort-by value | head", "podium get gpus"),
)
app.add_typer(get, name="get")


@get.command(
    epilog=examples("podium get trials digits", "podium get trials digits --sort-by value | head"),
)
def trials(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the HyperParamJob.", autocompletion=job_names)],
    sort_by: Annotated[str, one_of(tuple(ORDERS), help=f"Order of the trials: {', '.join(ORDERS)}.")] = "rank",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """List the trials of a job."""
    run_with_cluster(_trials(Session.of(namespace, kubeconfig, context), job, sort_by))


@get.command(epilog=examples("podium get gpus"))
def gpus(namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """List the GPUs of all nodes with an agent."""
    run_with_cluster(_gpus(Session.of(namespace, kubeconfig, context)))


async def _trials(session: Session, job: str, sort_by: str) -> None:
    async with session.api() as api:
        snapshot = await session.snapshot(api, job)
    show(trials_table(snapshot, sort_by))


def trials_table(snapshot: JobSnapshot, sort_by: str) -> Table:
    """Return a row for each trial, with a column for the latest value of each additional metric.

    With several objectives, a column marks the trials of the Pareto front.
    """
    metrics = additional_metrics.names(snapshot.job)
    heads = ["TRIAL", "PHASE", "GPU", "RANK", "STEP", "VALUE", "BEST", "PREDICTED", "GPU-S", "SUSPENSIONS"]
    several, front = snapshot.job.spec.objectives is not None, {one.trial for one in snapshot.front}
    table = _plain(*heads, *map(formatting.clean, metrics), *(["FRONT"] if several else []), "PARAMETERS", "WHY")
    for trial in ORDERS[sort_by](snapshot):
        status = trial.status
        table.add_row(
            Text(trial.metadata.name),
            Text(status.phase.value),
            Text(",".join(snapshot.gpu_name(uuid) for uuid in status.gpus) or formatting.NOTHING),
            Text(formatting.NOTHING if status.rank is None else str(status.rank)),
            Text(formatting.step(status.last_step)),
            Text(formatting.number(status.last_value)),
            Text(formatting.number(status.best.value if status.best else None)),
            Text(formatting.number(status.predicted.value if status.predicted else None)),
            Text(f"{status.gpu_seconds:.1f}"),
            Text(str(status.suspensions.count)),
            *(Text(additional_metrics.latest(trial, metric)) for metric in metrics),
            *([Text("yes" if trial.metadata.name in front else formatting.NOTHING)] if several else []),
            Text(formatting.parameters(trial.spec.parameters)),
            Text(why(trial)),
        )
    return table


async def _gpus(session: Session) -> None:
    async with session.api() as api:
        items = (await api.list(GPUNODES))["items"]
    now = datetime.fromtimestamp(clock.now(), UTC)
    table = _plain(*["GPU", "PRODUCT", "HEALTH", "HOLDER", "FOR", "UTIL", "MEMORY-GIB", "SLOTS", "TRIALS", "UUID"])
    for node in (parse_node(item) for item in items):
        for gpu in node.status.gpus:
            holder = gpu.holder
            table.add_row(
                Text(f"{node.metadata.name}/{gpu.index}"),
                Text(formatting.clean(gpu.product) or formatting.NOTHING),
                Text(gpu.health, style=HEALTH_STYLE.get(gpu.health, "yellow")),
                Text(f"{holder.namespace}/{holder.trial}" if holder else formatting.NOTHING),
                Text(formatting.since(holder.since, now) if holder else formatting.NOTHING),
                utilization(gpu.sm_utilization),
                Text(formatting.memory_in_use(gpu.memory_used, gpu.memory_total)),
                Text(str(gpu.slots)),
                Text(str(len(gpu.trials))),
                Text(gpu.uuid),
            )
    show(table)


def _plain(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(Text(head), no_wrap=head not in ("PARAMETERS", "WHY"))
    return table


def _predicted(snapshot: JobSnapshot, trial: HyperParamTrial) -> float | None:
    """Return the predicted value with the sign for which larger is better."""
    predicted = trial.status.predicted
    if predicted is None:
        return None
    return predicted.value if snapshot.maximize else -predicted.value


def _descending(
    snapshot: JobSnapshot, figure: Callable[[HyperParamTrial], float | None]
) -> tuple[HyperParamTrial, ...]:
    """Return the trials by a figure: the largest first, unknown last, ties by number."""

    def key(trial: HyperParamTrial) -> tuple[float, int]:
        known = figure(trial)
        return (float("inf") if known is None else -known, trial.spec.number)

    return tuple(sorted(snapshot.trials, key=key))
