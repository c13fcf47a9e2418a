"""Build the HyperParamJob of `podium.tune`: the same object that a YAML file describes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium_api.errors import SearchError
from podium_api.function_source import check_signature, container_of
from podium_api.space import Dimension, parameters
from podium_core.acceptance.findings import errors_of, findings, local_warnings_of
from podium_core.domain.snapshot import Scalar
from podium_core.schema.base import API_VERSION

MODES = {"max": "maximize", "min": "minimize"}
MAX_SHOWN = 8  # errors in one message


@dataclass(frozen=True, slots=True)
class Work:
    """What a trial runs: a function with constant arguments, or a command line."""

    train: Callable[..., Any] | Sequence[str]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    image: str = "none"
    python: str = "python3"


def manifest_of(
    name: str, work: Work, space: Mapping[str, Dimension | Sequence[Scalar]], spec: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the job. Raises SearchError if it is refused.

    `spec`: the fields besides parameters and template.
    """
    container = {"name": "train", "image": work.image, **_container(work, space)}
    template = {"spec": {"containers": [container]}}
    full = {"parameters": parameters(space), "template": template, **spec}
    manifest = {"apiVersion": API_VERSION, "kind": "HyperParamJob", "metadata": {"name": name}, "spec": full}
    wrong = errors_of(findings(manifest))
    if wrong:
        shown = [str(one) for one in wrong[:MAX_SHOWN]]
        raise SearchError(wrong[0].code, "\n  ".join(["the search is refused:", *shown]))
    return manifest


def warnings_of(manifest: Mapping[str, Any], *, local: bool) -> tuple[str, ...]:
    """Return what in an accepted job probably does not work as intended, as `podium validate` shows it.

    `local`: it runs on this machine, so that warnings about a cluster do not apply.
    """
    found = findings(manifest)
    return tuple(f"{one.code}: {one}" for one in (local_warnings_of(found) if local else found))


def objectives(metric: str | Sequence[str], mode: str | Sequence[str]) -> dict[str, Any]:
    """Return the field `objective` of the spec, or `objectives` for a list of metrics."""
    if isinstance(metric, str):
        return {"objective": _objective(metric, mode)}
    metrics = list(metric)
    if isinstance(mode, str) or len(mode) != len(metrics):
        raise SearchError(
            "InvalidMode",
            f"mode must be a list with 'max' or 'min' for each of the {len(metrics)} metrics {metrics} (got {mode!r})",
        )
    listed = [_objective(name, one) for name, one in zip(metrics, mode, strict=True)]
    return {"objective": listed[0]} if len(listed) == 1 else {"objectives": listed}


def _objective(metric: Any, mode: Any) -> dict[str, Any]:
    if not isinstance(mode, str) or mode not in MODES:
        raise SearchError("InvalidMode", f"mode must be 'max' or 'min' (got {mode!r}); metric is {metric!r}")
    return {"metric": metric, "direction": MODES[mode]}


def _container(work: Work, space: Mapping[str, Any]) -> dict[str, Any]:
    if callable(work.train):
        check_signature(work.train, space, work.arguments)
        return container_of(work.train, work.arguments, work.python)
    if isinstance(work.train, str) or not work.train:
        raise SearchError(
            "InvalidCommand",
            f"train must be a function or a list of words, such as ['python', 'train.py'] (got {work.train!r})",
        )
    if work.arguments:
        raise SearchError("InvalidArguments", "arguments are for a function; add them to the command's words instead")
    words = [str(word) for word in work.train]
    return {"command": words if any("$(podium." in word for word in words) else [*words, "$(podium.args)"]}
