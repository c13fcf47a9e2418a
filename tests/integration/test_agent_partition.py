"""The agent is cut off from the API server, and comes back.

PODIUM_LONG_FAULTS=1 (`make test-faults`) makes the outage last five minutes.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_checks import check_ledger, check_no_leaks, check_results, runs_now
from bare_node import BareNode
from faulty_relay import FaultyRelay

pytestmark = pytest.mark.integration
OUTAGE = 300.0 if os.environ.get("PODIUM_LONG_FAULTS") == "1" else 20.0
STEP_SECONDS = 0.1
MakeRelay = Callable[[str], FaultyRelay]


def test_trials_continue_while_their_agent_is_cut_off(bare_node: BareNode, make_relay: MakeRelay) -> None:
    """The last run queue remains in force: the holder runs, and the next trial follows it when it ends.

    The operator waits for the final report of a trial that ended meanwhile, or takes it over when it arrives later.
    """
    node, relay = bare_node, make_relay("agent")
    node.agent.environment["PODIUM_KUBECONFIG"] = str(relay.kubeconfig)
    node.start()
    steps = round(OUTAGE / STEP_SECONDS / 2)  # three trials need half as long again as the outage
    job = node.search(trials=3, steps=steps, seconds=STEP_SECONDS)
    node.until(lambda: node.suspensions(job) >= 2, "two suspensions")

    relay.cut()
    began = time.monotonic()
    while time.monotonic() < began + OUTAGE:
        time.sleep(1)
        assert node.agent.code is None, node.agent.text()[-3000:]
        node.until(lambda: runs_now(node), "a trial runs", 5)
    requests = Counter(f"{request.method} {request.what}" for request in relay.since(began))
    relay.restore()
    assert requests, "the heartbeat at least"
    assert max(requests.values()) <= OUTAGE + 2, f"at most one request a second of each kind: {requests}"
    assert "not renewed, trying again" in node.agent.text()

    node.wait_for_end(job, 2 * OUTAGE + 60)
    check_results(node, job, steps)
    check_ledger(node, job)
    check_no_leaks(node)
