"""Handle of a search: its state, its trials, and what a caller can do with it. The same in both places."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium_api import display
from podium_api.backend import Backend, Objects
from podium_api.errors import SearchError
from podium_api.live import open_live
from podium_api.results import Trial, best_of, curves_of, dataframe_of, front_of, trials_of

if TYPE_CHECKING:
    import pandas

POLL_SECONDS = 1.0
UNREACHABLE_SECONDS = 600.0  # that `wait` continues without an answer of the API server
FAILED = frozenset({"Failed", "Refused"})
SHOWN_LINES = 20  # of a failed trial's log


class Search:
    """A search that was started, here or elsewhere. Every property reads its present state."""

    def __init__(self, name: str, backend: Backend) -> None:
        self.name = name
        self._backend = backend

    def read(self) -> Objects:
        """Return the job and its trials as Podium stores them."""
        return self._backend.read()

    @property
    def phase(self) -> str:
        """The phase: Pending, Running, Suspended, Succeeded, Failed or Refused."""
        return self._backend.read().job.status.phase

    @property
    def trials(self) -> list[Trial]:
        """The trials by number."""
        return trials_of(self._backend.read())

    @property
    def best(self) -> Trial | None:
        """The trial with the best value so far; None before the first value.

        Raises SearchError if the search has several objectives, which have a Pareto front instead.
        """
        seen = self._backend.read()
        listed = seen.job.spec.objectives
        if listed is not None:
            names = ", ".join(one.metric for one in listed)
            text = f"search {self.name} has several objectives ({names}) and no single best trial: use pareto_front()"
            raise SearchError("SeveralObjectives", text)
        return best_of(seen)

    def pareto_front(self) -> list[Trial]:
        """Return the trials that no other trial dominates, the best in the first objective first.

        Their values are in `Trial.values`. With one objective it is the best trial. Empty before the first values.
        """
        return front_of(self._backend.read())

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Search:
        """Wait for the end of the search and return it.

        `timeout`: seconds. `progress`: show a table that follows the search. Raises SearchError if the search fails,
        with the last lines of a failed trial, or if the API server gives no answer for ten minutes; and TimeoutError.
        Ctrl-C ends the waiting. Where Python then ends, a search on this machine stops, and the same call of
        `podium.tune` continues it; in a notebook the search continues, and `wait` can be called again.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with closing(open_live(progress)) as live:
            answered = time.monotonic()
            while True:
                try:
                    seen = self._backend.read()
                except SearchError as error:
                    if not error.transient or time.monotonic() - answered >= UNREACHABLE_SECONDS:
                        raise
                    live.note(f"search {self.name}: no answer of the API server, trying again ({error.message})")
                else:
                    answered = time.monotonic()
                    live.show(self.name, seen)
                    if not seen.running:
                        break
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(f"search {self.name} has not ended within {timeout:g} s; it continues")
                time.sleep(POLL_SECONDS)
        if seen.job.status.phase in FAILED:
            raise self._failure(seen)
        return self

    def log(self, trial: Trial | str, lines: int = 100) -> str:
        """Return the last lines that a trial printed."""
        name = trial if isinstance(trial, str) else trial.name
        for one in self._backend.read().trials:
            if one.metadata.name == name:
                return self._backend.log(one, lines)
        raise SearchError("TrialNotFound", f"search {self.name} has no trial {name}")

    def dataframe(self) -> pandas.DataFrame:
        """Return one row a trial, with the value of each objective (needs pandas)."""
        return dataframe_of(self._backend.read())

    def curves(self) -> pandas.DataFrame:
        """Return one row a point of the learning curves (needs pandas).

        Of several objectives it is the first that the trials print.
        """
        return curves_of(self._backend.read())

    def plot(self, path: str | Path | None = None) -> Any:
        """Return a figure of the learning curves, and save it to `path` (needs matplotlib).

        Of several objectives it shows the trials and the Pareto front: the first objective against each other one.
        """
        try:
            from podium_api.figure import figure  # needs matplotlib, which a search does not
        except ModuleNotFoundError as error:
            raise SearchError("MatplotlibMissing", "this needs matplotlib: pip install matplotlib") from error
        return figure(self.name, self._backend.read(), path)

    def suspend(self) -> None:
        """Let the trials give up their GPUs and keep their progress; `resume` continues them."""
        self._backend.suspend()

    def resume(self) -> None:
        """Continue a suspended search."""
        self._backend.resume()

    def stop(self) -> None:
        """End the search and keep its results."""
        self._backend.stop()

    def __repr__(self) -> str:
        """Return one line: name, place, phase, trials and best value."""
        return display.line(self.name, self._backend.place, self._backend.read())

    def _repr_html_(self) -> str:
        """Return the table of trials; notebooks show it."""
        return display.html(self.name, self._backend.read())

    def _failure(self, seen: Objects) -> SearchError:
        status = seen.job.status
        text = f"search {self.name} has failed: {status.message}"
        for trial in seen.trials:
            if trial.status.phase == "Failed":
                reason = f"{trial.metadata.name}: {trial.status.message}"
                said = self._backend.log(trial, SHOWN_LINES).rstrip()
                if (
                    said and said.rpartition("\n")[2] in reason
                ):  # on this machine, the message ends with the log's last lines
                    reason = reason.partition("\n")[0]
                return SearchError(status.reason or status.phase, f"{text}\n{reason}\n{said}".rstrip())
        return SearchError(status.reason or status.phase, text)
