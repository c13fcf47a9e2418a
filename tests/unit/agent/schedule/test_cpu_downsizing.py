"""Which CPU requests are changed, in which order, and what happens where the server refuses."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from agent_builders import pod

from podium_agent.metrics import Metrics
from podium_agent.observe.pods import TrialPod
from podium_agent.schedule.cpu_downsizing import CpuDownsizer, resizes
from podium_agent.schedule.node_reconciler import View
from podium_cluster.client import Api, ApiError
from podium_core.attempts.local_trial import LocalPod, LocalTrial
from podium_core.schema.gpunode import SlotState


def downsized(name: str, requests: int, **more: Any) -> TrialPod:
    return pod(name, requests__cpu={"train": 1500}, requests__cpu_now={"train": requests}, **more)


def trial(one: TrialPod, state: SlotState) -> LocalTrial:
    return LocalTrial(one.key, LocalPod(one.name, one.uid), ("GPU-0",), state, 0.0)


@pytest.mark.parametrize(
    ("state", "requests", "wanted"),
    [
        (SlotState.GATED, 10, None),
        (SlotState.STARTING, 10, 1500),
        (SlotState.RUNNING, 1500, None),
        (SlotState.SUSPENDING, 1500, None),
        (SlotState.SUSPENDED, 1500, 10),
        (SlotState.RESUMING, 10, 1500),
    ],
)
def test_a_running_trial_requests_its_cpus(state: SlotState, requests: int, wanted: int | None) -> None:
    one = downsized("a", requests)
    assert [resize.cpu["train"] for resize in resizes([one], [trial(one, state)])] == (
        [] if wanted is None else [wanted]
    )


def test_decreases_come_first_and_deleted_pods_are_unchanged() -> None:
    taker, giver, leaver, other = (
        downsized("a", 10),
        downsized("b", 1500),
        downsized("c", 1500, termination__deadline=9.0),
        pod("d"),
    )
    unknown = downsized("e", 1500)
    states = [
        trial(taker, SlotState.RUNNING),
        *(trial(one, SlotState.SUSPENDED) for one in (giver, leaver, other)),
    ]
    found = resizes([taker, giver, leaver, other, unknown], states)
    assert [resize.pod.uid for resize in found] == [giver.uid, taker.uid]


class Server:
    def __init__(self, *answers: ApiError | None) -> None:
        self.answers = list(answers)
        self.patches: list[dict[str, Any]] = []

    async def strategic_patch(self, _: object, name: str, namespace: str, patch: dict[str, Any], **how: Any) -> None:
        assert how["subresource"] == "resize"
        self.patches.append(patch)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


def times(server: Server, *moments: float) -> list[int]:
    """How many patches there were after a look at each of these moments; the watch shows none of them."""
    one = downsized("a", 10)
    cpu_downsizer = CpuDownsizer(cast(Api, server), Metrics(), lambda: [one])
    cpu_downsizer.on_view(View(trials=(trial(one, SlotState.RUNNING),)))
    counts = []
    for moment in moments:
        asyncio.run(cpu_downsizer.once(moment))
        counts.append(len(server.patches))
    return counts


def test_a_resize_is_requested_once_until_the_watch_shows_it() -> None:
    server = Server()
    assert times(server, 0.0, 1.0, 4.9, 5.0) == [1, 1, 1, 2]
    containers = server.patches[0]["spec"]["containers"]
    assert containers == [{"name": "train", "resources": {"requests": {"cpu": "1500m"}}}]


def test_a_refused_resize_is_retried_with_growing_pauses() -> None:
    refused = ApiError(403, "Forbidden", "exceeded quota")
    assert times(Server(refused, refused, refused), 0.0, 0.5, 1.0, 2.9, 3.0, 6.9, 7.0) == [1, 1, 2, 2, 3, 3, 4]


def test_a_deleted_pod_is_not_a_failure_but_a_missing_subresource_is(caplog: pytest.LogCaptureFixture) -> None:
    gone = ApiError(404, "NotFound", f'pods "{downsized("a", 10).name}" not found')
    assert times(Server(gone), 0.0, 4.9) == [1, 1]
    assert not caplog.messages
    missing = ApiError(404, "NotFound", "the server could not find the requested resource")
    assert times(Server(missing, missing, missing), 0.0, 1.0, 2.9, 3.0) == [1, 2, 2, 3]
    assert "this API server has no pods/resize" in caplog.text
