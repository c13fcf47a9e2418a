"""Forms: their fields, and whether a page of this server sent them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import Request

from podium_dashboard.server.viewer import RefusedError

TYPE = "application/x-www-form-urlencoded"
MAX_FORM_BYTES, MAX_FIELDS = 1 << 14, 10
REFERRER = {"referrer-policy": "same-origin"}  # without a referrer, browsers send forms with `Origin: null`


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form of this server.

    Raises RefusedError for the form of another site, and for a malformed one.
    """
    if not is_same_origin(request.headers):
        raise RefusedError(403, "This form was not sent by a page of this dashboard; open its page and try again.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != TYPE:
        raise RefusedError(415, f"The form has the type {kind[:60]!r}; it must be {TYPE}.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise RefusedError(413, f"The form has more than {MAX_FORM_BYTES} bytes.")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise RefusedError(400, "The form is malformed.") from error


def is_same_origin(headers: Headers) -> bool:
    """Return whether a page of this server sent the request, by headers that scripts of pages cannot set."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    scheme, _, name = headers.get("origin", "").lower().partition("://")  # an Origin has no path
    return scheme in ("http", "https") and name != "" and name == headers.get("host", "").lower()
