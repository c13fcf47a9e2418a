"""A search whose operator, agent and extender are behind relays that lose, delay, repeat and spoil what passes.

It has the result of an undisturbed one. For a while every request fails, and the requests are counted.
The operator's Lease is spared: without it the operator ends, which test_operator_partition covers.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_checks import check_ledger, check_no_leaks, check_results
from bare_node import BareNode
from faulty_relay import ANSWER_FAULTS, EVENT_FAULTS, REQUEST_FAULTS, FaultyRelay
from test_disk_and_descriptors import start_extender

pytestmark = pytest.mark.integration
STEPS = 70
RATE = 0.05
LEAST_KINDS = 5  # of the 13 kinds of faults
FAILURES = ("refused", "throttled", "broken", "unavailable", "expired", "garbage", "garbage line")
STEADY_SECONDS = 10.0
BURST = 3  # requests of a cache before it notices: a list, a watch, and one that was under way


def test_a_search_ends_as_without_faults(bare_node: BareNode, make_relay: Callable[[str], FaultyRelay]) -> None:
    node = bare_node
    relays = {name: make_relay(name) for name in ("agent", "operator", "extender")}
    node.agent.environment["PODIUM_KUBECONFIG"] = str(relays["agent"].kubeconfig)
    node.start({"one": relays["operator"].kubeconfig})
    extender = start_extender(node, relays["extender"].kubeconfig)
    try:
        relays["operator"].spared = "/leases/podium-operator"
        job = node.search(trials=3, steps=STEPS, seconds=0.1)
        node.until(lambda: node.suspensions(job) >= 1, "a suspension")
        spread_faults(relays, RATE)
        node.until(lambda: len(kinds(relays)) >= LEAST_KINDS, "faults of most kinds")
        fail_for_a_while(relays)
        spread_faults(relays, 0.0)
        node.wait_for_end(job, 240)
        check_results(node, job, STEPS)
        check_ledger(node, job)
        check_no_leaks(node)
        for process in (node.agent, node.operators["one"], extender):
            node.until(process.ready, "ready again", 90)
    finally:
        extender.kill()


def spread_faults(relays: dict[str, FaultyRelay], rate: float) -> None:
    for relay in relays.values():
        relay.rates = dict.fromkeys((*REQUEST_FAULTS, *ANSWER_FAULTS, *EVENT_FAULTS), rate)


def kinds(relays: dict[str, FaultyRelay]) -> Counter[str]:
    """Return how often each kind of fault has happened."""
    return sum((relay.injected for relay in relays.values()), Counter())


def fail_for_a_while(relays: dict[str, FaultyRelay]) -> None:
    """Break all watches and let every request fail; check that each is repeated at most once a second."""
    began = time.monotonic()
    for relay in relays.values():
        relay.fail_all(*FAILURES)
    time.sleep(STEADY_SECONDS)  # duration of the fault
    for name, relay in relays.items():
        requests = Counter(f"{one.method} {one.what}" for one in relay.since(began))
        assert requests, f"{name}: its watches at least"
        busiest = max(requests.values())
        assert busiest <= STEADY_SECONDS + BURST, f"{name}: {requests.most_common(3)}"
