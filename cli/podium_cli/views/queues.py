"""Output of `podium get queues`: a row for each queue, as a table and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from podium_cli.structured import items
from podium_cli.views.plain_table import plain_table
from podium_core.schema.gpuqueue import GPUQueue
from podium_views import formatting


def table(queues: Sequence[GPUQueue]) -> Table:
    """Return a row for each queue.

    SHARE: part of the GPU-seconds of the last hour that all these queues used.
    """
    view = plain_table(
        "QUEUE", "WEIGHT", "QUOTA", "USED", "BORROWED", "DESERVED", "WAITING", "JOBS", "SHARE", "GPU-HOURS", "STATE"
    )
    total = sum(queue.status.window.used for queue in queues)
    for queue in queues:
        spec, status = queue.spec, queue.status
        state, style = _state(queue)
        view.add_row(
            Text(queue.metadata.name),
            Text(f"{spec.weight:g}"),
            Text(formatting.NOTHING if spec.gpus is None else str(spec.gpus)),
            Text(str(status.gpus.used)),
            Text(str(status.gpus.borrowed)),
            Text(f"{status.gpus.deserved:g}"),
            Text(str(status.waiting)),
            Text(str(status.jobs)),
            Text(f"{100.0 * status.window.used / total:.0f}%" if total else formatting.NOTHING),
            Text(f"{status.gpu_hours:.1f}"),
            Text(state, style=style),
        )
    return view


def data(queues: Sequence[GPUQueue]) -> dict[str, Any]:
    """Return the same for programs, with the limits of each queue."""
    return items(_row(queue) for queue in queues)


def _row(queue: GPUQueue) -> dict[str, Any]:
    spec, status = queue.spec, queue.status
    return {
        "name": queue.metadata.name,
        "weight": spec.weight,
        "quota": spec.gpus,
        "borrowing": spec.borrowing,
        "borrowingLimit": spec.borrowing_limit,
        "minimum": spec.minimum,
        "namespaces": list(spec.namespaces),
        "budgetGPUHours": None if spec.budget is None else spec.budget.gpu_hours,
        "used": status.gpus.used,
        "borrowed": status.gpus.borrowed,
        "deserved": status.gpus.deserved,
        "nominal": status.gpus.nominal,
        "waiting": status.waiting,
        "jobs": status.jobs,
        "windowGPUSeconds": {"deserved": status.window.deserved, "used": status.window.used},
        "gpuSeconds": status.gpu_seconds,
        "state": _state(queue)[0],
    }


def _state(queue: GPUQueue) -> tuple[str, str]:
    """Return the state of a queue in a word, with its style: Active, the reason why it is not, or Unknown."""
    active = next((one for one in queue.status.conditions if one.type == "Active"), None)
    if active is None:
        return "Unknown", "yellow"
    return ("Active", "green") if active.status == "True" else (formatting.clean(active.reason), "red")
