"""Two operators at once: one leads, the other takes over, and the old leader cannot act beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from operator_stage import OperatorProcess

from podium_cluster.client import ApiError, connect
from podium_cluster.resources import LEASES, NAMESPACES
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
TAKEOVER_SECONDS = 20.0


@pytest.fixture
def pair(kubeconfig: Path, tmp_path: Path) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:
    async def prepare() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podium-system"}}
            with contextlib.suppress(ApiError):  # it exists already
                await api.create(NAMESPACES, namespace, manager="test")
            await api.delete(LEASES, "podium-operator", "podium-system")

    asyncio.run(prepare())
    first, second = (
        OperatorProcess(kubeconfig, tmp_path / f"{name}.log", PODIUM_IDENTITY=name) for name in ("first", "second")
    )
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        first.close()
        second.close()


def leads(operator: OperatorProcess) -> bool:
    return "podium_operator_leader 1.0" in operator.page("/metrics")


def seconds_until_it_leads(operator: OperatorProcess) -> float:
    begin = time.monotonic()
    while not leads(operator):
        assert time.monotonic() - begin < TAKEOVER_SECONDS, "no takeover"
        time.sleep(0.1)
    return time.monotonic() - begin


def test_one_of_two_leads(pair: tuple[OperatorProcess, OperatorProcess]) -> None:
    first, second = pair
    assert (leads(first), leads(second)) == (True, False)
    assert second.page("/readyz") == "ok\n"


def test_a_leader_that_ends_hands_over_at_once(pair: tuple[OperatorProcess, OperatorProcess]) -> None:
    first, second = pair
    assert first.terminate() == 0
    assert seconds_until_it_leads(second) < 10  # the Lease alone would take 15 s


def test_a_killed_leader_is_replaced(pair: tuple[OperatorProcess, OperatorProcess]) -> None:
    first, second = pair
    first.kill()
    assert seconds_until_it_leads(second) < TAKEOVER_SECONDS


def test_a_leader_that_hung_does_not_act_again(pair: tuple[OperatorProcess, OperatorProcess]) -> None:
    """A stopped process does not notice that its Lease has ended; when it continues, it ends without a write."""
    first, second = pair
    os.kill(first.pid, signal.SIGSTOP)
    try:
        seconds_until_it_leads(second)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert first.wait() == 1
    log = first.log()
    assert "second leads now" in log or "was not renewed" in log
    assert leads(second)
