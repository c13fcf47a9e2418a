"""Commands `podium suspend`, `resume`, `pin` and `stop`: set one field in the spec of a job or trial."""

from __future__ import annotations

import argparse
from typing import Any

from podium_cli.command_table import SUMMARIES
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import Exit
from podium_cli.session import MANAGER, Session, fetch, run_with_cluster
from podium_cluster.resources import JOBS, TRIALS, Resource


def add(commands: Commands) -> None:
    """Add the four commands."""
    suspend = command(
        commands,
        "suspend",
        lambda given: _set(given, JOBS, given.job, {"suspend": True}, "is being suspended"),
        summary=SUMMARIES["suspend"],
        examples="podium suspend digits",
    )
    suspend.add_argument("job", help="name of the HyperParamJob")
    resume = command(
        commands,
        "resume",
        lambda given: _set(given, JOBS, given.job, {"suspend": False}, "continues"),
        summary=SUMMARIES["resume"],
        examples="podium resume digits",
    )
    resume.add_argument("job", help="name of the HyperParamJob")
    pin = command(
        commands,
        "pin",
        lambda given: _set(
            given,
            TRIALS,
            given.trial,
            {"pinned": not given.undo},
            "is ranked like the others again" if given.undo else "is ranked before all others of its job",
        ),
        summary=SUMMARIES["pin"],
        examples="podium pin digits-3\npodium pin digits-3 --undo",
    )
    pin.add_argument("trial", help="name of the HyperParamTrial")
    pin.add_argument("--undo", action="store_true", help="rank it like the others again")
    stop = command(
        commands,
        "stop",
        lambda given: _set(given, TRIALS, given.trial, {"stopped": True}, "is being stopped; its result is kept"),
        summary=SUMMARIES["stop"],
        examples="podium stop digits-7",
    )
    stop.add_argument("trial", help="name of the HyperParamTrial")


def _set(arguments: argparse.Namespace, resource: Resource, name: str, spec: dict[str, Any], result: str) -> Exit:
    return run_with_cluster(_patch(Session.of(arguments), resource, name, spec, result))


async def _patch(session: Session, resource: Resource, name: str, spec: dict[str, Any], result: str) -> Exit:
    async with session.api() as api:
        await fetch(api, resource, name, session.namespace)
        await api.patch(resource, name, session.namespace, {"spec": spec}, manager=MANAGER)
    print(f"{name} {result}")
    return Exit.OK
