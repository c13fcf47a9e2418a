"""State shared by FastAPI's routes and the fast path: the verbs, the limits and the form of errors."""

from __future__ import annotations

import logging

from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import UnschedulableQueue
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.handlers import VERBS, Verbs
from podium_extender.verbs.node_selection import SCORED_NODES
from podium_extender.verbs.preempt import PreemptVerb
from podium_extender.verbs.wire import ErrorResponse

log = logging.getLogger(__name__)
JSON = "application/json"


class Endpoint:
    """The verbs with their limits: at most `max_requests` at a time, each of at most `body_limit` bytes.

    The other arguments are those of `Verbs`.
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
        unschedulable: UnschedulableQueue | None = None,
        scored_nodes: int = SCORED_NODES,
    ) -> None:
        self.verbs = Verbs(node_cache, metrics, evaluator, preempt_verb, unschedulable, scored_nodes)
        self.concurrency = ConcurrencyLimit(max_requests)
        self.body_limit = body_limit
        self._metrics = metrics

    def error_body(self, method: str, path: str, status: int, message: str) -> bytes:
        """Return the body of a response with a status other than 200; count and log the error."""
        verb = path.strip("/")
        self._metrics.requests.labels(verb if verb in VERBS else "other", str(status)).inc()
        log.warning("%s %s answered %d: %s", method, path, status, message)
        return ErrorResponse(error=message).model_dump_json(by_alias=True).encode()
