"""What the audit logs of the clusters of a test run recorded about Podium's own accounts.

Each process that runs tests on a cluster writes a record: the requests that were authorized, those that were refused,
and the tests that ran. `tests/grants` compares the union of all records with the chart's permissions.

`requests_of` and `refusals_of` are pure. Every test can import this module: `tests/conftest.py` puts this folder on the
path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rbac_grants import Request

from podium_devcluster.audit_log import AuditEvent, Target

FOLDER = "PODIUM_AUDIT_RECORDS"  # the environment variable with the folder of the records; the Makefile sets it
MAX_RECORDS = 100
MAX_RECORD_BYTES = 64 << 20
MAX_REFUSALS = 1000
CREATED = 201
AUTHENTICATION_READER = "extension-apiserver-authentication-reader"
# the arguments of `kubectl get` for the roles of Kubernetes that the chart binds: kind, names, options
KUBERNETES_ROLES = (
    ("clusterroles", ("system:kube-scheduler", "system:volume-scheduler"), ()),
    ("roles", (), ("--namespace=kube-system", f"--field-selector=metadata.name={AUTHENTICATION_READER}")),
)


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """A request that RBAC or an admission policy refused, and the test that ran meanwhile."""

    request: Request
    message: str
    test: str


@dataclass(frozen=True, slots=True)
class Record:
    """The evidence of one process. `cluster` is empty for a process that only lists its tests.

    `complete` is false if the API server removed old parts of its log. `roles` are Kubernetes' own roles that the
    chart binds.
    """

    cluster: str = ""
    complete: bool = True
    tests: frozenset[str] = frozenset()
    requests: frozenset[Request] = frozenset()
    refusals: frozenset[Refusal] = frozenset()
    roles: tuple[dict[str, Any], ...] = ()


def requests_of(event: AuditEvent) -> Iterator[Request]:
    """Yield the requests that the event proves to be authorized.

    An apply that creates its object is a patch with the answer 201; the API server asks RBAC for `create` as well. A
    kubelet's question about a caller of its own API stands for that caller's request.
    """
    if (review := event.review) is not None and review.allowed:
        yield _request(review.user, review.verb, review.target)
    if event.answer.authorized:
        yield _asked(event, event.verb)
        if event.verb in ("patch", "update") and event.answer.code == CREATED:
            yield _asked(event, "create")


def is_refusal(event: AuditEvent) -> bool:
    """Return whether RBAC or an admission policy refused the request; quotas, for example, answer 403 too."""
    by_policy = "ValidatingAdmissionPolicy" in event.answer.message
    return event.answer.code == 403 and (by_policy or not event.answer.authorized)


def _asked(event: AuditEvent, verb: str) -> Request:
    program = event.agent.partition("/")[0]
    if event.target is None:
        return Request(event.user, verb, url=event.path, program=program)
    return replace(_request(event.user, verb, event.target), program=program)


def _request(account: str, verb: str, target: Target) -> Request:
    return Request(account, verb, target.group, target.resource, target.namespace, target.name)


def record_of(events: Iterable[AuditEvent], prefix: str, starts: Mapping[str, float]) -> Record:
    """Return the record of the accounts that start with `prefix`.

    `starts` has the time at which each test started, in seconds of the epoch; a refusal belongs to the newest test
    before it.
    """
    requests: set[Request] = set()
    refusals: set[Refusal] = set()
    for event in events:
        requests.update(one for one in requests_of(event) if one.account.startswith(prefix))
        if event.user.startswith(prefix) and is_refusal(event) and len(refusals) < MAX_REFUSALS:
            before = [(start, test) for test, start in starts.items() if start <= event.time.timestamp()]
            test = max(before)[1] if before else ""
            refusals.add(Refusal(_asked(event, event.verb), event.answer.message, test))
    return Record(requests=frozenset(requests), refusals=frozenset(refusals))


def folder() -> Path | None:
    """Return the folder of the records, or None if this run writes none."""
    configured = os.environ.get(FOLDER)
    return Path(configured) if configured else None


def save(record: Record, into: Path) -> None:
    """Write a record to a file of its own."""
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"{record.cluster or 'tests'}-{os.getpid()}.json"
    content = {
        "cluster": record.cluster,
        "complete": record.complete,
        "tests": sorted(record.tests),
        "requests": [asdict(one) for one in sorted(record.requests)],
        "refusals": [asdict(one) for one in sorted(record.refusals)],
        "roles": record.roles,
    }
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1))
    temporary.replace(path)


def load(path: Path) -> Record:
    """Read one record. Raises ValueError with the file's name if it is not a record."""
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise ValueError(f"{path} has more than {MAX_RECORD_BYTES} bytes; delete it and run the tests again")
    try:
        raw = json.loads(path.read_text())
        refusals = (Refusal(Request(**one.pop("request")), **one) for one in raw.pop("refusals"))
        requests = (Request(**one) for one in raw.pop("requests"))
        return Record(
            tests=frozenset(raw.pop("tests")),
            requests=frozenset(requests),
            refusals=frozenset(refusals),
            roles=tuple(raw.pop("roles")),
            **raw,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not a record ({error}); delete it and run the tests again") from error


def load_all(of: Path) -> list[Record]:
    """Read all records of a folder. Raises ValueError."""
    paths = sorted(of.glob("*.json"))
    if len(paths) > MAX_RECORDS:
        raise ValueError(f"{of} has {len(paths)} records, but a run writes at most {MAX_RECORDS}; delete the folder")
    return [load(path) for path in paths]
