"""Comparison of several policies on the same samples of one trace, always including fifo.

`podium simulate` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from podium_core.policies.fifo import Fifo
from podium_core.policies.policy_text import parse_policy
from podium_simulator.replay.engine import replay
from podium_simulator.replay.metrics import Score, score
from podium_simulator.replay.samples import Machine, Sample, draw_sample
from podium_simulator.replay.statistics import METRICS, RunKey, geometric_mean, ratios
from podium_simulator.traces.trace import Trace, TraceError

BASE = Fifo.name
MAX_SLICES = 1_000_000  # of a sample; a trace with many evaluations may have ten slices per evaluation


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """Results of several policies on the same runs.

    `scores`: policy, as it was typed -> run -> its score.
    """

    trace: Trace
    machine: Machine
    size: int  # trials of a sample
    scores: Mapping[str, Mapping[RunKey, Score]]

    @property
    def runs(self) -> int:
        return len(self.scores[BASE])

    def typical(self, policy: str, metric: str) -> float | None:
        """Return the median over the runs that have this metric (`statistics.METRICS`); None where none has."""
        values = [value for s in self.scores[policy].values() if (value := METRICS[metric](s)) is not None]
        return median(values) if values else None

    def against_fifo(self, policy: str, metric: str) -> tuple[float, float] | None:
        """Return fifo's time over the policy's time: geometric mean and worst run.

        Above 1: faster than fifo.
        """
        values = list(ratios(self.scores[policy], self.scores[BASE], metric).values())
        return (geometric_mean(values), min(values)) if values else None


def compare(
    trace: Trace,
    policies: Sequence[str],
    machine: Machine,
    seeds: int | range,
    size: int,
    advance: Callable[[], None] = lambda: None,
) -> ReplayComparison:
    """Replay each policy and seed; all use the planner's switch rule.

    `policies`: as a user types them. `seeds`: their number, or themselves. Raises a PolicyError where a policy is
    unknown, a TraceError where a replay would hardly end. `advance` is called after each search.
    """
    by_name = {name: parse_policy(name).create() for name in [BASE, *policies]}
    scores: dict[str, dict[RunKey, Score]] = {name: {} for name in by_name}
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        sample = draw_sample(trace, seed, size)
        _check_slices(sample, machine)
        histories = {}
        for name, policy in by_name.items():
            histories[name] = replay(sample, policy, machine)
            advance()
        makespan = max(histories[BASE].completed.values())
        for name, history in histories.items():
            scores[name][trace.task, seed] = score(sample, history, makespan)
    return ReplayComparison(trace, machine, min(size, len(trace.trials)), scores)


def _check_slices(sample: Sample, machine: Machine) -> None:
    """Raise TraceError where the time slices are tiny compared with the training.

    A GPU decides once per slice. A few evaluations close together make the slice shorter than the clock can resolve at
    the end of the training.
    """
    training, seconds = sum(trial.length for trial in sample.trials), machine.slice(sample)
    most = max(MAX_SLICES, 10 * sum(len(trial.seconds) for trial in sample.trials))
    if training <= most * seconds:
        return
    text = f"{training:g} seconds of training in slices of {seconds:g} s, a GPU's decisions, are more than {most}"
    cure = "leave evaluations out that are next to each other, or give longer --suspend and --resume"
    raise TraceError(f"{sample.task}: {text}; {cure} (a slice is ten times both at least)")
