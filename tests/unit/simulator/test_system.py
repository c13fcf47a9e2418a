"""The simulated system: cases worked out by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from simulated import AT_ONCE, ONE_GPU, curve, job

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point, Snapshot
from podium_core.placement.views import NodeView
from podium_core.planning.planner import Decision, decide
from podium_simulator.replay.samples import Sample
from podium_simulator.system import operator, scheduler
from podium_simulator.system.engine import simulate
from podium_simulator.system.inputs.scenario import (
    Faults,
    Method,
    NodeSpec,
    PodFacts,
    Scenario,
    SimulationError,
)
from podium_simulator.system.results.comparison import search_result
from podium_simulator.system.results.outcome import TRAINING, Outcome
from podium_simulator.system.state import Node


def used(outcome: Outcome) -> list[tuple[int, str, float, float]]:
    return [(s.number, s.use, s.start, s.end) for s in outcome.spans]


def test_only_one_of_equal_empty_nodes_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first by name is taken, as if each had been scored: a node costs 20 us, and a cluster may have 10,000."""
    looked: list[str] = []
    view = scheduler._view

    def look(node: Node) -> NodeView:
        looked.append(node.spec.name)
        return view(node)

    monkeypatch.setattr(scheduler, "_view", look)
    nodes = (*(NodeSpec(f"n{i:03}", 1) for i in reversed(range(100))), NodeSpec("a", 1, memory=8), NodeSpec("m", 1, 2))
    of = job(curve(0.1), curve(0.2), curve(0.3))
    outcome = simulate(Scenario(nodes, (replace(of, facts=(PodFacts(), PodFacts("m"), PodFacts())),), AT_ONCE))
    assert {span.number: span.gpu for span in outcome.spans} == {0: "a-gpu0", 1: "m-gpu0", 2: "n000-gpu0"}
    assert len(looked) < 20


def test_fifo_by_hand() -> None:
    """Placed at 1, at the gate at 2; each loads for 2 s and trains for 20; the next gets the GPU without a pause."""
    outcome = simulate(Scenario(ONE_GPU, (job(curve(0.1, 0.2), curve(0.3, 0.4)),), AT_ONCE), checked=True)
    assert used(outcome) == [
        (0, "starting", 2.0, 4.0),
        (0, TRAINING, 4.0, 24.0),
        (1, "starting", 24.0, 26.0),
        (1, TRAINING, 26.0, 46.0),
    ]
    assert [(v.time, v.value) for v in outcome.values] == [(14.0, 0.1), (24.0, 0.2), (36.0, 0.3), (46.0, 0.4)]
    assert (outcome.makespan, outcome.jobs[0].reason, outcome.broken) == (46.0, "AllTrialsEnded", ())


def test_a_switch_is_a_suspension_and_then_the_next_start() -> None:
    """One warm-up value each, then the better trial; a value counts only once it is reported."""
    of = job(curve(0.5, 0.6, 0.7), curve(0.1, 0.2, 0.3), policy="best_so_far", settings={"warmup": 1})
    outcome = simulate(Scenario(ONE_GPU, (replace(of, method=Method(suspend=4.0, resume=3.0)),), AT_ONCE), checked=True)
    whole = [(n, use, start, end) for n, use, start, end in used(outcome) if use != TRAINING]
    assert whole[0] == (0, "starting", 2.0, 4.0)
    number, use, start, end = whole[1]
    assert (number, use, end - start) == (0, "suspending", 4.0)
    assert start >= 14.0, "its first value had to be known"
    assert whole[2] == (1, "starting", end, end + 2.0), "the next one is let in when the GPU is free, not before"
    assert sum(e - s for n, u, s, e in used(outcome) if (n, u) == (0, TRAINING)) == pytest.approx(30.0)
    assert outcome.trials[0].suspensions >= 1


def test_a_resumed_trial_keeps_its_gpu_for_the_cost_of_its_switch() -> None:
    """First time slices are at most 70 s (ten times 4 s + 3 s); once its own switch is known, 7 s / 0.03 or more."""
    of = job(curve(*[0.1] * 60), curve(*[0.1] * 60), policy="round_robin")
    outcome = simulate(Scenario(ONE_GPU, (of,), AT_ONCE), checked=True)
    starts: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for number, use, start, _ in used(outcome):
        starts[number].append((use, start))
    turns = [
        (first[0], then[1] - first[1])
        for found in starts.values()
        for first, then in pairwise([pair for pair in found if pair[0] != TRAINING])
        if then[0] == "suspending"
    ]
    assert [use for use, _ in turns].count("resuming") >= 2
    for use, seconds in turns:
        assert seconds <= 70.0 if use == "starting" else seconds >= 7.0 / 0.03, (use, seconds)


# a trial is let in at 2 s, its first step is at 4: from there on its agent looks at its log every half second
KNOWN = [
    ("at the next look", {}, 10.2, 14.5),
    ("of an agent that looks more seldom", {"log": 3.0}, 10.2, 16.0),
    ("and is in the API a moment later", {"notice": 0.3}, 10.2, 14.8),
    ("but not within two seconds of the first write", {"record_start": 1.9}, 1.1, 6.0),
    ("nor of a longer time", {"record_start": 1.9, "report": 7.0}, 1.1, 11.0),
    ("where it wrote a while ago, at once", {"record_start": 0.1}, 1.1, 5.5),
    ("the rhythm is that of when its processes were found", {"record_start": 0.1, "processes_found": 1.8}, 1.1, 5.3),
]


@pytest.mark.parametrize(("timing", "gap", "ends"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_when_a_value_is_known(timing: dict[str, float], gap: float, ends: float) -> None:
    """The first value reaches the target: the job ends when the operator knows."""
    of = job(curve(0.9, *[0.95] * 9, gap=gap), target=0.8)
    outcome = simulate(Scenario(ONE_GPU, (of,), replace(AT_ONCE, **timing)))
    assert (outcome.makespan, outcome.jobs[0].reason) == (pytest.approx(ends), "TargetReached")
    assert outcome.trials[0].gpu_seconds == pytest.approx(ends - 2.0)


def seen_by_the_planner(monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> list[Snapshot]:
    found: list[Snapshot] = []

    def spy(snapshot: Snapshot) -> Decision:
        found.append(snapshot)
        return decide(snapshot)

    monkeypatch.setattr(operator, "decide", spy)
    simulate(scenario)
    return found


def test_each_trial_is_written_in_a_rhythm_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values every 0.3 s. One pod starts 0.7 s after the other, and so does each of its writes, until its end."""
    two = replace(job(*[curve(*[0.1] * 20, gap=0.3)] * 2), facts=(PodFacts(gate=2.0), PodFacts(gate=2.7)))
    nodes = (NodeSpec("a", 1, slots=1), NodeSpec("b", 1, slots=1))
    grown: list[list[float]] = [[], []]
    points = [0, 0]
    for seen in seen_by_the_planner(monkeypatch, Scenario(nodes, (two,), replace(AT_ONCE, record_start=1.0))):
        for trial in seen.trials:
            if len(trial.curve) > points[trial.number]:
                points[trial.number] = len(trial.curve)
                grown[trial.number].append(seen.now)
    # first written at 3.0 and 3.7; running from 4.0 and 4.7; ended at 10.0 and 10.7, where `ended` is 0
    assert grown == [pytest.approx([5.0, 7.0, 9.0, 10.0]), pytest.approx([5.7, 7.7, 9.7, 10.7])]


@pytest.mark.parametrize(("holder_report", "known"), [(float("inf"), [0.0]), (5.0, [0.0, 5.0, 10.0, 15.0, 20.0])])
def test_gpu_seconds_are_those_of_the_last_write(
    monkeypatch: pytest.MonkeyPatch, holder_report: float, known: list[float]
) -> None:
    """A value comes after 25 s. The first write is made as the gate opens."""
    timing = replace(AT_ONCE, record_start=0.0, holder_report=holder_report, cycle=1.0)
    seen = seen_by_the_planner(monkeypatch, Scenario(ONE_GPU, (job(curve(0.1, gap=25.0)),), timing))
    while_at_work = [trial.usage.gpu_seconds for one in seen if one.now < 27.0 for trial in one.trials]
    assert sorted(set(while_at_work)) == pytest.approx(known)


def test_costs_are_those_of_the_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the agent reports them; a suspended trial has no resumption time yet."""
    of = job(curve(*[0.1] * 3), curve(*[0.1] * 3), policy="round_robin")
    costs = [one.costs for one in seen_by_the_planner(monkeypatch, Scenario(ONE_GPU, (of,), AT_ONCE))]
    known = [(cost.suspend, cost.resume) for cost in dict.fromkeys(costs)]
    assert known == [(0.2, 0.2), (4.0, 0.2), (4.0, 3.0)]


def test_the_gpu_is_free_before_the_pod_reports_its_end() -> None:
    """The second trial starts when the first has ended; the third one's pod gets the slot 5 s later."""
    three = job(curve(0.1), curve(0.2), curve(0.3))
    node = (NodeSpec("a", 1, slots=2),)
    outcome = simulate(Scenario(node, (three,), replace(AT_ONCE, ended=5.0)), checked=True)
    starts = [(number, start) for number, use, start, _ in used(outcome) if use == "starting"]
    # 2 to 14; 14 to 26; the share of the first is free at 19, placed at 20, at the gate at 21
    assert starts == [(0, 2.0), (1, 14.0), (2, 26.0)]
    slow = simulate(Scenario(node, (three,), replace(AT_ONCE, ended=30.0)), checked=True)
    assert [start for _, use, start, _ in used(slow) if use == "starting"] == [2.0, 14.0, 46.0]
    assert slow.makespan == 46.0 + 12.0 + 30.0


def test_jobs_that_arrive_later_share_the_gpu() -> None:
    """Between jobs a time slice lasts 70 s (ten times the switch): both end, neither runs alone first."""
    first = job(curve(*[0.1] * 30), name="first")
    second = job(curve(*[0.1] * 30), name="second", created=50.0)
    outcome = simulate(Scenario(ONE_GPU, (first, second), AT_ONCE), checked=True)
    ends = {end.job.name: end.ended for end in outcome.jobs}
    assert ends["second"] - 50.0 > 300.0
    assert ends["first"] > 310.0
    assert outcome.gpu_seconds("suspending") > 0.0
    assert outcome.broken == ()


def test_a_job_with_short_time_slices_is_preempted_as_well() -> None:
    """If each switch within the first job restarted the time slice between jobs, that one would never end."""
    first = job(*[curve(*[0.1] * 60)] * 3, policy="round_robin", name="first", settings={"quantum": 20.0})
    second = replace(job(curve(*[0.1] * 5), name="second", created=50.0), method=Method(suspend=0.1, resume=0.1))
    first = replace(first, method=second.method)
    outcome = simulate(Scenario(ONE_GPU, (first, second), AT_ONCE), checked=True)
    begins = min(span.start for span in outcome.spans if span.trial.name.startswith("second"))
    assert begins < 50.0 + 5.0 + 2 * 30.0
    assert outcome.broken == ()


def test_the_memory_ledger_keeps_trials_out_that_do_not_fit() -> None:
    """Two frozen trials of 6 do not fit together into 10; with a method that frees the memory they do."""
    of = job(curve(0.1, 0.2), curve(0.1, 0.2), memory=6)
    node = (NodeSpec("a", 1, memory=10),)
    kept = simulate(Scenario(node, (of,), AT_ONCE))
    freed = simulate(Scenario(node, (replace(of, method=Method("cuda-checkpoint", keeps_memory=False)),), AT_ONCE))
    assert freed.makespan == 46.0
    assert kept.makespan > 46.0, "the second pod is placed only when the first has ended"


@pytest.mark.parametrize("policy", ["asha", "hyperband"])
def test_paused_trials_release_their_slots_where_memory_keeps_others_out(policy: str) -> None:
    """Two of six fit at a time and there are slots for all: paused trials would keep the rest out forever."""
    of = job(*[curve(0.1, 0.2, 0.3, 0.1 * n) for n in range(6)], policy=policy, settings={"eta": 2}, memory=5)
    outcome = simulate(Scenario((NodeSpec("a", 1, 6, memory=10),), (of,), AT_ONCE), checked=True)
    assert outcome.broken == ()
    assert all(trial.evaluations for trial in outcome.trials)
    assert any(trial.evaluations == 4 for trial in outcome.trials), "one is trained to its end"


def test_pods_are_placed_on_their_recorded_nodes() -> None:
    of = replace(job(curve(0.1), curve(0.2), curve(0.3)), facts=(PodFacts("b"), PodFacts("b"), PodFacts("a")))
    outcome = simulate(Scenario((NodeSpec("a", 1), NodeSpec("b", 1)), (of,), AT_ONCE))
    assert {(s.number, s.gpu) for s in outcome.spans} == {(0, "b-gpu0"), (1, "b-gpu0"), (2, "a-gpu0")}


def test_each_pod_takes_its_recorded_time() -> None:
    """The first pod is at its gate 21 s after its creation, the second after 1 s; the third as usual, 2 s (1 + 1)."""
    of = replace(job(*[curve(0.1, gap=5.0)] * 3), facts=(PodFacts(gate=21.0), PodFacts(gate=1.0, ended=9.0)))
    outcome = simulate(Scenario(ONE_GPU, (of,), AT_ONCE), checked=True)
    firsts = sorted((span.start, span.number) for span in outcome.spans if span.use == "starting")
    assert firsts == [(1.0, 1), (8.0, 2), (21.0, 0)]
    alone = simulate(Scenario((NodeSpec("a", 1, 1),), (of,), AT_ONCE))
    starts = {span.number: span.start for span in alone.spans if span.use == "starting"}
    assert starts[2] == starts[1] + 2.0 + 5.0 + 9.0 + 2.0, "its share is free when the second pod says that it ended"


def test_a_trial_is_suspended_once_its_processes_are_known_and_continues_loading_later() -> None:
    """Orders take 2 s: the one of when only the second trial was at its gate comes when the first was let in."""
    of = replace(job(curve(0.1, 0.2), curve(0.3, 0.4)), facts=(PodFacts(gate=2.3), PodFacts(gate=2.0)))
    of = replace(of, method=Method(suspend=0.5, resume=0.5))
    outcome = simulate(
        Scenario(ONE_GPU, (of,), replace(AT_ONCE, processes_found=1.0, load=3.0, order=2.0)), checked=True
    )
    assert used(outcome) == [
        (0, "starting", 3.0, 4.0),
        (0, "suspending", 4.0, 4.5),
        (1, "starting", 4.5, 5.5),
        (1, "loading", 5.5, 7.5),
        (1, TRAINING, 7.5, 27.5),
        (0, "resuming", 27.5, 28.0),
        (0, "loading", 28.0, 30.0),
        (0, TRAINING, 30.0, 50.0),
    ]


def test_the_first_trial_at_its_gate_is_not_preempted_before_its_first_step() -> None:
    """The operator is slow: when it plans, its first trial is at its gate as well, 0.1 s later."""
    facts = (PodFacts(gate=2.1), PodFacts(gate=2.0))
    of = replace(job(curve(0.1, 0.2, 0.3), curve(0.2, 0.3, 0.4), policy="hermes"), facts=facts)
    outcome = simulate(Scenario(ONE_GPU, (of,), replace(AT_ONCE, debounce=0.5)), checked=True)
    assert not outcome.broken
    assert [(number, use) for number, use, *_ in used(outcome)][:3] == [
        (1, "starting"),
        (1, TRAINING),
        (0, "starting"),
    ]


def test_checkpoints_prevent_lost_work_and_without_them_trials_restart() -> None:
    """Pods live for 15 s on average and a trial needs 40 s."""
    faults = Faults(pod=15.0)
    plain = job(curve(0.1, 0.2, 0.3, 0.4), retries=0)
    saved = replace(plain, checkpoints=True)
    lost, kept = (simulate(Scenario(ONE_GPU, (of,), AT_ONCE, faults, seed=3)).trials[0] for of in (plain, saved))
    assert lost.phase is kept.phase is TrialPhase.SUCCEEDED
    assert lost.attempts > 1, "the seed has no accident: choose another"
    assert lost.lost_seconds > kept.lost_seconds
    assert kept.lost_seconds < 10.0 * kept.attempts, "never more than one evaluation an accident"


def test_a_node_that_fails_before_its_agent_reports_changes_nothing() -> None:
    """Statuses take 1 s to be written and nodes live for 3 s on average: many fail in between."""
    of = job(*[curve(0.1, 0.2, gap=1.0)] * 4)
    outcome = simulate(
        Scenario(ONE_GPU, (of,), replace(AT_ONCE, notice=1.0), Faults(node=3.0, repair=1.0)), checked=True
    )
    assert not outcome.broken
    assert sum(trial.attempts for trial in outcome.trials) > 4, "the seed has no accident: choose another"


def test_a_fault_removes_no_value_and_delays_trials_without_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the cluster: the status keeps the curve, and pods lost without a step between them wait 2 s, 4 s, ..."""
    shown: dict[object, tuple[Point, ...]] = {}
    pauses: dict[float, int] = {}  # by when it is over

    def spy(snapshot: Snapshot) -> Decision:
        for trial in snapshot.trials:
            assert trial.curve[: len(shown.get(trial.key, ()))] == shown.get(trial.key, ())
            shown[trial.key] = trial.curve
            if trial.phase is TrialPhase.REQUEUED and trial.attempts.retry_at > snapshot.now:
                pauses.setdefault(trial.attempts.retry_at, round(trial.attempts.retry_at - snapshot.now))
        return decide(snapshot)

    monkeypatch.setattr(operator, "decide", spy)
    of = job(curve(0.1, 0.2, 0.3, 0.4), retries=0)
    outcome = simulate(Scenario(ONE_GPU, (of,), AT_ONCE, Faults(pod=15.0), seed=3))
    assert outcome.trials[0].lost_seconds > 10.0, "no value is shown twice: the seed has no such accident"
    assert list(pauses.values())[:2] == [2, 4]


def test_lost_work_counts_on_all_gpus_of_a_trial() -> None:
    """The same faults on two GPUs at once: the same share of the GPU time."""
    shares = []
    for width in (1, 2):
        of = job(curve(0.1, 0.2, 0.3, 0.4), gpus_per_trial=width)
        outcome = simulate(Scenario((NodeSpec("a", width),), (of,), AT_ONCE, Faults(pod=15.0), seed=3))
        assert outcome.trials[0].lost_seconds > 0.0, "the seed has no accident: choose another"
        pool = Sample("own", "own", 0, True, None, of.curves)
        shares.append(search_result("fifo", pool, outcome, outcome.makespan).score.overhead)
    assert shares[0] == pytest.approx(shares[1])


def test_the_workers_of_a_trial_run_on_nodes_of_their_own_and_only_together() -> None:
    """A trial of one GPU has node b first; the wide one starts on both nodes when it has ended, not on a before."""
    nodes = (NodeSpec("a", 1), NodeSpec("b", 1))
    one = replace(job(curve(0.1, 0.2), name="one"), facts=(PodFacts("b"),))
    wide = job(curve(0.3, 0.4), name="wide", gpus_per_trial=2, workers=2, created=1.0)
    outcome = simulate(Scenario(nodes, (one, wide), AT_ONCE), checked=True)
    spans = [(s.trial.name, s.gpu, s.use, s.start, s.end) for s in outcome.spans]
    assert [span for span in spans if span[0] == "one-0"] == [
        ("one-0", "b-gpu0", "starting", 2.0, 4.0),
        ("one-0", "b-gpu0", TRAINING, 4.0, 24.0),
    ]
    assert sorted(span[1:] for span in spans if span[0] == "wide-0") == [
        ("a-gpu0", "starting", 24.0, 26.0),
        ("a-gpu0", TRAINING, 26.0, 46.0),
        ("b-gpu0", "starting", 24.0, 26.0),
        ("b-gpu0", TRAINING, 26.0, 46.0),
    ]
    assert {trial.trial.name: trial.gpu_seconds for trial in outcome.trials} == {"one-0": 22.0, "wide-0": 44.0}
    assert outcome.broken == ()


def test_a_trial_of_two_workers_is_suspended_on_both_nodes() -> None:
    """Both have one warm-up value, then the better one continues."""
    nodes = (NodeSpec("a", 1), NodeSpec("b", 1))
    given = {"policy": "best_so_far", "settings": {"warmup": 1}, "gpus_per_trial": 2, "workers": 2}
    outcome = simulate(
        Scenario(nodes, (job(curve(0.5, 0.6, 0.7), curve(0.1, 0.2, 0.3), **given),), AT_ONCE), checked=True
    )
    by_gpu = {gpu: [(s.number, s.use, s.start, s.end) for s in outcome.spans if s.gpu == gpu] for gpu in outcome.gpus}
    assert by_gpu["a-gpu0"] == by_gpu["b-gpu0"]
    assert outcome.trials[0].suspensions >= 1
    assert outcome.broken == ()


@pytest.mark.parametrize(
    ("nodes", "workers"),
    [((NodeSpec("a", 2, 4),), 1), ((NodeSpec("a", 1, 4), NodeSpec("b", 1, 4)), 2)],
    ids=["one node", "two nodes"],
)
def test_a_trial_of_two_gpus_starts_beside_a_search_that_fills_all_slots(
    nodes: tuple[NodeSpec, ...], workers: int
) -> None:
    """It gets its slots when a trial of each GPU has ended; without help, when all have."""
    early = job(*[curve(*[0.1] * (5 + i)) for i in range(24)], name="early")
    wide = job(curve(0.3, 0.4), name="wide", gpus_per_trial=2, workers=workers, created=100.0)
    outcome = simulate(Scenario(nodes, (early, wide), AT_ONCE), checked=True)
    ends = sorted(trial.ended for trial in outcome.trials if trial.trial.name.startswith("early"))
    later = [end for end in ends if end > 100.0]
    first = min(span.start for span in outcome.spans if span.trial.name == "wide-0")
    assert first < later[8], "each GPU has lost some of its four trials by then"
    assert first < ends[-1] / 2.0
    assert outcome.broken == ()


def test_a_trial_of_two_gpus_is_not_kept_waiting_by_trials_that_are_shorter_than_a_time_slice() -> None:
    """A time slice between jobs counts for all trials of the job, so it does not start again with each of them."""
    early = job(*[curve(*[0.1] * 6, gap=1.0)] * 200, name="early")
    wide = job(*[curve(*[0.3] * 50, gap=1.0)] * 2, name="wide", gpus_per_trial=2, created=20.0)
    outcome = simulate(Scenario((NodeSpec("a", 2, 4),), (early, wide), AT_ONCE), checked=True)
    first = min(span.start for span in outcome.spans if span.trial.name.startswith("wide"))
    assert first < 20.0 + 2 * 30.0, "one time slice, after two trials have ended"
    assert {end.job.name: end.ended for end in outcome.jobs}["wide"] < 400.0, "the jobs take turns"
    assert outcome.broken == ()


def test_two_jobs_take_turns_on_two_nodes_if_one_has_trials_of_two_workers() -> None:
    """The run queues of two nodes arrive one after another; no plan between takes the last one back."""
    nodes = (NodeSpec("a", 1, 4), NodeSpec("b", 1, 4))
    one = job(*[curve(*[0.1] * 30)] * 2, name="one")
    wide = job(curve(*[0.1] * 30), name="wide", gpus_per_trial=2, workers=2)
    outcome = simulate(Scenario(nodes, (one, wide), AT_ONCE), checked=True)
    switches = sum(trial.suspensions for trial in outcome.trials)
    assert 2 <= switches <= outcome.makespan / 10.0
    assert outcome.plans < 400
    assert outcome.broken == ()


ERRORS = [
    (
        "too many workers",
        lambda: Scenario(ONE_GPU, (job(curve(0.1), gpus_per_trial=2, workers=2),)),
        "2 workers a trial of 1 GPU each, which need as many nodes",
    ),
    ("no node", lambda: Scenario((), (job(curve(0.1)),)), "nodes"),
    ("two of one name", lambda: Scenario((NodeSpec("a", 1), NodeSpec("a", 1)), (job(curve(0.1)),)), "different names"),
    ("too wide", lambda: Scenario(ONE_GPU, (job(curve(0.1), gpus_per_trial=2),)), "2 GPUs a trial; a node has at most"),
    ("no end", lambda: simulate(Scenario(ONE_GPU, (job(curve(0.1), memory=9, suspended=True),))), "has not ended"),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_every_error_has_a_cure(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        make()
