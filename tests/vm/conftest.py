"""One cluster with a virtual node for all tests of this folder, which run in the order of their files' numbers.

`make test-vm` runs them; `make test` does not, as an emulated node alone keeps two cores busy for minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from script_modules import load

from podium_devcluster.artifacts import debian
from podium_devcluster.progress import Progress
from podium_devcluster.vm import root_image

virtual_node = load(Path(__file__).with_name("virtual_node.py"))


@pytest.fixture(scope="session")
def node() -> Iterator[Any]:
    """The virtual node with Podium; removed at the end, unless PODIUM_KEEP=1."""
    if os.geteuid() != 0:
        pytest.skip("the cluster needs root (network namespaces, cgroups, mounts)")
    try:
        debian.install_packages(root_image.missing_packages(), Progress())
    except RuntimeError as error:
        pytest.skip(f"a virtual node needs qemu: {error}")
    name = "vm"
    started = None
    try:
        started = virtual_node.start(name)
        started.install()
        yield started
    finally:
        if not os.environ.get("PODIUM_KEEP"):
            virtual_node.Cluster(name).down()
