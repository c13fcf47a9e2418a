"""Commands `podium report` and `podium summary`: show a search as one HTML file or as a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Write one self-contained HTML file: learning curves, GPU allocations, every trial.

    The file loads nothing and runs nothing. It shows the best trial, GPU-seconds
    by use, the cost of the suspensions, all learning curves, the holder of each
    GPU over time, and a table of all trials.
    """
    made = model.build(snapshot(Source(job, from_files, sample, namespace, kubeconfig, context)))
    write(output, page.render(made))
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
