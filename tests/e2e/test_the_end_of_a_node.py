"""A node is lost for good. One of the last tests: the cluster has one node less after it."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.e2e
Scene = Any


def test_a_node_is_gone_for_good(scene: Scene) -> None:
    """All its processes end at once and its Node object is deleted: its trials go on elsewhere, from their saves."""
    witness = scene.search("moved", "held", trials=4)
    scene.until(witness, "saves", lambda: min(map(scene.last_step, scene.trials("moved")), default=0) >= 7, 120)
    scene.site.cluster.power_off("node-2")
    scene.site.kubectl("delete", "node", "node-2")
    scene.let_go("moved")
    assert scene.until_over(witness, 300)["status"]["phase"] == "Succeeded"
    moved = [trial for trial in scene.trials("moved") if trial["status"]["attempt"] > 0]
    assert moved, "some were on that node"
    assert {trial["status"]["node"] for trial in scene.trials("moved")} == {"node-1"}
    # what was printed in the node's last seconds and never reported is not known to anybody: at least that is counted
    scene.judge(witness, exact=False)
    scene.finish("moved")
