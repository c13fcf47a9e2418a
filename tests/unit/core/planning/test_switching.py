"""The moments of a switch as the agent reports them: the decision is not reverted in any of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import FAST, RUN, SLOW, P, holding, of, on_gpu, orders, sound, why

from podium_core.domain.actions import WriteRunQueues
from podium_core.domain.snapshot import Costs, Snapshot
from podium_core.domain.tenure import Tenure
from podium_core.testing.builders import (
    change_gpu,
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
    trial_key,
)

OLD, NEW = 0, 1
# phases of old and new, the reported holder and since when, and whether the run queue is reported as applied
MOMENTS: dict[str, tuple[P, P, int | None, float | None, bool]] = {
    "ordered": (RUN, P.SUSPENDED, OLD, 900.0, False),
    "ordered, its first time slice": (RUN, P.GATED, OLD, 900.0, False),
    "old on its way out": (P.SUSPENDING, P.SUSPENDED, OLD, 900.0, False),
    "old off": (P.SUSPENDED, P.SUSPENDED, None, None, False),
    "new on its way in": (P.SUSPENDED, P.RESUMING, NEW, 1000.0, False),
    "new in": (P.SUSPENDED, RUN, NEW, 1000.0, True),
    "new resumed, not reported yet": (P.SUSPENDED, RUN, NEW, 1000.0, False),
    # the kubelet tells of a gate that was passed before the agent does
    "new starts, the agent is late": (P.SUSPENDED, RUN, None, None, False),
    "new starts, the agent is later": (RUN, RUN, OLD, 900.0, False),
}


def moment(policy: str, name: str, now: float = 1000.5) -> Snapshot:
    """The old holder has just printed its best value: by rank it is to go first again."""
    *phases, holder, since, in_effect = MOMENTS[name]
    trials = [replace(trial, phase=phase) for trial, phase in zip(on_gpu(FAST, SLOW), phases, strict=True)]
    base = holding(trials)
    key = None if holder is None else trials[holder].key
    order = (trials[NEW].key, trials[OLD].key)
    gpu = change_gpu(base.gpus[0], holder=key, holder_since=since, run_queue=order, in_effect=in_effect)
    settings = {"minShare": 0} if policy == "envelope" else {}  # their values are old: a floor would be due
    return replace(base, now=now, gpus=(gpu,), jobs=(replace(base.jobs[0], policy=policy, settings=settings),))


@pytest.mark.parametrize("policy", ["hermes", "best_so_far", "envelope"])
@pytest.mark.parametrize("name", MOMENTS)
def test_a_trial_keeps_the_time_slice_that_it_was_given(policy: str, name: str) -> None:
    made = sound(moment(policy, name))
    assert orders(made) == {}
    assert why(made, "job-0") == "MinTimeSlice"


def test_a_run_queue_states_what_it_preempts() -> None:
    """From a trial that runs there; a GPU that is free is taken from no trial."""
    base = moment("hermes", "new in", now=1010.0)
    (order,) = of(sound(base), WriteRunQueues)
    assert order.preempting == ("gpu-0",)
    free = replace(base, gpus=(change_gpu(base.gpus[0], holder=None, holder_since=None, run_queue=()),))
    (order,) = of(sound(free), WriteRunQueues)
    assert order.preempting == ()


@pytest.mark.parametrize("name", [name for name, (*_, holder, _, _) in MOMENTS.items() if holder == NEW])
def test_a_trial_keeps_its_time_slice_until_it_ends(name: str) -> None:
    assert orders(sound(moment("hermes", name, now=1010.0))) == {"gpu-0": ["job-0", "job-1"]}


@pytest.mark.parametrize("measured", [0.0, 0.2])
def test_a_rival_without_remaining_time_is_judged_without_a_minimum_time_slice(measured: float) -> None:
    """It has done maxSteps and its process is there still; what switch of the holder took may be nothing."""
    trials = [change_trial(trial, switch_seconds=0.0) for trial in on_gpu([0.1] * 4, [0.1 * k for k in range(1, 11)])]
    base = holding([replace(trials[0], phase=RUN), trials[1]])
    job = replace(base.jobs[0], policy="hermes", settings={"minTimeSlice": 0}, max_steps=10.0)
    made = sound(replace(base, jobs=(job,), costs=Costs(measured, measured)))
    assert orders(made) == ({} if measured else {"gpu-0": ["job-1", "job-0"]})


@pytest.mark.parametrize(
    ("before", "switches"),
    [((), False), ((("ended", 960.0),), True), ((("a-0", 960.0),), False), ((("a-0", 950.0), ("ended", 960.0)), True)],
    ids=["first", "after one that ended", "after one that waits", "after both"],
)
def test_a_time_slice_between_jobs_counts_from_the_end_of_the_trial_before(
    before: tuple[tuple[str, float], ...], switches: bool
) -> None:
    """The holder itself has had the GPU for 5 s."""
    jobs = [make_job("a", created=1.0, policy="fifo"), make_job("b", created=2.0, policy="fifo")]
    holder, rival = make_trial(1, job="a", gpus=["gpu-0"], phase=RUN), make_trial(0, job="b", gpus=["gpu-0"])
    gated = replace(rival, phase=P.GATED)
    other = make_trial(0, job="a", gpus=["gpu-0"], phase=P.SUSPENDED)
    tenure = Tenure(holder.job, holder.key, 995.0, tuple((trial_key(name), since) for name, since in before))
    order = [holder.key, gated.key, other.key]
    gpu = make_gpu(holder=holder.key, holder_since=995.0, tenure=tenure, run_queue=order, in_effect=True)
    made = sound(make_snapshot(jobs=jobs, trials=[holder, gated, other], gpus=[gpu], now=1000.0))
    assert (orders(made).get("gpu-0", [""])[0] == "b-0") is switches
    assert why(made, "b-0") == ("FairShare" if switches else "MinTimeSlice")
