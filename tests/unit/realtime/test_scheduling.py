"""Policies, virtual deadlines and pools one by one, and the dispatcher with given times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realtime_builders import DIAMOND, NETWORKS, constant_profiles

from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.network import InferenceNetwork, chain, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.task import PeriodicTask, Priority
from podium_realtime.scheduling.baselines import Naive, SingleStream
from podium_realtime.scheduling.daris import Daris, priority_level
from podium_realtime.scheduling.dispatcher import Dispatcher
from podium_realtime.scheduling.jobs import USABLE, JobOutcome, PeriodicJob, ReadyStage, StageBatch, virtual_deadlines
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.scheduling.policy import SchedulingPolicy
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority, context_pool, context_sizes
from podium_realtime.scheduling.sgprs import ContextCandidate, Sgprs, choose_context

LOW = StreamPriority.LOW
ONE = (ContextSpec(0, 68, (LOW,), 1),)
PAIR = chain("pair", [("a", 1.0, 1.0), ("b", 1.0, 1.0)])


@pytest.mark.parametrize(
    ("candidates", "deadline", "expected"),
    [
        ([(0, True, 5.0), (1, True, 4.0)], 6.0, (0, "a")),
        ([(0, True, 7.0), (1, True, 6.0)], 6.0, (1, "a")),
        ([(0, True, 9.0), (1, True, 8.0), (2, False, 5.0)], 6.0, (1, "b")),
        ([(0, False, 9.0), (1, False, 8.0)], 6.0, (1, "c")),
        ([(0, False, 5.0), (1, False, 5.0)], 6.0, (0, "c")),
    ],
    ids=["first-idle-in-time", "second-idle-in-time", "idle-and-earliest", "earliest", "tie-goes-to-the-first"],
)
def test_sgprs_chooses_a_context_by_its_three_rules(
    candidates: list[tuple[int, bool, float]], deadline: float, expected: tuple[int, str]
) -> None:
    assert choose_context([ContextCandidate(*candidate) for candidate in candidates], deadline) == expected


@pytest.mark.parametrize(
    ("network", "seconds", "expected"),
    [
        (chain("c", [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]), (1.0, 2.0, 1.0), (0.25, 0.75, 1.0)),
        (DIAMOND, (1.0, 3.0, 1.0, 1.0), (0.2, 0.8, 0.4, 1.0)),
        (PAIR.fused(), (7.0,), (1.0,)),
    ],
)
def test_virtual_deadlines_follow_the_longest_path(
    network: InferenceNetwork, seconds: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    deadlines = [10.0 * USABLE * fraction for fraction in expected]
    assert virtual_deadlines(network, seconds, 10.0) == pytest.approx(deadlines)


@given(st.sampled_from(NETWORKS), st.lists(st.floats(0.001, 1.0), min_size=6, max_size=6), st.floats(0.001, 1.0))
def test_virtual_deadlines_give_each_stage_its_share(
    network: InferenceNetwork, times: list[float], deadline: float
) -> None:
    own = times[: len(network.stages)]
    deadlines = virtual_deadlines(network, own, deadline)
    assert max(deadlines) == pytest.approx(USABLE * deadline)
    ends: list[float] = []
    for stage, seconds in zip(network.stages, own, strict=True):
        ends.append(seconds + max((ends[before] for before in stage.after), default=0.0))
    for number, stage in enumerate(network.stages):
        share = USABLE * deadline * own[number] / max(ends)
        assert all(deadlines[before] <= deadlines[number] - share + 1e-12 for before in stage.after)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((68, 2, 1.0), (34, 34)),
        ((68, 3, 1.0), (22, 22, 22)),
        ((68, 3, 1.5), (34, 34, 34)),
        ((68, 2, 2.0), (68, 68)),
        ((68, 6, 6.0), (68,) * 6),
        ((68, 3, 1.0, "stepwise"), (10, 22, 34)),
        ((68, 2, 2.0, "stepwise"), (44, 68)),
        ((2, 2, 1.0), (1, 1)),
    ],
)
def test_context_sizes_are_those_of_the_paper(arguments: tuple[int, int, float], expected: tuple[int, ...]) -> None:
    assert context_sizes(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((68, 0, 1.0), "InvalidValue"), ((68, 2, 0.5), "InvalidValue"), ((2, 3, 1.0), "TooManyContexts")],
)
def test_invalid_pools_are_rejected(arguments: tuple[int, int, float], code: str) -> None:
    with pytest.raises(RealtimeError) as error:
        context_sizes(*arguments)
    assert error.value.code == code


def ready_stage(task: PeriodicTask, late: bool = False, stages_after: int = 3, deadline: float = 1.0) -> ReadyStage:
    """Return the stage of a chain that has `stages_after` stages behind it."""
    count = len(task.network.stages)
    job = PeriodicJob(task, 0, 0.0, 1.0, (deadline,) * count)
    return ReadyStage(job, count - 1 - stages_after, 0.0, late)


HIGH_TASK = PeriodicTask("high", resnet18(), 1.0, 1.0, Priority.HIGH)
LOW_TASK = PeriodicTask("low", resnet18(), 1.0, 1.0, Priority.LOW)


def test_daris_has_eight_levels() -> None:
    stages = [
        ready_stage(task, late=late, stages_after=stages_after)
        for task in (HIGH_TASK, LOW_TASK)
        for stages_after in (0, 3)
        for late in (True, False)
    ]
    assert [priority_level(stage) for stage in stages] == list(range(8))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ready_stage(LOW_TASK, stages_after=1, deadline=9.0), ready_stage(LOW_TASK, stages_after=3, deadline=1.0)),
        (ready_stage(LOW_TASK, late=True, deadline=9.0), ready_stage(LOW_TASK, deadline=1.0)),
        (ready_stage(LOW_TASK, deadline=1.0), ready_stage(LOW_TASK, deadline=2.0)),
    ],
    ids=["last-two-stages", "promoted-when-late", "earliest-deadline"],
)
def test_sgprs_orders_stages_by_level_and_deadline(first: ReadyStage, second: ReadyStage) -> None:
    assert Sgprs().priority_key(first, 0.0) < Sgprs().priority_key(second, 0.0)


def test_sgprs_promotion_can_be_switched_off() -> None:
    late, early = ready_stage(LOW_TASK, late=True, deadline=9.0), ready_stage(LOW_TASK, deadline=1.0)
    assert Sgprs(promote=False).priority_key(early, 0.0) < Sgprs(promote=False).priority_key(late, 0.0)


def pair_tasks(*periods: float, network: InferenceNetwork = PAIR) -> list[PeriodicTask]:
    return [PeriodicTask(f"t{number}", network, period, period) for number, period in enumerate(periods)]


def make_dispatcher(
    tasks: list[PeriodicTask], policy: SchedulingPolicy, pool: tuple[ContextSpec, ...] = ONE, patience: float = 0.0
) -> Dispatcher:
    """Return a dispatcher for which every stage takes 1 s."""
    networks = [task.network if policy.schedules_stages else task.network.fused() for task in tasks]
    profiles = {network.name: constant_profiles(network, 1.0) for network in networks}
    return Dispatcher(tasks, pool, profiles, policy, patience)


def stages_of(batches: list[StageBatch]) -> list[tuple[str, int]]:
    """Return (task, stage) of all stages in the batches."""
    return [(ready.job.task.name, ready.index) for batch in batches for ready in batch.stages]


def outcomes(dispatcher: Dispatcher) -> list[tuple[str, JobOutcome]]:
    """Return (task, outcome) of all ended jobs."""
    return [(result.job.task.name, result.outcome) for result in dispatcher.results]


def test_a_single_stream_runs_jobs_by_earliest_deadline() -> None:
    dispatcher = make_dispatcher(pair_tasks(30.0, 10.0), SingleStream(), patience=0.0)
    dispatcher.release("t0", 0.0)
    dispatcher.release("t1", 0.0)
    assert stages_of(dispatcher.dispatch(0.0)) == [("t1", 0)]
    assert dispatcher.dispatch(0.5) == []
    dispatcher.finish(0, 1.0)
    assert stages_of(dispatcher.dispatch(1.0)) == [("t0", 0)]
    dispatcher.finish(1, 2.0)
    assert outcomes(dispatcher) == [("t1", JobOutcome.MET), ("t0", JobOutcome.MET)]


def test_a_stage_becomes_ready_when_its_predecessor_is_done() -> None:
    dispatcher = make_dispatcher(pair_tasks(10.0), LaunchAhead())
    dispatcher.release("t0", 0.0)
    assert stages_of(dispatcher.dispatch(0.0)) == [("t0", 0)]
    assert dispatcher.dispatch(0.1) == []
    dispatcher.finish(0, 1.0)
    assert stages_of(dispatcher.dispatch(1.0)) == [("t0", 1)]
    dispatcher.finish(1, 11.0)
    assert outcomes(dispatcher) == [("t0", JobOutcome.LATE)]


@pytest.mark.parametrize(
    ("patience", "done", "expected"),
    [
        (0.0, 12.0, [JobOutcome.SKIPPED, JobOutcome.LATE]),
        (0.3, 12.0, [JobOutcome.LATE, JobOutcome.OPEN]),
        (0.3, 14.0, [JobOutcome.LATE, JobOutcome.SKIPPED]),
    ],
    ids=["at-once", "waits", "waited-too-long"],
)
def test_a_release_waits_for_a_late_predecessor(patience: float, done: float, expected: list[JobOutcome]) -> None:
    dispatcher = make_dispatcher(pair_tasks(10.0), SingleStream(), patience=patience)
    dispatcher.release("t0", 0.0)
    dispatcher.dispatch(0.0)
    dispatcher.release("t0", 10.0)
    dispatcher.finish(0, done)
    dispatcher.close()
    assert [result.outcome for result in dispatcher.results] == expected


def test_launch_ahead_commits_one_more_stage_and_sheds_late_jobs() -> None:
    pool = (ContextSpec(0, 68, (LOW,), 1, depth=2),)
    dispatcher = make_dispatcher(pair_tasks(10.0, 11.0, 2.5), LaunchAhead(), pool)
    for name in ("t0", "t1"):
        dispatcher.release(name, 0.0)
    assert stages_of(dispatcher.dispatch(0.0)) == [("t0", 0), ("t1", 0)]
    assert [len(stream) for stream in dispatcher.contexts[0].streams] == [2]
    dispatcher.release("t2", 0.0)
    assert dispatcher.dispatch(0.0) == []
    dispatcher.finish(0, 1.0)  # t2 needs 2 s by its profile, and 1.5 s are left
    assert stages_of(dispatcher.dispatch(1.0)) == [("t0", 1)]
    assert outcomes(dispatcher) == [("t2", JobOutcome.SHED)]


def test_shed_jobs_lower_the_estimate_until_shedding_ends() -> None:
    dispatcher = make_dispatcher([PeriodicTask("t0", PAIR, 6.0, 3.0)], LaunchAhead(finish_bursts=False))
    dispatcher.release("t0", 0.0)
    for number in range(2):
        dispatcher.dispatch(2.5 * number)
        dispatcher.finish(number, 2.5 * (number + 1))  # 5 s in total; the profile predicts 2 s and the deadline is 3 s
    started = []
    for number in range(1, 200):
        dispatcher.release("t0", 6.0 * number)
        if dispatcher.dispatch(6.0 * number):
            started.append(number)
    assert outcomes(dispatcher)[1] == ("t0", JobOutcome.SHED), "a slow job must lead to shedding"
    assert started, "shedding must end eventually"


@pytest.mark.parametrize(
    ("waiting", "deadline", "finish_bursts", "starts"),
    [(0, 3.0, True, True), (0, 3.0, False, False), (0, 1.9, True, False), (2, 3.0, True, False)],
    ids=["end-of-a-burst", "bursts-not-finished", "late-even-alone", "overload"],
)
def test_a_doubtful_job_runs_only_at_the_end_of_a_burst(
    waiting: int, deadline: float, finish_bursts: bool, starts: bool
) -> None:
    """The previous job took 5 s; alone it would have taken 2 s."""
    others = [PeriodicTask(f"z{number}", PAIR, 60.0, 60.0) for number in range(max(1, waiting))]
    dispatcher = make_dispatcher(
        [PeriodicTask("t0", PAIR, 6.0, deadline), *others], LaunchAhead(finish_bursts=finish_bursts)
    )
    dispatcher.release("z0", 0.0)
    for number in range(2):
        dispatcher.dispatch(2.5 * number)
        dispatcher.finish(number, 2.5 * (number + 1))
    for task in ("t0", *(other.name for other in others[:waiting])):
        dispatcher.release(task, 6.0)
    assert (("t0", 0) in stages_of(dispatcher.dispatch(6.0))) is starts


def test_high_and_low_priority_jobs_have_separate_estimates() -> None:
    slow, fast = PeriodicTask("slow", PAIR, 60.0, 60.0), PeriodicTask("fast", PAIR, 60.0, 60.0, Priority.HIGH)
    dispatcher = make_dispatcher([slow, fast], LaunchAhead())
    for name, end in (("slow", 40.0), ("fast", 43.0)):
        dispatcher.release(name, 0.0)
        for begin in (end - 3.0 if name == "fast" else 0.0, end - 1.0):
            batch = dispatcher.dispatch(begin)[0]
            dispatcher.finish(batch.number, end)
    times = dispatcher.state.times
    assert (times.job_time(slow), times.job_time(fast), times.min_job_time(slow)) == (40.0, 3.0, 2.0)


def test_sgprs_needs_a_free_stream_of_the_priority_in_an_idle_context() -> None:
    pool = tuple(ContextSpec(number, 34, (StreamPriority.HIGH, LOW), 2) for number in range(2))
    network = chain("four", [(name, 1.0, 1.0) for name in "abcd"])
    dispatcher = make_dispatcher(pair_tasks(50.0, 50.0, network=network), Sgprs(), pool)
    contexts = []
    for name in ("t0", "t1"):
        dispatcher.release(name, 0.0)
        contexts += [batch.context for batch in dispatcher.dispatch(0.0)]
    assert contexts == [0, 1], "the only low-priority stream of context 0 is in use"


def test_a_batch_launched_ahead_is_expected_to_finish_after_the_running_one() -> None:
    pool = (ContextSpec(0, 68, (LOW,), 1, depth=2),)
    dispatcher = make_dispatcher(pair_tasks(10.0, 11.0), LaunchAhead(), pool)
    for name in ("t0", "t1"):
        dispatcher.release(name, 0.0)
    assert [batch.expected_finish for batch in dispatcher.dispatch(0.5)] == [1.5, 2.5]


@pytest.mark.parametrize(("max_batch", "expected"), [(1, 1), (3, 3), (8, 5)])
def test_a_batch_takes_the_stages_that_exceed_the_free_streams(max_batch: int, expected: int) -> None:
    dispatcher = make_dispatcher(pair_tasks(*[50.0] * 5), LaunchAhead(max_batch=max_batch))
    for number in range(5):
        dispatcher.release(f"t{number}", 0.0)
    assert dispatcher.dispatch(0.0)[0].size == expected


def test_daris_admits_migrates_and_rejects() -> None:
    pool = context_pool(68, 2, 2.0, high=0, low=1)
    load = [
        PeriodicTask("h0", PAIR, 5.0, 5.0, Priority.HIGH),
        PeriodicTask("l1", PAIR, 10.0, 10.0),
        PeriodicTask("l2", PAIR, 3.0, 3.0),
        PeriodicTask("l3", PAIR, 3.0, 3.0),
        PeriodicTask("l4", PAIR, 3.0, 3.0),
    ]
    dispatcher = make_dispatcher(load, Daris(), pool)
    for task in load:
        dispatcher.release(task.name, 0.0)
    # context 0 has 0.4 by h0 and would have 1.07 with l2, so l2 migrates to context 1 (0.2 by l1); then none fits
    contexts = {batch.stages[0].job.task.name: batch.context for batch in dispatcher.dispatch(0.0)}
    assert contexts["h0"] == 0
    assert [name for name, outcome in outcomes(dispatcher) if outcome is JobOutcome.REJECTED] == ["l3", "l4"]


def test_daris_reports_the_least_used_context() -> None:
    pool = (ContextSpec(0, 34, (LOW,), 1), ContextSpec(1, 68, (LOW,), 1))
    profile = Profile((34, 68), (4.0, 1.0), (4.0, 1.0))
    task = PeriodicTask("low", PAIR.fused(), 0.8, 0.8)
    dispatcher = Dispatcher([task], pool, {"pair": (profile,)}, Daris())
    admission = Daris().admit(PeriodicJob(task, 0, 0.0, 0.8, (0.8,)), dispatcher.state)
    assert (admission.code, admission.accepted) == ("Overloaded", False)
    assert "add 5.000 to the utilisation of context 0, the least used one (0.000 of 1)" in admission.message


def test_naive_runs_all_jobs_at_once() -> None:
    pool = (ContextSpec(0, 68, (LOW,) * 3, 3),)
    dispatcher = make_dispatcher(pair_tasks(10.0, 10.0, 10.0), Naive(), pool)
    for number in range(3):
        dispatcher.release(f"t{number}", 0.0)
    assert len(dispatcher.dispatch(0.0)) == 3


@pytest.mark.parametrize(
    ("make", "where", "code"),
    [
        (lambda: Dispatcher(pair_tasks(1.0), (), {}, SingleStream()), "pool: contexts", "NoContexts"),
        (lambda: Dispatcher(pair_tasks(1.0), ONE, {}, SingleStream()), "task t0: network", "NoProfile"),
        (
            lambda: make_dispatcher(pair_tasks(1.0), SingleStream(), patience=2.0),
            "dispatcher: patience",
            "InvalidValue",
        ),
        (
            lambda: make_dispatcher(
                [*pair_tasks(1.0), PeriodicTask("other", chain("pair", [("a", 9.0, 9.0)]), 1.0, 1.0)], SingleStream()
            ),
            "task other: network",
            "DuplicateName",
        ),
        (lambda: ContextSpec(0, 0, (LOW,), 1), "context 0: sms", "InvalidValue"),
        (lambda: ContextSpec(0, 8, (LOW,), 2), "context 0: in_flight", "InvalidValue"),
    ],
)
def test_invalid_dispatchers_are_rejected(make: object, where: str, code: str) -> None:
    assert callable(make)
    with pytest.raises(RealtimeError) as error:
        make()
    assert (error.value.where, error.value.code) == (where, code)
