"""Commands `podium report` and `podium summary`: show a search as one HTML file or as a few lines."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

from podium_cli import samples
from podium_cli.command_table import SUMMARIES
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_snapshot import JobSnapshot
from podium_cli.objects import read_folder, saved_at, snapshot_of
from podium_cli.output import write
from podium_cli.report import model, page
from podium_cli.session import Session, run_with_cluster
from podium_cli.views import summary

SAMPLE_SECONDS = 600.0  # longer than the synthetic search takes


def add(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "report",
        _report,
        summary=SUMMARIES["report"],
        examples="""
            podium report digits
            podium report digits -o digits.html
            kubectl get hpj,hpt,gpunodes -o yaml > saved/all.yaml
            podium report digits --from-files saved
            podium report --sample -o sample.html
        """,
        about="""
            The file loads nothing and runs nothing. It shows the best trial, GPU-seconds by use, the cost of the
            suspensions, all learning curves, the holder of each GPU over time, and a table of all trials.
        """,
    )
    add_source_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("podium-report.html"),
        help="file to write (default: podium-report.html)",
    )
    short = command(
        commands,
        "summary",
        _summary,
        summary=SUMMARIES["summary"],
        examples="podium summary digits",
    )
    add_source_options(short)


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a job in a cluster, in files or in the sample."""
    parser.add_argument("job", nargs="?", help="name of the HyperParamJob (optional if the files contain only one)")
    parser.add_argument(
        "--from-files", type=Path, metavar="FOLDER", help="read objects from files instead of a cluster"
    )
    parser.add_argument("--sample", action="store_true", help="use a synthetic search, to see an example")


def _report(arguments: argparse.Namespace) -> Exit:
    output: Path = arguments.output
    report = model.build(snapshot(arguments))
    write(output, page.render(report))
    print(summary.last_line(report, str(output)))
    return Exit.OK


def _summary(arguments: argparse.Namespace) -> Exit:
    print("\n".join(summary.lines(model.build(snapshot(arguments)))))
    return Exit.OK


def snapshot(arguments: argparse.Namespace) -> JobSnapshot:
    """Return the job that the source options name."""
    if arguments.sample:
        now = samples.BEGIN + timedelta(seconds=SAMPLE_SECONDS)
        return snapshot_of(samples.search_at(SAMPLE_SECONDS), arguments.job, arguments.namespace, now)
    if arguments.from_files:
        payloads = read_folder(arguments.from_files)
        return snapshot_of(payloads, arguments.job, arguments.namespace, saved_at(payloads))
    if not arguments.job:
        raise CliError(Exit.USAGE, "JobNameRequired", "name a job, or give --from-files or --sample")
    return run_with_cluster(_from_cluster(Session.of(arguments), arguments.job))


async def _from_cluster(session: Session, job: str) -> JobSnapshot:
    async with session.api() as api:
        return await session.snapshot(api, job)
