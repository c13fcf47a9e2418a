"""A small client of the API server with the admin's certificate, cheaper than starting kubectl."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any


class ApiClient:
    """GET requests to the API server on a port of 127.0.0.1."""

    def __init__(self, port: int, pki: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))

    def get(self, path: str, timeout: float = 3.0) -> tuple[int, str]:
        """Return status and body; status 0 if there was no answer."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=timeout, context=self._context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def ready(self) -> bool:
        """Return whether the API server is ready."""
        return self.get("/readyz")[0] == 200

    def ready_nodes(self) -> set[str]:
        """Return the names of the nodes whose condition Ready is True."""
        status, body = self.get("/api/v1/nodes")
        return ready_nodes(json.loads(body)) if status == 200 else set()

    def exists(self, path: str) -> bool:
        """Return whether there is an object at this path."""
        return self.get(path)[0] == 200


def ready_nodes(listing: dict[str, Any]) -> set[str]:
    """Return the names of the Ready nodes from the body of GET /api/v1/nodes. Pure."""
    return {
        item["metadata"]["name"]
        for item in listing.get("items", [])
        for condition in item.get("status", {}).get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }
