"""The client of the API server: a few verbs over `kubernetes.aio`'s authenticated, TLS-verified HTTP session.

Payloads are plain JSON mappings; callers parse them into models at once. Every call has a timeout and raises `ApiError`
with the server's own message.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client as kube_client
from kubernetes.aio import config as kube_config
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME

from podium_cluster import clock
from podium_cluster.kubeconfig import ClusterTarget, find_target
from podium_cluster.resources import Resource
from podium_cluster.settings import ClusterSettings

Manifest = dict[str, Any]
JsonObject = Mapping[str, Any]
TOKEN_SECONDS = 60.0  # between two reads of the account's token, which the kubelet renews


@dataclass(eq=False)  # not frozen: contextlib assigns to an exception's traceback
class ApiError(Exception):
    """An error of the API server (`status` is HTTP's), or a call without a response (`status` 0)."""

    status: int
    reason: str
    message: str

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
        """Whether a watch requested a version that the server no longer has, so a new list is needed."""
        return self.status == 410


@dataclass(frozen=True, slots=True)
class Fence:
    """Limit of a leader's writes: whether it may write now, and the most seconds of one write."""

    may_write: Callable[[], bool]
    seconds: float


class Api:
    """The verbs that Podium uses; selectors and limits have the form of the Kubernetes API."""

    def __init__(self, client: kube_client.ApiClient, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._fence: Fence | None = None

    def fence(self, may_write: Callable[[], bool], seconds: float) -> None:
        """Refuse writes (`NotLeader`) while `may_write` is false, and end each write after `seconds`."""
        self._fence = Fence(may_write, seconds)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Manifest:
        """Return one object."""
        return await self._json("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> Manifest:
        """Return a list object, with `items` and `metadata.resourceVersion`.

        With `limit` it holds at most that number of items. If there are more, `metadata.continue` is the value of
        `after` for the next page.
        """
        page = {} if limit is None else {"limit": str(limit)} | ({"continue": after} if after else {})
        return await self._json("GET", resource.path(namespace), query=_selectors(labels, fields) | page)

    async def create(self, resource: Resource, manifest: JsonObject, *, manager: str) -> Manifest:
        """Create an object."""
        namespace = manifest["metadata"].get("namespace")
        return await self._json("POST", resource.path(namespace), body=manifest, query={"fieldManager": manager})

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object, with `uid` only if it has this uid; a missing object is not an error."""
        body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._json("DELETE", resource.path(namespace, name), body=body)
        except ApiError as error:
            if not error.not_found:
                raise

    async def apply(
        self,
        resource: Resource,
        manifest: JsonObject,
        *,
        manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> Manifest:
        """Apply a manifest on the server; afterwards `manager` owns exactly the fields in `manifest`."""
        meta = manifest["metadata"]
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **manifest}
        return await self._json(
            "PATCH",
            resource.path(meta.get("namespace"), meta["name"], subresource),
            body=body,
            query={"fieldManager": manager, "force": "true" if force else "false"},
            content_type="application/apply-patch+yaml",
        )

    async def apply_status(self, resource: Resource, manifest: JsonObject, *, manager: str) -> Manifest:
        """Apply a manifest to the status of an object."""
        return await self.apply(resource, manifest, manager=manager, subresource="status")

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        patch: JsonObject,
        *,
        manager: str,
        subresource: str | None = None,
        strategic: bool = False,
    ) -> Manifest:
        """Patch an object with a merge patch.

        A strategic merge patch is for built-in kinds whose lists must merge by key, such as the conditions of pods.
        """
        kind = "application/strategic-merge-patch+json" if strategic else "application/merge-patch+json"
        path = resource.path(namespace, name, subresource)
        return await self._json("PATCH", path, body=patch, query={"fieldManager": manager}, content_type=kind)

    async def logs(self, pod: str, namespace: str, container: str, *, limit_bytes: int = 4 * 2**20) -> str:
        """Return the log of a container."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = {"container": container, "limitBytes": str(limit_bytes)}
        async with self._response("GET", path, query=query, timeout=self._timeout) as response:
            return (await response.read()).decode(errors="replace")

    async def version(self) -> Manifest:
        """Return the version of the API server."""
        return await self._json("GET", "/version")

    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        version: str,
        labels: str | None,
        fields: str | None,
        seconds: int,
    ) -> AsyncIterator[Manifest]:
        """Yield the events after `version`, until the server ends the stream after `seconds`.

        A stream that does not end in time fails.
        """
        query = _selectors(labels, fields) | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        async with self._response("GET", resource.path(namespace), query=query, timeout=seconds + 15) as response:
            # the line of a large object may exceed the stream's line limit, so lines are assembled here
            pending = b""
            async for chunk in response.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)

    async def _json(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        timeout, fence = self._timeout, self._fence
        if fence is not None and method != "GET":
            if not fence.may_write():
                raise ApiError(0, "NotLeader", f"{method} {path}: this replica does not lead, so it writes nothing")
            timeout = min(timeout, fence.seconds)
        async with self._response(
            method, path, body=body, query=query, content_type=content_type, timeout=timeout
        ) as response:
            answer = await response.read()
            try:
                result: Manifest = json.loads(answer)
            except ValueError as error:  # for example an error page of a proxy
                text = answer[:200].decode(errors="replace")
                raise ApiError(0, "InvalidJSON", f"{method} {path}: the response is not JSON: {text}") from error
            return result

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        body: JsonObject | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        _, url, headers, _, _ = await self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, auth_settings=["BearerToken"]
        )
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(5.0, timeout))
        begun = time.monotonic()
        try:
            answer = await self._client.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=limits
            )
            response: aiohttp.ClientResponse = answer.response
            clock.observe(response.headers.get("Date"), time.monotonic() - begun)
            try:
                if response.status >= 400:
                    raise _error(response.status, await response.read())
                yield response
            finally:
                response.release()
        except TimeoutError as error:
            raise ApiError(0, "Timeout", f"{method} {path} took longer than {timeout:g} s") from error
        except aiohttp.ClientError as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error}") from error


@asynccontextmanager
async def connect(settings: ClusterSettings, target: ClusterTarget | None = None) -> AsyncIterator[Api]:
    """Open a client for the cluster of the settings.

    That is a kubeconfig, else $KUBECONFIG, else the pod's own account.

    `target` is the result of `find_target` for these settings, if the caller has it.
    """
    target = target or find_target(settings.kubeconfig, settings.context)
    configuration = kube_client.Configuration()
    # a component uses one API server from a few tasks, so more connections than tasks are useless
    configuration.connection_pool_maxsize = 32
    configuration.retries = None
    if target.account:
        kube_config.load_incluster_config(client_configuration=configuration)
        _refresh_token(configuration, Path(SERVICE_TOKEN_FILENAME))
    else:
        await kube_config.load_kube_config(
            config_file=os.pathsep.join(map(str, target.files)),
            context=target.context,
            client_configuration=configuration,
        )
    async with kube_client.ApiClient(configuration) as client:
        yield Api(client, settings.request_timeout)


def _refresh_token(configuration: kube_client.Configuration, file: Path) -> None:
    """Read the account's token again every minute.

    The library does so by the wall clock: after that was set back, an expired token would remain in use.
    """
    read_at = time.monotonic()

    def refresh(configuration: kube_client.Configuration) -> None:
        nonlocal read_at
        if time.monotonic() - read_at < TOKEN_SECONDS:
            return
        with contextlib.suppress(OSError):  # the kubelet is replacing it: the next call reads it
            if token := file.read_text():
                configuration.api_key["BearerToken"] = f"bearer {token}"
                read_at = time.monotonic()

    configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}


def _error(status: int, body: bytes) -> ApiError:
    try:
        answer = json.loads(body)
        return ApiError(status, answer.get("reason") or "Error", answer.get("message") or "no message")
    except (ValueError, AttributeError):
        return ApiError(status, "Error", body[:500].decode(errors="replace"))
