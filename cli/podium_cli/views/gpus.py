"""Output of `podium get gpus`: a row for each GPU, as a table and as data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from podium_cli.structured import items, time
from podium_cli.views.plain_table import plain_table
from podium_cli.views.watch import HEALTH_STYLE, utilization
from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_views import formatting


def table(nodes: Sequence[GPUNode], now: datetime) -> Table:
    """Return a row for each GPU."""
    view = plain_table("GPU", "PRODUCT", "HEALTH", "HOLDER", "FOR", "UTIL", "MEMORY-GIB", "SLOTS", "TRIALS", "UUID")
    for node in nodes:
        for gpu in node.status.gpus:
            holder = gpu.holder
            view.add_row(
                Text(f"{node.metadata.name}/{gpu.index}"),
                Text(formatting.clean(gpu.product) or formatting.NOTHING),
                Text(gpu.health, style=HEALTH_STYLE.get(gpu.health, "yellow")),
                Text(f"{holder.namespace}/{holder.trial}" if holder else formatting.NOTHING),
                Text(formatting.since(holder.since, now) if holder else formatting.NOTHING),
                utilization(gpu.sm_utilization),
                Text(formatting.memory_in_use(gpu.memory_used, gpu.memory_total)),
                Text(str(gpu.slots)),
                Text(str(len(gpu.trials))),
                Text(gpu.uuid),
            )
    return view


def data(nodes: Sequence[GPUNode]) -> dict[str, Any]:
    """Return the same for programs; memory in bytes, utilisation in percent."""
    return items(_row(node, gpu) for node in nodes for gpu in node.status.gpus)


def _row(node: GPUNode, gpu: GpuStatus) -> dict[str, Any]:
    holder = gpu.holder
    held = None
    if holder is not None:
        held = {"namespace": holder.namespace, "trial": holder.trial, "since": time(holder.since)}
    return {
        "node": node.metadata.name,
        "index": gpu.index,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "health": gpu.health,
        "holder": held,
        "utilization": gpu.sm_utilization,
        "memoryUsed": gpu.memory_used,
        "memoryTotal": gpu.memory_total,
        "slots": gpu.slots,
        "trials": [{"namespace": one.namespace, "trial": one.trial, "state": str(one.state)} for one in gpu.trials],
    }
