"""The newest scheduling decision as a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from podium_cli.views.watch import decision_line
from podium_views.decision import newest_decision
from podium_views.job_snapshot import JobSnapshot

Snapshot = Callable[..., JobSnapshot]
GPU = "GPU-0a000000-0000-4000-8000-00000000000a"
MESSAGE = "Best value so far 0.9. It takes the GPU from digits-3: gain 0.008 beats cost 0.001 + hysteresis 0.002."


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"namespace": "default", "trial": f"digits-{number}", "uid": f"uid-{number}", **more}


def allocation(start: int, end: int | None = None) -> dict[str, Any]:
    ended = {} if end is None else {"end": f"2026-01-15T09:30:{end:02d}Z"}
    return {"gpus": [GPU], "node": "node-a", "start": f"2026-01-15T09:30:{start:02d}Z", **ended}


def switched(
    reason: str = "BestSoFar", message: str = MESSAGE, gain: float | None = 0.008, **loser: Any
) -> dict[str, Any]:
    """Return changes in which digits-7 takes node-a/0 from digits-3 after 30 s."""
    suspended = {"method": "freeze", "at": "2026-01-15T09:30:30Z", "suspendSeconds": 0.3}
    changes: dict[str, Any] = {f"digits-{number}": {"status": {"allocations": []}} for number in range(12)}
    changes["digits-3"] = {
        "status": {"allocations": [allocation(0, 30)], "suspensions": {"count": 1, "recent": [suspended]}} | loser
    }
    resumed = {"count": 1, "recent": [suspended | {"at": "2026-01-15T09:30:10Z", "resumeSeconds": 0.1}]}
    changes["digits-7"] = {"status": {"rank": 1, "allocations": [allocation(30)], "suspensions": resumed}}
    first = entry(7, reason=reason, message=message, gain=gain, preempts=True)
    changes["node-a"] = {"spec": {"gpus": [{"uuid": GPU, "runQueue": [first, entry(3)]}]}}
    return changes


def test_a_switch_has_rank_gain_and_cost(snapshot: Snapshot) -> None:
    sentence = "digits-7 preempts digits-3 on GPU node-a/0: rank 1, expected gain 0.8 %, switch 400 ms"
    assert newest_decision(snapshot(40, switched())) == sentence
    assert decision_line(snapshot(40, switched())).plain == f" {sentence}"


@pytest.mark.parametrize(
    ("reason", "words"),
    [("FairShare", "fair share, "), ("StarvationGuard", "starvation guard, "), ("GPURetained", "")],
)
def test_without_a_gain_the_reason_is_in_plain_words(reason: str, words: str, snapshot: Snapshot) -> None:
    sentence = f"digits-7 preempts digits-3 on GPU node-a/0: rank 1, {words}switch 400 ms"
    assert newest_decision(snapshot(40, switched(reason, "job a holds 2 GPUs.", None))) == sentence


def test_a_trial_that_ended_was_not_preempted(snapshot: Snapshot) -> None:
    ended = {"phase": "Succeeded", "finishedAt": "2026-01-15T09:30:30Z"}
    changes = switched("FreeGPU", "It takes a free GPU.", None, **ended)
    assert newest_decision(snapshot(40, changes)) == "digits-7 takes GPU node-a/0: rank 1, free GPU"


def test_a_switch_in_progress_is_the_newest_decision(snapshot: Snapshot) -> None:
    changes = switched()
    first = entry(4, reason="BestSoFar", message="The sentence is not read.", gain=0.01, preempts=True)
    changes["node-a"]["spec"]["gpus"][0]["runQueue"] = [first, entry(7)]
    here = [entry(n, pod=f"digits-{n}-0", podUID="u", state="Suspended", since="2026-01-15T09:30:00Z") for n in (4, 7)]
    seen = snapshot(40, changes)
    (gpu,) = next(node for node in seen.nodes if node.metadata.name == "node-a").status.gpus
    status = {**gpu.model_dump(by_alias=True), "trials": here, "holder": entry(7, since="2026-01-15T09:30:30Z")}
    changes["node-a"]["status"] = {"gpus": [status]}
    text = newest_decision(snapshot(40, changes))
    assert text.startswith("digits-4 preempts digits-7 on GPU node-a/0: ")
    assert text.endswith("expected gain 1.0 %, switch in progress")
    changes["node-a"]["spec"]["released"] = True
    assert newest_decision(snapshot(40, changes)).startswith("digits-7 preempts digits-3")


def test_before_the_first_allocation_there_is_no_decision(snapshot: Snapshot) -> None:
    assert newest_decision(snapshot(0)) == ""
    assert decision_line(snapshot(0)).plain == " No trial has received a GPU yet."
