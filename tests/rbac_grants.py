"""The permissions that RBAC objects grant, one by one, and whether a request needs one of them. Pure.

The rules are those of Kubernetes' RBAC authorizer. A verb, a group and a resource match by name or `*`. A rule with
names matches requests that name one of them. A RoleBinding grants requests of its own namespace only.

Every test can import this module: `tests/conftest.py` puts this folder on the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ALL = "*"
MAX_GRANTS = 10_000
ROLES = ("Role", "ClusterRole")
KINDS = (*ROLES, "RoleBinding", "ClusterRoleBinding")
Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource such as pods/status, or on the path `url`. `name` is empty for all objects."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    url: str = ""

    def __str__(self) -> str:
        what = self.url or (f"{self.resource}.{self.group}" if self.group else self.resource)
        return f"{self.verb} {what}{f' named {self.name}' if self.name else ''}"


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A permission of an account by a role. `namespace` is empty for all namespaces.

    The account is empty for a role that no binding names: an administrator binds it.
    """

    role: str
    account: str
    namespace: str
    permission: Permission

    def __str__(self) -> str:
        return f"{self.role}: {self.permission}{f' in {self.namespace}' if self.namespace else ''}"


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """What an account asked for, and by which program. A request for a path has no resource."""

    account: str
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    url: str = ""
    program: str = ""


def expand(objects: Iterable[Manifest], known: Iterable[Manifest] = ()) -> list[Grant]:
    """Return every grant of these objects, sorted.

    `known` has roles that the objects may bind and do not contain. Raises ValueError for a binding to any other role,
    and for more than MAX_GRANTS grants.
    """
    objects = [item for item in objects if item["kind"] in KINDS]
    roles = {_key(item): item["rules"] for item in objects if item["kind"] in ROLES}
    rules = {_key(item): item["rules"] for item in known} | roles
    grants: set[Grant] = set()
    bound: set[tuple[str, str, str]] = set()
    for item in objects:
        if item["kind"] in ROLES:
            continue
        namespace = item["metadata"].get("namespace", "") if item["kind"] == "RoleBinding" else ""
        role = item["roleRef"]
        key = (role["kind"], namespace if role["kind"] == "Role" else "", role["name"])
        if key not in rules:
            raise ValueError(f"{item['kind']} {item['metadata']['name']} names {role['kind']} {role['name']}: unknown")
        bound.add(key)
        for account in map(_account, item.get("subjects") or ()):
            grants |= {Grant(role["name"], account, namespace, one) for one in permissions(rules[key], namespace)}
    for key in roles.keys() - bound:
        grants |= {Grant(key[2], "", key[1], one) for one in permissions(roles[key], key[1])}
    if len(grants) > MAX_GRANTS:
        raise ValueError(f"{len(grants)} grants; at most {MAX_GRANTS} are compared, and no chart needs as many")
    return sorted(grants)


def permissions(rules: Iterable[Manifest], namespace: str = "") -> Iterator[Permission]:
    """Yield the permissions of a role's rules. A role in a namespace grants no paths."""
    for rule in rules or ():
        for verb in rule["verbs"]:
            for group in rule.get("apiGroups") or ():
                for resource in rule.get("resources") or ():
                    for name in rule.get("resourceNames") or ("",):
                        yield Permission(verb, group, resource, name)
            for url in () if namespace else rule.get("nonResourceURLs") or ():
                yield Permission(verb, url=url)


def matches(grant: Grant, request: Request) -> bool:
    """Return whether the grant authorizes the request."""
    one = grant.permission
    if grant.account != request.account or one.verb not in (ALL, request.verb):
        return False
    if not request.resource:
        return _url_matches(one.url, request.url)
    return (
        grant.namespace in ("", request.namespace)
        and one.group in (ALL, request.group)
        and _resource_matches(one.resource, request.resource)
        and one.name in ("", request.name)
    )


def used(grants: Iterable[Grant], requests: Iterable[Request]) -> set[Grant]:
    """Return the grants that authorize at least one of the requests."""
    by_account: dict[str, list[Request]] = {}
    for request in requests:
        by_account.setdefault(request.account, []).append(request)
    return {grant for grant in grants if any(matches(grant, request) for request in by_account.get(grant.account, ()))}


def _resource_matches(granted: str, asked: str) -> bool:
    if granted in (ALL, asked):
        return True
    resource, _, below = granted.partition("/")
    return resource == ALL and bool(below) and below == asked.partition("/")[2]


def _url_matches(granted: str, asked: str) -> bool:
    if not granted:
        return False
    return granted in (ALL, asked) or (granted.endswith(ALL) and asked.startswith(granted.removesuffix(ALL)))


def _key(item: Manifest) -> tuple[str, str, str]:
    namespace = item["metadata"].get("namespace", "") if item["kind"] == "Role" else ""
    return item["kind"], namespace, item["metadata"]["name"]


def _account(subject: Manifest) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return f"{subject['kind'].lower()}:{subject['name']}" if subject["kind"] == "Group" else str(subject["name"])
