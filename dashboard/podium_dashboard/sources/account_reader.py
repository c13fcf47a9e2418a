"""Logs and Events of trials in a cluster, read with the rights of one account, each at most once in a while."""

from __future__ import annotations

from contextlib import aclosing

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.remembered import Remembered
from podium_dashboard.sources.source import TAIL_BYTES, TAIL_LINES, EventList, LogTail
from podium_dashboard.sources.trial_events import TrialPod, read_events

LOG_SECONDS = 5.0  # of one request for a log
LOG_AGE_SECONDS, EVENTS_AGE_SECONDS = 2.0, 5.0  # for which an answer is used again
MAX_ANSWERS = 32  # that are kept, of logs and of Events each


class AccountReader:
    """Reads with the rights of the account of a client."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._logs: Remembered[TrialPod, LogTail] = Remembered(self._read_log, lambda _: LOG_AGE_SECONDS, MAX_ANSWERS)
        self._events: Remembered[TrialPod, EventList] = Remembered(
            self._read_events, lambda _: EVENTS_AGE_SECONDS, MAX_ANSWERS
        )

    async def log_tail(self, trial: HyperParamTrial) -> LogTail:
        """Return the end of the log of the trial's present pod."""
        return await self._logs.get(TrialPod.of(trial))

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return the Events of the trial and of its present pod."""
        return await self._events.get(TrialPod.of(trial))

    async def _read_log(self, wanted: TrialPod) -> LogTail:
        if not wanted.pod:
            return LogTail(note="The trial has no pod.")
        content = bytearray()
        try:
            pod = await self._api.get(PODS, wanted.pod, wanted.namespace)
            query = {"tailLines": str(TAIL_LINES), "container": str(pod["spec"]["containers"][0]["name"])}
            chunks = self._api.log_chunks(wanted.pod, wanted.namespace, query, seconds=LOG_SECONDS)
            async with aclosing(chunks):
                async for chunk in chunks:
                    content += chunk
                    del content[:-TAIL_BYTES]
        except ApiError as error:
            return LogTail(note=f"The log cannot be read: {error.message}")
        return LogTail.of(bytes(content), complete=len(content) < TAIL_BYTES)

    async def _read_events(self, wanted: TrialPod) -> EventList:
        return await read_events(self._api, wanted)
