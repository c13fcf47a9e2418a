"""Command `podium dashboard`: a live page of the searches of a cluster or of a folder."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podium_cli.exit_codes import CliError, Exit
from podium_cli.options.common import AllNamespaces, Kubeconfig, KubeContext, Namespace, examples
from podium_dashboard.serve import Address, NotReadyError, listen, serve
from podium_dashboard.sources.folder import FolderError, FolderSource

if TYPE_CHECKING:
    from podium_cli.session import Session

PORT = 8265
SEARCHED_PORTS = 20  # from the default on, until one is free

app = typer.Typer()


@app.command(
    epilog=examples(
        "podium dashboard podium-runs/digits      one search of podium run",
        "podium dashboard podium-runs             all searches of podium run",
        "podium dashboard                         the namespace of the context",
        "podium dashboard -A --port 9000",
        "podium dashboard saved                   files that kubectl saved",
    )
)
def dashboard(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of `podium run`, of several runs, or of saved YAML or JSON files.",
            show_default="the cluster",
            readable=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=65535,
            help="Port on 127.0.0.1; 0: any free one.",
            show_default=f"{PORT}, or the next free one",
        ),
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Show searches as a live page in the browser, from a cluster or from folders of `podium run`.

    The page shows progress, curves that grow, the holder of each GPU, and why
    trials run or wait. On a cluster, it suspends, resumes, pins and stops with
    the rights of your kubeconfig. The command prints the address and serves until
    Ctrl-C. Only this machine can open it, and only with the token in
    the address. From another machine: ssh -L 8265:127.0.0.1:8265 HOST.
    """
    if all_namespaces and namespace is not None:
        raise typer.BadParameter("give either --namespace or --all-namespaces")
    opened = _listen(port)
    try:
        if folder is not None:
            asyncio.run(serve(FolderSource(folder), opened, _announce))
            return
        from podium_cli.session import Session, run_with_cluster  # a folder needs no client of the API server

        session = Session.of(namespace, kubeconfig, context)
        run_with_cluster(_serve_cluster(session, None if all_namespaces else session.namespace, opened))
    except FolderError as error:
        raise CliError(Exit.NOT_FOUND, "FolderNotFound", str(error)) from error
    except NotReadyError as error:
        raise CliError(Exit.CLUSTER, "NotSynced", f"{error}; check that you may list hyperparamjobs") from error
    except KeyboardInterrupt:
        return
    finally:
        opened.close()


def _serve_cluster(session: Session, namespace: str | None, opened: socket.socket) -> Coroutine[Any, Any, None]:
    from podium_dashboard.sources.cluster import ClusterSource

    async def serving() -> None:
        async with session.api() as api:
            where = "all namespaces" if namespace is None else f"namespace {namespace}"
            title = f"{session.target.context or 'the account of this pod'}, {where}"
            await serve(ClusterSource(api, title, namespace), opened, _announce, api)

    return serving()


def _listen(port: int | None) -> socket.socket:
    """Return a socket of the port; without a port, of the default or one of the next."""
    tried = range(PORT, PORT + SEARCHED_PORTS) if port is None else (port,)
    problem = ""
    for one in tried:
        try:
            return listen(one)
        except OSError as error:
            problem = f"127.0.0.1:{one}: {error.strerror}; give another --port, or 0 for any free one"
    raise CliError(Exit.FAILED, "PortUnusable", problem)


def _announce(address: Address) -> None:
    print(f"Dashboard: {address.url}", flush=True)
