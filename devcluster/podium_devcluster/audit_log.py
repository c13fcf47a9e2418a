"""Read the audit log of a cluster's API server: one request per line, in the order of their answers.

`parse_event` is pure and bounded: a line that is too long or no audit event is refused. `AuditLog` reads the files of a
running or ended cluster from where it stopped the last time, also after the API server has rotated them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from podium_devcluster.paths import ClusterPaths
from podium_devcluster.runtime import audit

MAX_LINE_BYTES = 1 << 20
NODE_CLAIM = "authentication.kubernetes.io/node-name"  # of a token that a kubelet requested for a pod
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")


class AuditLogError(ValueError):
    """A line of the log is not an audit event, or the log is not complete."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object or collection of a request; `resource` contains the subresource, such as pods/status."""

    group: str
    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Review:
    """A component's question whether a user may do something, and the answer."""

    user: str
    verb: str
    target: Target
    allowed: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer. `authorized` is RBAC's decision; a policy may refuse an authorized request."""

    code: int
    reason: str
    message: str
    authorized: bool


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request. `target` is None for a path such as /version. `node` is the claim of the user's token.

    For an administrator that impersonates a user, `user` is the impersonated one, whose permissions count.
    """

    id: str
    stage: str
    time: datetime
    user: str
    node: str
    agent: str
    verb: str
    path: str
    target: Target | None
    answer: Answer
    review: Review | None


def parse_event(line: bytes) -> AuditEvent:
    """Parse one line. Raises AuditLogError with the field, its value and the start of the line."""
    if len(line) > MAX_LINE_BYTES:
        raise AuditLogError(f"an audit event has {len(line)} bytes, but at most {MAX_LINE_BYTES} are read")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AuditLogError(f"no JSON ({error}): {_start(line)}") from error
    if not isinstance(raw, dict) or raw.get("kind") != "Event":
        raise AuditLogError(f"no audit event (kind must be Event): {_start(line)}")
    try:
        return _event(raw)
    except (TypeError, ValueError) as error:
        raise AuditLogError(f"{error}: {_start(line)}") from error


def _event(raw: Mapping[str, Any]) -> AuditEvent:
    user, status, notes = (_mapping(raw, field) for field in ("user", "responseStatus", "annotations"))
    user = _mapping(raw, "impersonatedUser") or user
    stage = _text(raw, "stage")
    if stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(STAGES)} (got {stage!r})")
    code = status.get("code", 0)
    if not isinstance(code, int):
        raise TypeError(f"responseStatus.code must be a number (got {code!r})")
    node = _mapping(user, "extra").get(NODE_CLAIM) or [""]
    target = _target(raw["objectRef"]) if "objectRef" in raw else None
    return AuditEvent(
        id=_text(raw, "auditID"),
        stage=stage,
        time=datetime.fromisoformat(_text(raw, "requestReceivedTimestamp")),
        user=_text(user, "username", optional=True),  # a request with an invalid token (401) has none
        node=str(node[0]),
        agent=_text(raw, "userAgent", optional=True),
        verb=_text(raw, "verb"),
        path=_text(raw, "requestURI").partition("?")[0],
        target=target,
        answer=Answer(
            code=code,
            reason=_text(status, "reason", optional=True),
            message=_text(status, "message", optional=True),
            authorized=notes.get("authorization.k8s.io/decision") == "allow",
        ),
        review=_review(raw) if target is not None and target.resource == "subjectaccessreviews" else None,
    )


def _target(raw: Any) -> Target:
    if not isinstance(raw, dict):
        raise TypeError(f"objectRef must be an object (got {raw!r})")
    resource, below = (_text(raw, field, optional=True) for field in ("resource", "subresource"))
    group, namespace, name = (_text(raw, field, optional=True) for field in ("apiGroup", "namespace", "name"))
    return Target(group, f"{resource}/{below}" if below else resource, namespace, name)


def _review(raw: Mapping[str, Any]) -> Review | None:
    spec = _mapping(_mapping(raw, "requestObject"), "spec")
    wanted = _mapping(spec, "resourceAttributes")
    if not wanted:
        return None  # it asks about a path, or the API server refused it
    allowed = _mapping(_mapping(raw, "responseObject"), "status").get("allowed") is True
    target = _target(wanted | {"apiGroup": wanted.get("group", "")})
    return Review(_text(spec, "user", optional=True), _text(wanted, "verb", optional=True), target, allowed)


def _mapping(raw: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = raw.get(field) or {}
    if not isinstance(value, dict):
        raise TypeError(f"{field} must be an object (got {value!r})")
    return value


def _text(raw: Mapping[str, Any], field: str, *, optional: bool = False) -> str:
    value = raw.get(field, "" if optional else None)
    if not isinstance(value, str):
        raise TypeError(f"{field} must be a string (got {value!r})")
    return value


def _start(line: bytes) -> str:
    return repr(line[:200].decode(errors="replace"))


class AuditLog:
    """The log of one cluster, read once from its beginning to its end."""

    def __init__(self, paths: ClusterPaths) -> None:
        self._folder = paths.audit
        self._read: dict[int, int] = {}  # bytes by inode: the API server renames a full file

    @property
    def files(self) -> list[Path]:
        """The files, oldest first: a full one is renamed to audit-TIME.log."""
        return [*sorted(self._folder.glob("audit-*.log")), *self._folder.glob("audit.log")]

    @property
    def complete(self) -> bool:
        """Whether the API server has not removed old files yet."""
        return len(self.files) <= audit.BACKUPS

    def skip(self) -> None:
        """Leave out all requests so far."""
        for _ in self._lines():
            pass

    def new_events(self) -> Iterator[AuditEvent]:
        """Yield the events that were written since the last call. Raises AuditLogError."""
        for line in self._lines():
            yield parse_event(line)

    def _lines(self) -> Iterator[bytes]:
        for path in self.files:
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue  # it was renamed just now; the next call reads the rest
            with file:
                inode = os.fstat(file.fileno()).st_ino
                file.seek(self._read.get(inode, 0))
                while (line := file.readline(MAX_LINE_BYTES + 2)).endswith(b"\n"):
                    self._read[inode] = file.tell()
                    yield line
                if len(line) > MAX_LINE_BYTES:
                    raise AuditLogError(f"{path} has a line of more than {MAX_LINE_BYTES} bytes")
