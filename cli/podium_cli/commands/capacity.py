"""Command `podium capacity`: number of GPUs that keep the wait within a bound. Needs no cluster."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import Output, examples
from podium_cli.progress import progress
from podium_cli.structured import print_data
from podium_cli.views import capacity as capacity_view
from podium_core.tables.text_file import TextFileError, text_lines

if TYPE_CHECKING:
    from podium_optimisers.queueing.capacity import CapacityPlan, Traffic

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|m|h|d)?")
LOAD, GOAL = "Load (one of these)", "Goal (one of these)"  # panels of the help
_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*/\s*(s|min|m|h|d)")


def _seconds(text: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    if not match:
        raise typer.BadParameter(f"must be a time such as 90s, 30m or 2h (got {text!r})")
    return float(match[1]) * UNITS[match[2] or "s"]


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text.strip())
    if not match:
        raise typer.BadParameter(f"must be a rate such as 120/h or 2/min (got {text!r})")
    return float(match[1]) / UNITS[match[2]]


app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Question:
    """Options of one `podium capacity`.

    Exactly one of `trace`, `rate` and `offered` is given, and exactly one of `wait` and `lost`.
    """

    trace: Path | None
    rate: float | None
    offered: float | None
    service: float | None
    gpus_per_job: int
    arrival_c2: float | None
    service_c2: float | None
    wait: float | None
    lost: float | None
    share: float | None

    @property
    def bound(self) -> float:
        """Return the bound on the wait or on the share of rejected jobs."""
        return next(one for one in (self.wait, self.lost) if one is not None)


@app.command(
    epilog=examples(
        "podium capacity --rate 120/h --service 30m --wait 5m",
        "podium capacity --rate 120/h --service 30m --wait 5m --share 0.95",
        "podium capacity --rate 120/h --service 30m --wait 5m --service-c2 4",
        "podium capacity --offered 24 --service 1h --wait 10m -o json",
        "podium capacity --rate 6/min --service 30s --lost 0.01",
        "podium capacity --trace philly.csv.gz --wait 10m --share 0.9",
    )
)
def capacity(
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV (also .gz) with arrival, duration and GPUs.",
            readable=False,
            rich_help_panel=LOAD,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(parser=_rate, metavar="N/UNIT", help="Rate of arrivals, such as 120/h.", rich_help_panel=LOAD),
    ] = None,
    offered: Annotated[
        float | None,
        typer.Option(metavar="N", help="Jobs that run on average if none waits.", rich_help_panel=LOAD),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            parser=_seconds,
            metavar="TIME",
            help="Bound on the mean wait, or on the wait of --share.",
            rich_help_panel=GOAL,
        ),
    ] = None,
    lost: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Bound on the share rejected, if jobs do not wait.", rich_help_panel=GOAL),
    ] = None,
    service: Annotated[
        float | None, typer.Option(parser=_seconds, metavar="TIME", help="Mean run time of a job: 90s, 30m, 2h.")
    ] = None,
    gpus_per_job: Annotated[int, typer.Option(metavar="N", help="GPUs of a job.")] = 1,
    arrival_c2: Annotated[
        float | None,
        typer.Option(metavar="X", help="Variance / mean^2 of gaps between arrivals.", show_default="1, Poisson"),
    ] = None,
    service_c2: Annotated[
        float | None,
        typer.Option(metavar="X", help="Variance / mean^2 of run times.", show_default="1, exponential"),
    ] = None,
    share: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the jobs for which --wait must hold.")
    ] = None,
    output: Output = "table",
) -> None:
    """Compute how many GPUs keep the wait within a bound, from numbers or a trace.

    Each job needs a number of GPUs for its run time. Give the rate of arrivals and
    the mean run time for a result of queueing theory, or --trace to replay
    recorded jobs. The bound is on the wait (--wait) or on the share of rejected
    jobs (--lost).
    """
    if sum(one is not None for one in (trace, rate, offered)) != 1:
        raise typer.BadParameter("give exactly one of --trace, --rate and --offered")
    if (wait is None) == (lost is None):
        raise typer.BadParameter("give either --wait or --lost")
    try:
        from podium_optimisers.validation import InputError
    except ImportError as error:  # the extra is not installed
        text = f"podium capacity needs the optimisers ({error}): pip install 'kube-podium[optimisers]'"
        raise CliError(Exit.FAILED, "ExtraMissing", text) from error
    question = Question(trace, rate, offered, service, gpus_per_job, arrival_c2, service_c2, wait, lost, share)
    try:
        with progress("computing"):
            plan = _plan(question)
    except InputError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if output == "table":
        print(capacity_view.as_text(plan, waits=lost is None))
    else:
        print_data(capacity_view.data(plan), output)


def _plan(question: Question) -> CapacityPlan:
    from podium_optimisers.queueing import capacity
    from podium_optimisers.queueing.trace import read_trace

    if question.trace is not None:
        _refuse_unused(question, ("service", "arrival_c2", "service_c2", "lost"))
        if question.gpus_per_job != 1:
            raise CliError(
                Exit.USAGE, "OptionUnused", "--gpus-per-job: the trace has the GPUs of each job; omit the option"
            )
        try:
            trace = read_trace(text_lines(question.trace))
        except TextFileError as error:
            raise CliError(Exit.FAILED, error.code, str(error)) from error
        except OSError as error:
            text = f"{question.trace}: {error.strerror or error}; name a CSV file (also .gz)"
            raise CliError(Exit.NOT_FOUND, "FileUnreadable", text) from error
        return capacity.plan_from_trace(trace, capacity.WaitGoal(question.bound, question.share))
    traffic = _traffic(question)
    if question.lost is not None:
        _refuse_unused(question, ("share",))
        return capacity.plan_loss_system(traffic, question.lost)
    return capacity.plan_from_traffic(traffic, capacity.WaitGoal(question.bound, question.share))


def _traffic(question: Question) -> Traffic:
    from podium_optimisers.queueing.capacity import Traffic

    service, offered, gpus = question.service, question.offered, question.gpus_per_job
    if service is None:
        raise CliError(Exit.USAGE, "ServiceTimeRequired", "--service: give the mean run time of a job, such as 30m")
    if not service > 0.0:
        raise CliError(Exit.USAGE, "TooSmall", f"--service: must be greater than 0 s (got {service:g})")
    if offered is not None and not 0.0 < offered < math.inf:
        text = f"--offered: must be a finite number greater than 0 (got {offered:g})"
        raise CliError(Exit.USAGE, "OutOfRange", text)
    if gpus < 1:
        raise CliError(Exit.USAGE, "TooSmall", f"--gpus-per-job: must be at least 1 (got {gpus})")
    rate = (question.rate or 0.0) if offered is None else offered / service
    arrival_c2 = 1.0 if question.arrival_c2 is None else question.arrival_c2
    service_c2 = 1.0 if question.service_c2 is None else question.service_c2
    return Traffic(rate, service, gpus, arrival_c2, service_c2)


def _refuse_unused(question: Question, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(question, name) is not None:
            beside = "--trace" if question.trace is not None else "--lost"
            text = f"--{name.replace('_', '-')} has no effect with {beside}; omit it"
            raise CliError(Exit.USAGE, "OptionUnused", text)
