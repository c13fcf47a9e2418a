"""Credentials of a kubeconfig that expire: tokens, and client certificates, of plugins, files and OpenID Connect.

The client library reads them once. A command that runs for hours needs the next ones, as kubectl does: it reads them
again when they have expired, or when the API server has refused them (401).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes.aio import client as kube_client
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME
from kubernetes.aio.config.kube_config import FileOrData, KubeConfigLoader, KubeConfigMerger

from podium_cluster import clock
from podium_cluster.access.kubeconfig import ClusterTarget

CHECK_SECONDS = 60.0  # between two reads of a token file or of OpenID Connect
TOKEN_SECONDS = 60.0  # between two reads of the account's token, which the kubelet renews
RETRY_SECONDS = 5.0  # between two runs of a plugin
EARLY_SECONDS = 10.0  # before the time at which a plugin's credentials expire
log = logging.getLogger(__name__)


class Loader(KubeConfigLoader):
    """Reader of a kubeconfig that also renews client certificates of an exec plugin.

    The library's own reader ignores when a certificate expires, and continues without credentials if the plugin fails.
    """

    expires_at: float | None = None  # seconds since the Unix epoch

    def __init__(self, target: ClusterTarget) -> None:
        files = KubeConfigMerger(os.pathsep.join(map(str, target.files)))
        super().__init__(  # type: ignore[no-untyped-call]
            files.config, active_context=target.context, config_base_path=None
        )

    async def load(self, configuration: kube_client.Configuration) -> None:
        """Set cluster and credentials in the configuration. Raises errors of many types."""
        await KubeConfigLoader.load_and_set(self, configuration)

    @property
    def rereads(self) -> bool:
        """Return whether reading the credentials again is cheap and may give newer ones."""
        return self.provider is not None or "tokenFile" in (self._user or ())

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin. Raises ConfigException if it fails, or prints no credentials."""
        status = await ExecProvider((self._user or {})["exec"]).run()
        token, certificate, key = map(status.get, ("token", "clientCertificateData", "clientKeyData"))
        if not token and not (certificate and key):
            missing = "token, or clientCertificateData with clientKeyData"
            raise ConfigException(f"exec: the plugin printed no status.{missing}; run it by hand, and log in again")
        if token:
            self.token = f"Bearer {token}"
        if certificate and key:
            self.cert_file, self.key_file = (
                FileOrData(status, None, data_key_name=name, base64_file_content=False).as_file()
                for name in ("clientCertificateData", "clientKeyData")
            )
        self.expires_at = _seconds(status.get("expirationTimestamp"))
        return True


class Credentials:
    """The credentials that `loader` has read.

    `version`: how often they were read again.
    """

    def __init__(self, loader: Loader) -> None:
        self.version = 0
        self._loader = loader
        self._read_at = time.monotonic()
        self._refused = False
        self._lock = asyncio.Lock()

    @classmethod
    async def read(cls, target: ClusterTarget, configuration: kube_client.Configuration) -> Credentials:
        """Read the kubeconfigs of a target, and set cluster and credentials in the configuration."""
        loader = Loader(target)
        await loader.load(configuration)
        return cls(loader)

    def refuse(self, version: int) -> None:
        """Note that the API server has refused the credentials of this version."""
        self._refused = self._refused or version == self.version

    async def refresh(self, configuration: kube_client.Configuration) -> int:
        """Read the credentials again if that is due, and return their version; call this before each request."""
        async with self._lock:  # other requests wait for the plugin, too
            if self._is_due():
                self._read_at, self._refused = time.monotonic(), False
                try:
                    await self._loader.load(configuration)
                    self.version += 1
                except Exception as error:  # of many types; the old ones remain, and the API server's answer is shown
                    log.warning("the credentials of the kubeconfig could not be read again: %s", error)
        return self.version

    def _is_due(self) -> bool:
        """Return whether to read again. A plugin that does not state when its credentials expire runs on refusal."""
        passed = time.monotonic() - self._read_at
        if self._refused:
            return passed >= RETRY_SECONDS
        if self._loader.expires_at is not None:
            return passed >= RETRY_SECONDS and clock.now() >= self._loader.expires_at - EARLY_SECONDS
        return self._loader.rereads and passed >= CHECK_SECONDS


def refresh_token(configuration: kube_client.Configuration, file: Path) -> None:
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


def _seconds(given: Any) -> float | None:
    """Return a time of RFC 3339 as seconds since the Unix epoch; None: the plugin states no time."""
    if not given:
        return None
    try:
        parsed = datetime.fromisoformat(given)
    except (TypeError, ValueError) as error:
        text = (
            f"exec: the plugin's status.expirationTimestamp must be a time such as 2030-01-02T03:04:05Z (got {given!r})"
        )
        raise ConfigException(text) from error
    return parsed.timestamp()


async def read_configuration(target: ClusterTarget) -> tuple[kube_client.Configuration, Credentials | None]:
    """Return the configuration of a client for a cluster, and the credentials that it must renew."""
    configuration = kube_client.Configuration()
    # a component uses one API server from a few tasks, so more connections than tasks are useless
    configuration.connection_pool_maxsize = 32
    configuration.retries = None
    if target.account:
        load_incluster_config(client_configuration=configuration)
        refresh_token(configuration, Path(SERVICE_TOKEN_FILENAME))
        return configuration, None
    return configuration, await Credentials.read(target, configuration)
