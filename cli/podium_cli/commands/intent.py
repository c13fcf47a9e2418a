"""Commands `podium suspend`, `resume`, `pin` and `stop`: set one field in the spec of a job or trial."""

from __future__ import annotations

from typing import Annotated

import typer

from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples
from podium_cli.options.names import job_names, trial_names
from podium_cli.session import MANAGER, Session, fetch, run_with_cluster
from podium_cluster.intents import PIN, RESUME, STOP, SUSPEND, UNPIN, Intent, carry_out

app = typer.Typer()

Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of the HyperParamJob.", autocompletion=job_names)]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="Name of the HyperParamTrial.", autocompletion=trial_names)]


@app.command(epilog=examples("podium suspend digits"))
def suspend(job: Job, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """Suspend a whole job: its trials release their GPUs and keep their progress."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_carry_out(session, SUSPEND, job))


@app.command(epilog=examples("podium resume digits"))
def resume(job: Job, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """Continue a suspended job."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_carry_out(session, RESUME, job))


@app.command(epilog=examples("podium pin digits-3", "podium pin digits-3 --undo"))
def pin(
    trial: Trial,
    undo: Annotated[bool, typer.Option("--undo", help="Rank it like the others again.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Rank a trial before all others of its job."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_carry_out(session, UNPIN if undo else PIN, trial))


@app.command(epilog=examples("podium stop digits-7"))
def stop(trial: Trial, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """End a trial now and keep its result (cannot be undone)."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_carry_out(session, STOP, trial))


async def _carry_out(session: Session, intent: Intent, name: str) -> None:
    async with session.api() as api:
        await fetch(api, intent.resource, name, session.namespace)
        await carry_out(api, intent, name, session.namespace, manager=MANAGER)
    print(f"{name} {intent.result}")
