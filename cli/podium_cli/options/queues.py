"""Option --queues of `podium plan` and `podium simulate`: a file of the GPUQueues of the simulated cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import name_of, read_file
from podium_cli.options.system import SYSTEM
from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.snapshot import JobView, Snapshot
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.schema.gpuqueue import queue_view
from podium_core.schema.manifests import flattened
from podium_core.schema.queue_manifest import KIND, parse_queue
from podium_core.schema.rules import Refusal

MAX_QUEUES = 100  # as many as jobs that are simulated
LARGEST_FILE = 1_000_000  # characters
Queues = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File of GPUQueues that share the GPUs, as for kubectl apply; the job must be able to use its own.",
        show_default="no queues",
        readable=False,
        rich_help_panel=SYSTEM,
    ),
]


def read_queues(path: Path | None) -> tuple[QueueView, ...]:
    """Return the queues of the file in its order, none without a file; raise CliError for an invalid one."""
    if path is None:
        return ()
    views: dict[str, QueueView] = {}
    for payload in flattened(read_file(path, LARGEST_FILE)):
        if payload.get("kind") != KIND:
            continue
        queue = parse_queue(payload)
        if isinstance(queue, Refusal):
            name = name_of(payload) or "without a name"
            raise CliError(Exit.FAILED, queue.code, f"--queues: {path}: {KIND} {name}: {queue}")
        name = queue.metadata.name
        if name in views:
            text = f"--queues: {path} holds two GPUQueues {name}; give each its own metadata.name"
            raise CliError(Exit.FAILED, "QueueTwice", text)
        views[name] = queue_view(queue)
    if not views:
        text = f"--queues: {path} holds no GPUQueue; one starts with apiVersion: podium.dev/v1alpha1, kind: {KIND}"
        raise CliError(Exit.FAILED, "NoQueues", text)
    if len(views) > MAX_QUEUES:
        text = f"--queues: {path} holds {len(views)} GPUQueues, too many to simulate; give {MAX_QUEUES} at most"
        raise CliError(Exit.FAILED, "TooMany", text)
    return tuple(views.values())


def check_queue(job: JobView, queues: tuple[QueueView, ...]) -> None:
    """Raise CliError if the job can get no GPU from its queue: it would wait forever."""
    rules = QueueRules.of(Snapshot(now=0.0, jobs=(job,), queues=queues))
    obstacle = None if rules is None else rules.obstacles.get(job.key)
    if obstacle is not None:
        raise CliError(Exit.FAILED, obstacle.reason, obstacle.message)
