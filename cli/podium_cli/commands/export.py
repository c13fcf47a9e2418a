"""`podium export`: the learning curves of a search as a file that `podium simulate` replays.

What would another policy have done on my own search? Only trials that were trained to their end are written: where a
cut one would have ended nobody knows. How many are left out is in the file, so that every replay of it says so.
"""

from __future__ import annotations

import argparse
import math
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command
from podium_cli.commands.report import picture, source
from podium_cli.exit_codes import CliError, Exit
from podium_cli.job_picture import JobPicture
from podium_cli.output import write
from podium_cli.views import formatting as texts
from podium_core.curves import additional_metrics as observations
from podium_core.curves.non_finite import to_wire
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import Allocation, CurvePoint, HyperParamTrial
from podium_simulator.traces.sources import reads_as_lines
from podium_simulator.traces.trace import RecordedTrial, Trace, trace_lines

LITTLE = 0.01  # of its training a record may lack; values that come in so little of the usual time came at once


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "export",
        _run,
        says=SAYS["export"],
        examples="""
            podium export digits -o digits.jsonl && podium simulate digits.jsonl
            podium export digits --from-files saved
        """,
    )
    source(parser)
    parser.add_argument("-o", "--output", type=Path, help="file to write, of JSON lines (default: JOB.jsonl)")


def _run(arguments: argparse.Namespace) -> Exit:
    if arguments.output is not None and not reads_as_lines(arguments.output):
        text = f"--output: {arguments.output}: JSON lines are written, and podium simulate would read a file of this"
        raise CliError(Exit.USAGE, "InvalidFileName", f"{text} name as another kind; give one that ends with .jsonl")
    seen = picture(arguments)
    found = recording_of(seen)
    if not found.trials:
        raise CliError(Exit.FAILED, "NothingToExport", _nothing(seen))
    output: Path = arguments.output or Path(f"{found.task}.jsonl")
    write(output, "".join(f"{line}\n" for line in trace_lines(found)))
    rest = "that was not trained to its end is" if found.left_out == 1 else "that were not trained to their end are"
    print(f"{output}: {texts.count(len(found.trials), 'trial')}; {found.left_out} {rest} left out.")
    return Exit.OK


def _nothing(seen: JobPicture) -> str:
    """Why there is no trial to write, and whether waiting helps."""
    every, policy = len(seen.trials), seen.job.spec.policy.name
    trials = f"{texts.count(every, 'trial')} of {seen.job.metadata.name}"
    nothing = f"of {trials} none was trained to its end and has shown a value"
    if not seen.ended:
        return f"{nothing} yet; wait until some have"
    cut = sum(trial.status.phase is TrialPhase.EARLY_STOPPED for trial in seen.trials)
    ended = f"the job is finished ({seen.job.status.phase})"
    if every and cut == every:
        why = f"{ended} and its policy, {policy}, ended every trial early"
    else:
        why = f"{ended}, and {cut} of them were ended early"
    return f"{nothing}: {why}; export needs trials that were trained to their end, as a job with policy fifo trains all"


def recording_of(seen: JobPicture) -> Trace:
    """The trials that succeeded, by number; time = GPU seconds of training (`_seconds`)."""
    spec = seen.job.spec
    whole = [t for t in seen.trials if t.status.phase is TrialPhase.SUCCEEDED]
    trials = tuple(r for t in whole if (r := _recorded(t, spec.gpus.per_trial, seen.maximize)) is not None)
    name = seen.job.metadata.name
    family, target, left = name.partition("-")[0], spec.objective.target, len(seen.trials) - len(trials)
    return Trace(name, family, spec.objective.metric, seen.maximize, target, trials, left)


def _recorded(trial: HyperParamTrial, width: int, maximize: bool) -> RecordedTrial | None:
    status = trial.status
    points = [p for p in status.curve.points if p.step > 0.0]
    # what was lost and done again is no training of this curve; without a GPU a step counts a second
    trained = (status.gpu_seconds - status.lost_work.gpu_seconds) / max(1, width)
    if not points:
        return None
    return RecordedTrial(
        trial.metadata.name,
        MappingProxyType(dict(trial.spec.parameters)),
        _seconds(points, status.allocations, trained),
        tuple(to_wire(p.value, maximize) for p in points),
        tuple(p.step for p in points),
        observations.from_status(status.additional_metrics),
    )


def _seconds(points: Sequence[CurvePoint], holds: Sequence[Allocation], trained: float) -> tuple[float, ...]:
    """At each point: how long the trial had held its GPUs at the time of it, and at the last all that it `trained`, so
    that it is as long as it was. What its starts took is part of that.

    Spread evenly over the steps where that is not known: the turns on record (the last 512, those that have ended) are
    not what it trained, as some are no longer there or something was lost and done again; or values came at once that
    were not trained at once, from a script that keeps back what it prints.
    """
    pace = trained / points[-1].step if trained > 0.0 else 1.0
    even = tuple(point.step * pace for point in points)
    turns = sorted((hold.start.timestamp(), hold.end.timestamp()) for hold in holds if hold.end is not None)
    until = list(accumulate((end - start for start, end in turns), initial=0.0))  # the end of so many turns
    if not trained > 0.0 or abs(until[-1] - trained) > LITTLE * trained:
        return even
    held = []
    for point in points[:-1]:
        begun = bisect(turns, (point.time, math.inf))
        rest = max(0.0, turns[begun - 1][1] - point.time) if begun else 0.0
        held.append((until[begun] - rest) * trained / until[-1])
    found = (*held, trained)
    gaps = zip(pairwise((0.0, *found)), pairwise((0.0, *even)), strict=True)
    return found if all(b - a >= LITTLE * (usual - last) for (a, b), (last, usual) in gaps) else even
