"""Policy `binpack`: best fit. The node with the fewest free shares that still takes the pod, so that whole nodes stay
empty for large pods, or can be given back. Found in the registry.
"""

from __future__ import annotations

from podium.placement.base import Policy, Question, candidates
from podium.placement.views import NodeView


def cost(question: Question, node: NodeView) -> float | None:
    """Shares that are free on the healthy GPUs of the node."""
    gpus = candidates(question.need, node)
    return None if gpus is None else float(sum(max(0, gpu.shares - gpu.trials) for gpu in gpus))


BINPACK = Policy(name="binpack", says="the node with the fewest free shares (best fit)", cost=cost, one_best=True)
