"""Client for searches that exist already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from podium_api.backend import Backend
from podium_api.errors import SearchError, needs_cluster
from podium_api.local_run import LocalRun
from podium_api.search import Search
from podium_local.store import JOB, OBJECTS

if TYPE_CHECKING:
    from podium_api.cluster_job import Cluster


class Client:
    """Searches of one namespace of a cluster, or of one folder of this machine, such as ./podium-runs."""

    def __init__(
        self,
        namespace: str | None = None,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Choose the place. Cluster and namespace follow kubectl's rules."""
        self._folder = None if folder is None else Path(folder)
        self._cluster: Cluster | None = None
        if folder is None:
            with needs_cluster("podium.Client without a folder"):
                from podium_api.cluster_job import Cluster
            self._cluster = Cluster(namespace, kubeconfig, context)

    def list(self) -> list[str]:
        """Return the names of the searches."""
        if self._cluster is None:
            return sorted(path.parents[1].name for path in self._runs.glob(f"*/{OBJECTS}/{JOB}"))
        return self._cluster.job_names()

    def get(self, name: str) -> Search:
        """Return the search of that name. Raises SearchError if there is none."""
        search = Search(name, self._backend(name))
        try:
            search.phase  # noqa: B018 -- reads it, so that a wrong name fails here
        except SearchError as error:
            if error.code in ("NotFound", "NotStarted"):
                known = ", ".join(self.list()) or "none"
                raise SearchError("SearchNotFound", f"there is no search {name}; there are: {known}") from error
            raise
        return search

    def _backend(self, name: str) -> Backend:
        return LocalRun(self._runs / name) if self._cluster is None else self._cluster.job(name)

    @property
    def _runs(self) -> Path:
        return self._folder or Path("podium-runs")
