"""Write the chart's dashboards and alert rules: `python -m monitoring` with `tools` on the path; `--check` compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from monitoring import alerts, cluster, extender, node, search

CHART = Path(__file__).resolve().parents[2] / "charts" / "podium" / "monitoring"
NOTE = "# Generated from tools/monitoring by `make generate`: do not edit. Prometheus reads this file as it is.\n"


def dashboards() -> Mapping[str, dict[str, Any]]:
    """Return all dashboards by name."""
    modules = {"cluster": cluster, "search": search, "node": node, "extender": extender}
    return {name: module.build() for name, module in modules.items()}


def files() -> Mapping[Path, str]:
    """Return the text of each generated file."""
    texts = {
        CHART / f"dashboard-{name}.json": json.dumps(value, indent=1) + "\n" for name, value in dashboards().items()
    }
    rules = yaml.safe_dump(alerts.groups(), sort_keys=False, width=120)
    return texts | {CHART / "alerts.yaml": NOTE + rules}


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` return 1 if one differs."""
    if arguments == ["--check"]:
        return int(any(not path.exists() or path.read_text() != text for path, text in files().items()))
    CHART.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
