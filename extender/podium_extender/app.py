"""The verbs over HTTP, as FastAPI's routes: for whoever asks in any way that HTTP allows. What kube-scheduler itself
sends is answered by the same verbs before it comes here (`fast_path_protocol`).
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
    """The description of the verbs is served only where `openapi_url` is given: kube-scheduler does not ask for it."""
    app = DescribedAPI(title="Podium's scheduler extender", openapi_url=openapi_url)

    async def answer(verb: str, request: Request) -> Response:
        async with endpoint.door.enter():
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
    async def not_served(request: Request, error: RequestError) -> Response:
        return told(request, error.status, str(error))

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> Response:
        known = ", ".join(f"POST /{verb}" for verb in VERBS)
        return told(request, error.status_code, f"{error.detail}: {known}")

    def told(request: Request, status: int, message: str) -> Response:
        return Response(endpoint.trouble(request.method, request.url.path, status, message), status, media_type=JSON)

    return app
