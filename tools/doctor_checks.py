"""Write docs/reference/doctor.md from the table of checks: `python tools/doctor_checks.py`; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from podium_cli.doctor.check_table import CHECKS, GROUPS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "doctor.md"
HEAD = """<!-- Generated from cli/podium_cli/doctor/check_table.py by `make generate`: do not edit. -->
# Checks of podium doctor

`podium doctor [NODE]` makes these checks before and after the [installation](../how-to/install.md). It changes nothing.

| Result | Meaning |
| --- | --- |
| `error` | Podium cannot work like this. The exit code is 1. |
| `warning` | Something is missing or outdated; Podium works without it. |
| `skipped` | The check could not be made; the reason follows. It never counts as passed. |
| `ok` | What was looked at is right. |

## Rights that it needs

It reads nodes, namespaces, pods, leases, workloads, CRDs, webhook configurations, endpoint slices, runtime and priority
classes, and ResourceSlices. The group Kubelet needs `get` of `nodes/proxy`, which an administrator has. Without a
right, the checks that need it are skipped.
"""


def page() -> str:
    """Return the text of the reference page."""
    parts = [HEAD]
    for group in GROUPS:
        parts.append(f"\n## {group}\n\n| Check | What must be so | Cure |\n| --- | --- | --- |\n")
        checks = (check for check in CHECKS if check.group == group)
        parts.extend(f"| `{check.code}` | {check.title} | {check.cure} |\n" for check in checks)
    return "".join(parts)


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return 0 if PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
