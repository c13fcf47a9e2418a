"""Errors of calls to the API server, and how an error answer is read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

INVALID_JSON = "InvalidJSON"
INVALID_ANSWER = "InvalidAnswer"
ANSWER_TOO_LARGE = "AnswerTooLarge"
OUT_OF_ORDER = "OutOfOrder"
STALE_LIST = "StaleList"
MAX_MESSAGE_LENGTH = 2000
MAX_RETRY_AFTER = 60.0  # seconds: a server or proxy cannot silence a component for longer


@dataclass(eq=False)  # not frozen: contextlib assigns to an exception's traceback
class ApiError(Exception):
    """An error of the API server (`status` is HTTP's), or a call without a usable response (`status` 0).

    `retry_after` is the number of seconds that the server asked to wait.
    """

    status: int
    reason: str
    message: str
    retry_after: float = 0.0

    def __str__(self) -> str:
        return f"{self.reason} ({self.status}): {self.message}"

    @property
    def not_found(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Whether another client changed the object in the meantime, or created it."""
        return self.status == 409

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later: no connection, too many calls, or a server error."""
        return self.status in (0, 429) or self.status >= 500

    @property
    def expired(self) -> bool:
        """Whether the server no longer has the version of a watch or page: a new list is needed."""
        return self.status == 410

    @property
    def stale(self) -> bool:
        """Whether the server is behind a version that another server has already returned."""
        return self.reason == STALE_LIST or (self.status == 504 and "Too large resource version" in self.message)

    @property
    def malformed(self) -> bool:
        """Whether the response is not what an API server sends, so that events may be missing."""
        return self.reason in (INVALID_JSON, INVALID_ANSWER, ANSWER_TOO_LARGE, OUT_OF_ORDER)


def error_from_answer(status: int, retry_after: str | None, body: bytes) -> ApiError:
    """Return the error that a response describes.

    `retry_after` is the value of the header Retry-After. Pure.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        text = body[:500].decode(errors="replace")
        return ApiError(status, "Error", text, _seconds(retry_after))
    return error_from_status(status, answer, _seconds(retry_after))


def error_from_status(status: int, answer: dict[str, object], retry_after: float = 0.0) -> ApiError:
    """Return the error that a Status object describes. Pure."""
    details = answer.get("details")
    asked = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    reason, message = answer.get("reason") or "Error", answer.get("message") or "no message"
    return ApiError(status, str(reason)[:100], str(message)[:MAX_MESSAGE_LENGTH], max(retry_after, _seconds(asked)))


def _seconds(value: object) -> float:
    """Return a number of seconds between 0 and the maximum; 0 for anything else, such as a date."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if math.isfinite(seconds) else 0.0
