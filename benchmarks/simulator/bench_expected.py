"""Calibration of `podium explain job`: how often is the real end of a search inside the interval that was expected?

    make bench-expected [CURVES="PATH ..."] [SEEDS=1] [OUT=FOLDER]
    python -m benchmarks.simulator.bench_expected [--curves PATH ...] [--seeds 1]

Recorded curves stand for the real trials. Each search (8 trials on 2 GPUs with 2 slots each) is simulated to its end,
which is the real one. It is then cut after a fifth and after three fifths of that time. From what is known at the cut
the end is expected as `podium explain job` does it: 9 samples, an interval of 80 %. The rest of the curves, the paces
of trials that have not started, and where trials end are not known to it. The simulated system itself is the same on
both sides, so these figures say nothing about the difference between simulation and reality (`make bench-reality`).

Writes bench-expected.md into `--out`; the last line is RESULT {json}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.command_line import Parser
from benchmarks.inputs import CURVES, add_curves, curve_files, load_curves, positive
from benchmarks.output import add_out, command, result_line, write_page
from podium_core.domain.phase import FINAL
from podium_simulator.expected.histories import SearchHistory, TrialHistory
from podium_simulator.expected.times import Present, Sampling, simulated_times
from podium_simulator.replay.samples import draw_sample
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import Method, SimJob
from podium_simulator.system.inputs.searches import even_nodes, search_job
from podium_simulator.system.operator import steps_of
from podium_simulator.system.results.comparison import ClusterSpec, scenario_of, time_limit
from podium_simulator.system.results.outcome import TRAINING, Outcome
from podium_simulator.traces.trace import Trace

TRIALS, GPUS, SLOTS, SEEDS = 8, 2, 2, 1
POLICIES = ("fifo", "envelope")
TIMED = tuple(sorted(CURVES.glob("algoperf-*.jsonl.gz")))  # TaskSet recorded no wall time: all its steps take as long
CUTS = (0.2, 0.6)
SAMPLES, LEVEL = 9, 0.8  # the interval from the lowest to the highest of 9 samples holds 80 %


@dataclass(frozen=True, slots=True)
class Case:
    """One expectation: seconds from the cut to the real end, and the expected ones."""

    task: str
    policy: str
    cut: float
    real: float
    low: float
    median: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the real end is inside the interval."""
        return self.low <= self.real <= self.high

    @property
    def error(self) -> float:
        """Distance of the expected from the real end, relative to the real rest."""
        return abs(self.median - self.real) / self.real

    @property
    def width(self) -> float:
        """Width of the interval relative to the real rest."""
        return (self.high - self.low) / self.real


def history_at(outcome: Outcome, job: SimJob, now: float) -> SearchHistory:
    """Return what is known of a simulated search at a time, as an agent reports it.

    A trial that waits at its gate for its first time slice is known by the GPU on which it starts later.
    """
    gated = _gated(outcome, now)
    trials = []
    for end in outcome.trials:
        spans = [span for span in outcome.spans if span.trial == end.trial and span.start <= now]
        if not spans:
            if end.number in gated:
                trials.append(TrialHistory(end.number, end.trial.name, gpus=(gated[end.number],)))
            continue
        curve = job.curves[end.number % len(job.curves)]
        times = tuple(one.time - now for one in outcome.values if one.trial == end.trial and one.time <= now)
        ended = end.phase if end.ended is not None and end.ended <= now and end.phase in FINAL else None
        trained = sum(min(span.end, now) - span.start for span in spans if span.use == TRAINING)
        last = max(spans, key=lambda span: span.start)
        trials.append(
            TrialHistory(
                number=end.number,
                name=end.trial.name,
                parameters=curve.hparams,
                steps=steps_of(curve)[: len(times)],
                values=curve.values[: len(times)],
                seconds=curve.seconds[: len(times)],
                times=times,
                trained=trained,
                gpu_seconds=sum(min(span.end, now) - span.start for span in spans),
                ended=ended,
                gpus=() if ended is not None else (last.gpu,),
                holds=ended is None and last.end > now,
            )
        )
    return SearchHistory(replace(job.view, created=-now), job.method, tuple(trials))


def _gated(outcome: Outcome, now: float) -> dict[int, str]:
    """Return the GPUs of the trials that have a slot and have not started: the next ones to start, up to the slots."""
    first: dict[int, tuple[float, str]] = {}
    for span in sorted(outcome.spans, key=lambda span: span.start):
        first.setdefault(span.number, (span.start, span.gpu))
    ended = {end.number for end in outcome.trials if end.ended is not None and end.ended <= now}
    gated: dict[int, str] = {}
    for gpu in outcome.gpus:
        started = sum(at <= now and there == gpu and number not in ended for number, (at, there) in first.items())
        later = sorted((at, number) for number, (at, there) in first.items() if at > now and there == gpu)
        gated.update({number: gpu for _, number in later[: max(0, SLOTS - started)]})
    return gated


def cases(recording: Trace, policy: str, seed: int) -> Iterator[Case]:
    """Yield the expectations at each cut of one search."""
    sample = draw_sample(recording, seed, TRIALS)
    place = ClusterSpec(even_nodes(GPUS, 1, SLOTS), Method())
    job = search_job(sample, policy, place.method)
    outcome = simulate(scenario_of(place, (job,), seed, time_limit(sample, place)))
    names = {uuid: uuid for uuid in outcome.gpus}
    for cut in CUTS:
        now = cut * outcome.makespan
        present = Present((history_at(outcome, job, now),), place.nodes, names, place.timing)
        end = simulated_times(present, Sampling(samples=SAMPLES, level=LEVEL, seed=seed)).end
        if end is not None:
            yield Case(recording.task, policy, cut, outcome.makespan - now, end.low, end.median, end.high)


def row(name: str, chosen: Sequence[Case]) -> str:
    """Return one row of a table."""
    inside = sum(case.inside for case in chosen)
    share = f"{inside} of {len(chosen)} ({100 * inside / len(chosen):.0f} %)"
    errors, widths = (median(getattr(case, what) for case in chosen) for what in ("error", "width"))
    return f"| {name} | {share} | {100 * errors:.0f} % | {100 * widths:.0f} % |"


def main() -> None:
    parser = Parser(__doc__)
    add_curves(parser, TIMED, "the AlgoPerf files of benchmarks/data/curves")
    parser.add_argument("--seeds", type=positive, default=SEEDS, help=f"searches of each task (default: {SEEDS})")
    add_out(parser)
    options = parser.parse_args()
    recordings = load_curves(curve_files(options.curves))
    found: list[Case] = []
    for recording in recordings:
        for policy in POLICIES:
            for seed in range(options.seeds):
                found += cases(recording, policy, seed)
        print(row(recording.task, [case for case in found if case.task == recording.task]), flush=True)
    head = "| searches | real end inside | median error | median width |\n| --- | --- | --- | --- |"
    by_cut = [row(f"cut after {100 * cut:.0f} %", [c for c in found if c.cut == cut]) for cut in CUTS]
    by_policy = [row(policy, [c for c in found if c.policy == policy]) for policy in POLICIES]
    tasks = dict.fromkeys(case.task for case in found)
    by_task = [row(task, [c for c in found if c.task == task]) for task in tasks]
    inside = sum(case.inside for case in found)
    text = f"""# Calibration of the expected end of a search

`{command()}`: {len(tasks)} tasks, {options.seeds} searches each under {", ".join(POLICIES)}, {TRIALS} trials on {GPUS}
GPUs with {SLOTS} slots. Each search is cut at {len(CUTS)} times, and its end is expected from what is known then
({SAMPLES} samples, interval of {100 * LEVEL:.0f} %). Error and width are relative to the real rest of the search.

{head}
{row("all", found)}
{chr(10).join([*by_cut, *by_policy])}

{head.replace("searches", "task")}
{chr(10).join(by_task)}

Both sides use the same simulated system: this is what is not known of curves and paces, not how well the simulation
represents a cluster (`make bench-reality`).

{result_line({"bench": "expected", "inside": inside, "cases": len(found), "level": LEVEL})}
"""
    write_page(options.out / "bench-expected.md", text)
    print(text, end="")


if __name__ == "__main__":
    main()
