"""Command `podium export`: write the learning curves of a search to a file that `podium simulate` replays.

The replay answers what another policy would have done on this search. The file holds only trials that completed,
because the rest of a stopped curve is unknown. It also holds the number of omitted trials, which every replay reports.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from podium_cli.commands.report import FromFiles, Job, Sample, Source, snapshot
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_snapshot import JobSnapshot
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples
from podium_cli.output import write
from podium_cli.views import formatting
from podium_core.curves import additional_metrics
from podium_core.curves.non_finite import to_wire
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import Allocation, CurvePoint, HyperParamTrial
from podium_simulator.traces.sources import reads_as_lines
from podium_simulator.traces.trace import RecordedTrial, Trace, trace_lines

TOLERANCE = (
    0.01  # share of the training that the record may lack, and of the usual time between two values that are separate
)


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
    recording = recording_of(seen)
    if not recording.trials:
        raise CliError(Exit.FAILED, "NothingToExport", _nothing(seen))
    path = output or Path(f"{recording.task}.jsonl")
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


def recording_of(seen: JobSnapshot) -> Trace:
    """Return the curves of the trials that succeeded, by number; their times are GPU-seconds of training."""
    spec = seen.job.spec
    whole = [t for t in seen.trials if t.status.phase is TrialPhase.SUCCEEDED]
    trials = tuple(r for t in whole if (r := _recorded(t, spec.gpus.per_trial, seen.maximize)) is not None)
    name = seen.job.metadata.name
    family, target, left = name.partition("-")[0], spec.objective.target, len(seen.trials) - len(trials)
    return Trace(name, family, spec.objective.metric, seen.maximize, target, trials, left)


def _recorded(trial: HyperParamTrial, width: int, maximize: bool) -> RecordedTrial | None:
    status = trial.status
    points = [p for p in status.curve.points if p.step > 0.0]
    # repeated work does not belong to the curve; without a GPU a step counts as a second
    trained = (status.gpu_seconds - status.lost_work.gpu_seconds) / max(1, width)
    if not points:
        return None
    return RecordedTrial(
        trial.metadata.name,
        MappingProxyType(dict(trial.spec.parameters)),
        _seconds(points, status.allocations, trained),
        tuple(to_wire(p.value, maximize) for p in points),
        tuple(p.step for p in points),
        additional_metrics.from_status(status.additional_metrics),
    )


def _seconds(points: Sequence[CurvePoint], allocations: Sequence[Allocation], trained: float) -> tuple[float, ...]:
    """Return the seconds for which the trial had held its GPUs at each point, starts included.

    The last point gets all of `trained`, so the curve is as long as the training was. The times are spread evenly over
    the steps if they are not known. They are unknown in two cases:

    - The recorded allocations (the last 512 that have ended) do not add up to the training, because older ones are
      missing or work was repeated.
    - Values arrived together from a script that buffers its output.
    """
    pace = trained / points[-1].step if trained > 0.0 else 1.0
    even = tuple(point.step * pace for point in points)
    ended = sorted(
        (allocation.start.timestamp(), allocation.end.timestamp())
        for allocation in allocations
        if allocation.end is not None
    )
    until = list(accumulate((end - start for start, end in ended), initial=0.0))  # total seconds after each allocation
    if not trained > 0.0 or abs(until[-1] - trained) > TOLERANCE * trained:
        return even
    held = []
    for point in points[:-1]:
        started = bisect(ended, (point.time, math.inf))
        rest = max(0.0, ended[started - 1][1] - point.time) if started else 0.0
        held.append((until[started] - rest) * trained / until[-1])
    measured = (*held, trained)
    gaps = zip(pairwise((0.0, *measured)), pairwise((0.0, *even)), strict=True)
    return measured if all(b - a >= TOLERANCE * (usual - last) for (a, b), (last, usual) in gaps) else even
