"""The verbs over HTTP: FastAPI receives a request, and `verbs.handlers` answers it."""

from __future__ import annotations

import asyncio
import logging
import time

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit, read
from podium_extender.server.openapi import DescribedAPI
from podium_extender.verbs.handlers import VERBS, Verbs
from podium_extender.verbs.wire import ErrorResponse, RequestError

log = logging.getLogger(__name__)
JSON = "application/json"


def create_app(
    verbs: Verbs, metrics: Metrics, concurrency: ConcurrencyLimit, body_limit: int, *, openapi_url: str | None = None
) -> FastAPI:
    """Return the application; it serves its OpenAPI document only if `openapi_url` is given.

    A request of more than `body_limit` bytes is refused.
    """
    app = DescribedAPI(title="Podium's scheduler extender", openapi_url=openapi_url)

    async def answer(request: Request) -> Response:
        verb, began = request.scope["path"].strip("/"), time.perf_counter()
        try:
            async with concurrency.hold():
                body = verbs.answer(verb, await read(request, body_limit), began)
        except RequestError as error:
            return error_response(request, error.status, str(error))
        except ClientDisconnect:
            return Response()  # it reaches no client
        except Exception:
            log.exception("%s failed", verb)
            return error_response(request, 500, "Internal Server Error")
        if verb == "prioritize":
            asyncio.get_running_loop().call_soon(verbs.precompute)  # when the response is written
        return Response(body, media_type=JSON)

    for verb in VERBS:
        app.add_route(f"/{verb}", answer, methods=["POST"], name=verb)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        known = ", ".join(f"POST /{verb}" for verb in VERBS)
        return error_response(request, error.status_code, f"{error.detail}: {known}")

    def error_response(request: Request, status: int, message: str) -> Response:
        path = request.url.path
        verb = path.strip("/")
        metrics.requests.labels(verb if verb in VERBS else "other", str(status)).inc()
        log.warning("%s %s answered %d: %s", request.method, path, status, message)
        return Response(ErrorResponse(error=message).model_dump_json(by_alias=True), status, media_type=JSON)

    return app
