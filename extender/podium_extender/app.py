"""The verbs over HTTP, as FastAPI's routes for clients that use any feature of HTTP.

Requests in the form that kube-scheduler sends are answered earlier, by the fast path (`server.fast_path`).
"""

from __future__ import annotations

import time

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from podium_extender.server.endpoint import JSON, Endpoint
from podium_extender.server.limits import RequestError, read
from podium_extender.server.openapi import DescribedAPI, describe_verb
from podium_extender.verbs.handlers import VERBS


def create_app(endpoint: Endpoint, *, openapi_url: str | None = None) -> FastAPI:
    """Return the application; it serves its OpenAPI document only if `openapi_url` is given."""
    app = DescribedAPI(title="Podium's scheduler extender", openapi_url=openapi_url)

    async def answer(verb: str, request: Request) -> Response:
        async with endpoint.concurrency.hold():
            began = time.perf_counter()
            body = await read(request, endpoint.body_limit)
            return Response(endpoint.verbs.answer(verb, body, began), media_type=JSON)

    @app.post("/filter", openapi_extra=describe_verb("filter"))
    async def filter_verb(request: Request) -> Response:
        return await answer("filter", request)

    @app.post("/prioritize", openapi_extra=describe_verb("prioritize"))
    async def prioritize_verb(request: Request) -> Response:
        return await answer("prioritize", request)

    @app.post("/preempt", openapi_extra=describe_verb("preempt"))
    async def preempt_verb(request: Request) -> Response:
        return await answer("preempt", request)

    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> Response:
        return error_response(request, error.status, str(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        known = ", ".join(f"POST /{verb}" for verb in VERBS)
        return error_response(request, error.status_code, f"{error.detail}: {known}")

    def error_response(request: Request, status: int, message: str) -> Response:
        body = endpoint.error_body(request.method, request.url.path, status, message)
        return Response(body, status, media_type=JSON)

    return app
