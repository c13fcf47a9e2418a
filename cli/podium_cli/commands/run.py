"""Command `podium run JOB.yaml`: run a search on this machine, with neither Kubernetes nor root."""

from __future__ import annotations

import errno
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from podium_cli.commands.warm_start import results_added, single_job
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import name_of
from podium_cli.options.common import examples
from podium_cli.output import write
from podium_cli.report import page
from podium_cli.streams import mute
from podium_cli.views import summary as summary_view
from podium_cli.views.watch import changes, view
from podium_core.domain.phase import TrialPhase
from podium_local.devices import DeviceRequest
from podium_local.errors import Kind, LocalError
from podium_local.preparation import RunOptions, prepare
from podium_local.runner import Runner, RunView
from podium_simulator.traces.trace import trace_lines
from podium_views import formatting, model
from podium_views.job_snapshot import JobSnapshot
from podium_views.trace import trace_of

FIXED_LINES = 10  # of the screen besides devices and trials, as in `podium watch`
RUNS = Path("podium-runs")
REPORT, CURVES = "report.html", "curves.jsonl"
MACHINE = "This machine"  # panel of the help
EXITS = {Kind.USAGE: Exit.USAGE, Kind.MISSING: Exit.NOT_FOUND, Kind.FAILED: Exit.FAILED}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_FAILURES = 3  # failed trials whose last lines are printed

app = typer.Typer()


@app.command(
    epilog=examples(
        "podium run examples/digits/job.yaml",
        "podium run search.yaml -- python train.py     the command of this machine",
        "podium run search.yaml -- python train.py --rate='$(podium.params.lr)'",
        "podium run search.yaml --map /data=./data --gpus 0,1",
        "podium run search.yaml --warm-start podium-runs/digits/curves.jsonl",
        "podium run search.yaml                        again: continues after Ctrl-C",
        "podium report --from-files podium-runs/digits/objects",
    )
)
def run(
    job: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="File with one HyperParamJob.", readable=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="Command in place of the container's. Without a placeholder it gets all parameters at its end.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the run.", show_default="podium-runs/NAME", readable=False),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="all|none|0,1",
            help="GPUs to use; none: CPU cores.",
            show_default="all, or CPU cores without a GPU",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Trials on one device; one runs, the others are suspended.",
            show_default="4; on a GPU as many as its memory holds by gpus.memory",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    cpus: Annotated[
        int | None,
        typer.Option(metavar="N", help="CPU cores to use.", show_default="all", rich_help_panel=MACHINE),
    ] = None,
    paths: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="PATH=FOLDER",
            help="Path of the image, and what stands for it here; may be repeated.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Start with the results of an earlier search: file of podium export or run, CSV table, or TensorBoard "
            "folder; may be repeated.",
            readable=False,
        ),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Print one line per change even on a terminal.")] = False,
) -> None:
    """Run a search on this machine, with neither Kubernetes nor root.

    The job is the same file as for a cluster. Each trial is a process, the image is
    not used, and trials are suspended by SIGSTOP. A script that the command names
    by a path of the image is also found beside the job file. The same command
    again continues the search. Ctrl-C lets the trials write checkpoints and ends;
    a second Ctrl-C kills them.
    """
    manifest = results_added(single_job(job), warm_start or ())
    name = name_of(manifest) or "search"
    options = RunOptions(
        folder=RUNS / name if folder is None else folder,
        beside=job.parent,
        here=Path.cwd(),
        command=tuple(command or ()),
        paths=dict(map(_pair, paths or ())),
        devices=DeviceRequest(gpus, slots, cpus),
    )
    console = Terminal()
    screen = Screen(console, lines=lines or not console.is_terminal)
    try:
        prepared = prepare(manifest, options, os.environ)
        runner = Runner(prepared.state, screen.show)
        with _stopped_by_signals(runner, screen):
            screen.on_reader_gone(runner.stop)
            for warning in prepared.warnings:
                screen.line(f"warning: {warning.code}: {warning}")
            for note in prepared.notes:
                screen.line(f"note: {note}")
            with screen.opened():
                runner.run()
    except LocalError as error:
        raise CliError(EXITS[error.kind], error.reason, error.message) from error
    _finish(screen, runner, options.folder)


class Terminal(Console):
    """Console that reports a closed pipe as the error that it is; rich would exit the process."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Screen:
    """Output while a search runs: the live table of `podium watch`, or one line per change.

    An error of the output mutes it and never ends the run at once, because that would kill the trials. If the reader
    of a pipe has gone, the run is stopped, so that the trials can write checkpoints.
    """

    def __init__(self, console: Console, *, lines: bool) -> None:
        self._console = console
        self._live = None if lines else Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._said_stopping = False
        self._conditions: set[tuple[str, str]] = set()
        self._stop: Callable[[], None] = lambda: None
        self.stopping = False
        self.last: JobSnapshot | None = None

    def on_reader_gone(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the reader of the output has gone."""
        self._stop = stop

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Show the table during the block."""
        live = self._live
        if live is None:
            yield
            return
        with self._muted_by_errors():
            live.start()
        try:
            yield
        finally:
            with self._muted_by_errors():
                if self.last is not None:
                    live.update(view(self.last), refresh=True)  # the last table is complete
            with self._muted_by_errors():
                live.stop()

    def show(self, seen: RunView) -> None:
        """Show the state of the run."""
        now = datetime.fromtimestamp(seen.now, UTC)
        snapshot = JobSnapshot(seen.job, seen.trials, (seen.machine,), now)
        if self._live is not None:
            rows = max(3, self._console.height - FIXED_LINES - len(snapshot.gpus))
            with self._muted_by_errors():
                self._live.update(view(snapshot, rows=rows), refresh=True)
        else:
            for line in changes(self.last, snapshot):
                self.line(line)
        for trial in seen.trials:
            for one in trial.status.conditions:
                if (trial.metadata.uid, one.reason) not in self._conditions:
                    self._conditions.add((trial.metadata.uid, one.reason))
                    self.say(f"{trial.metadata.name}: {one.type}: {one.message}")
        if self.stopping and not self._said_stopping:
            self._said_stopping = True
            self.say("Stopping: the trials write their checkpoints. Ctrl-C again kills them.")
        self.last = snapshot

    def say(self, text: str) -> None:
        """Print a sentence above the table."""
        if self._live is None:
            self.line(text)
            return
        with self._muted_by_errors():
            self._live.console.print(text, markup=False, highlight=False)

    def line(self, text: str) -> None:
        """Print a line, outside of the table."""
        with self._muted_by_errors():
            print(text, flush=True)

    @contextmanager
    def _muted_by_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            mute(self._console.file)
            if error.errno == errno.EPIPE:
                self._stop()


@contextmanager
def _stopped_by_signals(runner: Runner, screen: Screen) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP stop the run during the block, except those that `nohup` ignores."""

    def stop(_number: int, _frame: Any) -> None:
        runner.stop()
        screen.stopping = True  # printing here could interrupt another print

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(screen: Screen, runner: Runner, folder: Path) -> None:
    """Print the result, write the report and the curves, and exit with the code of the run."""
    last = screen.last
    if last is None:
        raise CliError(Exit.INTERRUPTED, "Interrupted", "stopped before the first plan; run the same command again")
    made = model.build(last)
    write(folder / REPORT, page.render(made, f"podium dashboard {shlex.quote(str(folder))}"), "--folder")
    trace = trace_of(last)
    screen.line("\n".join(summary_view.lines(made)))
    screen.line(f"report       {folder / REPORT}")
    if trace.trials:
        write(folder / CURVES, "".join(f"{line}\n" for line in trace_lines(trace)), "--folder")
        screen.line(f"curves       {folder / CURVES}  (podium simulate {folder / CURVES})")
    if runner.interrupted:
        raise CliError(Exit.INTERRUPTED, "Interrupted", "the search is stored; run the same command again to continue")
    status = last.job.status
    if status.phase == "Failed":
        _print_failures(screen, last, folder)
        message = f"job {last.job.metadata.name}: {status.message} To start again, remove {folder}"
        raise CliError(Exit.FAILED, status.reason or status.phase, message)


def _print_failures(screen: Screen, last: JobSnapshot, folder: Path) -> None:
    """Print how the first trials failed, with the last lines of their logs."""
    failed = [trial for trial in last.trials if trial.status.phase is TrialPhase.FAILED]
    for trial in failed[:MAX_FAILURES]:
        screen.line(f"{trial.metadata.name}: {formatting.clean(trial.status.reason)}: {trial.status.message}")
        if trial.status.pod is not None:
            screen.line(f"  log: {folder / 'logs' / trial.status.pod}.log")


def _pair(text: str) -> tuple[str, str]:
    source, equals, target = text.partition("=")
    if not equals or not source.startswith("/") or not target:
        message = f"--map must be an absolute path of the image, = and a path of this machine (got {text!r})"
        raise CliError(Exit.USAGE, "InvalidOption", message)
    return source.rstrip("/"), str(Path(target).expanduser().absolute())
