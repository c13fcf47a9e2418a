"""The client of the API server: a few verbs over `kubernetes.aio`'s authenticated, TLS-verified HTTP session.

Payloads are plain JSON mappings; callers parse them into models at once. Every call has a timeout and a maximum size of
its response, and raises `ApiError` with the server's own message. Objects in responses have a name and a version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import aiohttp
from kubernetes.aio import client as kube_client
from kubernetes.aio import config as kube_config

from podium_cluster import clock
from podium_cluster.access.answers import (
    MAX_ANSWER_BYTES,
    MAX_ERROR_BYTES,
    MAX_LINE_BYTES,
    JsonObject,
    Manifest,
    check_list,
    check_object,
    parse_object,
    read_all,
    read_lines,
    read_start,
)
from podium_cluster.access.connections import Connections, Pool
from podium_cluster.access.credentials import Credentials, read_configuration
from podium_cluster.access.kubeconfig import ClusterTarget, find_target
from podium_cluster.errors import INVALID_ANSWER, ApiError, error_from_answer
from podium_cluster.resources import NODES, PODS, Page, Resource
from podium_cluster.settings import ClusterSettings

__all__ = ["Api", "ApiError", "JsonObject", "Manifest", "connect"]
CONNECT_SECONDS = 5.0
HEADER_SECONDS = 30.0  # a watch sends its headers at once, also if no event follows
STREAM_SLACK_SECONDS = 15.0  # a watch that the server does not end in time is half-open
MAX_LIST_TRIES = 3  # of a list whose continuation expires
MAX_PAGES = 1000


@dataclass(frozen=True, slots=True)
class Fence:
    """Limit of a leader's writes: whether it may write now, and the most seconds of one write."""

    may_write: Callable[[], bool]
    seconds: float


class Api:
    """The verbs that Podium uses; selectors and limits have the form of the Kubernetes API."""

    def __init__(
        self,
        client: kube_client.ApiClient,
        timeout: float,
        credentials: Credentials | None = None,
        *,
        bearer: str | None = None,
    ) -> None:
        """Prepare the client; `bearer` is the token of all its requests, for connections without credentials."""
        self._client = client
        self._timeout = timeout
        self._credentials = credentials
        self._bearer = bearer
        self._connections = Connections(client)
        self._fence: Fence | None = None

    def fence(self, may_write: Callable[[], bool], seconds: float) -> None:
        """Refuse writes (`NotLeader`) while `may_write` is false, and end each write after `seconds`."""
        self._fence = Fence(may_write, seconds)

    def may_write(self) -> bool:
        """Return whether a fence lets this client write now; without a fence it may."""
        return self._fence is None or self._fence.may_write()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Manifest:
        """Return one object."""
        return await self._object("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page: Page | None = None,
    ) -> Manifest:
        """Return a list object, with `items` and `metadata.resourceVersion`.

        It is read in pages, so it holds the whole list. With `page` it holds that page only. If there are more,
        `metadata.continue` is the value of `Page.after` for the next one.
        """
        path, query = resource.path(namespace), _selectors(labels, fields)
        if page is not None:
            return check_list(await self._json("GET", path, query=query | page.query), f"GET {path}")
        for _ in range(MAX_LIST_TRIES - 1):
            try:
                return await self._all_pages(path, query)
            except ApiError as error:
                if not error.expired:
                    raise
        return await self._all_pages(path, query)

    async def _all_pages(self, path: str, query: Mapping[str, str]) -> Manifest:
        items: list[Manifest] = []
        page = Page()
        for _ in range(MAX_PAGES):
            answer = check_list(await self._json("GET", path, query={**query, **page.query}), f"GET {path}")
            items += answer["items"]
            after = answer["metadata"].get("continue") or ""
            if not after:
                return answer | {"items": items}
            page = Page(after=after)
        raise ApiError(0, INVALID_ANSWER, f"GET {path}: the list has not ended after {MAX_PAGES} pages")

    async def create(self, resource: Resource, manifest: JsonObject, *, manager: str) -> Manifest:
        """Create an object."""
        namespace = manifest["metadata"].get("namespace")
        return await self._object("POST", resource.path(namespace), body=manifest, query={"fieldManager": manager})

    async def review(self, resource: Resource, spec: JsonObject | None = None) -> Manifest:
        """Return the status of a review, such as a TokenReview; the API server answers it and stores nothing."""
        about = {} if spec is None else {"spec": spec}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **about}
        status = (await self._json("POST", resource.path(), body=body)).get("status")
        if not isinstance(status, dict):
            raise ApiError(0, INVALID_ANSWER, f"POST {resource.path()}: the response has no status")
        return status

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
        return await self._object(
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
    ) -> Manifest:
        """Patch an object with a merge patch."""
        return await self._patch(resource.path(namespace, name, subresource), patch, manager, "merge-patch")

    async def strategic_patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        patch: JsonObject,
        *,
        manager: str,
        subresource: str | None = None,
    ) -> Manifest:
        """Patch an object of a built-in kind; lists such as the conditions of a pod merge by their key."""
        return await self._patch(resource.path(namespace, name, subresource), patch, manager, "strategic-merge-patch")

    async def _patch(self, path: str, patch: JsonObject, manager: str, kind: str) -> Manifest:
        query = {"fieldManager": manager}
        return await self._object("PATCH", path, body=patch, query=query, content_type=f"application/{kind}+json")

    async def logs(self, pod: str, namespace: str, container: str, *, limit_bytes: int = 4 * 2**20) -> str:
        """Return the log of a container, at most its first `limit_bytes`."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = {"container": container, "limitBytes": str(limit_bytes)}
        async with self._response("GET", path, query=query, timeout=self._timeout) as response:
            return (await read_start(response.content.iter_any(), limit_bytes)).decode(errors="replace")

    async def log_chunks(
        self, pod: str, namespace: str, query: Mapping[str, str], *, seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log of a container as it arrives.

        `query` has the parameters of the API (`container`, `follow`, `sinceTime`, ...). The stream ends with the log.
        One that lasts longer than `seconds` raises ApiError (`Timeout`).
        """
        path = PODS.path(namespace, pod, "log")
        async with self._response("GET", path, query=query, timeout=seconds) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    async def version(self) -> Manifest:
        """Return the version of the API server."""
        return await self._json("GET", "/version")

    async def kubelet_config(self, node: str) -> Manifest:
        """Return the configuration of a node's kubelet (`/configz`), through the API server."""
        return await self._json("GET", NODES.path(None, node, "proxy/configz"))

    async def kubelet_metrics(self, node: str, *, limit_bytes: int) -> str:
        """Return the metrics of a node's kubelet, at most their first `limit_bytes`, through the API server."""
        path = NODES.path(None, node, "proxy/metrics")
        async with self._response("GET", path, timeout=self._timeout) as response:
            return (await read_start(response.content.iter_any(), limit_bytes)).decode(errors="replace")

    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        version: str,
        labels: str | None,
        fields: str | None,
        seconds: int,
    ) -> AsyncGenerator[Manifest, None]:
        """Yield the events after `version`, until the server ends the stream after `seconds`.

        A stream that does not end in time, or whose line is too long or no JSON object, raises ApiError.
        """
        path = resource.path(namespace)
        query = _selectors(labels, fields) | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        what = f"watch {path}"
        async with (
            self._response("GET", path, query=query, timeout=seconds + STREAM_SLACK_SECONDS) as response,
            aclosing(read_lines(response.content.iter_any(), MAX_LINE_BYTES, what)) as lines,
        ):
            async for line in lines:
                yield parse_object(line, what)

    async def _object(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        answer = await self._json(method, path, body=body, query=query, content_type=content_type)
        return check_object(answer, f"{method} {path}")

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
            if not self.may_write():
                raise ApiError(0, "NotLeader", f"{method} {path}: this replica does not lead, so it writes nothing")
            timeout = min(timeout, fence.seconds)
        async with self._response(
            method, path, body=body, query=query, content_type=content_type, timeout=timeout
        ) as response:
            what = f"{method} {path}"
            return parse_object(await read_all(response.content.iter_any(), MAX_ANSWER_BYTES, what), what)

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
        if self._bearer is not None:
            headers["Authorization"] = f"Bearer {self._bearer}"
        silent = "follow" in (query or {})  # a kubelet sends the headers of a log with its first line
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(CONNECT_SECONDS, timeout))
        version = await self._refresh(method)
        begun = time.monotonic()
        try:
            async with self._connections.pool(version) as pool:
                async with asyncio.timeout(timeout if silent else min(timeout, max(HEADER_SECONDS, self._timeout))):
                    _, url, headers, _, _ = await self._client.param_serialize(
                        method,
                        path,
                        query_params=list((query or {}).items()),
                        header_params=headers,
                        auth_settings=["BearerToken"],
                    )
                    answer = await pool.request(method, url, headers=headers, body=body, _request_timeout=limits)
                response: aiohttp.ClientResponse = answer.response
                clock.observe(response.headers.get("Date"), time.monotonic() - begun)
                try:
                    if response.status == 401 and self._credentials is not None:
                        self._credentials.refuse(version)
                    if response.status >= 400:
                        start = await read_start(response.content.iter_any(), MAX_ERROR_BYTES)
                        raise error_from_answer(response.status, response.headers.get("Retry-After"), start)
                    yield response
                finally:
                    response.release()  # this closes the connection if a part of the body has not been read
        except TimeoutError as error:
            raise ApiError(0, "Timeout", f"{method} {path} took longer than {timeout:g} s") from error
        except (aiohttp.ClientError, OSError, kube_config.ConfigException) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error}") from error

    async def _refresh(self, method: str) -> int:
        """Renew the credentials if that is due, and return their version.

        No timeout applies, because a plugin may have to ask the user. So a fenced write takes those that there are.
        """
        if self._credentials is None:
            return 0
        if self._fence is not None and method != "GET":
            return self._credentials.version
        return await self._credentials.refresh(self._client.configuration)


@asynccontextmanager
async def connect(settings: ClusterSettings, target: ClusterTarget | None = None) -> AsyncIterator[Api]:
    """Open a client for the cluster of the settings.

    That is a kubeconfig, else $KUBECONFIG, else the pod's own account.

    `target` is the result of `find_target` for these settings, if the caller has it.
    """
    target = target or find_target(settings.kubeconfig, settings.context)
    configuration, credentials = await read_configuration(target)
    async with kube_client.ApiClient(configuration) as client:
        client.rest_client = Pool(configuration)  # the library's own has no connection yet
        yield Api(client, settings.request_timeout, credentials)


@asynccontextmanager
async def connect_for_others(
    settings: ClusterSettings, target: ClusterTarget | None = None
) -> AsyncIterator[Callable[[str], Api]]:
    """Open connections without credentials, and yield what returns the client of a bearer token.

    The cluster is that of `connect`. A client certificate would outweigh the token, so the connections have none.
    """
    own, _ = await read_configuration(target or find_target(settings.kubeconfig, settings.context))
    bare = kube_client.Configuration(host=own.host)
    bare.connection_pool_maxsize, bare.retries = own.connection_pool_maxsize, None
    for field in ("verify_ssl", "ssl_ca_cert", "ca_cert_data", "tls_server_name", "assert_hostname", "proxy"):
        setattr(bare, field, getattr(own, field))
    async with kube_client.ApiClient(bare) as client:
        client.rest_client = Pool(bare)
        yield lambda token: Api(client, settings.request_timeout, bearer=token)


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}
