"""What both ways in share: the verbs, the door, the limit of a body, and how a "no" is told. Made by `main`, used by
`app` (FastAPI's routes) and `fast_path_protocol` (the connections of kube-scheduler).
"""

from __future__ import annotations

import logging

from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import UnschedulableQueue
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import VERBS, Verbs
from podium_extender.verbs.preempt import PreemptVerb
from podium_extender.verbs.node_selection import SCORED_NODES
from podium_extender.verbs.wire import ErrorResponse

log = logging.getLogger(__name__)
JSON = "application/json"


class Endpoint:
    """Requests over `body_limit` bytes and those beyond `max_requests` at once are refused. `preempt_verb` answers preempt,
    `waiting` is told which pods every node refused, `scored`: how many nodes filter hands on at most.
    """

    def __init__(
        self,
        node_cache: NodeCache,
        metrics: Metrics,
        evaluator: NodeEvaluator,
        *,
        body_limit: int,
        max_requests: int,
        preempt_verb: PreemptVerb | None = None,
        waiting: UnschedulableQueue | None = None,
        scored: int = SCORED_NODES,
    ) -> None:
        self.verbs = Verbs(node_cache, metrics, evaluator, preempt_verb, waiting, scored)
        self.door = ConcurrencyLimit(max_requests)
        self.body_limit = body_limit
        self._metrics = metrics

    def trouble(self, method: str, path: str, status: int, message: str) -> bytes:
        """The body of an answer that is not 200; it is counted and logged."""
        verb = path.strip("/")
        self._metrics.requests.labels(verb if verb in VERBS else "other", str(status)).inc()
        log.warning("%s %s answered %d: %s", method, path, status, message)
        return ErrorResponse(error=message).model_dump_json(by_alias=True).encode()
