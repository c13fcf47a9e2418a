"""What the tests on real clusters ask the API server while they wait, several times a second: in kubectl's words, but
over HTTPS from this process. A kubectl for each question costs a tenth of a second of a processor, and several clusters
side by side share two.

Importable by every test: `tests/conftest.py` puts this folder on the path.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from podium_cluster.resources import EVENTS, GPUNODES, JOBS, NODES, PODS, TRIALS
from podium_devcluster.cluster import Cluster
from podium_devcluster.runtime.apiserver import ApiClient

RESOURCES = (EVENTS, GPUNODES, JOBS, NODES, PODS, TRIALS)
KINDS = {name: one for one in RESOURCES for name in (one.plural, one.kind.lower())} | {"hpj": JOBS, "hpt": TRIALS}
PATIENCE = 10.0  # seconds for a server that answers "not now" or not at all: kubectl asks again too
PAUSE = 0.25

WORDS = argparse.ArgumentParser(prog="get", add_help=False, allow_abbrev=False)
WORDS.add_argument("kind", choices=KINDS)
WORDS.add_argument("name", nargs="?")
WORDS.add_argument("-n", dest="namespace", default="default")
WORDS.add_argument("-l", dest="labelSelector")
WORDS.add_argument("--field-selector", dest="fieldSelector")


def path_of(*words: str) -> str:
    """Of `kubectl get WORDS`, as far as it is known here. Pure."""
    given = WORDS.parse_args(words)
    path = KINDS[given.kind].path(given.namespace, given.name)
    selectors = {key: value for key in ("labelSelector", "fieldSelector") if (value := getattr(given, key))}
    return f"{path}?{urlencode(selectors)}" if selectors else path


class Reads:
    """Of one cluster, by its administrator's certificate."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @cached_property
    def _client(self) -> ApiClient:
        return ApiClient(self._cluster.spec.port, self._cluster.paths.pki)

    def get(self, *words: str) -> dict[str, Any]:
        """One object, or with `items` a list of them; fails where kubectl would."""
        path = path_of(*words)
        deadline = time.monotonic() + PATIENCE
        while True:
            status, body = self._client.get(path, timeout=PATIENCE)
            if status == 200:
                found: dict[str, Any] = json.loads(body)
                return found
            if not (status in (0, 429) or status >= 500) or time.monotonic() > deadline:
                raise RuntimeError(f"GET {path}: {status} {body[:500]}")
            time.sleep(PAUSE)
