"""Logging of every component: JSON lines in a cluster, readable lines on a terminal.

`about` names what the records of a block are about: job, trial, pod, node, gpu. Tasks that are started in the block
inherit it, so that every record of an action has the same fields.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

FIELDS = ("namespace", "job", "trial", "pod", "node", "gpu")
MAX_FIELD = 1024  # characters
_NOTHING: Mapping[str, str] = MappingProxyType({})
_fields: ContextVar[Mapping[str, str]] = ContextVar("log_fields", default=_NOTHING)
_process_fields: dict[str, str] = {}  # of every record of this process, also of other threads


@contextmanager
def about(
    *, namespace: str = "", job: str = "", trial: str = "", pod: str = "", node: str = "", gpu: str = ""
) -> Iterator[None]:
    """Add these fields to all records of the block.

    An empty field keeps the value of the surrounding block.
    """
    given = {"namespace": namespace, "job": job, "trial": trial, "pod": pod, "node": node, "gpu": gpu}
    token = _fields.set({**_fields.get(), **{name: value for name, value in given.items() if value}})
    try:
        yield
    finally:
        _fields.reset(token)


def always_about(*, node: str) -> None:
    """Add the node to all records of this process, as the agent of one node does."""
    _process_fields["node"] = node


def current_fields() -> dict[str, str]:
    """Return the fields that a record of this moment gets, in the order of FIELDS."""
    fields = {**_process_fields, **_fields.get()}
    return {name: fields[name][:MAX_FIELD] for name in FIELDS if name in fields}


class JsonFormatter(logging.Formatter):
    """A formatter of JSON lines.

    A line has time, level, logger, message, the fields of `about`, and error with a traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **current_fields(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class ConsoleFormatter(logging.Formatter):
    """A formatter of readable lines; the fields of `about` follow the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, a method of the base class
        """Format a record without its traceback."""
        fields = " ".join(f"{name}={value}" for name, value in current_fields().items())
        return super().formatMessage(record) + (f" [{fields}]" if fields else "")


def configure(form: Literal["json", "console"], level: str) -> None:
    """Send all records to standard error in the given form; each component's main calls this once."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(ConsoleFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
