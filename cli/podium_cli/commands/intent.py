"""`podium suspend|resume|pin|stop`: what an owner wants of a job or a trial, as one field of its spec."""

from __future__ import annotations

import argparse
from typing import Any

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command
from podium_cli.exit_codes import Exit
from podium_cli.session import MANAGER, Session, carry_out, fetch
from podium_cluster.resources import JOBS, TRIALS, Resource


def add(commands: Commands) -> None:
    suspend = command(
        commands,
        "suspend",
        lambda given: _set(given, JOBS, given.job, {"suspend": True}, "is to be suspended"),
        says=SAYS["suspend"],
        examples="podium suspend digits",
    )
    suspend.add_argument("job", help="name of the HyperParamJob")
    resume = command(
        commands,
        "resume",
        lambda given: _set(given, JOBS, given.job, {"suspend": False}, "may go on"),
        says=SAYS["resume"],
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
        says=SAYS["pin"],
        examples="podium pin digits-3\npodium pin digits-3 --undo",
    )
    pin.add_argument("trial", help="name of the HyperParamTrial")
    pin.add_argument("--undo", action="store_true", help="rank it like the others again")
    stop = command(
        commands,
        "stop",
        lambda given: _set(given, TRIALS, given.trial, {"stopped": True}, "is to end now; its result is kept"),
        says=SAYS["stop"],
        examples="podium stop digits-7",
    )
    stop.add_argument("trial", help="name of the HyperParamTrial")


def _set(arguments: argparse.Namespace, resource: Resource, name: str, spec: dict[str, Any], says: str) -> Exit:
    return carry_out(_patch(Session.of(arguments), resource, name, spec, says))


async def _patch(session: Session, resource: Resource, name: str, spec: dict[str, Any], says: str) -> Exit:
    async with session.api() as api:
        await fetch(api, resource, name, session.namespace)
        await api.patch(resource, name, session.namespace, {"spec": spec}, manager=MANAGER)
    print(f"{name} {says}")
    return Exit.OK
