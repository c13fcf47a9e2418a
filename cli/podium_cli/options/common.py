"""Options that several commands have, and the end of their help: examples and exit codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from podium_cli.exit_codes import EXIT_CODES_HELP

CLUSTER = "Cluster"  # panel of the help
FORMATS = ("table", "json", "yaml")

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Namespace of the objects.",
        show_default="that of the context, then of this pod",
        rich_help_panel=CLUSTER,
    ),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="File with the access to the cluster (kubeconfig).",
        show_default="$KUBECONFIG, then ~/.kube/config, then the pod's account",
        rich_help_panel=CLUSTER,
    ),
]
KubeContext = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Context of the kubeconfig.", show_default="the current one", rich_help_panel=CLUSTER
    ),
]


def examples(*lines: str) -> str:
    """Return the end of a command's help: shell lines and the exit codes."""
    shown = "\n".join(f"  {line}" for line in lines)
    return f"Examples:\n{shown}\n\n{EXIT_CODES_HELP}"


def one_of(names: Sequence[str], *declarations: str, metavar: str = "NAME", **settings: Any) -> Any:
    """Return an option whose value is one of `names`, which the shell completes."""

    def parse(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(names)}.")
        return text

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return typer.Option(*declarations, metavar=metavar, parser=parse, autocompletion=complete, **settings)


Output = Annotated[str, one_of(FORMATS, "--output", "-o", metavar="|".join(FORMATS), help="Format of the result.")]


AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Objects of all namespaces.", rich_help_panel=CLUSTER)
]


def seconds(text: str | float) -> float:
    """Return the seconds that an option gives; used as `parser` of an option."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0.0:
        raise typer.BadParameter(f"seconds must be at least 0 (got {text})")
    return number
