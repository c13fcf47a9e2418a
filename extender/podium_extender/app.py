"""The verbs over HTTP. Everything is answered from memory: no API call and no wait inside a request.

kube-scheduler takes anything but 200 as an error of the whole cycle, so 200 is used wherever a pod can be told
something useful (`Error`, `FailedNodes`), 400 and 413 for a request that is not the protocol's, 503 while cold and
where too many come at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from podium.placement.base import Question
from podium.placement.needs import TRIAL_LABEL, BadPodError, need_of
from podium.placement.readings import placed
from podium.placement.scores import MIDDLE
from podium_extender.bodies import Door, RequestError, parse, read
from podium_extender.decide import Filtered, Judge, refused
from podium_extender.metrics import Metrics
from podium_extender.openapi import DescribedApi, words_of
from podium_extender.preempt import Evictor
from podium_extender.rows import Rows
from podium_extender.telemetry import Telemetry
from podium_extender.waiting import WaitingRoom
from podium_extender.wire import (
    ExtenderArgs,
    FilterResult,
    NodeList,
    PreemptArgs,
    Trouble,
)

log = logging.getLogger(__name__)
A = TypeVar("A", bound=BaseModel)
VERBS = ("filter", "prioritize", "preempt")


def create_app(
    telemetry: Telemetry,
    metrics: Metrics,
    judge: Judge,
    *,
    body_limit: int,
    max_requests: int,
    evictor: Evictor | None = None,
    waiting: WaitingRoom | None = None,
    openapi_url: str | None = None,
) -> FastAPI:
    """Requests over `body_limit` bytes and those beyond `max_requests` at once are refused. `evictor` answers preempt,
    `waiting` is told which pods every node refused. The description of the verbs is served to nobody but who gives
    `openapi_url`: kube-scheduler does not ask for it.
    """
    app = DescribedApi(title="Podium's scheduler extender", openapi_url=openapi_url)
    door, rows = Door(max_requests), Rows()
    evicts = evictor or Evictor(telemetry, metrics, judge.stale_after)

    async def answer(verb: str, request: Request, model: type[A], decide: Callable[[A], bytes]) -> Response:
        """One verb: read, parse and decide, each timed. `decide` gives the body of the answer."""
        async with door.enter():
            with metrics.phase(verb, "read"):
                body = await read(request, body_limit)
            with metrics.phase(verb, "parse"):
                args = parse(body, model)
            with metrics.phase(verb, "decide"):
                said = decide(args)
        metrics.requests.labels(verb, "200").inc()
        return Response(said, media_type="application/json")

    @app.post("/filter", openapi_extra=words_of("filter"))
    async def filter_verb(request: Request) -> Response:
        def decide(args: ExtenderArgs) -> bytes:
            if cold := telemetry.cold():
                # reaches the pod's own condition, unlike a status code; the scheduler asks again
                result = FilterResult(error=f"Podium's extender is not ready yet: {cold}")
            else:
                result = _filter(args, telemetry, metrics, judge, waiting)
            return result.model_dump_json(by_alias=True).encode()

        with metrics.whole("filter"):
            return await answer("filter", request, ExtenderArgs, decide)

    @app.post("/prioritize", openapi_extra=words_of("prioritize"))
    async def prioritize_verb(request: Request) -> Response:
        def decide(args: ExtenderArgs) -> bytes:
            _warm(telemetry)
            return rows.write(args.names, _prioritize(args, telemetry, judge))

        with metrics.whole("prioritize"):
            return await answer("prioritize", request, ExtenderArgs, decide)

    @app.post("/preempt", openapi_extra=words_of("preempt"))
    async def preempt_verb(request: Request) -> Response:
        def decide(args: PreemptArgs) -> bytes:
            if telemetry.cold():
                evicts.park(args, telemetry.clock())
            _warm(telemetry)
            return evicts.answer(args).model_dump_json(by_alias=True).encode()

        with metrics.whole("preempt"):
            return await answer("preempt", request, PreemptArgs, decide)

    @app.exception_handler(RequestError)
    async def not_served(request: Request, error: RequestError) -> Response:
        return _trouble(request, metrics, error.status, str(error))

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> Response:
        known = ", ".join(f"POST /{verb}" for verb in VERBS)
        return _trouble(request, metrics, error.status_code, f"{error.detail}: {known}")

    return app


def _warm(telemetry: Telemetry) -> None:
    """Whose victims would be named, or which node called idle, is not guessed."""
    if cold := telemetry.cold():
        raise RequestError(503, f"not ready yet: {cold}")


def _filter(
    args: ExtenderArgs, telemetry: Telemetry, metrics: Metrics, judge: Judge, waiting: WaitingRoom | None
) -> FilterResult:
    try:
        question = _question(args, telemetry)
        decided = judge.filter(question, args.names, telemetry.views(), telemetry.clock())
        if waiting is not None:
            name = args.pod.metadata.namespace, args.pod.metadata.name
            if decided.passed:
                waiting.leaves(name)
            else:
                waiting.refused(name, question.need, args.names, telemetry.clock())
        if len(decided.passed) == 1:  # then there is nothing to score
            _expect(args, decided.passed[0], telemetry)
    except BadPodError as error:
        decided = Filtered((), dict.fromkeys(args.names, refused(error.code, str(error))))
    for code, count in Counter(why.code for why in decided.failed.values()).items():
        metrics.rejections.labels(code).inc(count)
    return FilterResult(
        nodes=_only(args.nodes, frozenset(decided.passed)) if args.node_names is None else None,
        node_names=list(decided.passed) if args.node_names is not None else None,
        failed_nodes={name: why.sentence for name, why in decided.failed.items() if why.helped},
        failed_and_unresolvable_nodes={name: why.sentence for name, why in decided.failed.items() if not why.helped},
    )


def _prioritize(args: ExtenderArgs, telemetry: Telemetry, judge: Judge) -> list[int]:
    try:
        question = _question(args, telemetry)
    except BadPodError:  # filter says why; nothing is better than anything else for such a pod
        return [MIDDLE] * len(args.names)
    views = telemetry.views()
    question = replace(question, cpus=telemetry.cpus_known)
    if question.cpus and judge.policy.of(question).reads_cpu:
        question = replace(question, need=placed(args.pod).thirst)
    ranking = judge.prioritize(question, args.names, views, telemetry.clock())
    if ranking.favourite is not None:
        _expect(args, args.names[ranking.favourite], telemetry)
    return ranking.scores


def _expect(args: ExtenderArgs, node: str, telemetry: Telemetry) -> None:
    """Whole, as the watch will show it: a preemption may name it before its binding is seen."""
    meta = args.pod.metadata
    telemetry.expect((meta.namespace, meta.name), replace(placed(args.pod), node=node))


def _question(args: ExtenderArgs, telemetry: Telemetry) -> Question:
    meta = args.pod.metadata
    telemetry.asked_about(meta.uid)
    return Question(need_of(args.pod), meta.uid, telemetry.typical(), trial=bool(meta.labels.get(TRIAL_LABEL)))


def _only(nodes: NodeList | None, passed: frozenset[str]) -> NodeList:
    """Full form: answering with names would be zero nodes to the scheduler, without any error."""
    items = [node for node in nodes.items if node.metadata.name in passed] if nodes else []
    return NodeList(items=items)


def _trouble(request: Request, metrics: Metrics, status: int, message: str) -> Response:
    verb = request.url.path.strip("/")
    metrics.requests.labels(verb if verb in VERBS else "other", str(status)).inc()
    log.warning("%s %s answered %d: %s", request.method, request.url.path, status, message)
    body: BaseModel = Trouble(error=message)
    return Response(body.model_dump_json(by_alias=True), status, media_type="application/json")
