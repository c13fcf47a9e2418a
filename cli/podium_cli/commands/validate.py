"""Command `podium validate FILE...`: check jobs and queues as the API server and the operator do. Needs no cluster.

With `--log`, it also reads a log as the agent would, so that a wrong metric or format shows before a search runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import Payload, name_of, parse_job, read_objects
from podium_cli.options.common import Output, examples
from podium_cli.structured import items, print_data
from podium_cli.views import log_report
from podium_core.acceptance.finding import error_of
from podium_core.acceptance.findings import errors_of, findings
from podium_core.curves.growing_curve import Curve, Line, extend
from podium_core.curves.thinning import Grid
from podium_core.logs.explain import ExplainedReader
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.metrics.config import metrics_config_of
from podium_core.schema.metrics.rules import LINE_SOURCES
from podium_core.schema.queue_manifest import KIND as QUEUE
from podium_core.schema.queue_manifest import queue_problems
from podium_core.tables.text_file import refuse_devices

JOB = "HyperParamJob"
KINDS = (JOB, QUEUE)
LONGEST_LINE = 1 << 20  # characters
app = typer.Typer()


@app.command(
    epilog=examples(
        "podium validate examples/digits/job.yaml",
        "helm template my-searches | podium validate - -o json",
        "kubectl logs my-pod > train.log; podium validate search.yaml --log train.log",
    )
)
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="File of YAML or JSON; -: standard input.", readable=False),
    ],
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Log of a training: show which values the job would read from it."),
    ] = None,
    output: Output = "table",
) -> None:
    """Check HyperParamJobs and GPUQueues in files, without a cluster.

    Prints one line for each error or warning, with the field and the cure. Other
    kinds in the files are ignored. With --log, exactly one job must be in the files; the
    exit code is 1 if it would read no value from the log.
    """
    if log is not None and output != "table":
        raise CliError(Exit.USAGE, "OptionUnused", f"--log: prints text only, and -o is {output}; omit one of them")
    jobs: list[Payload] = []
    verdicts: list[dict[str, Any]] = []
    for path in files:
        for payload in read_objects(path, KINDS):
            verdict = _verdict(path, payload)
            verdicts.append(verdict)
            if payload["kind"] == JOB:
                jobs.append(payload)
            if output == "table":
                print("\n".join(_lines_of(verdict)))
    if not verdicts:
        named = ", ".join(str(path) for path in files)
        start = "one starts with apiVersion: podium.dev/v1alpha1, kind: HyperParamJob"
        message = f"no HyperParamJob and no GPUQueue in {named}; {start}"
        raise CliError(Exit.FAILED, "NothingToValidate", message)
    if output != "table":
        print_data(items(verdicts), output)
    if not all(verdict["valid"] for verdict in verdicts):
        raise typer.Exit(Exit.FAILED)
    if log is not None:
        if len(jobs) != 1:
            text = f"--log: the files hold {len(jobs)} jobs; name a file with one"
            raise CliError(Exit.USAGE, "SingleJobRequired", text)
        _read_log(parse_job(jobs[0]), log)


def _read_log(job: HyperParamJob, path: Path) -> None:
    """Print what the job reads from a log; end with FAILED if it reads no value."""
    metrics = metrics_config_of(job)
    if metrics.source not in LINE_SOURCES:
        text = f"--log: metrics.source is {metrics.source}, which has no lines; leave out --log"
        raise CliError(Exit.USAGE, "NoLinesToRead", text)
    grid = Grid(maximize=job.spec.objective.direction is Direction.MAXIMIZE)
    reader = ExplainedReader(metrics)
    curve = extend(Curve(), (Line(0.0, line) for line in _lines(path)), reader, grid)
    for line in log_report.lines(reader.report(), curve, metrics):
        print(f"{path}: {line}")
    if not curve.points:
        raise typer.Exit(Exit.FAILED)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log; a line longer than the agent reads is cut into pieces."""
    try:
        refuse_devices(path)
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            while line := file.readline(LONGEST_LINE):
                yield line.removesuffix("\n")
    except OSError as error:
        raise CliError(Exit.NOT_FOUND, "FileUnreadable", f"{path}: {error.strerror}; name a log file") from error


def _verdict(path: Path, payload: Payload) -> dict[str, Any]:
    """Return whether an object will be accepted, and its findings: the errors, or else the warnings."""
    found = findings(payload) if payload["kind"] == JOB else tuple(map(error_of, queue_problems(payload)))
    errors = errors_of(found)
    severity = "error" if errors else "warning"
    return {
        "file": str(path),
        "name": name_of(payload) or "without a name",
        "valid": not errors,
        "findings": [{"severity": severity, "code": one.code, "message": str(one)} for one in errors or found],
    }


def _lines_of(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the line "valid" if the object is valid, then a line for each finding."""
    before = f"{verdict['file']}: {verdict['name']}"
    if verdict["valid"]:
        yield f"{before}: valid"
    for one in verdict["findings"]:
        warning = "warning: " if one["severity"] == "warning" else ""
        yield f"{before}: {warning}{one['code']}: {one['message']}"
