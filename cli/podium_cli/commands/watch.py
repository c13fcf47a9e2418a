"""`podium watch JOB`: the live table on a terminal, a line per change elsewhere. Draws what the watch caches hold."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command, seconds
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_picture import JOB_LABEL, JobPicture, of_job
from podium_cli.session import Session, carry_out, fetch
from podium_cli.views.watch import view
from podium_cli.views.watch_lines import changes
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, JOBS, TRIALS
from podium_cluster.watch import WatchCache, wait_all_synced
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial

FRAME = 0.25  # seconds between two pictures at least: 4 a second
TICK = 1.0  # seconds between two pictures at most: clocks and ETA move
SYNC_SECONDS = 20.0
SETTLE_SECONDS = 2.0  # after the job's end its trials' last reports may still be on their way
FIXED_LINES = 9  # of the screen that are no trials: panel 5, bar 1, heads 2, "and N more" 1


@dataclass(frozen=True, slots=True)
class Options:
    job: str
    until_done: bool
    timeout: float | None
    lines: bool
    metrics: bool = False


@dataclass(slots=True)
class Eyes:
    """The caches that see one job; `changed` is set at every event."""

    jobs: WatchCache[HyperParamJob]
    trials: WatchCache[HyperParamTrial]
    nodes: WatchCache[GPUNode] | None
    changed: asyncio.Event
    tasks: list[asyncio.Task[None]]

    def look(self, namespace: str, job: str) -> JobPicture | None:
        found = self.jobs.get(namespace, job)
        if found is None:
            return None
        nodes = tuple(self.nodes.values()) if self.nodes else ()
        return JobPicture(found, of_job(found, self.trials.values()), nodes, datetime.now(UTC))

    def check(self) -> None:
        """A cache that ended will never see anything again: say why instead of showing an old picture for ever."""
        for task in self.tasks:
            if task.done():
                task.result()


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "watch",
        _run,
        says=SAYS["watch"],
        examples="""
            podium watch digits
            podium watch digits --until-done && podium report digits
            podium watch digits --metrics
            podium watch digits -n research --until-done --timeout 3600 | tee digits.log
        """,
    )
    parser.add_argument("job", help="name of the HyperParamJob")
    parser.add_argument("--until-done", action="store_true", help="end with the job: 0 Succeeded, 1 Failed or Refused")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="give up after so long (exit code 5)")
    parser.add_argument("--lines", action="store_true", help="a line per change even on a terminal")
    text = "in the table a column for each of objective.additionalMetrics: its latest value"
    parser.add_argument("--metrics", action="store_true", help=text)


def _run(arguments: argparse.Namespace) -> Exit:
    options = Options(arguments.job, arguments.until_done, arguments.timeout, arguments.lines, arguments.metrics)
    return carry_out(watch(Session.of(arguments), options, Console()))


async def watch(session: Session, options: Options, console: Console) -> Exit:
    async with session.api() as api:
        await fetch(api, JOBS, options.job, session.namespace)  # a wrong name is told at once
        async with _eyes(api, session.namespace, options.job) as eyes:
            show = _show_lines if options.lines or not console.is_terminal else _show_live
            try:
                async with asyncio.timeout(options.timeout):
                    last = await show(session, options, console, eyes)
            except TimeoutError as error:
                message = f"job {options.job} did not end within {options.timeout:g} s"
                raise CliError(Exit.TIMEOUT, "TimedOut", message) from error
    status = last.job.status
    if status.phase in ("Failed", "Refused"):
        message = f"job {options.job}: {status.message or 'no message'}"
        raise CliError(Exit.FAILED, status.reason or status.phase, message)
    return Exit.OK


async def _show_live(session: Session, options: Options, console: Console, eyes: Eyes) -> JobPicture:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for picture in _pictures(session, options, eyes):
            rows = max(3, console.height - FIXED_LINES - len(picture.gpus))
            shown = view(picture, rows=rows, silent_for=eyes.jobs.age(), metrics=options.metrics)
            live.update(shown, refresh=True)
        live.update(view(picture, metrics=options.metrics), refresh=True)  # what stays on the screen is whole
    return picture


async def _show_lines(session: Session, options: Options, console: Console, eyes: Eyes) -> JobPicture:
    before: JobPicture | None = None
    async for picture in _pictures(session, options, eyes):
        for line in changes(before, picture):
            print(line, flush=True)
        before = picture
    return picture


async def _pictures(session: Session, options: Options, eyes: Eyes) -> AsyncIterator[JobPicture]:
    """A picture per change, at most 4 a second, at least 1; ends with the job if that was asked for."""
    ended: float | None = None
    while True:
        eyes.changed.clear()
        picture = eyes.look(session.namespace, options.job)
        if picture is None:
            message = f"job {options.job} is gone: deleted, or written anew in a way that this podium cannot read"
            raise CliError(Exit.FAILED, "JobDeleted", message)
        yield picture
        if options.until_done and picture.ended:
            ended = ended or time.monotonic()
            settled = picture.done == len(picture.trials)
            if settled or time.monotonic() - ended > SETTLE_SECONDS:
                return
        await asyncio.sleep(FRAME)
        await _wait(eyes, TICK - FRAME)


async def _wait(eyes: Eyes, seconds: float) -> None:
    signal = asyncio.create_task(eyes.changed.wait())
    try:
        await asyncio.wait({signal, *eyes.tasks}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        signal.cancel()
    eyes.check()


@asynccontextmanager
async def _eyes(api: Api, namespace: str, job: str) -> AsyncIterator[Eyes]:
    """Caches that follow the job, its trials and (for those who may read them) the GPUNodes, until the block ends."""
    jobs = WatchCache(api, JOBS, HyperParamJob.model_validate, namespace=namespace, fields=f"metadata.name={job}")
    of_this = f"{JOB_LABEL}={job}"
    trials = WatchCache(api, TRIALS, HyperParamTrial.model_validate, namespace=namespace, labels=of_this)
    nodes = WatchCache(api, GPUNODES, GPUNode.model_validate) if await _may_read_nodes(api) else None
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
            message = f"no answer to a list within {SYNC_SECONDS:g} s; may you list hyperparamtrials in {namespace}?"
            raise CliError(Exit.CLUSTER, "NotSynced", message) from error
        yield Eyes(jobs, trials, nodes, changed, tasks)
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
