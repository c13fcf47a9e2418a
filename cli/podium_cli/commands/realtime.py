"""Commands `podium realtime simulate`, `admit` and `run`: periodic inference on GPU partitions. Needs no cluster.

The package is imported when a command runs, so `podium` starts without the extra `[realtime]`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import Output, examples, one_of
from podium_cli.progress import progress
from podium_cli.structured import items, print_data
from podium_core.schema.manifests import ManifestError, read_manifests

POLICIES = ("launch-ahead", "sgprs", "single", "naive", "naive-single")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
N = TypeVar("N", int, float)

app = typer.Typer()
realtime = typer.Typer(
    help="Simulate, admit and run periodic inference with deadlines on GPU partitions.",
    no_args_is_help=True,
    epilog=examples(
        "podium realtime simulate --contexts 3 --oversubscription 1.5",
        "podium realtime simulate --plot sgprs.png",
        "podium realtime admit cameras.yaml -o json",
        "podium realtime run --tasks 6 --fps 20 --policy launch-ahead",
    ),
)
app.add_typer(realtime, name="realtime")


@realtime.command(epilog=examples("podium realtime simulate --contexts 3 --oversubscription 1.5,2 --tasks 24"))
def simulate(
    contexts: Annotated[str, typer.Option(metavar="N,N", help="Partitions of the GPU.")] = "2,3",
    oversubscription: Annotated[str, typer.Option(metavar="X,X", help="Sum of the partitions, in GPUs.")] = "1,1.5,2",
    tasks: Annotated[str, typer.Option(metavar="A-B", help="Number of concurrent tasks.")] = "20-30",
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Virtual time of each point.")] = 3,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the tasks' first releases.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the figures (PNG, SVG or PDF).", readable=False),
    ] = None,
    output: Output = "table",
) -> None:
    """Compute the figures of the SGPRS paper on the simulated GPU."""
    partitions, sums = _numbers("--contexts", contexts, int), _numbers("--oversubscription", oversubscription, float)
    counts = _span("--tasks", tasks)
    package = _package()
    if plot and plot.suffix not in FIGURE_SUFFIXES:
        message = f"--plot: {plot} does not end with {', '.join(FIGURE_SUFFIXES)}; name a file that does"
        raise CliError(Exit.FAILED, "InvalidValue", message)
    try:
        if output == "table":
            results = package.simulate(partitions, sums, counts, seconds, seed, print)
        else:
            with progress("simulating figures"):
                results = package.simulate(partitions, sums, counts, seconds, seed, lambda line: None)
        if plot:
            package.plot(results, plot)
    except package.RealtimeError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    except OSError as error:
        raise CliError(Exit.FAILED, "PlotNotWritten", f"{plot}: {error.strerror}") from error
    if output != "table":
        print_data(items(map(package.figure_data, results)), output)
    elif plot:
        print(f"drawn: {plot}")


@realtime.command(epilog=examples("podium realtime admit cameras.yaml"))
def admit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with PeriodicTaskSets.", readable=False)],
    output: Output = "table",
) -> None:
    """Check whether tasks keep their deadlines together."""
    package = _package()
    try:
        manifests = read_manifests([file])
    except OSError as error:
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", f"{file}: {error.strerror}") from error
    except ManifestError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if not manifests:
        message = f"{file} contains no PeriodicTaskSet; it starts with kind: PeriodicTaskSet"
        raise CliError(Exit.FAILED, "NothingToAdmit", message)
    answers = []
    for manifest in manifests:
        try:
            answers += package.admit(manifest)
        except package.RealtimeError as error:
            raise CliError(Exit.FAILED, error.code, str(error)) from error
    if output == "table":
        print("\n".join(f"{answer.code}: {answer.message}" for answer in answers))
    else:
        print_data(items(map(asdict, answers)), output)
    if not all(answer.accepted for answer in answers):
        raise typer.Exit(Exit.FAILED)


@realtime.command("run", epilog=examples("podium realtime run --tasks 6 --fps 20 --policy launch-ahead"))
def run_networks(
    backend: Annotated[str, one_of(("cpu", "cuda"), metavar="cpu|cuda", help="Processor.")] = "cpu",
    policy: Annotated[str, one_of(POLICIES, help=f"Scheduling policy: {', '.join(POLICIES)}.")] = "launch-ahead",
    tasks: Annotated[int, typer.Option(metavar="N", help="Concurrent networks.")] = 4,
    fps: Annotated[float, typer.Option(metavar="X", help="Frames per second of each task.")] = 10,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Duration of the run.")] = 5,
    output: Output = "table",
) -> None:
    """Run real networks on partitions of this machine for some seconds."""
    package = _package()
    try:
        with progress("running networks"):
            summary = package.run(backend, policy, tasks, fps, seconds)
    except package.RealtimeError as error:
        raise CliError(Exit.FAILED, error.code, str(error)) from error
    if output != "table":
        asked = {"backend": backend, "policy": policy, "tasks": tasks, "fps": fps, "seconds": seconds}
        print_data(asked | {"measured": _measured(summary)}, output)
        return
    print(f"{tasks} tasks at {fps:g} fps under {policy} on {backend}: {summary.fps:.1f} frames a second,")
    missed = f"missed {100 * summary.missed:.2f} % of {summary.releases} deadlines"
    print(f"{missed}, 99th percentile of response times {1e3 * summary.p99_response:.1f} ms")


def _measured(summary: Any) -> dict[str, Any]:
    return {
        "releases": summary.releases,
        "missed": summary.missed,
        "framesPerSecond": summary.fps,
        "framesPerSecondInTime": summary.fps_in_time,
        "dropped": summary.dropped,
        "p99ResponseSeconds": summary.p99_response,
    }


def _package() -> ModuleType:
    """Return the commands of the package, which the extra installs."""
    try:
        from podium_realtime import commands
    except ImportError as error:
        message = f"podium realtime needs an extra: pip install 'kube-podium[realtime]' ({error})"
        raise CliError(Exit.USAGE, "ExtraMissing", message) from error
    return commands


def _numbers(option: str, text: str, kind: type[N]) -> tuple[N, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r}: give numbers with commas between", param_hint=option) from None


def _span(option: str, text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    try:
        numbers = tuple(range(int(first), int(last or first) + 1))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise typer.BadParameter(f"{text!r}: give a number of tasks, or two as in 20-30", param_hint=option)
    return numbers
