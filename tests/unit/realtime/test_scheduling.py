"""The rules one by one: context choice, virtual deadlines, pools, levels, and the dispatcher on a scripted clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import DIAMOND, NETWORKS, flat

from podium_realtime.model.network import Network, chain, resnet18
from podium_realtime.model.profile import Profile
from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import PeriodicTask, Priority
from podium_realtime.scheduling.ahead import LaunchAhead
from podium_realtime.scheduling.base import Policy
from podium_realtime.scheduling.baselines import Naive, SingleStream
from podium_realtime.scheduling.daris import Daris, level
from podium_realtime.scheduling.deadlines import USABLE, virtual_deadlines
from podium_realtime.scheduling.dispatcher import Dispatcher
from podium_realtime.scheduling.pool import ContextSpec, StreamPriority, context_pool, shares
from podium_realtime.scheduling.sgprs import Candidate, Sgprs, choose_context
from podium_realtime.scheduling.work import Job, Outcome, ReadyStage, Work

LOW = StreamPriority.LOW
ONE = (ContextSpec(0, 68, (LOW,), 1),)
PAIR = chain("pair", [("a", 1.0, 1.0), ("b", 1.0, 1.0)])


@pytest.mark.parametrize(
    ("candidates", "deadline", "want"),
    [
        ([(0, True, 5.0), (1, True, 4.0)], 6.0, (0, "a")),
        ([(0, True, 7.0), (1, True, 6.0)], 6.0, (1, "a")),
        ([(0, True, 9.0), (1, True, 8.0), (2, False, 5.0)], 6.0, (1, "b")),
        ([(0, False, 9.0), (1, False, 8.0)], 6.0, (1, "c")),
        ([(0, False, 5.0), (1, False, 5.0)], 6.0, (0, "c")),
    ],
    ids=["first-idle-in-time", "second-idle-in-time", "idle-and-earliest", "earliest", "tie-goes-to-the-first"],
)
def test_sgprs_context_choice(
    candidates: list[tuple[int, bool, float]], deadline: float, want: tuple[int, str]
) -> None:
    assert choose_context([Candidate(*one) for one in candidates], deadline) == want


@pytest.mark.parametrize(
    ("network", "seconds", "want"),
    [
        (chain("c", [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]), (1.0, 2.0, 1.0), (0.25, 0.75, 1.0)),
        (DIAMOND, (1.0, 3.0, 1.0, 1.0), (0.2, 0.8, 0.4, 1.0)),
        (PAIR.fused(), (7.0,), (1.0,)),
    ],
)
def test_virtual_deadlines(network: Network, seconds: tuple[float, ...], want: tuple[float, ...]) -> None:
    assert virtual_deadlines(network, seconds, 10.0) == pytest.approx([10.0 * USABLE * one for one in want])


@given(st.sampled_from(NETWORKS), st.lists(st.floats(0.001, 1.0), min_size=6, max_size=6), st.floats(0.001, 1.0))
def test_virtual_deadlines_leave_each_stage_its_share(network: Network, times: list[float], deadline: float) -> None:
    own = times[: len(network.stages)]
    found = virtual_deadlines(network, own, deadline)
    assert max(found) == pytest.approx(USABLE * deadline)
    ends: list[float] = []
    for stage, seconds in zip(network.stages, own, strict=True):
        ends.append(seconds + max((ends[before] for before in stage.after), default=0.0))
    for number, stage in enumerate(network.stages):
        share = USABLE * deadline * own[number] / max(ends)
        assert all(found[before] <= found[number] - share + 1e-12 for before in stage.after)


@pytest.mark.parametrize(
    ("arguments", "want"),
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
def test_pools_are_those_of_the_paper(arguments: tuple[int, int, float], want: tuple[int, ...]) -> None:
    assert shares(*arguments) == want


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((68, 0, 1.0), "InvalidValue"), ((68, 2, 0.5), "InvalidValue"), ((2, 3, 1.0), "TooManyContexts")],
)
def test_pools_that_cannot_be(arguments: tuple[int, int, float], code: str) -> None:
    with pytest.raises(RealtimeError) as error:
        shares(*arguments)
    assert error.value.code == code


def stage(task: PeriodicTask, index: int = 0, late: bool = False, place: int = 3, deadline: float = 1.0) -> ReadyStage:
    deadlines = (deadline,) * len(task.network.stages)
    return ReadyStage(Job(task, 0, 0.0, 1.0, deadlines), index, 0.0, late, place)


HIGH_TASK = PeriodicTask("high", resnet18(), 1.0, 1.0, Priority.HIGH)
LOW_TASK = PeriodicTask("low", resnet18(), 1.0, 1.0, Priority.LOW)


def test_daris_has_eight_levels() -> None:
    stages = [
        stage(task, late=late, place=place)
        for task in (HIGH_TASK, LOW_TASK)
        for place in (0, 3)
        for late in (True, False)
    ]
    assert [level(one) for one in stages] == list(range(8))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (stage(LOW_TASK, place=1, deadline=9.0), stage(LOW_TASK, place=3, deadline=1.0)),
        (stage(LOW_TASK, late=True, deadline=9.0), stage(LOW_TASK, deadline=1.0)),
        (stage(LOW_TASK, deadline=1.0), stage(LOW_TASK, deadline=2.0)),
    ],
    ids=["last-two-stages", "promoted-when-late", "earliest-deadline"],
)
def test_sgprs_order(first: ReadyStage, second: ReadyStage) -> None:
    assert Sgprs().key(first, 0.0) < Sgprs().key(second, 0.0)


def test_promotion_can_be_switched_off() -> None:
    late, early = stage(LOW_TASK, late=True, deadline=9.0), stage(LOW_TASK, deadline=1.0)
    assert Sgprs(promote=False).key(early, 0.0) < Sgprs(promote=False).key(late, 0.0)


def tasks(*periods: float, network: Network = PAIR) -> list[PeriodicTask]:
    return [PeriodicTask(f"t{number}", network, period, period) for number, period in enumerate(periods)]


def dispatcher(
    found: list[PeriodicTask], policy: Policy, pool: tuple[ContextSpec, ...] = ONE, patience: float = 0.0
) -> Dispatcher:
    profiles = {task.network.name: flat(task.network if policy.staged else task.network.fused(), 1.0) for task in found}
    return Dispatcher(found, pool, profiles, policy, patience)


def names(works: list[Work]) -> list[tuple[str, int]]:
    return [(ready.job.task.name, ready.index) for work in works for ready in work.stages]


def outcomes(found: Dispatcher) -> list[tuple[str, Outcome]]:
    return [(end.job.task.name, end.outcome) for end in found.ends]


def test_edf_and_stages_in_their_order() -> None:
    found = dispatcher(tasks(30.0, 10.0), SingleStream(), patience=0.0)
    found.release("t0", 0.0)
    found.release("t1", 0.0)
    assert names(found.dispatch(0.0)) == [("t1", 0)]
    assert found.dispatch(0.5) == []
    found.finish(0, 1.0)
    assert names(found.dispatch(1.0)) == [("t0", 0)]
    found.finish(1, 2.0)
    assert outcomes(found) == [("t1", Outcome.MET), ("t0", Outcome.MET)]


def test_a_stage_becomes_ready_when_the_one_before_is_done() -> None:
    found = dispatcher(tasks(10.0), LaunchAhead())
    found.release("t0", 0.0)
    assert names(found.dispatch(0.0)) == [("t0", 0)]
    assert found.dispatch(0.1) == []
    found.finish(0, 1.0)
    assert names(found.dispatch(1.0)) == [("t0", 1)]
    found.finish(1, 11.0)
    assert outcomes(found) == [("t0", Outcome.LATE)]


@pytest.mark.parametrize(
    ("patience", "done", "want"),
    [
        (0.0, 12.0, [Outcome.SKIPPED, Outcome.LATE]),
        (0.3, 12.0, [Outcome.LATE, Outcome.OPEN]),
        (0.3, 14.0, [Outcome.LATE, Outcome.SKIPPED]),
    ],
    ids=["at-once", "waits", "waited-too-long"],
)
def test_a_release_whose_predecessor_is_late(patience: float, done: float, want: list[Outcome]) -> None:
    found = dispatcher(tasks(10.0), SingleStream(), patience=patience)
    found.release("t0", 0.0)
    found.dispatch(0.0)
    found.release("t0", 10.0)
    found.finish(0, done)
    found.close()
    assert [end.outcome for end in found.ends] == want


def test_launch_ahead_holds_one_more_and_sheds_what_is_too_late() -> None:
    pool = (ContextSpec(0, 68, (LOW,), 1, depth=2),)
    found = dispatcher(tasks(10.0, 11.0, 2.5), LaunchAhead(), pool)
    for name in ("t0", "t1"):
        found.release(name, 0.0)
    assert names(found.dispatch(0.0)) == [("t0", 0), ("t1", 0)]
    assert [len(stream) for stream in found.contexts[0].streams] == [2]
    found.release("t2", 0.0)
    assert found.dispatch(0.0) == []
    found.finish(0, 1.0)  # t2 needs 2 s by the profile and has 1.5 left
    assert names(found.dispatch(1.0)) == [("t0", 1)]
    assert outcomes(found) == [("t2", Outcome.SHED)]


def test_a_shed_job_makes_the_estimate_doubtful_so_shedding_ends() -> None:
    found = dispatcher([PeriodicTask("t0", PAIR, 6.0, 3.0)], LaunchAhead(hope=False))
    found.release("t0", 0.0)
    for number in range(2):
        found.dispatch(2.5 * number)
        found.finish(number, 2.5 * (number + 1))  # 5 s in all, where the profile says 2 and 3 are allowed
    begun = []
    for number in range(1, 200):
        found.release("t0", 6.0 * number)
        if found.dispatch(6.0 * number):
            begun.append(number)
    assert outcomes(found)[1] == ("t0", Outcome.SHED), "a slow job must lead to shedding"
    assert begun, "and shedding must not go on for ever"


@pytest.mark.parametrize(
    ("waiting", "deadline", "hope", "begins"),
    [(0, 3.0, True, True), (0, 3.0, False, False), (0, 1.9, True, False), (2, 3.0, True, False)],
    ids=["end-of-a-burst", "no-hope", "late-even-alone", "overload"],
)
def test_a_doubtful_job_runs_only_where_nobody_needs_its_place(
    waiting: int, deadline: float, hope: bool, begins: bool
) -> None:
    """The job before took 5 s; alone it would have been 2 s."""
    others = [PeriodicTask(f"z{number}", PAIR, 60.0, 60.0) for number in range(max(1, waiting))]
    found = dispatcher([PeriodicTask("t0", PAIR, 6.0, deadline), *others], LaunchAhead(hope=hope))
    found.release("z0", 0.0)
    for number in range(2):
        found.dispatch(2.5 * number)
        found.finish(number, 2.5 * (number + 1))
    for task in ("t0", *(other.name for other in others[:waiting])):
        found.release(task, 6.0)
    assert (("t0", 0) in names(found.dispatch(6.0))) is begins


def test_high_and_low_priority_jobs_are_estimated_apart() -> None:
    slow, fast = PeriodicTask("slow", PAIR, 60.0, 60.0), PeriodicTask("fast", PAIR, 60.0, 60.0, Priority.HIGH)
    found = dispatcher([slow, fast], LaunchAhead())
    for name, end in (("slow", 40.0), ("fast", 43.0)):
        found.release(name, 0.0)
        for begin in (end - 3.0 if name == "fast" else 0.0, end - 1.0):
            work = found.dispatch(begin)[0]
            found.finish(work.number, end)
    board = found._board
    assert (board.span(slow), board.span(fast), board.least(slow)) == (40.0, 3.0, 2.0)


def test_sgprs_counts_a_context_as_idle_only_where_a_stream_of_the_priority_is_free() -> None:
    pool = tuple(ContextSpec(number, 34, (StreamPriority.HIGH, LOW), 2) for number in range(2))
    network = chain("four", [(name, 1.0, 1.0) for name in "abcd"])
    found = dispatcher(tasks(50.0, 50.0, network=network), Sgprs(), pool)
    contexts = []
    for name in ("t0", "t1"):
        found.release(name, 0.0)
        contexts += [work.context for work in found.dispatch(0.0)]
    assert contexts == [0, 1], "the one low stream of context 0 is taken, though it has room for a high stage"


def test_what_is_launched_ahead_is_expected_behind_what_runs() -> None:
    pool = (ContextSpec(0, 68, (LOW,), 1, depth=2),)
    found = dispatcher(tasks(10.0, 11.0), LaunchAhead(), pool)
    for name in ("t0", "t1"):
        found.release(name, 0.0)
    assert [work.expected for work in found.dispatch(0.5)] == [1.5, 2.5]


@pytest.mark.parametrize(("most", "want"), [(1, 1), (3, 3), (8, 5)])
def test_batches_take_what_waits_beyond_the_free_places(most: int, want: int) -> None:
    found = dispatcher(tasks(*[50.0] * 5), LaunchAhead(batch=most))
    for number in range(5):
        found.release(f"t{number}", 0.0)
    assert found.dispatch(0.0)[0].batch == want


def test_daris_admits_migrates_and_refuses() -> None:
    pool = context_pool(68, 2, 2.0, high=0, low=1)
    load = [
        PeriodicTask("h0", PAIR, 5.0, 5.0, Priority.HIGH),
        PeriodicTask("l1", PAIR, 10.0, 10.0),
        PeriodicTask("l2", PAIR, 3.0, 3.0),
        PeriodicTask("l3", PAIR, 3.0, 3.0),
        PeriodicTask("l4", PAIR, 3.0, 3.0),
    ]
    found = dispatcher(load, Daris(), pool)
    for task in load:
        found.release(task.name, 0.0)
    # context 0: h0 holds 0.4, l2 would make 1.07, so it goes to context 1 (0.2 by l1); then there is room for none
    homes = {work.stages[0].job.task.name: work.context for work in found.dispatch(0.0)}
    assert homes["h0"] == 0
    assert [name for name, outcome in outcomes(found) if outcome is Outcome.REFUSED] == ["l3", "l4"]


def test_daris_tells_of_the_least_used_context() -> None:
    pool = (ContextSpec(0, 34, (LOW,), 1), ContextSpec(1, 68, (LOW,), 1))
    profile = Profile((34, 68), (4.0, 1.0), (4.0, 1.0))
    task = PeriodicTask("low", PAIR.fused(), 0.8, 0.8)
    found = Dispatcher([task], pool, {"pair": (profile,)}, Daris())
    verdict = Daris().admit(Job(task, 0, 0.0, 0.8, (0.8,)), found._board)
    assert (verdict.code, verdict.accepted) == ("Overloaded", False)
    assert "adds 5.000 to context 0, the least used: 0.000 of 1" in verdict.message


def test_naive_runs_everything_at_once() -> None:
    pool = (ContextSpec(0, 68, (LOW,) * 3, 3),)
    found = dispatcher(tasks(10.0, 10.0, 10.0), Naive(), pool)
    for number in range(3):
        found.release(f"t{number}", 0.0)
    assert len(found.dispatch(0.0)) == 3


@pytest.mark.parametrize(
    ("make", "where", "code"),
    [
        (lambda: Dispatcher(tasks(1.0), (), {}, SingleStream()), "pool: contexts", "NoContexts"),
        (lambda: Dispatcher(tasks(1.0), ONE, {}, SingleStream()), "task t0: network", "NoProfile"),
        (lambda: dispatcher(tasks(1.0), SingleStream(), patience=2.0), "dispatcher: patience", "InvalidValue"),
        (
            lambda: dispatcher(
                [*tasks(1.0), PeriodicTask("other", chain("pair", [("a", 9.0, 9.0)]), 1.0, 1.0)], SingleStream()
            ),
            "task other: network",
            "DuplicateName",
        ),
        (lambda: ContextSpec(0, 0, (LOW,), 1), "context 0: sms", "InvalidValue"),
        (lambda: ContextSpec(0, 8, (LOW,), 2), "context 0: in_flight", "InvalidValue"),
    ],
)
def test_dispatchers_that_cannot_be(make: object, where: str, code: str) -> None:
    assert callable(make)
    with pytest.raises(RealtimeError) as error:
        make()
    assert (error.value.where, error.value.code) == (where, code)
