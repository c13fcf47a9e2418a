"""Replays against cases computed by hand, and properties of every policy.

Nothing is trained twice or early, and no GPU does two things at once.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking
from podium_core.policies.best_so_far import BestSoFar
from podium_core.policies.envelope import Envelope
from podium_core.policies.fifo import Fifo
from podium_core.policies.median_stop import MedianStop
from podium_core.policies.registry import NAMES, create
from podium_core.policies.round_robin import RoundRobin
from podium_simulator.replay.engine import replay
from podium_simulator.replay.history import History
from podium_simulator.replay.metrics import Score, Uses, score, start_value, target_value, uses_until_best
from podium_simulator.replay.oracle import Oracle
from podium_simulator.replay.samples import Machine, Sample, draw_sample
from podium_simulator.replay.state import Rules
from podium_simulator.replay.statistics import ratios, summary
from podium_simulator.traces.trace import RecordedTrial, Trace, TraceError, bundled_trace, load_all, parse

NO_COST = Costs(0.0, 0.0)
BARE = Rules(bare_rank=True)


def pool(*values: Sequence[float], gap: float = 10.0, target: float | None = None, maximize: bool = True) -> Sample:
    """Return a sample with one trial per row and an evaluation every `gap` seconds."""
    trials = tuple(
        RecordedTrial(f"t{i}", {}, tuple(gap * (k + 1) for k in range(len(row))), tuple(row))
        for i, row in enumerate(values)
    )
    return Sample("task", "family", 0, maximize, target, trials)


def makespan(of: Sample, machine: Machine) -> float:
    return max(replay(of, Fifo(), machine).completed.values())


def test_fifo_by_hand() -> None:
    """Two GPUs, lengths 30, 20, 20: the third starts at 20 on the second GPU."""
    of = pool([0.1, 0.2, 0.3], [0.5, 0.6], [0.2, 0.9])
    history = replay(of, Fifo(), Machine(2, Costs(4.0, 4.0)))
    assert dict(history.completed) == {0: 30.0, 1: 20.0, 2: 40.0}
    assert history.waits == {0: 0.0, 1: 0.0, 2: 20.0}
    assert (history.gpu_seconds, history.switch_seconds) == (70.0, 0.0)
    found = score(of, history, 40.0)
    # best 0.9, start 0.2 (median of 0.1, 0.5, 0.2); regret 1 until 10, (0.9 - 0.5) / 0.7 until 20, 3/7 until 40
    assert (found.time_to_best, found.time_to_target, found.time_to_near_best) == (40.0, 40.0, 40.0)
    assert found.mean_regret == pytest.approx((10 * 1 + 10 * 4 / 7 + 20 * 3 / 7) / 40)
    assert (found.gpu_seconds_to_best, found.plan_gpu_seconds, found.switch_share) == (70.0, 70.0, 0.0)
    assert found.longest_wait == pytest.approx(20.0 / 30.0)
    assert found.uses == Uses(best=20.0, completed=50.0, unfinished=0.0, repeated=0.0, switches=0.0)


def test_a_policy_is_called_while_a_trial_waits() -> None:
    """Three trials on two GPUs: after the first end each has a GPU, and no rank would change anything."""
    asked: list[float] = []

    class Asked(Fifo):
        def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
            asked.append(snapshot.now)
            return super().rank(job, trials, snapshot)

    of = pool([0.1, 0.2, 0.3], [0.5, 0.6], [0.2, 0.9])
    assert replay(of, Asked(), Machine(2)) == replay(of, Fifo(), Machine(2))
    assert asked == [0.0, 0.0, 10.0, 10.0, 20.0, 20.0]


def test_a_switch_costs_suspension_and_resumption() -> None:
    """One GPU, one warm-up point each, then the better trial: its resumption and the other's suspension cost time."""
    of = pool([0.1, 0.2], [0.5, 0.6], gap=100.0)
    history = replay(of, BestSoFar(warmup=1), Machine(1, Costs(4.0, 3.0)), BARE)
    # 0: 0-100, suspended until 104; 1: 104-304, ends by itself; 0 resumes until 307, trains until 407
    assert dict(history.completed) == {1: 304.0, 0: 407.0}
    assert history.switches == ((100.0, 104.0), (304.0, 307.0))
    assert (history.switch_seconds, history.switch_seconds_until(102.0)) == (7.0, 2.0)
    assert score(of, history, 400.0).uses == Uses(
        best=200.0, completed=0.0, unfinished=100.0, repeated=0.0, switches=4.0
    )
    assert history.waits == {0: pytest.approx(204.0), 1: pytest.approx(100.0)}


def test_round_robin_keeps_its_time_slice_whatever_is_reported() -> None:
    of = pool([0.1] * 4, [0.1] * 4, gap=10.0)
    history = replay(of, RoundRobin(quantum=25.0), Machine(1, NO_COST), Rules(whole_slices=True))
    # time slices of 25, whatever is reported: 0 until 25, 1 until 50; no trial has had less, so 1 continues to its
    # value at
    # 55; then 0 to its end at 70
    assert dict(history.completed) == {0: 70.0, 1: 80.0}


def test_decisions_know_all_values_of_their_instant() -> None:
    """Both GPUs reach an evaluation at 10 s: GPU 0 must already know the value of GPU 1's trial."""
    of = pool([0.1, 0.2], [0.9, 0.95], [0.5, 0.6])
    seen: list[int] = []

    class Spy(BestSoFar):
        def rank(self, job, trials, snapshot):  # type: ignore[no-untyped-def]
            seen.append(sum(len(t.curve) for t in snapshot.trials))
            return super().rank(job, trials, snapshot)

    replay(of, Spy(warmup=1), Machine(2, NO_COST), BARE)
    assert seen[2] == 2  # after the two decisions at 0


def test_a_trial_that_was_given_up_is_revived_at_its_full_price() -> None:
    """Trial 4 wins late; the median rule has ended it after its second value."""
    good = [0.5, 0.5, 0.5, 0.5]
    of = pool(good, good, good, good, [0.1, 0.1, 0.1, 0.9])
    suspended = replay(of, MedianStop(grace=0.0, on_cut="suspend"), Machine(1, NO_COST))
    stopped = replay(of, MedianStop(grace=0.0, on_cut="stop"), Machine(1, NO_COST))
    assert suspended.plan_seconds == stopped.plan_seconds == 170.0
    assert suspended.completed[4] == 200.0  # continues from its second value
    assert stopped.completed[4] == 210.0  # restarts: nothing of it was kept
    assert suspended.gpu_seconds_until(175.0) == 175.0
    assert (suspended.repeated_seconds, stopped.repeated_seconds) == (0.0, 10.0)
    assert score(of, stopped, 200.0).uses == Uses(
        best=40.0, completed=160.0, unfinished=0.0, repeated=10.0, switches=0.0
    )


def test_nothing_is_revived_when_the_best_is_trained() -> None:
    good = [0.5, 0.6, 0.7, 0.8]
    of = pool(good, good, good, good, [0.1, 0.1, 0.1, 0.2])
    history = replay(of, MedianStop(grace=0.0), Machine(1, NO_COST))
    assert 4 not in history.completed
    assert 4 not in history.waits


def test_hermes_has_a_queue_per_gpu_and_migrates() -> None:
    """Trials 0 and 2 belong to GPU 0, 1 and 3 to GPU 1. After the short trials 0 and 2 GPU 0 has none: 3 migrates."""
    of = pool([0.1], [0.1] * 9, [0.1], [0.1] * 3)
    history = replay(of, Fifo(), Machine(2, NO_COST), Rules(queue_per_gpu=True))
    assert dict(history.completed) == {0: 10.0, 2: 20.0, 3: 50.0, 1: 90.0}


def test_the_oracle_trains_the_winner_first() -> None:
    of = pool([0.1, 0.2], [0.1, 0.9], [0.3, 0.4], [0.6, 0.7])
    history = replay(of, Oracle.of(of), Machine(1, NO_COST))
    assert list(history.completed) == [1, 3, 2, 0]


GOALS = [
    ("target", pool([0.1, 0.7], target=0.5), 0.5),
    ("target out of reach", pool([0.1, 0.7], target=0.8), None),
    ("minimise", pool([9.0, 2.0], target=3.0, maximize=False), -3.0),
    ("near the best", pool([0.0, 0.7], [0.2, 1.0], [0.4, 0.5]), 1.0 - 0.01 * 0.8),
]


@pytest.mark.parametrize(("of", "goal"), [row[1:] for row in GOALS], ids=[row[0] for row in GOALS])
def test_goals(of: Sample, goal: float | None) -> None:
    found = target_value(of)
    assert found is None if goal is None else found == pytest.approx(goal)


def test_a_value_that_is_not_finite_is_the_worst() -> None:
    lines = [
        {"task": "x", "metric": "loss", "goal": "minimize", "target": None},
        {"trial": "a", "hparams": {}, "seconds": [1, 2], "value": [5.0, None]},
        {"trial": "b", "hparams": {}, "seconds": [1, 2], "value": [None, 4.0]},
    ]
    recording = parse((json.dumps(line) for line in lines), "x-1.jsonl")
    of = Sample("x", "x", 0, False, None, recording.trials)
    assert [of.best_of(t) for t in of.trials] == [-5.0, -4.0]
    assert start_value(of) == -4.5, "what is not finite is left out, the first that is counts"
    history = replay(of, Fifo(), Machine(1, NO_COST))
    assert score(of, history, 4.0).time_to_best == 4.0


BAD_FILES = [
    (
        "no json",
        ['{"task": "t", "metric": "m", "goal": "maximize"}', "x"],
        "x.jsonl, line 2: not JSON",
    ),
    ("nothing", [], "x.jsonl: 0 lines; a header and at least one trial are needed"),
    (
        "goal",
        ['{"task": "t", "metric": "m", "goal": "up"}', "{}"],
        "x.jsonl: a header with goal 'up'; give task, metric, and goal",
    ),
    (
        "times go back",
        ['{"task": "t", "metric": "m", "goal": "maximize"}', '{"trial": "a", "seconds": [2, 1], "value": [0, 0]}'],
        "x.jsonl, line 2: seconds must be above 0, finite, and increase",
    ),
    (
        "a time that is not a number",
        ['{"task": "t", "metric": "m", "goal": "maximize"}', '{"trial": "a", "seconds": [1, NaN], "value": [0, 0]}'],
        "x.jsonl, line 2: seconds must be above 0, finite",
    ),
    (
        "a step without end",
        [
            '{"task": "t", "metric": "m", "goal": "maximize"}',
            '{"trial": "a", "seconds": [1], "value": [0], "step": [Infinity]}',
        ],
        "x.jsonl, line 2: 1 steps; give one an evaluation",
    ),
    (
        "no numbers",
        ['{"task": "t", "metric": "m", "goal": "maximize"}', '{"trial": "a", "seconds": ["x"], "value": [0]}'],
        "x.jsonl, line 2: seconds[0] is 'x'; seconds, value and step must be arrays of numbers",
    ),
    (
        "lengths differ",
        ['{"task": "t", "metric": "m", "goal": "maximize"}', '{"trial": "a", "seconds": [1], "value": []}'],
        "x.jsonl, line 2: 1 times and 0 values",
    ),
    ("no task", ['{"metric": "m", "goal": "maximize"}', "{}"], "x.jsonl: a header without task"),
    (
        "a target that is a text",
        ['{"task": "t", "metric": "m", "goal": "minimize", "target": "x"}', "{}"],
        "x.jsonl: target is 'x'; give a number",
    ),
    (
        "no values",
        ['{"task": "t", "metric": "m", "goal": "minimize"}', '{"trial": 1}'],
        "x.jsonl, line 2: no seconds, value; see the format",
    ),
    (
        "hyper-parameters without names",
        [
            '{"task": "t", "metric": "m", "goal": "minimize"}',
            '{"trial": 1, "hparams": [1], "seconds": [1], "value": [1]}',
        ],
        "x.jsonl, line 2: hparams is [1]; give an object",
    ),
]


@pytest.mark.parametrize(("lines", "message"), [row[1:] for row in BAD_FILES], ids=[row[0] for row in BAD_FILES])
def test_an_invalid_trace_is_reported_with_its_cure(lines: list[str], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse(lines, "x.jsonl")
    assert str(caught.value).startswith(message)


def test_a_folder_and_a_file_can_be_loaded(tmp_path: Path) -> None:
    header = {"task": "x", "metric": "m", "goal": "maximize", "target": 1, "note": "no wall time recorded"}
    trial = {"trial": "a", "hparams": {"lr": 1}, "seconds": [1.0, 2.0], "value": [0.1, 0.2]}
    text = json.dumps(header) + "\n" + json.dumps(trial) + "\n" + json.dumps(trial | {"trial": "b"}) + "\n"
    (tmp_path / "fam-x.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (recording,) = load_all([tmp_path])
    assert recording == load_all([tmp_path / "fam-x.jsonl.gz"])[0]
    assert (recording.family, recording.target, len(recording.trials)) == ("fam", 1, 2)
    assert recording.trials[0].seconds == (60.0, 120.0)  # counted evaluations become seconds
    assert [t.name for t in recording.distinct().trials] == ["a"]


def test_samples_differ_between_tasks_and_seeds_and_are_reproducible() -> None:
    trials = tuple(RecordedTrial(str(i), {}, (1.0,), (0.0,)) for i in range(200))
    one, two = (Trace(name, "f", "m", True, None, trials) for name in ("one", "two"))
    names = {
        key: [t.name for t in draw_sample(r, s).trials] for key, r, s in [("a", one, 0), ("b", two, 0), ("c", one, 1)]
    }
    assert names["a"] == [t.name for t in draw_sample(one, 0).trials]
    assert len({tuple(found) for found in names.values()}) == 3
    assert len(set(names["a"])) == 64


def test_ratios_are_in_pairs_and_their_mean_is_geometric() -> None:
    def run(b: float, a: float | None) -> Score:
        return Score(a, b, b, 0.5, b, b, 0.0, 1.0, Uses(b, 0.0, 0.0, 0.0, 0.0))

    base = {("x", 0): run(8.0, None), ("x", 1): run(2.0, 4.0)}
    ours = {("x", 0): run(2.0, None), ("x", 1): run(4.0, 1.0)}
    assert ratios(ours, base, "time_to_target") == {("x", 1): 4.0}
    found = summary(ratios(ours, base, "time_to_best").values(), np.random.default_rng(0))
    assert found is not None
    assert (found.mean, found.worst, found.best) == pytest.approx((math.sqrt(2.0), 0.5, 4.0))
    assert found.low <= found.mean <= found.high
    assert found.slower == 0.5
    assert summary([], np.random.default_rng(0)) is None


def test_the_starvation_guard_bounds_every_wait() -> None:
    """Two good trials and ten hopeless ones: without the guard these wait beyond the bound."""
    good = [[0.5 + 0.01 * k + d for k in range(40)] for d in (0.0, 0.001)]
    hopeless = [[0.1 + 0.0001 * k + 0.001 * i for k in range(40)] for i in range(10)]
    of, machine, share = pool(*good, *hopeless), Machine(2, NO_COST), 0.1
    due = 10 * 10.0 / (share * 2)  # W of docs/explanation/envelope.md: 10 that wait, 10 s between two values
    bound = due * (1.0 + share * 2) + 10.0
    floor = replay(of, Envelope(min_share=share), machine)
    assert max(floor.waits.values()) <= bound
    assert max(replay(of, Envelope(min_share=0.0), machine).waits.values()) > bound
    assert min(floor.completed, key=floor.completed.__getitem__) in (0, 1)  # its price is small


def check_history(of: Sample, machine: Machine, history: History) -> None:
    assert of.winner in history.completed
    assert all(end >= start for start, end in history.busy)
    for instant in {start for start, _ in history.busy}:
        assert sum(start <= instant < end for start, end in history.busy) <= machine.gpus
    trained: dict[int, int] = {}
    for reached in history.reached:
        assert reached.time >= of.trials[reached.trial].seconds[0]
        trained[reached.trial] = trained.get(reached.trial, 0) + 1
    for trial, time in history.completed.items():
        assert trained[trial] >= len(of.trials[trial].seconds)
        assert time >= of.trials[trial].length
    assert [r.time for r in history.reached] == sorted(r.time for r in history.reached)
    uses, used = uses_until_best(of, history), history.gpu_seconds_until(history.completed[of.winner])
    assert uses.best + uses.completed + uses.unfinished + uses.repeated + uses.switches == pytest.approx(used)


VALUES = st.one_of(st.floats(0.0, 1.0), st.just(math.inf), st.just(1.7976931348623157e308))


@given(
    rows=st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=1, max_size=7),
    name=st.sampled_from(NAMES),
    gpus=st.integers(1, 3),
    cost=st.sampled_from([0.0, 3.0]),
    bare=st.booleans(),
    maximize=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_policy_on_any_sample(
    rows: list[list[float]], name: str, gpus: int, cost: float, bare: bool, maximize: bool
) -> None:
    of = pool(*rows, maximize=maximize)
    machine = Machine(gpus, Costs(cost, cost))
    policy, rules = create(name, {}), Rules(bare_rank=bare)
    history = replay(of, policy, machine, rules)
    check_history(of, machine, history)
    assert replay(of, policy, machine, rules) == history
    if name in ("fifo", "round_robin", "hermes", "best_so_far", "slaq", "envelope"):
        assert len(history.completed) == len(of.trials)  # no trial is lost


@pytest.mark.parametrize("name", NAMES)
def test_the_bundled_example_under_every_policy(name: str) -> None:
    of, machine = draw_sample(bundled_trace(), 0, 24), Machine(4, Costs(4.0, 4.0))
    history = replay(of, create(name, {}), machine)
    check_history(of, machine, history)
    found = score(of, history, makespan(of, machine))
    assert 0.0 <= found.mean_regret <= 1.0
    assert found.time_to_best <= 3 * makespan(of, machine)
