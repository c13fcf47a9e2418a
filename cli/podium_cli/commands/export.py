"""Command `podium export`: write the learning curves of a search to a file that `podium simulate` replays.

The replay answers what another policy would have done on this search. The file holds only trials that completed,
because the rest of a stopped curve is unknown. It also holds the number of omitted trials, which every replay reports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_snapshot import JobSnapshot
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples
from podium_cli.options.source import FromFiles, Job, Sample, Source, snapshot
from podium_cli.output import write
from podium_cli.trace import trace_of
from podium_cli.views import formatting
from podium_core.domain.phase import TrialPhase
from podium_simulator.traces.sources import reads_as_lines
from podium_simulator.traces.trace import trace_lines

app = typer.Typer()


@app.command(
    epilog=examples(
        "podium export digits -o digits.jsonl && podium simulate digits.jsonl",
        "podium export digits --from-files saved",
    )
)
def export(
    job: Job = None,
    from_files: FromFiles = None,
    sample: Sample = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File of JSON lines to write.",
            show_default="JOB.jsonl",
            readable=False,
        ),
    ] = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Write the learning curves of a search to a file for `podium simulate`.

    The file contains the trials that completed; it also has the number of the
    omitted ones.
    """
    if output is not None and not reads_as_lines(output):
        text = f"--output: {output}: podium writes JSON lines, and podium simulate would read a file of this"
        raise CliError(
            Exit.USAGE, "InvalidFileName", f"{text} name as another format; give a name that ends with .jsonl"
        )
    seen = snapshot(Source(job, from_files, sample, namespace, kubeconfig, context))
    trace = trace_of(seen)
    if not trace.trials:
        raise CliError(Exit.FAILED, "NothingToExport", _nothing(seen))
    path = output or Path(f"{trace.task}.jsonl")
    write(path, "".join(f"{line}\n" for line in trace_lines(trace)))
    omitted = formatting.count(trace.left_out, "incomplete trial")
    print(f"{path}: {formatting.count(len(trace.trials), 'trial')} written, {omitted} omitted.")


def _nothing(seen: JobSnapshot) -> str:
    """Return why no trial can be written, and whether waiting helps."""
    every, policy = len(seen.trials), seen.job.spec.policy.name
    trials = f"{formatting.count(every, 'trial')} of {seen.job.metadata.name}"
    nothing = f"none of {trials} has completed with a value"
    if not seen.ended:
        return f"{nothing} yet; wait until one has"
    cut = sum(trial.status.phase is TrialPhase.EARLY_STOPPED for trial in seen.trials)
    ended = f"the job has ended ({seen.job.status.phase})"
    if every and cut == every:
        why = f"{ended}, and its policy {policy} stopped every trial early"
    else:
        why = f"{ended}, and {cut} of them were stopped early"
    return f"{nothing}: {why}; export needs completed trials, for example of a job with policy fifo"
