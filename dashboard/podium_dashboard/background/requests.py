"""What pages ask of the background: which task, when it is due again, and what it reads of the state."""

from __future__ import annotations

from collections.abc import Hashable

from podium_dashboard.background.runner import BackgroundTasks, Result
from podium_dashboard.background.tasks import ExplanationTask, ImportanceTask, ReplayTask
from podium_dashboard.hub import Hub
from podium_dashboard.sources.source import Shown
from podium_dashboard.state import Key

IMPORTANCE_SECONDS, EXPLANATION_SECONDS = 30.0, 20.0  # least age of a result that is computed again
MAX_REPLAYS = 4  # that wait: each takes up to a minute, and the explanations wait for them
MOST_TRIALS = 2000  # of a search: the newest, for the importance


class Requests:
    """Requests of pages to the background tasks, about the searches of one source."""

    def __init__(self, source: Shown, hub: Hub, tasks: BackgroundTasks, scope: Hashable = None) -> None:
        """Prepare; requests with the same `scope` may share what is computed from several searches."""
        self._source = source
        self._hub = hub
        self._scope = scope
        self.tasks = tasks

    def known(self, key: Key) -> tuple[Result | None, Result | None]:
        """Return what the page of a search shows of the background; nothing is started."""
        return self.tasks.result(("importance", key)), self.tasks.result(("explanation", self._scope, key))

    def importance(self, key: Key) -> Result | None:
        """Return the importance of the parameters of a search; it changes when a trial ends."""
        search = self._source.state().by_key[key]
        trials = search.trials[-MOST_TRIALS:]

        def make() -> ImportanceTask:
            return ImportanceTask(search.job, tuple(one for one in trials if one.ended))

        return self.tasks.refresh(("importance", key), search.done, IMPORTANCE_SECONDS, make)

    def explanation(self, key: Key) -> Result | None:
        """Return why a search runs or waits, and when it ends."""
        state = self._source.state()
        search = state.by_key[key]
        now = (state.stopped or self._source.now()).timestamp()

        def make() -> ExplanationTask:
            beside = [search] if search.local else [one for one in state.searches if one is search or not one.ended]
            trials = tuple(trial for one in beside for trial in one.trials if one is search or not trial.ended)
            jobs = tuple(one.job for one in beside)
            return ExplanationTask(search.job, jobs, trials, search.nodes, now, search.local)

        return self.tasks.refresh(("explanation", self._scope, key), self._hub.states, EXPLANATION_SECONDS, make)

    def replay(self, key: Key) -> Result | None:
        """Return the last replay of a search."""
        return self.tasks.result(("replay", key))

    def is_replaying(self, key: Key) -> bool:
        """Return whether a replay of the search waits or runs."""
        return self.tasks.is_pending(("replay", key))

    def start_replay(self, key: Key) -> bool:
        """Start a replay of a search; return False if too many wait.

        Nothing starts if the trials are those of the last replay.
        """
        search = self._source.state().by_key.get(key)
        known = self.replay(key)
        if search is None or self.is_replaying(key) or (known is not None and known.stamp == search.done):
            return True
        if self.tasks.waiting("replay") >= MAX_REPLAYS:
            return False
        self.tasks.start(("replay", key), search.done, lambda: ReplayTask(search.job, search.trials))
        self._hub.changed()
        return True
