"""Commands `podium report` and `podium summary`: show a search as one HTML file or as a few lines."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, Output, examples
from podium_cli.options.source import FromFiles, Job, Sample, Source, snapshot
from podium_cli.output import write
from podium_cli.report import page
from podium_cli.structured import print_data
from podium_cli.views import summary as summary_view
from podium_views import model

app = typer.Typer()


@app.command(
    epilog=examples(
        "podium report digits",
        "podium report digits -o digits.html",
        "kubectl get hpj,hpt,gpunodes -o yaml > saved/all.yaml",
        "podium report digits --from-files saved",
        "podium report digits --dashboard https://podium.example.com",
        "podium report --sample -o sample.html",
    )
)
def report(
    job: Job = None,
    from_files: FromFiles = None,
    sample: Sample = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.", readable=False)
    ] = Path("podium-report.html"),
    dashboard: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of a dashboard; the report links to the search's page on it.",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Write one self-contained HTML file: learning curves, GPU allocations, every trial.

    The file loads nothing and runs nothing. It shows the best trial, GPU-seconds
    by use, the cost of the suspensions, all learning curves, the holder of each
    GPU over time, and a table of all trials.
    """
    base = _base(dashboard) if dashboard else None
    made = model.build(snapshot(Source(job, from_files, sample, namespace, kubeconfig, context)))
    name, where = made.job.name, made.job.namespace
    if base:
        live = f"{base}/searches/{where}/{name}"
    elif from_files is not None:
        live = f"podium dashboard {shlex.quote(str(from_files))}"
    else:
        live = "" if sample else f"podium dashboard -n {where}"
    write(output, page.render(made, live))
    print(summary_view.last_line(made, str(output)))


@app.command(epilog=examples("podium summary digits", "podium summary digits -o json"))
def summary(
    job: Job = None,
    output: Output = "table",
    from_files: FromFiles = None,
    sample: Sample = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Print the best trial, GPU-seconds by use, and the cost of the suspensions."""
    made = model.build(snapshot(Source(job, from_files, sample, namespace, kubeconfig, context)))
    if output == "table":
        print("\n".join(summary_view.lines(made)))
    else:
        print_data(summary_view.data(made), output)


def _base(address: str) -> str:
    """Return the address of a dashboard without its token, which is a secret, and without a slash at its end."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.username:
        raise typer.BadParameter(
            f"{address!r} is not the address of a dashboard; give one such as https://podium.example.com"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
