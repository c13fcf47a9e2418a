"""`podium get trials JOB` and `podium get gpus`: plain tables for pipes and people."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_picture import JobPicture
from podium_cli.objects import parse_node
from podium_cli.output import show
from podium_cli.session import Session, carry_out
from podium_cli.views import additional_metrics as observed
from podium_cli.views import formatting as texts
from podium_cli.views.watch import HEALTH_STYLE, utilization, why
from podium_cluster.resources import GPUNODES
from podium_core.schema.trial import HyperParamTrial

Order = Callable[[JobPicture], tuple[HyperParamTrial, ...]]
ORDERS: dict[str, Order] = {
    "rank": lambda picture: picture.by_rank,
    "value": lambda picture: picture.by_value,
    "predicted": lambda picture: _descending(picture, lambda trial: _predicted(picture, trial)),
    "number": lambda picture: picture.trials,
    "steps": lambda picture: _descending(picture, lambda trial: trial.status.last_step),
    "gpu-seconds": lambda picture: _descending(picture, lambda trial: trial.status.gpu_seconds),
    "suspensions": lambda picture: _descending(picture, lambda trial: trial.status.suspensions.count),
}


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "get",
        _run,
        says=SAYS["get"],
        examples="""
            podium get trials digits
            podium get trials digits --sort-by value | head
            podium get gpus
        """,
    )
    parser.add_argument("what", choices=("trials", "gpus"), help="of a job, or of all nodes that have an agent")
    parser.add_argument("job", nargs="?", help="name of the HyperParamJob (trials)")
    text = f"order of the trials: {', '.join(ORDERS)} (default: rank)"
    parser.add_argument("--sort-by", choices=tuple(ORDERS), default="rank", metavar="ORDER", help=text)


def _run(arguments: argparse.Namespace) -> Exit:
    if arguments.what == "gpus":
        return carry_out(_gpus(Session.of(arguments)))
    if not arguments.job:
        raise CliError(Exit.USAGE, "JobNameRequired", "podium get trials JOB: name the job")
    return carry_out(_trials(Session.of(arguments), arguments.job, arguments.sort_by))


async def _trials(session: Session, job: str, sort_by: str) -> Exit:
    async with session.api() as api:
        picture = await session.picture(api, job)
    show(trials_table(picture, sort_by))
    return Exit.OK


def trials_table(picture: JobPicture, sort_by: str) -> Table:
    """One row a trial; a column for each additional metric of the job, with the value that was printed last."""
    further = observed.names(picture.job)
    heads = ["TRIAL", "PHASE", "GPU", "RANK", "STEP", "VALUE", "BEST", "PREDICTED", "GPU-S", "SUSP"]
    table = _plain(*heads, *map(texts.clean, further), "PARAMETERS", "WHY")
    for trial in ORDERS[sort_by](picture):
        status = trial.status
        table.add_row(
            Text(trial.metadata.name),
            Text(status.phase.value),
            Text(",".join(picture.gpu_name(uuid) for uuid in status.gpus) or texts.NOTHING),
            Text(texts.NOTHING if status.rank is None else str(status.rank)),
            Text(texts.step(status.last_step)),
            Text(texts.number(status.last_value)),
            Text(texts.number(status.best.value if status.best else None)),
            Text(texts.number(status.predicted.value if status.predicted else None)),
            Text(f"{status.gpu_seconds:.1f}"),
            Text(str(status.suspensions.count)),
            *(Text(observed.latest(trial, metric)) for metric in further),
            Text(texts.parameters(trial.spec.parameters)),
            Text(why(trial)),
        )
    return table


async def _gpus(session: Session) -> Exit:
    async with session.api() as api:
        items = (await api.list(GPUNODES))["items"]
    now = datetime.now(UTC)
    table = _plain(*["GPU", "PRODUCT", "HEALTH", "HOLDER", "FOR", "UTIL", "MEMORY-GIB", "SLOTS", "TRIALS", "UUID"])
    for node in (parse_node(item) for item in items):
        for gpu in node.status.gpus:
            holder = gpu.holder
            table.add_row(
                Text(f"{node.metadata.name}/{gpu.index}"),
                Text(texts.clean(gpu.product) or texts.NOTHING),
                Text(gpu.health, style=HEALTH_STYLE.get(gpu.health, "yellow")),
                Text(f"{holder.namespace}/{holder.trial}" if holder else texts.NOTHING),
                Text(texts.since(holder.since, now) if holder else texts.NOTHING),
                utilization(gpu.sm_utilization),
                Text(f"{texts.gibibytes(gpu.memory_used)}/{texts.gibibytes(gpu.memory_total)}"),
                Text(str(gpu.slots)),
                Text(str(len(gpu.trials))),
                Text(gpu.uuid),
            )
    show(table)
    return Exit.OK


def _plain(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(Text(head), no_wrap=head not in ("PARAMETERS", "WHY"))
    return table


def _predicted(picture: JobPicture, trial: HyperParamTrial) -> float | None:
    """Larger is better, whichever way the objective goes."""
    predicted = trial.status.predicted
    if predicted is None:
        return None
    return predicted.value if picture.maximize else -predicted.value


def _descending(picture: JobPicture, figure: Callable[[HyperParamTrial], float | None]) -> tuple[HyperParamTrial, ...]:
    """Largest first, unknown last, ties by number."""

    def key(trial: HyperParamTrial) -> tuple[float, int]:
        known = figure(trial)
        return (float("inf") if known is None else -known, trial.spec.number)

    return tuple(sorted(picture.trials, key=key))
