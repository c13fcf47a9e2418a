"""Command `podium export`: write a search to files that `podium simulate` or other tools read.

The format `curves` holds only trials that completed, because the rest of a stopped curve is unknown to a replay. It
also holds the number of omitted trials, which every replay reports. The other formats hold every trial.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.formats import CURVES, FORMATS, open_target
from podium_cli.exports.names import clean, file_name
from podium_cli.exports.search import Add, ExportedSearch, ExportedTrial
from podium_cli.exports.sources import deliver, deliver_curves, single_trace
from podium_cli.exports.target import Target, claim_file
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples, one_of
from podium_cli.options.curves import CurveOptions, Metric, goal_option
from podium_cli.options.source import FromFiles, Job, Sample, Source, snapshot
from podium_cli.output import write
from podium_cli.progress import progress
from podium_core.domain.phase import TrialPhase
from podium_simulator.traces.sources import reads_as_lines
from podium_simulator.traces.trace import Trace, trace_lines
from podium_views import formatting
from podium_views.job_snapshot import JobSnapshot
from podium_views.trace import trace_of

app = typer.Typer()


@app.command(
    epilog=examples(
        "podium export digits -o digits.jsonl && podium simulate digits.jsonl",
        "podium export digits --from-files saved --format mlflow -o mlruns",
        "podium export --curves digits.jsonl --format csv",
    )
)
def export(
    job: Job = None,
    from_files: FromFiles = None,
    curves: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read recorded curves, as podium simulate does.", readable=False),
    ] = None,
    sample: Sample = False,
    form: Annotated[
        str, one_of(FORMATS, "--format", "-f", metavar="|".join(FORMATS), help="Format to write.")
    ] = CURVES,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="File or folder to write.",
            show_default="named after the job and the format",
            readable=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    goal: Annotated[str | None, goal_option("maximize")] = None,
    metric: Metric = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Write a search to a file for `podium simulate`, or for other tools.

    The format `curves` contains the trials that completed, and the number of the
    omitted ones. The other formats contain every trial of a running or finished
    search. The same search can be exported to its folder again.
    """
    if form == CURVES and output is not None and not reads_as_lines(output):
        text = f"--output: {output}: podium writes JSON lines, and podium simulate would read a file of this"
        cure = "give a name that ends with .jsonl, or another --format"
        raise CliError(Exit.USAGE, "InvalidFileName", f"{text} name as another format; {cure}")
    source = Source(job, from_files, sample, namespace, kubeconfig, context)
    trace = None
    if curves is not None:
        if job is not None or from_files is not None or sample:
            text = "--curves: give either recorded curves, or a job, --from-files or --sample"
            raise CliError(Exit.USAGE, "SourceAmbiguous", text)
        trace = single_trace(CurveOptions((curves,), goal, metric))
    if form == CURVES:
        _write_curves(_completed(source) if trace is None else trace, output, force=force)
        return
    writing = _Export(form, output, force)
    with writing, progress("exporting"):
        if trace is None:
            deliver(source, writing.begin)
        else:
            deliver_curves(trace, writing.begin)
    print(writing.summary)


class _Export:
    """An export to another tool while its trials are read; it is discarded after an error."""

    def __init__(self, form: str, output: Path | None, force: bool) -> None:
        self._form = form
        self._output = output
        self._force = force
        self._target: Target | None = None
        self.summary = ""

    def begin(self, search: ExportedSearch) -> Add:
        """Create the files, and return the function that takes the trials."""
        target, self._path = open_target(self._form, self._output, search, force=self._force)
        self._target = target
        names: set[str] = set()

        def add(trial: ExportedTrial) -> None:
            if trial.name in names:
                text = f"two trials have the name {clean(trial.name)}; give each trial a name of its own"
                raise CliError(Exit.FAILED, "TrialNameAmbiguous", text)
            names.add(trial.name)
            target.add(trial)

        return add

    def __enter__(self) -> None:
        """Begin nothing yet: the search is not known."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete the export, or remove what is incomplete."""
        target = self._target
        if target is None:
            return
        if kind is not None:
            target.discard()
            return
        target.close()
        trials, values = formatting.count(target.trials, "trial"), formatting.count(target.values, "value")
        notes = []
        if target.omitted_trials:
            notes.append(f"{formatting.count(target.omitted_trials, 'trial')} without a value omitted")
        if target.omitted_values:
            between = formatting.count(target.omitted_values, "value")
            notes.append(f"{between} between whole steps omitted, which --format csv keeps")
        self.summary = f"{self._path}: {', '.join([f'{trials} with {values} written', *notes])}."


def _completed(source: Source) -> Trace:
    """Return the curves of the completed trials. Raises CliError if there are none."""
    seen = snapshot(source)
    recording = trace_of(seen)
    if not recording.trials:
        raise CliError(Exit.FAILED, "NothingToExport", _nothing(seen))
    return recording


def _write_curves(recording: Trace, output: Path | None, *, force: bool) -> None:
    path = output or Path(f"{file_name(recording.task)}.jsonl")
    claim_file(path, force=force)
    write(path, "".join(f"{line}\n" for line in trace_lines(recording)))
    omitted = formatting.count(recording.left_out, "incomplete trial")
    print(f"{path}: {formatting.count(len(recording.trials), 'trial')} written, {omitted} omitted.")


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
