"""Read the log of a trial through the API server, and follow it across its attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace

from podium_cli.logs.log_options import LogOptions, Note, Write
from podium_cli.logs.steps import (
    Action,
    Pod,
    Reading,
    Step,
    first_attempt,
    has_terminated,
    main_container,
    next_step,
)
from podium_cli.logs.timed_lines import LineSplitter, Piece, Position
from podium_cli.objects import parse_trial
from podium_cli.session import Session, fetch
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, TRIALS
from podium_core.schema.trial import HyperParamTrial, pod_name

POLL_SECONDS = 1.0
CONNECTION_SECONDS = 300.0  # of one connection: a half-open one ends by then, and a quiet log is followed by the next
BAD_REQUEST = 400
UNAUTHORIZED = 401
MAX_FAILURES = 8  # consecutive ones, which take about a minute


class ClusterLog:
    """The log of one trial, while it is shown."""

    def __init__(self, api: Api, trial: HyperParamTrial, options: LogOptions, write: Write, note: Note) -> None:
        self._api = api
        self._trial = trial
        self._options = options
        self._write = write
        self._note = note
        self._noted = ""
        self._waits_for = ""
        self._position = Position()
        self._first = True  # --tail and --since apply to the first attempt
        self._backoff = Backoff(first=0.5, longest=15.0)
        self._was_terminated = False
        attempt = first_attempt(trial, options.attempt)
        self._reading = Reading(attempt, options.attempt is not None, options.follow)

    async def show(self) -> None:
        """Show the log until its end, or for as long as the trial lasts."""
        while True:
            try:
                pod = await self._pod()
                step = next_step(self._trial, pod, self._reading)
                if step.action is Action.END:
                    return
                await self._take(step, pod)
                await self._refresh()
            except ApiError as error:
                passes = error.transient or error.status == UNAUTHORIZED  # the next request has new credentials
                if not passes or self._backoff.failures >= MAX_FAILURES:
                    raise
                self._say(f"{error.message}; trying again")
                await asyncio.sleep(self._backoff.pause(error.retry_after))

    async def _take(self, step: Step, pod: Pod | None) -> None:
        if step.action is Action.WAIT:
            if step.text == self._waits_for:  # the status of a trial follows its pod with a delay
                self._say(step.text)
            self._waits_for = step.text
            await asyncio.sleep(POLL_SECONDS)
        elif step.action is Action.NEXT:
            attempt = self._trial.status.attempt
            self._reading = replace(self._reading, attempt=attempt, complete=False)
            self._position, self._first, self._was_terminated = Position(), False, False
            self._say(f"attempt {attempt} of {self._trial.metadata.name}")
        elif pod is not None:
            await self._read(pod)

    async def _read(self, pod: Pod) -> None:
        """Read the log over one connection, from where the last one ended."""
        terminated = has_terminated(pod)
        ended = False
        try:
            ended = await self._stream(pod)
        except ApiError as error:
            if error.not_found:  # the pod was just deleted
                self._reading = replace(self._reading, complete=True)
            elif self._options.follow and error.status == BAD_REQUEST:  # its container is about to start
                self._say(error.message)
                await asyncio.sleep(POLL_SECONDS)
            elif not self._options.follow or error.reason != "Timeout":  # a silent log outlasts a connection
                raise
        if ended and (terminated or not self._options.follow):
            # seen as terminated before this connection began, so nothing can be missing
            self._reading = replace(self._reading, complete=True)
        elif ended:
            await asyncio.sleep(POLL_SECONDS)

    async def _stream(self, pod: Pod) -> bool:
        splitter = LineSplitter()
        self._position.reconnect()
        meta = pod["metadata"]
        chunks = self._api.log_chunks(meta["name"], meta["namespace"], self._query(pod), seconds=CONNECTION_SECONDS)
        async with aclosing(chunks):
            async for chunk in chunks:
                self._backoff.reset()
                self._noted = ""
                self._show(splitter.feed(chunk))
        self._show(splitter.end())
        return True

    def _show(self, pieces: Iterable[Piece]) -> None:
        shown = bytearray()
        for piece in pieces:
            if self._position.is_new(piece):
                shown += self._text(piece)
        if shown:
            self._write(bytes(shown))

    def _text(self, piece: Piece) -> bytes:
        return f"{piece.time} ".encode() + piece.text if self._options.timestamps and piece.time else piece.text

    def _query(self, pod: Pod) -> dict[str, str]:
        options, query = self._options, {"container": main_container(pod), "timestamps": "true"}
        if options.follow:
            query["follow"] = "true"
        if self._position.time:
            query["sinceTime"] = self._position.time
        elif self._first:
            if options.tail is not None:
                query["tailLines"] = str(options.tail)
            if options.since is not None:
                query["sinceSeconds"] = str(max(1, round(options.since)))
        return query

    async def _pod(self) -> Pod | None:
        meta, status = self._trial.metadata, self._trial.status
        name = pod_name(meta.name, self._reading.attempt)
        if self._reading.attempt == status.attempt and status.pod:
            name = status.pod
        try:
            return await self._api.get(PODS, name, meta.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            return None

    async def _refresh(self) -> None:
        if self._options.follow:
            meta = self._trial.metadata
            self._trial = parse_trial(await fetch(self._api, TRIALS, meta.name, meta.namespace))

    def _say(self, text: str) -> None:
        if text != self._noted:
            self._note(text)
            self._noted = text


async def show_cluster_log(session: Session, name: str, options: LogOptions, write: Write, note: Note) -> None:
    """Show the log of the trial `name`."""
    async with session.api() as api:
        trial = parse_trial(await fetch(api, TRIALS, name, session.namespace))
        await ClusterLog(api, trial, options, write, note).show()
