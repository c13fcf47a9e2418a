"""What both ways in share: the verbs, the door, the limit of a body, and how a "no" is told. Made by `main`, used by
`app` (FastAPI's routes) and `lane` (the connections of kube-scheduler).
"""

from __future__ import annotations

import logging

from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import WaitingRoom
from podium_extender.server.limits import Door
from podium_extender.state.node_cache import Telemetry
from podium_extender.verbs.decisions import Judge
from podium_extender.verbs.handlers import VERBS, Verbs
from podium_extender.verbs.preempt import Evictor
from podium_extender.verbs.top_k import SCORED
from podium_extender.verbs.wire import Trouble

log = logging.getLogger(__name__)
JSON = "application/json"


class Front:
    """Requests over `body_limit` bytes and those beyond `max_requests` at once are refused. `evictor` answers preempt,
    `waiting` is told which pods every node refused, `scored`: how many nodes filter hands on at most.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        metrics: Metrics,
        judge: Judge,
        *,
        body_limit: int,
        max_requests: int,
        evictor: Evictor | None = None,
        waiting: WaitingRoom | None = None,
        scored: int = SCORED,
    ) -> None:
        self.verbs = Verbs(telemetry, metrics, judge, evictor, waiting, scored)
        self.door = Door(max_requests)
        self.body_limit = body_limit
        self._metrics = metrics

    def trouble(self, method: str, path: str, status: int, message: str) -> bytes:
        """The body of an answer that is not 200; it is counted and logged."""
        verb = path.strip("/")
        self._metrics.requests.labels(verb if verb in VERBS else "other", str(status)).inc()
        log.warning("%s %s answered %d: %s", method, path, status, message)
        return Trouble(error=message).model_dump_json(by_alias=True).encode()
