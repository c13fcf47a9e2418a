"""What the API server's audit log has about the requests of one attempt.

Each attempt has a mark, which its client sends as its user agent. So the requests of an attempt are found exactly, also
among those of an administrator that makes the same ones.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase

from podium_devcluster.audit_log import AuditEvent, AuditLog

MARK = "attempt-"
WAIT_SECONDS = 60.0  # a line is written a moment after the client has its answer


@dataclass(frozen=True)
class Attempt:
    """One attempt of an actor: its mark, and the API server's error for its client; empty if it was accepted."""

    actor: str
    mark: str
    error: str


@dataclass(frozen=True)
class Expected:
    """A request as the log has to name it; `name` is a pattern."""

    user: str
    node: str
    verb: str
    resource: str
    name: str

    def matches(self, event: AuditEvent) -> bool:
        """Return whether the event is this request."""
        target = event.target
        return (
            (event.user, event.node, event.verb) == (self.user, self.node, self.verb)
            and target is not None
            and target.resource == self.resource
            and fnmatchcase(target.name, self.name)
        )


class Evidence:
    """The log of the API server under test, by mark."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._events: dict[str, list[AuditEvent]] = defaultdict(list)
        log.skip()

    def of(self, attempt: Attempt, expected: Expected) -> list[AuditEvent]:
        """Return the attempt's requests up to the expected one, which has to be there within WAIT_SECONDS."""
        end = time.monotonic() + WAIT_SECONDS
        while not any(map(expected.matches, events := self._read(attempt.mark))):
            assert time.monotonic() < end, f"the audit log has no {expected}, but {events}"
            time.sleep(0.05)
        return events

    def _read(self, mark: str) -> list[AuditEvent]:
        for event in self._log.new_events():
            if event.agent.startswith(MARK) and event.stage == "ResponseComplete":
                self._events[event.agent].append(event)
        return self._events[mark]


def check_refused(events: list[AuditEvent], expected: Expected, policy: str | None) -> None:
    """Check that the last request is the expected one and was refused, and that those before it were accepted.

    `policy` is the word of the admission policy that refused it. None: RBAC refused it.
    """
    *before, last = events
    assert expected.matches(last), (expected, last)
    assert all(event.answer.code < 300 for event in before), before
    answer = last.answer
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.authorized is (policy is not None), "RBAC's decision"
    if policy is None:
        assert f"cannot {expected.verb} resource" in answer.message
    else:
        assert "ValidatingAdmissionPolicy" in answer.message
        assert f"denied request: {policy}: " in answer.message


def check_accepted(events: list[AuditEvent], expected: Expected) -> None:
    """Check that the expected request is there, authorized and accepted, and no other was refused."""
    assert all(event.answer.code < 300 and event.answer.authorized for event in events), events
    assert any(map(expected.matches, events))
