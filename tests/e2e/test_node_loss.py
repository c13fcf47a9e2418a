"""Permanent loss of a node.

It is one of the last tests, because the cluster has one node less afterwards.
"""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
Scene = Any


def test_trials_of_a_lost_node_continue_on_the_other_node(scene: Scene) -> None:
    """All processes of the node end and its Node object is deleted.

    The trials continue from their checkpoints.
    """
    logs = scene.search("moved", "held", trials=4)
    scene.until(logs, "checkpoints", lambda: min(map(scene.last_step, scene.trials("moved")), default=0) >= 7, 120)
    scene.site.cluster.power_off("node-2")
    scene.site.kubectl("delete", "node", "node-2")
    scene.release("moved")
    assert scene.wait_for_end(logs, 300)["status"]["phase"] == "Succeeded"
    moved = [trial for trial in scene.trials("moved") if trial["status"]["attempt"] > 0]
    assert moved, "some trials were on that node"
    assert {trial["status"]["node"] for trial in scene.trials("moved")} == {"node-1"}
    # steps of the node's last seconds were printed but never reported, so the status counts at most what the logs show
    scene.check_results(logs, exact=False)
    scene.finish("moved")
