"""Waiting for parts of a cluster that become ready by themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from podium_devcluster.cluster import Cluster
from podium_devcluster.startup import ClusterError


def until(ready: Callable[[], bool], what: str, seconds: float, *, pause: float = 0.5, hint: str = "") -> None:
    """Wait until `ready` returns True. Raises ClusterError with `what` and `hint` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {seconds:g} s{hint and f'; see `{hint}`'}")
        time.sleep(pause)


def has_certificate(cluster: Cluster, namespace: str, secret: str) -> bool:
    """Return whether a controller has written its certificate into the secret of its webhooks."""
    data = json.loads(cluster.kubectl("-n", namespace, "get", "secret", secret, "-o", "json")).get("data") or {}
    return bool(data.get("tls.crt"))
