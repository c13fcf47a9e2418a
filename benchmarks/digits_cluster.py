"""The digits example on a dev cluster: install Podium, set a trial's length, and read cgroups from outside."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
import demo

from podium_devcluster.cluster import Cluster

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE_EPOCHS = 40
FINAL = ("Succeeded", "Failed", "Refused")  # phases of a job that has ended


def install(cluster: Cluster) -> None:
    """Make the cluster and install Podium on it, with the commands of `make demo`."""
    demo.install(demo.Installation(cluster.cache.root, cluster.name))


def calibrated(seconds: float) -> int:
    """Return the example's --work with which a trial lasts `seconds` on one core of this machine."""
    train = ROOT / "examples/digits/train.py"
    stamps = []
    with subprocess.Popen(
        [sys.executable, str(train), "--epochs=7", "--work=200"], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        for _line in run.stdout:
            stamps.append(time.perf_counter())
    epoch = (stamps[-1] - stamps[0]) / (len(stamps) - 1)
    return max(1, round(200 * seconds / EXAMPLE_EPOCHS / epoch))


def freezer_of(cluster: Cluster, container: str) -> Path:
    """Return the file of a container's cgroup that shows whether it is frozen (cgroup v1 or v2)."""
    for base, name in ((Path("/sys/fs/cgroup/freezer"), "freezer.state"), (Path("/sys/fs/cgroup"), "cgroup.freeze")):
        for folder in base.glob(f"devcluster-{cluster.name}/**/*{container}*"):
            if (folder / name).exists():
                return folder / name
    raise RuntimeError(f"no freezer of container {container}")


def is_frozen(freezer: Path) -> bool:
    """Return whether the cgroup of this file is frozen."""
    return freezer.read_text().strip() == ("FROZEN" if freezer.name == "freezer.state" else "1")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at this quantile (nearest rank)."""
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
