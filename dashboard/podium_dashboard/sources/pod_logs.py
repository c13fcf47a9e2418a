"""Ends of the logs of trials in a cluster, read with the rights of one account."""

from __future__ import annotations

import time
from contextlib import aclosing

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.sources.source import TAIL_BYTES, TAIL_LINES, LogTail

LOG_SECONDS = 5.0  # of one request for a log
LOG_AGE_SECONDS = 2.0  # for which an answer is used again
MAX_LOGS = 32


class PodLogs:
    """Reads the logs of the present pods of trials, each at most once in a while."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._logs: dict[str, tuple[float, LogTail]] = {}

    async def tail(self, trial: HyperParamTrial) -> LogTail:
        """Return the end of the log of the trial's present pod."""
        key = f"{trial.metadata.uid}/{trial.status.pod}"
        known = self._logs.get(key)
        if known is not None and time.monotonic() - known[0] < LOG_AGE_SECONDS:
            return known[1]
        fresh = await self._read(trial)
        self._logs.pop(key, None)
        self._logs[key] = (time.monotonic(), fresh)
        while len(self._logs) > MAX_LOGS:
            del self._logs[next(iter(self._logs))]
        return fresh

    async def _read(self, trial: HyperParamTrial) -> LogTail:
        if not trial.status.pod:
            return LogTail(note="The trial has no pod.")
        namespace = trial.metadata.namespace
        content = bytearray()
        try:
            pod = await self._api.get(PODS, trial.status.pod, namespace)
            query = {"tailLines": str(TAIL_LINES), "container": str(pod["spec"]["containers"][0]["name"])}
            chunks = self._api.log_chunks(trial.status.pod, namespace, query, seconds=LOG_SECONDS)
            async with aclosing(chunks):
                async for chunk in chunks:
                    content += chunk
                    del content[:-TAIL_BYTES]
        except ApiError as error:
            return LogTail(note=f"The log cannot be read: {error.message}")
        return LogTail.of(bytes(content), complete=len(content) < TAIL_BYTES)
