"""The verbs over HTTP, as FastAPI's routes: for whoever asks in any way that HTTP allows. What kube-scheduler itself
sends is answered by the same verbs before it comes here (`lane`).
"""

from __future__ import annotations

import time

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from podium_extender.server.endpoint import JSON, Front
from podium_extender.server.limits import RequestError, read
from podium_extender.server.openapi import DescribedApi, words_of
from podium_extender.verbs.handlers import VERBS


def create_app(front: Front, *, openapi_url: str | None = None) -> FastAPI:
    """The description of the verbs is served only where `openapi_url` is given: kube-scheduler does not ask for it."""
    app = DescribedApi(title="Podium's scheduler extender", openapi_url=openapi_url)

    async def answer(verb: str, request: Request) -> Response:
        async with front.door.enter():
            began = time.perf_counter()
            body = await read(request, front.body_limit)
            return Response(front.verbs.answer(verb, body, began), media_type=JSON)

    @app.post("/filter", openapi_extra=words_of("filter"))
    async def filter_verb(request: Request) -> Response:
        return await answer("filter", request)

    @app.post("/prioritize", openapi_extra=words_of("prioritize"))
    async def prioritize_verb(request: Request) -> Response:
        return await answer("prioritize", request)

    @app.post("/preempt", openapi_extra=words_of("preempt"))
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
        return Response(front.trouble(request.method, request.url.path, status, message), status, media_type=JSON)

    return app
