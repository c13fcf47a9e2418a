"""API server of plain objects for the model: versions, field managers, deletions with grace, watches that lag.

Objects are values: a change creates a new object, so a view may keep the old one. The model relies on what real servers
do. A manager applies only fields that it owns, a version that is named must be the present one, and a bound pod is
deleted only when its kubelet reports its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from podium_cluster.client import ApiError
from podium_cluster.resources import EVENTS, GPUNODES, PODS, TRIALS, Resource

T = TypeVar("T")
Object = dict[str, Any]
Key = tuple[str, str]


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class KilledError(BaseException):
    """The calling process was killed: no further action of it happens."""


class Server:
    """`fuse`: calls until the caller is killed (None: never); `mute`: writes until one succeeds without an answer."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._version = 0
        self._objects: dict[str, dict[Key, Object]] = {}
        self._parts: dict[tuple[str, str, str], dict[str, Object]] = {}  # (kind, uid, part) > manager > fields
        self.log: list[tuple[str, Key, Object | None]] = []
        self.fuse: int | None = None
        self.mute: int | None = None
        self.lost_work_events = 0

    # what everything may read

    def find(self, resource: Resource, name: str, namespace: str = "lab") -> Object | None:
        return self._objects.get(resource.kind, {}).get(("" if not resource.namespaced else namespace, name))

    def all(self, resource: Resource) -> list[Object]:
        return list(self._objects.get(resource.kind, {}).values())

    # the verbs of `podium_cluster.client.Api`

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        found = self.find(resource, name, namespace or "")
        if found is None:
            raise ApiError(404, "NotFound", f"{resource.kind} {name}")
        return found

    async def list(self, resource: Resource, *, fields: str) -> Object:
        """Return the pods of one node."""
        node = fields.partition(",")[0].removeprefix("spec.nodeName=")
        return {"items": [thing for thing in self.all(resource) if thing["spec"].get("nodeName") == node]}

    async def create(self, resource: Resource, manifest: Mapping[str, Any], **_: Any) -> None:
        self._count_call()
        if resource is EVENTS:
            self.lost_work_events += manifest["reason"] == "WorkLost"
            return self._answer(None)
        meta = manifest["metadata"]
        if self.find(resource, meta["name"], meta.get("namespace", "")) is not None:
            raise ApiError(409, "AlreadyExists", f"{resource.kind} {meta['name']}")
        born = {"uid": f"{meta['name']}-{self._version}", "creationTimestamp": moment(self._now())}
        made = {**manifest, "metadata": {**meta, **born}}
        if resource is PODS:
            made["status"] = {"phase": "Pending"}
        self.put(resource, made)
        return self._answer(None)

    async def delete(
        self, resource: Resource, name: str, namespace: str, *, uid: str | None = None, grace_seconds: int | None = None
    ) -> None:
        self._count_call()
        self.end(name, uid=uid, grace=grace_seconds)
        return self._answer(None)

    async def patch(self, resource: Resource, name: str, namespace: str, patch: Any, **_: Any) -> None:
        self._count_call()
        found = self.find(resource, name, namespace)
        if found is None:
            raise ApiError(404, "NotFound", name)
        if found["metadata"]["uid"] != patch["metadata"].get("uid", found["metadata"]["uid"]):
            raise ApiError(409, "Conflict", f"{name} is another object")
        meta = found["metadata"]
        notes = {**meta.get("annotations", {}), **patch["metadata"].get("annotations", {})}
        self.put(resource, {**found, "metadata": {**meta, "annotations": notes}})
        return self._answer(None)

    async def apply(self, resource: Resource, manifest: Mapping[str, Any], *, manager: str) -> Object:
        return self._answer(self._apply(resource, manifest, manager, "spec"))

    async def apply_status(self, resource: Resource, manifest: Mapping[str, Any], *, manager: str) -> Object:
        return self._answer(self._apply(resource, manifest, manager, "status"))

    # what happens in the cluster

    def put(self, resource: Resource, thing: Object) -> Object:
        self._version += 1
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self._version)}}
        key = (thing["metadata"].get("namespace", ""), thing["metadata"]["name"])
        self._objects.setdefault(resource.kind, {})[key] = thing
        self.log.append((resource.kind, key, thing))
        return thing

    def end(self, pod: str, *, uid: str | None = None, grace: int | None = None) -> None:
        """Delete a pod: at once if no kubelet runs it or the grace period is 0."""
        found = self.find(PODS, pod)
        if found is None or (uid is not None and found["metadata"]["uid"] != uid):
            return
        seconds = found["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
        if "nodeName" not in found["spec"] or seconds == 0:
            self.remove(pod)
        elif "deletionTimestamp" not in found["metadata"]:
            going = {"deletionTimestamp": moment(self._now() + seconds), "deletionGracePeriodSeconds": seconds}
            self.put(PODS, {**found, "metadata": found["metadata"] | going})

    def remove(self, pod: str) -> None:
        self._version += 1
        if self._objects[PODS.kind].pop(("lab", pod), None) is not None:
            self.log.append((PODS.kind, ("lab", pod), None))

    def _apply(self, resource: Resource, manifest: Mapping[str, Any], manager: str, part: str) -> Object:
        self._count_call()
        meta = manifest["metadata"]
        found = self.find(resource, meta["name"], meta.get("namespace", ""))
        if found is None:
            raise ApiError(404, "NotFound", meta["name"])
        if meta.get("resourceVersion", found["metadata"]["resourceVersion"]) != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", f"{meta['name']}: the object has been modified")
        owned = self._parts.setdefault((resource.kind, found["metadata"]["uid"], part), {})
        if not owned:
            owned[""] = dict(found.get(part) or {})
        owned[manager] = dict(manifest[part])
        merged: Object = {}
        for fields in owned.values():
            conditions = {one["type"]: one for one in (*merged.get("conditions", []), *fields.get("conditions", []))}
            merged |= fields
            if conditions:
                merged["conditions"] = list(conditions.values())
        after = {**found, part: merged}
        if merged == found.get(part):
            return found
        if resource is GPUNODES and part == "spec":
            before = found["spec"]
            assert merged.get("epoch", 0) >= before.get("epoch", 0), "the epoch decreased"
            same = _run_queues(merged) == _run_queues(before) or merged["epoch"] > before.get("epoch", 0)
            assert same, "two orders with one epoch"
        if resource in (GPUNODES, TRIALS) or part == "status":
            return self.put(resource, after)
        raise AssertionError(f"no client applies the spec of a {resource.kind}")

    def _count_call(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise KilledError

    def _answer(self, answer: T) -> T:
        if self.mute is not None:
            self.mute -= 1
            if self.mute < 0:
                self.mute = None
                raise ApiError(0, "Unreachable", "no answer came in time")
        return answer


def _run_queues(spec: Object) -> list[tuple[str, list[str]]]:
    return [(gpu["uuid"], [entry["uid"] for entry in gpu["runQueue"]]) for gpu in spec.get("gpus", [])]


class View(Generic[T]):
    """Watch cache that lags: it has the first `at` entries of the server's log. Read like `WatchCache`."""

    synced = True

    def __init__(
        self,
        server: Server,
        resource: Resource,
        parse: Callable[[Object], T],
        wanted: Callable[[Object], bool] = lambda _: True,
    ) -> None:
        self._server = server
        self._kind = resource.kind
        self._parse = parse
        self._wanted = wanted
        self._items: dict[Key, T] = {}
        self._at = 0

    def subscribe(self, _: Callable[[], None]) -> None:
        """Do nothing: the model reads when the test asks for it."""

    def get(self, namespace: str, name: str) -> T | None:
        return self._items.get((namespace, name))

    def values(self) -> list[T]:
        return [self._items[key] for key in sorted(self._items)]

    def read_stale(self) -> None:
        """Show what a server of the same cluster that is behind returns: each object one version older."""
        for key in self._items:
            versions = [
                thing for kind, name, thing in self._server.log[: self._at] if (kind, name) == (self._kind, key)
            ]
            if len(versions) > 1 and versions[-2] is not None:
                self._items[key] = self._parse(versions[-2])

    def receive(self, limit: int | None = None) -> None:
        """Receive the next `limit` changes of this kind; None: all."""
        while self._at < len(self._server.log) and limit != 0:
            kind, key, thing = self._server.log[self._at]
            self._at += 1
            if kind != self._kind:
                continue
            limit = None if limit is None else limit - 1
            if thing is None or not self._wanted(thing):
                self._items.pop(key, None)
            else:
                self._items[key] = self._parse(thing)
