"""The leading operator is cut off from the API server, and comes back after another one has taken over."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_checks import check_ledger, check_no_leaks, check_results
from bare_node import BareNode
from faulty_relay import FaultyRelay

pytestmark = pytest.mark.integration
STEPS = 150  # three trials need 45 s: the change of the leader takes about 20 s of it


def test_an_operator_that_was_cut_off_writes_nothing_when_it_comes_back(
    bare_node: BareNode, make_relay: Callable[[str], FaultyRelay]
) -> None:
    """Its Lease expires, its successor acts; it has ended by itself, and the one that follows it stands by."""
    node, relay = bare_node, make_relay("first")
    node.start({"first": relay.kubeconfig, "second": node.kubeconfig})
    first, second = node.operators["first"], node.operators["second"]
    assert "podium_operator_leader 1.0" in first.page("/metrics")
    job = node.search(trials=3, steps=STEPS, seconds=0.1)
    node.until(lambda: node.suspensions(job) >= 1, "a suspension")

    relay.cut()
    node.until(lambda: first.code is not None, "the first operator ends by itself", 30)
    assert first.code == 1
    assert "was not renewed" in first.text()
    node.until(lambda: "podium_operator_leader 1.0" in second.page("/metrics"), "the second operator leads", 30)
    before = node.suspensions(job)
    node.until(lambda: node.suspensions(job) > before, "the search continues")

    relay.restore()
    restored = time.monotonic()
    first.start()  # as the kubelet does
    node.until(first.ready, "the first operator stands by")
    node.wait_for_end(job)
    assert [request for request in relay.since(restored) if request.method != "GET"] == []
    assert "podium_operator_leader 1.0" in second.page("/metrics")
    check_results(node, job, STEPS)
    check_ledger(node, job)
    check_no_leaks(node)
