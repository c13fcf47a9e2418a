"""Reads from the API server with the arguments of `kubectl get`, but over HTTPS from this process.

Tests on real clusters poll several times a second. A kubectl process for each request would cost a tenth of a second of
CPU time, and several clusters share two cores.

Every test can import this module: `tests/conftest.py` puts this folder on the path.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from podium_cluster.resources import (
    EVENTS,
    GPUNODES,
    JOBS,
    JOBSETS,
    NODES,
    PODS,
    RUNTIMES,
    TRAIN_JOBS,
    TRIALS,
)
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime.apiserver import ApiClient

RESOURCES = (EVENTS, GPUNODES, JOBS, JOBSETS, NODES, PODS, RUNTIMES, TRAIN_JOBS, TRIALS)
KINDS = {name: kind for kind in RESOURCES for name in (kind.plural, kind.kind.lower())} | {"hpj": JOBS, "hpt": TRIALS}
RETRY_SECONDS = 10.0  # how long to retry while the server is overloaded or does not answer; kubectl retries too
PAUSE = 0.25

PARSER = argparse.ArgumentParser(prog="get", add_help=False, allow_abbrev=False)
PARSER.add_argument("kind", choices=KINDS)
PARSER.add_argument("name", nargs="?")
PARSER.add_argument("-n", dest="namespace", default="default")
PARSER.add_argument("-l", dest="labelSelector")
PARSER.add_argument("--field-selector", dest="fieldSelector")


def path_of(*words: str) -> str:
    """Return the URL path for the arguments of `kubectl get` that this module supports."""
    given = PARSER.parse_args(words)
    path = KINDS[given.kind].path(given.namespace, given.name)
    selectors = {key: value for key in ("labelSelector", "fieldSelector") if (value := getattr(given, key))}
    return f"{path}?{urlencode(selectors)}" if selectors else path


class ApiReader:
    """Reads from one cluster with the administrator's certificate."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @cached_property
    def _client(self) -> ApiClient:
        return ApiClient(self._cluster.spec.port, self._cluster.paths.pki)

    def get(self, *words: str) -> dict[str, Any]:
        """Return an object, or a list of objects in `items`. Raises RuntimeError where kubectl would fail."""
        path = path_of(*words)
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            status, body = self._client.get(path, timeout=RETRY_SECONDS)
            if status == 200:
                content: dict[str, Any] = json.loads(body)
                return content
            if not (status in (0, 429) or status >= 500) or time.monotonic() > deadline:
                raise RuntimeError(f"GET {path}: {status} {body[:500]}")
            time.sleep(PAUSE)
