"""Why a search does not run: a table of causes with their reasons, the GPUs, and the order of the waiting trials."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for `stored`
from stored import KEY, at, holder, job, node, objects, queue, there, trial

from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_core.waiting.explain import explain_job
from podium_core.waiting.explanation import JobExplanation

REFUSED = [{"type": "Accepted", "status": "False", "reason": "UnknownPolicy", "message": "no such policy"}]
PENDING = [{"type": "Accepted", "status": "Unknown", "reason": "WarmStartPending", "message": "job first runs"}]
FAILED_POLICY = [
    {"type": "Accepted", "status": "True", "reason": "Valid"},
    {"type": "Ranked", "status": "False", "reason": "PolicyFailed", "message": "a bug"},
]
UNRESERVED = [
    {"type": "Accepted", "status": "True", "reason": "Valid"},
    {"type": "GPUsReserved", "status": "False", "reason": "QuotaExceeded", "message": "exceeded quota: gpus"},
]
GPU = node("a", {})


def explained(
    jobs: HyperParamJob | Sequence[HyperParamJob],
    trials: Sequence[HyperParamTrial] = (),
    nodes: Sequence[GPUNode] = (GPU,),
) -> JobExplanation:
    return explain_job(objects([jobs] if isinstance(jobs, HyperParamJob) else jobs, trials, nodes), KEY)


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        ({"phase": "Succeeded", "reason": "AllTrialsEnded"}, "Ended", "AllTrialsEnded"),
        ({"phase": "Failed", "reason": "TooManyFailedTrials"}, "Ended", "TooManyFailedTrials"),
        ({"phase": "Refused", "conditions": REFUSED}, "Refused", "UnknownPolicy"),
        ({"phase": "Pending", "conditions": PENDING}, "Blocked", "WarmStartPending"),
        ({"phase": "Pending", "conditions": []}, "Blocked", "ValidationPending"),
        ({"conditions": FAILED_POLICY}, "Blocked", "PolicyFailed"),
    ],
)
def test_what_stops_a_whole_job(status: Mapping[str, Any], state: str, code: str) -> None:
    made = explained(job(**status), [trial(0, phase="Pending", reason="NoFreeSlot")])
    assert (made.state, [one.code for one in made.reasons]) == (state, [code])
    assert made.blocked
    assert made.position is None
    assert made.reasons[0].cure.endswith(".")


def test_a_suspended_job_has_the_command_that_continues_it() -> None:
    made = explained(job(spec={"suspend": True}), [trial(0, phase="Suspended", reason="JobSuspended")])
    assert (made.state, made.reasons[0].code) == ("Suspended", "JobSuspended")
    assert made.reasons[0].cure == "Run `podium resume job`."


WRONG_GPUS = {
    "product": ({"product": "T4"}, {}, {}, "GPUProductMismatch", "the job asks for H100"),
    "health": ({"health": "Unhealthy", "healthReason": "Xid 79"}, {}, {}, "Unhealthy", "Xid 79"),
    "memory": ({"memoryTotal": 16 << 30}, {}, {}, "GPUTooSmall", "16.0 GiB"),
    "draining": ({}, {"draining": True}, {}, "NodeDraining", "drains"),
    "reservation": ({}, {}, {"mode": "reservations"}, "GPUNotReserved", "not reserved"),
    "other namespace": (
        {"reservation": "other/pod"},
        {},
        {"mode": "reservations"},
        "GPUNotReserved",
        "namespace other",
    ),
}


@pytest.mark.parametrize("case", WRONG_GPUS)
def test_a_gpu_that_does_not_fit_is_named_with_its_cause(case: str) -> None:
    gpu, spec, status, code, words = WRONG_GPUS[case]
    asks = {"gpus": {"products": ["H100"], "memory": "40Gi"}}
    made = explained(job(spec=asks), [trial(0, phase="Pending")], [node("a", gpu, spec=spec, **status)])
    assert (made.gpus[0].use, made.gpus[0].code) == ("unusable", code)
    assert words in made.gpus[0].message
    assert (made.state, made.reasons[0].code) == ("Blocked", "NoFittingGPU")
    assert words in made.reasons[0].message


def test_exclusive_pods_hold_all_gpus() -> None:
    made = explained(job(), [trial(0, phase="Pending")], [node("a", {"exclusivePod": "web/server"})])
    assert (made.reasons[0].code, made.gpus[0].by) == ("NoFreeSlot", "web/server")
    assert "web/server" in made.reasons[0].message


def test_a_refused_reservation_gives_its_own_reason() -> None:
    made = explained(job(conditions=UNRESERVED), [trial(0, phase="Pending")], [node("a", {}, mode="reservations")])
    assert (made.reasons[0].code, made.reasons[0].message) == ("QuotaExceeded", "exceeded quota: gpus")


def test_no_gpu_and_too_few_gpus() -> None:
    assert explained(job(), [trial(0, phase="Pending")], []).reasons[0].code == "NoGPUs"
    made = explained(job(spec={"gpus": {"perTrial": 2}}), [trial(0, phase="Pending")], [node("a", {}), node("b", {})])
    assert made.reasons[0].code == "TooFewGPUs"
    assert "needs 2 GPUs" in made.reasons[0].message


@pytest.mark.parametrize(("nodes", "workers", "enough"), [(1, 2, False), (2, 2, True), (2, 3, False)])
def test_a_trial_of_several_workers_needs_as_many_nodes(nodes: int, workers: int, enough: bool) -> None:
    spec = {"gpus": {"perTrial": workers}, "trials": {"max": 3, "maxSteps": 10, "workers": workers}}
    pending = [trial(0, phase="Pending", reason="WorkersNotReady")]
    made = explained(job(spec=spec), pending, [node(f"n{number}", {}) for number in range(nodes)])
    assert made.reasons[0].code == ("WorkersNotReady" if enough else "TooFewGPUs")
    if not enough:
        assert f"{workers} nodes with 1 GPU each" in made.reasons[0].message


@pytest.mark.parametrize(
    ("spec", "status", "code", "blocks"),
    [
        ({"suspend": True}, {"phase": "Suspended", "reason": "TrialSuspended"}, "TrialSuspended", True),
        ({}, {"phase": "Requeued", "reason": "BackOff", "message": "Failure 1 of 2"}, "BackOff", False),
        ({}, {"phase": "Pending", "reason": "Unscheduled", "message": "0/3 nodes"}, "Unscheduled", True),
        ({}, {"phase": "Pending", "reason": "BackOff", "message": "pods: exceeded quota: q"}, "QuotaExceeded", True),
        ({}, {"phase": "Pending", "reason": "NoFreeSlot"}, "NoFreeSlot", False),
        ({}, {"phase": "Gated", "reason": "FairShareReached"}, "FairShareReached", False),
        ({}, {"phase": "Suspended", "reason": "InsufficientGain"}, "InsufficientGain", False),
        ({}, {"phase": "Suspended", "reason": "PausedAtRung"}, "PausedByPolicy", False),
        ({}, {"phase": "Pending", "reason": "ContainerCreating"}, "ContainerCreating", False),
        ({}, {"phase": "Pending"}, "WaitingForSlot", False),
        ({}, {"phase": "Pending", "reason": "SomethingNew"}, "SomethingNew", True),
    ],
)
def test_reasons_of_trials(spec: Mapping[str, Any], status: Mapping[str, Any], code: str, blocks: bool) -> None:
    made = explained(job(spec={"trials": {"max": 1}}), [trial(0, spec=spec, **status)])
    assert [(one.code, one.trials, one.blocks) for one in made.reasons] == [(code, ("job-0",), blocks)]
    assert made.reasons[0].cure


def test_what_a_person_must_do_comes_first_and_the_largest_group_next() -> None:
    waits = [trial(n, phase="Suspended", reason="RankedBehind", gpus=["a-0"]) for n in range(3)]
    others = [
        trial(3, phase="Gated", reason="MinTimeSlice", gpus=["a-0"]),
        trial(4, phase="Pending", reason="Unscheduled"),
        trial(5, spec={"suspend": True}, phase="Suspended"),
        trial(6, phase="Pending", reason="ContainerCreating"),
    ]
    made = explained(job(spec={"trials": {"max": 7}}), [*waits, *others])
    assert [one.code for one in made.reasons] == [
        *("TrialSuspended", "Unscheduled", "RankedBehind", "MinTimeSlice", "ContainerCreating"),
    ]
    assert made.reasons[2].message.startswith("3 trials (job-0, job-1, job-2) are behind better-ranked trials.")


def test_trials_that_do_not_exist_yet() -> None:
    running = [trial(n, phase="Running", gpus=["a-0"]) for n in range(2)]
    made = explained(job(spec={"trials": {"max": 5, "parallel": 2}}), running)
    assert (made.state, made.to_come, [one.code for one in made.reasons]) == ("Running", 3, ["ParallelLimitReached"])
    full = node("a", {"slots": 2, "holder": holder("job-0"), "trials": [there("job-0"), there("job-1")]})
    made = explained(job(spec={"trials": {"max": 5}}), running, [full])
    assert [one.code for one in made.reasons] == ["NoFreeSlot"]


def test_another_job_holds_the_gpu_and_waits_before() -> None:
    held = node(
        "a",
        {"holder": holder("old-0"), "trials": [there("old-0", "Running"), there("old-1"), there("job-0")]},
        spec={"epoch": 1, "gpus": [{"uuid": "a-0", "runQueue": queue("old-0", "old-1", "job-0")}]},
    )
    trials = [
        trial(0, of="old", phase="Running", gpus=["a-0"]),
        trial(1, of="old", phase="Suspended", gpus=["a-0"], reason="RankedBehind"),
        trial(0, phase="Gated", gpus=["a-0"], reason="FairShareReached"),
    ]
    made = explained([job(), job("old", created=-500.0)], trials, [held])
    assert (made.state, made.position) == ("Waiting", 2)
    assert [(one.job, one.holds, one.waiting) for one in made.ahead] == [("lab/old", 1, 1)]
    assert made.gpus[0].message == "lab/old-0 of job lab/old holds a/0, which has 1 free slot."
    assert made.gpus[0].since == at(-5.0).timestamp()


def test_the_job_with_the_fewest_pods_gets_the_next_slot() -> None:
    trials = [trial(n, of="old", phase="Running", gpus=["a-0"]) for n in range(2)]
    trials += [trial(n, of="old", phase="Pending", reason="NoFreeSlot") for n in range(2, 4)]
    trials += [trial(n, phase="Pending", reason="NoFreeSlot") for n in range(3)]
    made = explained([job(), job("old", created=-500.0)], trials)
    assert [one.trial for one in made.queue] == ["job-0", "job-1", "old-2", "job-2", "old-3"]


def test_jobs_that_fit_on_other_gpus_are_not_in_the_queue() -> None:
    other = job("other", spec={"gpus": {"products": ["T4"]}})
    trials = [trial(0, phase="Pending"), trial(0, of="other", phase="Pending")]
    made = explained([job(), other], trials, [node("a", {}), node("b", {"product": "T4"})])
    assert "other-0" in {one.trial for one in made.queue}, "the job takes any GPU, so it shares the T4"
    made = explained(
        [job(spec={"gpus": {"products": ["H100"]}}), other], trials, [node("a", {}), node("b", {"product": "T4"})]
    )
    assert [one.trial for one in made.queue] == ["job-0"]


PHASES = ("Pending", "Gated", "Running", "Suspended", "Requeued", "Succeeded")
REASONS = ("NoFreeSlot", "RankedBehind", "PausedByPolicy", "BackOff", "")
TRIALS = st.lists(
    st.tuples(st.sampled_from(("job", "old", "new")), st.sampled_from(PHASES), st.sampled_from(REASONS), st.booleans()),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(TRIALS, st.integers(0, 2**32 - 1))
def test_positions_are_a_permutation_of_the_waiting_trials(
    drawn: list[tuple[str, str, str, bool]], suspended: int
) -> None:
    trials = [
        trial(
            number,
            of=of,
            spec={"suspend": bool(suspended >> number & 1)},
            phase=phase,
            reason=reason,
            gpus=["a-0"] if slot else [],
        )
        for number, (of, phase, reason, slot) in enumerate(drawn)
    ]
    made = explained([job(), job("old", created=-500.0), job("new", created=-5.0)], trials)
    waiting = {
        one.metadata.name
        for one in trials
        if one.status.phase in ("Pending", "Gated", "Suspended", "Requeued") and not one.spec.suspend
    }
    assert [one.position for one in made.queue] == list(range(1, len(waiting) + 1))
    assert {one.trial for one in made.queue} == waiting
    own = [one.position for one in made.queue if one.job == "job"]
    assert made.position == (own[0] if own else None)
    first = made.queue[: made.position - 1] if made.position else ()
    assert sum(one.waiting for one in made.ahead) == len(first)


def test_a_search_is_blocked_if_every_reason_needs_a_person() -> None:
    stuck = trial(0, phase="Pending", reason="Unscheduled", message="0/3 nodes are available")
    only = {"trials": {"max": 2, "maxSteps": 100}}
    assert explained(job(spec=only), [stuck, trial(1, phase="Succeeded")]).state == "Blocked"
    assert explained(job(spec=only), [stuck, trial(1, phase="Gated", reason="RankedBehind")]).state == "Waiting"
    assert explained(job(spec=only), [stuck, trial(1, phase="Running", gpus=["a-0"])]).state == "Running"
