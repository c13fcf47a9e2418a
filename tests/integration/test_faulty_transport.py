"""A search whose operator, agent and extender are behind relays that lose, delay, repeat and spoil what passes.

It has the result of an undisturbed one. Afterwards each kind of failure lasts for a while, and requests are counted.
The operator's Lease is spared: without it the operator ends, which test_partitions covers.
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
STEPS = 60
RATE = 0.04
STEADY_SECONDS = 6.0
BURST = 3  # requests of a cache before it notices: a list, a watch, and one that was under way
STEADY = ("refused", "throttled", "broken", "expired", "garbage")


def test_a_search_ends_as_without_faults(bare_node: BareNode, make_relay: Callable[[str], FaultyRelay]) -> None:
    node = bare_node
    relays = {name: make_relay(name) for name in ("agent", "operator", "extender")}
    node.agent.environment["PODIUM_KUBECONFIG"] = str(relays["agent"].kubeconfig)
    node.start({"one": relays["operator"].kubeconfig})
    extender = start_extender(node, relays["extender"].kubeconfig)
    try:
        relays["operator"].spared = "/leases/podium-operator"
        for relay in relays.values():
            relay.rates = dict.fromkeys((*REQUEST_FAULTS, *ANSWER_FAULTS, *EVENT_FAULTS), RATE)
        job = node.search(trials=3, steps=STEPS, seconds=0.1)
        node.wait_for_end(job, 240)
        injected = sum((relay.injected for relay in relays.values()), Counter())
        assert len(injected) >= 8, f"most kinds of faults have happened: {injected}"
        for relay in relays.values():
            relay.rates = {}
        check_results(node, job, STEPS)
        check_ledger(node, job)
        check_no_leaks(node)

        for fault in STEADY:
            for relay in relays.values():
                relay.rates = {fault: 1.0}
            began = time.monotonic()
            time.sleep(STEADY_SECONDS)  # duration of the fault
            for name, relay in relays.items():
                reads = Counter(one.what for one in relay.since(began) if one.method == "GET")
                busiest = max(reads.values(), default=0)
                assert busiest <= STEADY_SECONDS + BURST, f"{name}, {fault}: {reads.most_common(3)}"
                relay.rates = {}
        for process in (node.agent, node.operators["one"], extender):
            node.until(process.ready, "ready again", 90)
    finally:
        extender.kill()
