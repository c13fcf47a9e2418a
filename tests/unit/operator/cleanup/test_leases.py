"""The Leases of an uninstalled Podium are deleted, and no others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from podium_cluster.client import Api
from podium_cluster.resources import LEASES, Resource
from podium_operator.cleanup import leases


class Server:
    """The Leases of one namespace."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    async def list(self, resource: Resource, namespace: str) -> dict[str, Any]:
        assert (resource, namespace) == (LEASES, "podium-system")
        return {"items": [{"metadata": {"name": name}} for name in self.names]}

    async def delete(self, resource: Resource, name: str, namespace: str) -> None:
        assert (resource, namespace) == (LEASES, "podium-system")
        self.names.remove(name)


def test_the_leases_of_all_components_are_deleted_and_no_others() -> None:
    server = Server(
        "podium-operator", "podium-agent-node-1", "podium-agent-node-2", "gpu-scheduler", "podium-of-others"
    )
    asyncio.run(leases.delete_leases(cast("Api", server), "podium-system", "gpu-scheduler"))
    assert server.names == ["podium-of-others"]


def test_help_names_the_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["leases", "--help"])
    with pytest.raises(SystemExit):
        leases.main()
    assert "PODIUM_SCHEDULER_LEASE (default: podium-scheduler)" in capsys.readouterr().out
