"""`podium-agent`: the agent of one node. Everything is told by the environment (`podium-agent --help` lists it)."""

from __future__ import annotations

import argparse
import asyncio
import sys

from pydantic import ValidationError

from podium import __version__
from podium_agent.app import run
from podium_agent.settings import AgentSettings
from podium_cluster.logs import configure


def _parser() -> argparse.ArgumentParser:
    lines = ["environment:"]
    for name, field in AgentSettings.model_fields.items():
        default = "required" if field.is_required() else f"default {field.default!s}"
        lines.append(f"  PODIUM_{name.upper():24} {field.description or ''} ({default})")
    parser = argparse.ArgumentParser(
        prog="podium-agent",
        description="Shares the GPUs of this node among trials: device plugin, gate, suspension, telemetry, curves.",
        epilog="\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"podium-agent {__version__}")
    return parser


def main() -> int:
    _parser().parse_args()
    try:
        settings = AgentSettings()
    except ValidationError as error:
        for one in error.errors():
            place = ".".join(str(part) for part in one["loc"])
            print(f"podium-agent: PODIUM_{place.upper()}: {one['msg']} (see podium-agent --help)", file=sys.stderr)
        return 2
    configure(settings.log_format, settings.log_level)
    asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
