"""The first steps of every component's main: --help with all settings, the settings, logging."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from podium_cluster.component import logs
from podium_cluster.settings import ClusterSettings

S = TypeVar("S", bound=ClusterSettings)


def read_settings(kind: type[S], program: str, about: str, arguments: Sequence[str] | None = None) -> S:
    """Return the settings from the environment, and configure logging.

    `--help` prints the settings and ends the process. An invalid value ends it with an error message.
    """
    argparse.ArgumentParser(
        prog=program,
        description=f"{about} It takes its settings from the environment:",
        epilog="\n".join(_line(name, kind) for name in kind.model_fields),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    try:
        settings = kind()
    except ValidationError as error:
        problems = "; ".join(f"PODIUM_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        sys.exit(f"{program}: invalid settings: {problems}")
    logs.configure(settings.log_format, settings.log_level)
    return settings


def _line(name: str, kind: type[ClusterSettings]) -> str:
    field = kind.model_fields[name]
    missing = field.default is PydanticUndefined and field.default_factory is None
    default = "required" if missing else f"default: {field.get_default(call_default_factory=True, validated_data={})}"
    return f"  PODIUM_{name.upper()} ({default})\n      {field.description or ''}".rstrip()
