"""The two verbs over HTTP. Everything is answered from memory: no API call and no wait inside a request.

kube-scheduler takes anything but 200 as an error of the whole cycle, so 200 is used wherever a pod can be told
something useful (`Error`, `FailedNodes`), 400 and 413 for a request that is not the protocol's, 503 while cold.
"""

from __future__ import annotations

import logging
import time

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from podium.placement.base import Question
from podium.placement.needs import BadPodError, need_of
from podium.placement.scores import MIDDLE
from podium.placement.views import Refusal
from podium_extender.decide import Filtered, Judge
from podium_extender.metrics import Metrics
from podium_extender.telemetry import Telemetry
from podium_extender.wire import ExtenderArgs, FilterResult, HostPriority, NodeList, Trouble

log = logging.getLogger(__name__)
_SCORES = TypeAdapter(list[HostPriority])
SHOWN_ERRORS = 5


class RequestError(Exception):
    """The request itself cannot be served: a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def create_app(telemetry: Telemetry, metrics: Metrics, judge: Judge, *, body_limit: int) -> FastAPI:
    """Requests over `body_limit` bytes are refused."""
    app = FastAPI(title="Podium's scheduler extender", openapi_url=None)

    @app.post("/filter")
    async def filter_verb(request: Request) -> Response:
        started = time.perf_counter()
        args = await _read(request, body_limit)
        if cold := telemetry.cold():
            # reaches the pod's own condition, unlike a status code; the scheduler asks again
            answer = FilterResult(error=f"Podium's extender is not ready yet: {cold}")
        else:
            answer = _filter(args, telemetry, metrics, judge)
        return _reply("filter", metrics, started, answer.model_dump_json(by_alias=True).encode())

    @app.post("/prioritize")
    async def prioritize_verb(request: Request) -> Response:
        started = time.perf_counter()
        args = await _read(request, body_limit)
        if cold := telemetry.cold():
            raise RequestError(503, f"not ready yet: {cold}")
        scores = _prioritize(args, telemetry, judge)
        return _reply("prioritize", metrics, started, _SCORES.dump_json(scores, by_alias=True))

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
        return _trouble(request, metrics, error.status, str(error))

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> Response:
        return _trouble(request, metrics, error.status_code, f"{error.detail}: POST /filter, POST /prioritize")

    return app


def _filter(args: ExtenderArgs, telemetry: Telemetry, metrics: Metrics, judge: Judge) -> FilterResult:
    try:
        question = _question(args, telemetry)
        decided = judge.filter(question, telemetry.views(args.names), telemetry.clock())
    except BadPodError as error:
        decided = Filtered((), {}, dict.fromkeys(args.names, Refusal(error.code, str(error))))
    for refusal in (*decided.failed.values(), *decided.unresolvable.values()):
        metrics.rejections.labels(refusal.code).inc()
    return FilterResult(
        nodes=_only(args.nodes, frozenset(decided.passed)) if args.node_names is None else None,
        node_names=list(decided.passed) if args.node_names is not None else None,
        failed_nodes=_sentences(decided.failed),
        failed_and_unresolvable_nodes=_sentences(decided.unresolvable),
    )


def _prioritize(args: ExtenderArgs, telemetry: Telemetry, judge: Judge) -> list[HostPriority]:
    try:
        question = _question(args, telemetry)
    except BadPodError:  # filter says why; nothing is better than anything else for such a pod
        return [HostPriority(host=name, score=MIDDLE) for name in args.names]
    scores = judge.prioritize(question, telemetry.views(args.names), telemetry.clock())
    return [HostPriority(host=name, score=score) for name, score in zip(args.names, scores, strict=True)]


def _question(args: ExtenderArgs, telemetry: Telemetry) -> Question:
    return Question(need_of(args.pod), args.pod.metadata.uid, telemetry.typical())


def _only(nodes: NodeList | None, passed: frozenset[str]) -> NodeList:
    """Full form: answering with names would be zero nodes to the scheduler, without any error."""
    items = [node for node in nodes.items if node.metadata.name in passed] if nodes else []
    return NodeList(items=items)


def _sentences(refusals: dict[str, Refusal]) -> dict[str, str]:
    """As the scheduler shows them: equal ones are counted together, so the node's name (the key) stays out of them; it
    adds a full stop of its own.
    """
    return {
        name: f"{refusal.code}: {refusal.message.removeprefix(f'Node {name}: ').rstrip('.')}"
        for name, refusal in refusals.items()
    }


async def _read(request: Request, body_limit: int) -> ExtenderArgs:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > body_limit:
            raise RequestError(413, f"the request is larger than {body_limit} bytes (PODIUM_BODY_LIMIT)")
    try:
        return ExtenderArgs.model_validate_json(bytes(body))
    except ValidationError as error:
        found = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(found) - SHOWN_ERRORS} more" if len(found) > SHOWN_ERRORS else ""
        raise RequestError(400, "; ".join(found[:SHOWN_ERRORS]) + more) from error


def _reply(verb: str, metrics: Metrics, started: float, body: bytes) -> Response:
    metrics.seconds.labels(verb).observe(time.perf_counter() - started)
    metrics.requests.labels(verb, "200").inc()
    return Response(body, media_type="application/json")


def _trouble(request: Request, metrics: Metrics, status: int, message: str) -> Response:
    verb = request.url.path.strip("/")
    metrics.requests.labels(verb if verb in ("filter", "prioritize") else "other", str(status)).inc()
    log.warning("%s %s answered %d: %s", request.method, request.url.path, status, message)
    body: BaseModel = Trouble(error=message)
    return Response(body.model_dump_json(by_alias=True), status, media_type="application/json")
