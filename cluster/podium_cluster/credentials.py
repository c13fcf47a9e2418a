"""Credentials of a kubeconfig that expire: the token of an exec plugin or of OpenID Connect, or a file with a token.

The client library reads them once. A command that runs for hours needs the next token, as kubectl does: it asks for one
when the old one is about to expire, or when the API server has refused it (401).
"""

from __future__ import annotations

import logging
import time
from typing import Any

from kubernetes.aio import client as kube_client

CHECK_SECONDS = 60.0  # between two looks at the time at which the token expires
RETRY_SECONDS = 5.0  # between two requests for a token after the API server refused one
log = logging.getLogger(__name__)


class Credentials:
    """The credentials that `loader`, the library's reader of kubeconfigs, has read."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._read_at = time.monotonic()
        self._refused = False

    def refuse(self) -> None:
        """Note that the API server has refused the token."""
        self._refused = True

    async def refresh(self, configuration: kube_client.Configuration) -> None:
        """Read the credentials again if that is due; the library calls this before each request."""
        if time.monotonic() - self._read_at < (RETRY_SECONDS if self._refused else CHECK_SECONDS):
            return
        if self._refused:
            self._loader.__dict__.pop("exec_plugin_expiry", None)  # the time is wrong, so ask the plugin
        elif not self._expires():
            return
        self._read_at, self._refused = time.monotonic(), False
        try:
            await self._loader.load_and_set(configuration)
        except Exception as error:  # of many types; the old token remains, and the API server's answer is shown
            log.warning("the credentials of the kubeconfig could not be read again: %s", error)

    def _expires(self) -> bool:
        """Return whether the token states when it expires. A plugin that does not state it must not run again."""
        return self._loader.provider is not None or hasattr(self._loader, "exec_plugin_expiry")
