"""Commands `podium suspend`, `resume`, `pin` and `stop`: set one field in the spec of a job or trial."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples
from podium_cli.options.names import job_names, trial_names
from podium_cli.session import MANAGER, Session, fetch, run_with_cluster
from podium_cluster.resources import JOBS, TRIALS, Resource

app = typer.Typer()

Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of the HyperParamJob.", autocompletion=job_names)]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="Name of the HyperParamTrial.", autocompletion=trial_names)]


@app.command(epilog=examples("podium suspend digits"))
def suspend(job: Job, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """Suspend a whole job: its trials release their GPUs and keep their progress."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_patch(session, JOBS, job, {"suspend": True}, "is being suspended"))


@app.command(epilog=examples("podium resume digits"))
def resume(job: Job, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """Continue a suspended job."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_patch(session, JOBS, job, {"suspend": False}, "continues"))


@app.command(epilog=examples("podium pin digits-3", "podium pin digits-3 --undo"))
def pin(
    trial: Trial,
    undo: Annotated[bool, typer.Option("--undo", help="Rank it like the others again.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Rank a trial before all others of its job."""
    result = "is ranked like the others again" if undo else "is ranked before all others of its job"
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_patch(session, TRIALS, trial, {"pinned": not undo}, result))


@app.command(epilog=examples("podium stop digits-7"))
def stop(trial: Trial, namespace: Namespace = None, kubeconfig: Kubeconfig = None, context: KubeContext = None) -> None:
    """End a trial now and keep its result (cannot be undone)."""
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_patch(session, TRIALS, trial, {"stopped": True}, "is being stopped; its result is kept"))


async def _patch(session: Session, resource: Resource, name: str, spec: dict[str, Any], result: str) -> None:
    async with session.api() as api:
        await fetch(api, resource, name, session.namespace)
        await api.patch(resource, name, session.namespace, {"spec": spec}, manager=MANAGER)
    print(f"{name} {result}")
