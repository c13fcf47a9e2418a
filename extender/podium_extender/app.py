"""The verbs over HTTP. Everything is answered from memory: no API call and no wait inside a request.

kube-scheduler takes anything but 200 as an error of the whole cycle, so 200 is used wherever a pod can be told
something useful (`Error`, `FailedNodes`), 400 and 413 for a request that is not the protocol's, 503 while cold and
where too many come at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from podium.placement.base import Question
from podium.placement.needs import BadPodError, need_of
from podium.placement.scores import MIDDLE
from podium.placement.views import Refusal
from podium_extender.bodies import Door, RequestError, parse, read
from podium_extender.decide import Filtered, Judge
from podium_extender.metrics import Metrics
from podium_extender.preempt import preempt
from podium_extender.restraint import Guard, Limits
from podium_extender.telemetry import Telemetry
from podium_extender.wire import (
    ExtenderArgs,
    FilterResult,
    HostPriority,
    NodeList,
    PreemptArgs,
    Trouble,
)

log = logging.getLogger(__name__)
A = TypeVar("A", bound=BaseModel)
NO_STORM = Limits()
VERBS = ("filter", "prioritize", "preempt")


def create_app(
    telemetry: Telemetry,
    metrics: Metrics,
    judge: Judge,
    *,
    body_limit: int,
    max_requests: int,
    limits: Limits = NO_STORM,
) -> FastAPI:
    """Requests over `body_limit` bytes and those beyond `max_requests` at once are refused; `limits` are preempt's."""
    app = FastAPI(title="Podium's scheduler extender", openapi_url=None)
    door, guard = Door(max_requests), Guard(limits)

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

    @app.post("/filter")
    async def filter_verb(request: Request) -> Response:
        def decide(args: ExtenderArgs) -> bytes:
            if cold := telemetry.cold():
                # reaches the pod's own condition, unlike a status code; the scheduler asks again
                result = FilterResult(error=f"Podium's extender is not ready yet: {cold}")
            else:
                result = _filter(args, telemetry, metrics, judge)
            return result.model_dump_json(by_alias=True).encode()

        with metrics.whole("filter"):
            return await answer("filter", request, ExtenderArgs, decide)

    @app.post("/prioritize")
    async def prioritize_verb(request: Request) -> Response:
        def decide(args: ExtenderArgs) -> bytes:
            _warm(telemetry)
            return to_json(_prioritize(args, telemetry, judge))

        with metrics.whole("prioritize"):
            return await answer("prioritize", request, ExtenderArgs, decide)

    @app.post("/preempt")
    async def preempt_verb(request: Request) -> Response:
        def decide(args: PreemptArgs) -> bytes:
            _warm(telemetry)
            result = preempt(args, telemetry, metrics, judge.stale_after, guard)
            return result.model_dump_json(by_alias=True).encode()

        with metrics.whole("preempt"):
            return await answer("preempt", request, PreemptArgs, decide)

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
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
        return [{"Host": name, "Score": MIDDLE} for name in args.names]
    scores = judge.prioritize(question, telemetry.views(args.names), telemetry.clock())
    return [{"Host": name, "Score": score} for name, score in zip(args.names, scores, strict=True)]


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


def _trouble(request: Request, metrics: Metrics, status: int, message: str) -> Response:
    verb = request.url.path.strip("/")
    metrics.requests.labels(verb if verb in VERBS else "other", str(status)).inc()
    log.warning("%s %s answered %d: %s", request.method, request.url.path, status, message)
    body: BaseModel = Trouble(error=message)
    return Response(body.model_dump_json(by_alias=True), status, media_type="application/json")
