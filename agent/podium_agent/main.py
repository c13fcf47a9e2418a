"""Entry point `podium-agent`, the agent of one node; environment variables configure it (see `podium-agent --help`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from podium_agent.app import run
from podium_agent.settings import AgentSettings
from podium_cluster.component import logs
from podium_cluster.component.startup import read_settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the settings and run the agent."""
    about = "Podium's agent of one node: device plugin, gate, suspension, telemetry, learning curves."
    settings = read_settings(AgentSettings, "podium-agent", about, arguments)
    logs.always_about(node=settings.node_name)
    asyncio.run(run(settings))


if __name__ == "__main__":
    main()
