"""Run queues that the planner writes, one rule per test: order, switching, time slices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import FAST, RUN, SLOW, P, holding, of, on_gpu, orders, sound, why

from podium_core.domain.actions import WriteRunQueues
from podium_core.domain.snapshot import Costs
from podium_core.testing.builders import (
    change_gpu,
    change_job,
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
    trial_key,
)


def test_a_better_trial_takes_the_gpu_with_the_numbers_that_decided() -> None:
    made = sound(holding(on_gpu(SLOW, FAST)))
    assert orders(made) == {"gpu-0": ["job-1", "job-0"]}
    place = next(p for p in made.ranks if p.trial.name == "job-1")
    assert place.reason == "Convergence"
    assert "takes the GPU from job-0: gain 0.750 beats cost 0.00" in place.message
    assert place.gain == 0.75
    assert next(p for p in made.ranks if p.trial.name == "job-0").gain is None
    assert why(made, "job-0") == "GPUPreempted"


def test_no_switch_before_the_minimum_time_slice() -> None:
    made = sound(holding(on_gpu(SLOW, FAST), since=998.0))
    assert orders(made) == {}
    assert why(made, "job-1") == "MinTimeSlice"
    assert made.wake_at == 1002.0


def test_no_switch_for_a_gain_below_its_cost() -> None:
    close = on_gpu([0.1, 0.5, 0.90], [0.1, 0.5, 0.905])
    made = sound(holding(close))
    assert orders(made) == {}
    assert why(made, "job-1") == "InsufficientGain"
    dear = replace(holding(on_gpu([0.1, 0.5, 0.8], [0.1, 0.5, 0.9]), since=0.0), costs=Costs(60.0, 60.0))
    assert orders(sound(dear)) == {}, "a switch of two minutes for an eighth of the range, with 97 s left"


def test_a_warm_up_goes_before_the_best() -> None:
    assert orders(sound(holding(on_gpu(FAST, [0.1])))) == {"gpu-0": ["job-1", "job-0"]}


def test_the_written_run_queue_decides_the_holder_until_the_agent_applies_it() -> None:
    trials = on_gpu(FAST, FAST)
    base = holding(trials)
    ordered = change_gpu(base.gpus[0], run_queue=(trials[1].key, trials[0].key))
    assert orders(sound(replace(base, gpus=(ordered,)))) == {}, "the old holder still has the GPU: no second thoughts"


@pytest.mark.parametrize(
    ("in_effect", "no_preemption", "phase", "expected"),
    [
        (True, False, RUN, {"gpu-0": ["job-1", "job-0", "job-2"]}),
        (False, False, RUN, {}),  # the agent may be about to migrate the order out
        (False, True, RUN, {"gpu-0": ["job-1", "job-0", "job-2"]}),  # which was to throw no trial out
        (True, True, P.SUSPENDING, {}),  # it is at it
    ],
)
def test_a_trial_admitted_before_the_first_was_ready_keeps_its_time_slice(
    in_effect: bool, no_preemption: bool, phase: P, expected: dict[str, list[str]]
) -> None:
    """Pods start in any order. One that ranks no better and comes to its gate a moment later throws no trial out."""
    trials = [replace(t, phase=p) for t, p in zip(on_gpu([], [], []), (P.GATED, phase, P.PENDING), strict=True)]
    base = holding(trials, since=999.8, holder=1)
    keys = tuple(trial.key for trial in trials)
    gpu = change_gpu(base.gpus[0], run_queue=keys, in_effect=in_effect, no_preemption=no_preemption)
    assert orders(sound(replace(base, gpus=(gpu,)))) == expected


def test_a_better_trial_preempts_one_that_was_admitted_before_it() -> None:
    trials = [replace(t, phase=p) for t, p in zip(on_gpu(FAST, SLOW), (P.SUSPENDED, RUN), strict=True)]
    base = holding(trials, holder=1)
    gpu = change_gpu(base.gpus[0], run_queue=tuple(trial.key for trial in trials), in_effect=True)
    assert orders(sound(replace(base, gpus=(gpu,)))) == {}, "it is the first already"


def test_a_free_gpu_and_new_trials_get_a_run_queue_at_once() -> None:
    trials = [replace(t, phase=P.GATED) for t in on_gpu([], [], [])]
    base = holding(trials)
    bare = replace(base, gpus=(make_gpu(trials=[t.key for t in trials]),))
    assert orders(sound(bare)) == {"gpu-0": ["job-0", "job-1", "job-2"]}
    known = change_gpu(base.gpus[0], run_queue=(trials[0].key, trials[1].key), holder_since=999.0)
    assert orders(sound(replace(base, gpus=(known,)))) == {"gpu-0": ["job-0", "job-1", "job-2"]}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"suspend": True}, ["job-0"]),
        ({"pinned": True}, ["job-1", "job-0"]),
        ({"phase": P.SUCCEEDED}, ["job-0"]),
        ({"pod": None}, ["job-0"]),
    ],
)
def test_suspended_and_pinned_trials(change: dict[str, object], expected: list[str]) -> None:
    trials = on_gpu(FAST, SLOW)
    trials[1] = change_trial(trials[1], **change)  # type: ignore[arg-type]
    made = sound(holding(trials, since=999.0))
    assert orders(made).get("gpu-0") == expected


def test_a_suspended_job_leaves_the_run_queue_and_keeps_its_pods() -> None:
    base = holding(on_gpu(FAST, SLOW))
    made = sound(replace(base, jobs=(change_job(base.jobs[0], suspended=True),)))
    assert orders(made) == {"gpu-0": []}
    assert [type(a) for a in made.actions] == [WriteRunQueues]
    assert why(made, "job-0") == "JobSuspended"


def test_only_nodes_that_change_are_written_with_the_next_epoch() -> None:
    trials = [*on_gpu(SLOW, FAST), make_trial(2, gpus=["gpu-1"], values=FAST, phase=RUN)]
    base = holding(trials[:2])
    other = make_gpu("gpu-1", node="node-b", holder=trials[2].key, holder_since=0.0, run_queue=[trials[2].key])
    snapshot = replace(base, trials=tuple(trials), gpus=(*base.gpus, other), epochs={"node-a": 7, "node-b": 3})
    written = of(sound(snapshot), WriteRunQueues)
    assert [(a.node, a.epoch) for a in written if isinstance(a, WriteRunQueues)] == [("node-a", 8)]


def test_a_deleted_trial_leaves_the_run_queue() -> None:
    base = holding(on_gpu(FAST))
    stale = change_gpu(base.gpus[0], run_queue=(trial_key("ghost-0"), *base.gpus[0].run_queue.trials))
    assert orders(sound(replace(base, gpus=(stale,)))) == {"gpu-0": ["job-0"]}


def test_a_gpu_neither_waits_for_an_unready_pod_nor_is_protected_for_it() -> None:
    jobs = [make_job("bad", policy="fifo", created=0.0), make_job("rr", policy="round_robin", created=5.0)]
    pulling = make_trial(0, job="bad", phase=P.PENDING, gpus=["gpu-0"])
    served = [make_trial(i, job="rr", phase=RUN, gpus=["gpu-0"], gpu_seconds=s) for i, s in enumerate((10.2, 10.1))]
    first, second = (trial.key for trial in served)
    gpu = make_gpu(holder=first, holder_since=999.0, run_queue=[pulling.key, first, second])
    snapshot = make_snapshot(jobs=jobs, trials=[pulling, *served], gpus=[gpu])
    assert orders(sound(snapshot)) == {"gpu-0": ["rr-0", "rr-1", "bad-0"]}, "held for 1 s of a quantum of 10 s"
    at_its_gate = replace(snapshot, trials=(replace(pulling, phase=P.GATED), *served), now=1030.0)
    assert orders(sound(at_its_gate)) == {"gpu-0": ["bad-0", "rr-1", "rr-0"]}, "now it gets its turn"
    alone = replace(snapshot, trials=(pulling,), gpus=(replace(gpu, holder=None),))
    assert orders(sound(alone)) == {"gpu-0": ["bad-0"]}


def test_several_gpus_switch_together_or_not_at_all() -> None:
    wide = make_job("wide", gpus_per_trial=2, created=0.0)
    slim = make_job("slim", created=1.0)
    both = make_trial(0, job="wide", gpus=["g0", "g1"], phase=P.GATED, pinned=True)
    left, right = (make_trial(i, job="slim", gpus=[f"g{i}"], values=SLOW, phase=RUN) for i in (0, 1))
    gpus = [
        make_gpu("g0", holder=left.key, holder_since=0.0, run_queue=[left.key, both.key]),
        make_gpu("g1", holder=right.key, holder_since=0.0, run_queue=[right.key, both.key]),
    ]
    snapshot = make_snapshot(jobs=[wide, slim], trials=[both, left, right], gpus=gpus)
    assert orders(sound(snapshot)) == {"g0": ["wide-0", "slim-0"], "g1": ["wide-0", "slim-1"]}
    fresh = replace(gpus[1], holder_since=995.0)
    kept = replace(snapshot, trials=(both, left, change_trial(right, pinned=True)), gpus=(gpus[0], fresh))
    assert orders(sound(kept)) == {}, (
        "the holder of one GPU is pinned as well and has just started: neither changes hands"
    )
    freed = replace(kept, gpus=(gpus[0], change_gpu(gpus[1], holder=None, run_queue=())), trials=(both, left))
    assert orders(sound(freed)) == {"g0": ["wide-0", "slim-0"], "g1": ["wide-0"]}


def test_jobs_on_one_gpu_run_in_rotation() -> None:
    jobs = [make_job("a", created=0.0), make_job("b", created=1.0)]
    mine, yours = (make_trial(0, job=j, gpus=["gpu-0"], values=FAST, phase=RUN) for j in "ab")
    gpu = make_gpu(holder=mine.key, holder_since=980.0, run_queue=[mine.key, yours.key])
    snapshot = make_snapshot(jobs=jobs, trials=[mine, yours], gpus=[gpu])
    assert orders(sound(snapshot)) == {}
    assert orders(sound(replace(snapshot, now=1010.0))) == {"gpu-0": ["b-0", "a-0"]}


def test_jobs_with_equally_many_gpus_do_not_preempt_each_other() -> None:
    jobs = [make_job("a", created=1.0), make_job("b", created=0.0)]
    a0, b1 = (make_trial(n, job=j, gpus=[f"g{n}"], values=SLOW, phase=RUN) for n, j in enumerate("ab"))
    b2 = make_trial(2, job="b", gpus=["g0"], values=FAST, phase=RUN)
    gpus = [
        make_gpu("g0", holder=a0.key, holder_since=0.0, run_queue=[a0.key, b2.key]),
        make_gpu("g1", holder=b1.key, holder_since=0.0, run_queue=[b1.key]),
    ]
    made = sound(make_snapshot(jobs=jobs, trials=[a0, b1, b2], gpus=gpus))
    assert orders(made) == {}
    assert why(made, "b-2") == "FairShareReached"


def test_an_unknown_policy_does_not_stop_the_plan() -> None:
    base = holding(on_gpu(SLOW, FAST))
    made = sound(replace(base, jobs=(replace(base.jobs[0], policy="nonsense"),)))
    assert orders(made) == {}
