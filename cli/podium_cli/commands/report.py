"""`podium report` and `podium summary`: a search that ended (or goes on), as one HTML file or as a few lines."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

from podium_cli import samples
from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_picture import JobPicture
from podium_cli.objects import picture_of, read_folder, saved_at
from podium_cli.output import write
from podium_cli.report import model, page
from podium_cli.session import Session, carry_out
from podium_cli.views import summary

SAMPLE_SECONDS = 600.0  # longer than the made-up search takes


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "report",
        _report,
        says=SAYS["report"],
        examples="""
            podium report digits
            podium report digits -o digits.html
            kubectl get hpj,hpt,gpunodes -o yaml > saved/all.yaml
            podium report digits --from-files saved
            podium report --sample -o sample.html
        """,
    )
    source(parser)
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
        says=SAYS["summary"],
        examples="podium summary digits",
    )
    source(short)


def source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", help="name of the HyperParamJob (files: not needed if they hold only one)")
    parser.add_argument("--from-files", type=Path, metavar="FOLDER", help="read saved objects instead of a cluster")
    parser.add_argument("--sample", action="store_true", help="a made-up search, to see what this looks like")


def _report(arguments: argparse.Namespace) -> Exit:
    output: Path = arguments.output
    report = model.build(picture(arguments))
    write(output, page.render(report))
    print(summary.last_line(report, str(output)))
    return Exit.OK


def _summary(arguments: argparse.Namespace) -> Exit:
    print("\n".join(summary.lines(model.build(picture(arguments)))))
    return Exit.OK


def picture(arguments: argparse.Namespace) -> JobPicture:
    if arguments.sample:
        now = samples.BEGIN + timedelta(seconds=SAMPLE_SECONDS)
        return picture_of(samples.search_at(SAMPLE_SECONDS), arguments.job, arguments.namespace, now)
    if arguments.from_files:
        payloads = read_folder(arguments.from_files)
        return picture_of(payloads, arguments.job, arguments.namespace, saved_at(payloads))
    if not arguments.job:
        raise CliError(Exit.USAGE, "JobNameRequired", "name a job, or give --from-files or --sample")
    return carry_out(_from_cluster(Session.of(arguments), arguments.job))


async def _from_cluster(session: Session, job: str) -> JobPicture:
    async with session.api() as api:
        return await session.picture(api, job)
