"""`podium.tune`: start a search from Python."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from podium_api.errors import SearchError, SearchWarning, needs_cluster
from podium_api.local_run import LocalRun
from podium_api.manifest import Work, manifest_of, objectives, warnings_of
from podium_api.search import Search
from podium_api.space import Dimension
from podium_core.acceptance.warm_start import WarmStartError, ended_results, objectives_of, with_results
from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import HyperParamJob, JobSpec
from podium_core.schema.job_status import WarmStartTrial
from podium_simulator.traces.warm_start import results_in

RUNS = Path("podium-runs")
Mode = Literal["max", "min"]
Earlier = str | Path | Search


def tune(
    train: Callable[..., Any] | Sequence[str],
    space: Mapping[str, Dimension | Sequence[Scalar]],
    *,
    metric: str | Sequence[str],
    mode: Mode | Sequence[Mode] = "max",
    trials: int = 20,
    max_steps: float | None = None,
    gpus: int = 1,
    policy: str | None = None,
    algorithm: str = "random",
    seed: int = 0,
    where: Literal["local", "cluster"] = "local",
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    warm_start: str | Path | Search | Sequence[str | Path | Search] = (),
    image: str | None = None,
    spec: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    restart: bool = False,
    namespace: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
) -> Search:
    """Start a search and return its handle; `wait()` waits for its end.

    Args:
        train: a function that takes the parameters by name and calls `podium.report(step=..., METRIC=...)`, or the
            words of a command line, which gets the parameters as `--name=value` at its end or where
            `$(podium.params.NAME)` stands. A function is shipped by its source: it must import what it uses.
        space: the parameters by name, described by `uniform`, `loguniform`, `randint`, `choice`, or a list.
        metric: name of the number that the search optimizes, or a list of two to four names. `podium.GPU_SECONDS` is
            the cost of a trial, which Podium measures.
        mode: "max" or "min"; for a list of metrics a list, such as ["max", "min"].
        trials: number of trials.
        max_steps: step at which a trial is complete. The default policy needs it.
        gpus: GPUs of one trial. On a machine without GPUs a CPU core counts as one.
        policy: ranking policy; see the documentation of the policies. By default envelope, or pareto for several
            metrics.
        algorithm: how the parameters are proposed.
        seed: seed of the proposals.
        where: "local": processes of this machine; "cluster": the cluster of the kubeconfig.
        name: name of the search; by default that of the function.
        arguments: constant arguments of the function, values of JSON.
        warm_start: earlier searches, or files of their curves, from which an algorithm that learns starts: files of
            `podium export` or `podium run`, CSV tables, folders of TensorBoard.
        image: container image with Python and what the function imports; required on a cluster.
        spec: further fields of the job's spec, such as {"checkpoint": ...}; they win over those above.
        folder: local only: where the search is stored; by default podium-runs/NAME. The same call continues it.
        restart: local only: remove what the folder holds of an earlier search, and start from the beginning.
        namespace, kubeconfig, context: cluster only; kubectl's rules apply.

    Raises:
        SearchError: the search is refused, or it cannot start. The text names what is wrong and the cure.

    Warns:
        SearchWarning: the search starts, but a part of it probably does not work as intended.
    """
    called = name or _name_of(train)
    goal = objectives(metric, mode)
    fields: dict[str, Any] = {
        **goal,
        "trials": {"max": trials} | ({} if max_steps is None else {"maxSteps": max_steps}),
        "gpus": {"perTrial": gpus},
        "policy": {"name": policy or ("pareto" if "objectives" in goal else "envelope")},
        "search": {"algorithm": algorithm, "seed": seed},
        "metrics": {"stepKey": "step"},
        **(spec or {}),
    }
    if where == "local":
        work = Work(train, arguments or {}, image or "none", sys.executable)
        manifest = _with_earlier(manifest_of(called, work, space, fields), warm_start)
        _warn(warnings_of(manifest, local=True))
        run = LocalRun(Path(folder) if folder is not None else RUNS / called)
        run.start(manifest, restart=restart)
        return Search(called, run)
    if where != "cluster":
        raise SearchError("InvalidPlace", f"where must be 'local' or 'cluster' (got {where!r})")
    if image is None:
        raise SearchError("ImageMissing", "on a cluster, image must name a container image that the nodes can pull")
    with needs_cluster("where='cluster'"):
        from podium_api.cluster_job import Cluster, ClusterJob
    manifest = _with_earlier(manifest_of(called, Work(train, arguments or {}, image), space, fields), warm_start)
    _warn(warnings_of(manifest, local=False))
    job = ClusterJob(Cluster(namespace, kubeconfig, context), called)
    job.create(manifest)
    return Search(called, job)


def _with_earlier(manifest: Mapping[str, Any], earlier: Earlier | Sequence[Earlier]) -> dict[str, Any]:
    """Return the job with the results of these searches and files. Raises SearchError."""
    given = [earlier] if isinstance(earlier, str | Path | Search) else list(earlier)
    if not given:
        return dict(manifest)
    spec = HyperParamJob.model_validate(manifest).spec
    try:
        results = [one for source in given for one in _results(spec, source)]
        names = ", ".join(one.name if isinstance(one, Search) else str(one) for one in given)
        made, _ = with_results(manifest, spec, results, f"trials of {names}")
    except WarmStartError as error:
        raise SearchError(error.code, f"warm_start: {error}") from error
    return made


def _results(spec: JobSpec, source: Earlier) -> list[WarmStartTrial]:
    if not isinstance(source, Search):
        return results_in(spec, [Path(source)])
    seen = source.read()
    mine, other = objectives_of(spec), objectives_of(seen.job.spec)
    if mine != other:
        text = f"search {source.name} has the objective {other}, but this one {mine}, so their values cannot be "
        raise WarmStartError("WarmStartObjectiveDiffers", f"{text}compared: name searches with the same objective")
    return ended_results(spec, seen.trials)


def _warn(texts: Sequence[str]) -> None:
    """Issue warnings that point to the line that calls `tune`."""
    for text in texts:
        warnings.warn(text, SearchWarning, stacklevel=3)


def _name_of(train: Callable[..., Any] | Sequence[str]) -> str:
    """Return a name by the rules of Kubernetes."""
    given = getattr(train, "__name__", "") if callable(train) else Path(os.fspath(train[-1])).stem if train else ""
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in given.lower()).strip("-")
    return plain[:40] or "search"
