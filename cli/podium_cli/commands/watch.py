"""Command `podium watch JOB`: a live table on a terminal, otherwise one line per change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples, seconds
from podium_cli.options.names import job_names
from podium_cli.sample_watch import show_sample
from podium_cli.session import Session, fetch, run_with_cluster
from podium_cli.views.watch import changes, view
from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, JOBS, TRIALS, Selection
from podium_cluster.watch import WatchCache, wait_all_synced
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import JOB_LABEL, HyperParamTrial
from podium_views.job_snapshot import JobSnapshot, of_job

FRAME = 0.25  # least number of seconds between two snapshots
TICK = 1.0  # largest number of seconds between two snapshots, so that clocks and ETA advance
SYNC_SECONDS = 20.0
REFUSED_SECONDS = 30.0  # time for new credentials, after which a refusal is final
SETTLE_SECONDS = 2.0  # after the job's end, for the last reports of its trials
FIXED_LINES = 10  # of the screen besides GPUs and trials: panel 5, bar 1, decision 1, heads 2, "and N more" 1


app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one `podium watch`."""

    job: str
    until_done: bool
    timeout: float | None
    lines: bool
    metrics: bool = False


@dataclass(slots=True)
class JobCaches:
    """Watch caches of one job; `changed` is set at every event."""

    jobs: WatchCache[HyperParamJob]
    trials: WatchCache[HyperParamTrial]
    nodes: WatchCache[GPUNode] | None
    changed: asyncio.Event
    tasks: list[asyncio.Task[None]]

    def snapshot(self, namespace: str, job: str) -> JobSnapshot | None:
        """Return the current state, or None if the job does not exist."""
        parsed_job = self.jobs.get(namespace, job)
        if parsed_job is None:
            return None
        nodes = tuple(self.nodes.values()) if self.nodes else ()
        return JobSnapshot(
            parsed_job, of_job(parsed_job, self.trials.values()), nodes, datetime.fromtimestamp(clock.now(), UTC)
        )

    def check(self) -> None:
        """Raise the error of a cache that has ended or is refused: its objects would never change again."""
        for task in self.tasks:
            if task.done():
                task.result()
        for refusal in (self.jobs.refusal(REFUSED_SECONDS), self.trials.refusal(REFUSED_SECONDS)):
            if refusal is not None:
                raise refusal


@app.command(
    epilog=examples(
        "podium watch digits",
        "podium watch digits --until-done && podium report digits",
        "podium watch digits --metrics",
        "podium watch --sample",
        "podium watch digits -n research --until-done --timeout 3600 | tee digits.log",
    )
)
def watch(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Name of the HyperParamJob.", autocompletion=job_names)
    ] = None,
    until_done: Annotated[
        bool,
        typer.Option(
            "--until-done", help="End with the job: exit code 0 if it succeeded, 1 if it failed or was refused."
        ),
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(parser=seconds, metavar="SECONDS", help="End after this time (exit code 5).")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Print one line per change even on a terminal.")] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Add a column with the latest value of each additional metric.")
    ] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="Show a synthetic search without a cluster, to see an example.")
    ] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Show a running search: holder of each GPU, reasons, ranks, values, progress.

    The table shows the job, its progress, the newest scheduling decision, the
    holder and the waiting trials of each GPU, and the trials by rank. Without a
    terminal, the command prints one line per change.
    """
    console = Console()
    lines = lines or not console.is_terminal
    if sample:
        if job is not None:
            raise typer.BadParameter("give either a job or --sample")
        show_sample(console, lines=lines, timeout=timeout)
        return
    if job is None:
        raise typer.BadParameter("name the job, or give --sample")
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_watch(session, Options(job, until_done, timeout, lines, metrics), console))


async def _watch(session: Session, options: Options, console: Console) -> None:
    """Show a job until it ends, the time is over or the user interrupts."""
    async with session.api() as api:
        await fetch(api, JOBS, options.job, session.namespace)  # refuses a wrong name at once
        async with _job_caches(api, session.namespace, options.job) as caches:
            show = _show_lines if options.lines else _show_live
            try:
                async with asyncio.timeout(options.timeout):
                    last = await show(session, options, console, caches)
            except TimeoutError as error:
                message = f"job {options.job} did not end within {options.timeout:g} s"
                raise CliError(Exit.TIMEOUT, "TimedOut", message) from error
    status = last.job.status
    if status.phase in ("Failed", "Refused"):
        message = f"job {options.job}: {status.message or 'no message'}"
        raise CliError(Exit.FAILED, status.reason or status.phase, message)


async def _show_live(session: Session, options: Options, console: Console, caches: JobCaches) -> JobSnapshot:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for snapshot in _snapshots(session, options, caches):
            rows = max(3, console.height - FIXED_LINES - len(snapshot.gpus))
            shown = view(snapshot, rows=rows, silent_for=caches.jobs.age(), metrics=options.metrics)
            live.update(shown, refresh=True)
        live.update(view(snapshot, metrics=options.metrics), refresh=True)  # the last table is complete
    return snapshot


async def _show_lines(session: Session, options: Options, console: Console, caches: JobCaches) -> JobSnapshot:
    before: JobSnapshot | None = None
    async for snapshot in _snapshots(session, options, caches):
        for line in changes(before, snapshot):
            print(line, flush=True)
        before = snapshot
    return snapshot


async def _snapshots(session: Session, options: Options, caches: JobCaches) -> AsyncIterator[JobSnapshot]:
    """Yield a snapshot per change, between one and four per second; end with the job if requested."""
    ended: float | None = None
    while True:
        caches.changed.clear()
        snapshot = caches.snapshot(session.namespace, options.job)
        if snapshot is None:
            message = f"job {options.job} was deleted, or rewritten in a form that this version of podium cannot read"
            raise CliError(Exit.FAILED, "JobDeleted", message)
        yield snapshot
        if options.until_done and snapshot.ended:
            ended = ended or time.monotonic()
            settled = snapshot.done == len(snapshot.trials)
            if settled or time.monotonic() - ended > SETTLE_SECONDS:
                return
        await asyncio.sleep(FRAME)
        await _wait(caches, TICK - FRAME)


async def _wait(caches: JobCaches, timeout: float) -> None:
    signal = asyncio.create_task(caches.changed.wait())
    try:
        await asyncio.wait({signal, *caches.tasks}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        signal.cancel()
    caches.check()


@asynccontextmanager
async def _job_caches(api: Api, namespace: str, job: str) -> AsyncIterator[JobCaches]:
    """Run the caches of the job, its trials and, if the caller may read them, the GPUNodes."""
    jobs = WatchCache(api, Selection(JOBS, namespace, fields=f"metadata.name={job}"), HyperParamJob.model_validate)
    selector = f"{JOB_LABEL}={job}"
    trials = WatchCache(api, Selection(TRIALS, namespace, labels=selector), HyperParamTrial.model_validate)
    nodes = WatchCache(api, Selection(GPUNODES), GPUNode.model_validate) if await _may_read_nodes(api) else None
    caches: list[WatchCache[HyperParamJob] | WatchCache[HyperParamTrial] | WatchCache[GPUNode]] = [jobs, trials]
    if nodes is not None:
        caches.append(nodes)
    changed = asyncio.Event()
    for cache in caches:
        cache.subscribe(changed.set)
    tasks = [asyncio.create_task(cache.run()) for cache in caches]
    try:
        try:
            await asyncio.wait_for(wait_all_synced(caches), SYNC_SECONDS)
        except TimeoutError as error:
            message = f"no answer within {SYNC_SECONDS:g} s; check that you may list hyperparamtrials in {namespace}"
            raise CliError(Exit.CLUSTER, "NotSynced", message) from error
        yield JobCaches(jobs, trials, nodes, changed, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _may_read_nodes(api: Api) -> bool:
    try:
        await api.list(GPUNODES)
    except ApiError as error:
        if error.status != 403 and not error.not_found:
            raise
        return False
    return True
