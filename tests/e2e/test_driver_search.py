"""The agent finds the driver's libraries on its node: in the folders of GKE and of GPU Operator, on real nodes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
FOLDERS = {"node-1": "home/kubernetes/bin/nvidia/lib64", "node-2": "run/nvidia/driver/usr/lib64"}


def found(site: Any) -> dict[str, str]:
    """Return what each agent says about the libraries, if its GPUs are healthy."""
    return {
        node["metadata"]["name"]: node["status"].get("driverLibrary", "")
        for node in site.objects("gpunodes")
        if node["status"]["gpus"] and all(gpu["health"] == "Healthy" for gpu in node["status"]["gpus"])
    }


def test_each_agent_uses_the_folder_of_its_node_and_says_so(site: Any) -> None:
    given = "/var/lib/podium-fake-driver/lib"
    assert set(found(site).values()) == {f"{given} (agent.driver.libraryPath)"}
    copies: list[Path] = []
    for node, folder in FOLDERS.items():
        root = site.cluster.node_root(node)
        copies.append(root / folder)
        shutil.copytree(root / given.lstrip("/"), copies[-1])
    try:
        site.upgrade("agent.driver.libraryPath=")
        site.until(
            "each agent finds the driver",
            lambda: all(found(site).get(node, "").startswith(f"/{FOLDERS[node]} (") for node in FOLDERS),
            120,
        )
    finally:
        site.upgrade(f"agent.driver.libraryPath={given}")
        for copy in copies:
            shutil.rmtree(copy)
    site.until(
        "the value comes first again", lambda: set(found(site).values()) == {f"{given} (agent.driver.libraryPath)"}, 120
    )
