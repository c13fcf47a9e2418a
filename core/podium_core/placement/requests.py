"""What a pod requests of its node, by Kubernetes' rule for a pod's effective request: the more of what runs together in
the end (containers and sidecars) and of what runs at any moment before that (one init container beside the sidecars
that were started before it); what the pod requests as a whole stands in the place of that; its overhead comes on top.

Used by `needs`, `readings` and `cpus` (by these: the extender, the agent, `podium explain pod`), and by the operator
before a trial is moved. Not counted: what a resize has not given back yet. Here the spec's word holds at once, while
kube-scheduler takes the larger of both until the kubelet has carried it out.
"""

from __future__ import annotations

from collections.abc import Mapping

from podium_core.schema.pod import PodRequests
from podium_core.schema.quantity import to_thousandths

_SIDECAR = "Always"  # the restart policy that makes an init container one
_OF_THE_POD = ("cpu", "memory", "hugepages-")  # what a pod can request as a whole; the last one begins a name


def requests_of(spec: PodRequests) -> dict[str, int]:
    """Thousandths of each resource. Raises ValueError that names what is no quantity."""
    together: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.containers:
        _add(together, _read(container.resources.requests, f"container {container.name!r}"))
    for container in spec.init_containers:
        amounts = _read(container.resources.requests, f"init container {container.name!r}")
        if container.restart_policy == _SIDECAR:
            _add(together, amounts)
            _add(sidecars, amounts)
            amounts = {}
        for name, amount in (sidecars | {name: sidecars.get(name, 0) + one for name, one in amounts.items()}).items():
            most[name] = max(most.get(name, 0), amount)
    held = {name: max(together.get(name, 0), most.get(name, 0)) for name in together | most}
    whole = _read(spec.resources.requests, "the pod")
    held |= {name: amount for name, amount in whole.items() if name.startswith(_OF_THE_POD)}
    _add(held, _read(spec.overhead, "the overhead"))
    return held


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _read(requests: Mapping[str, str | int | float], whose: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in requests.items():
        try:
            found[name] = to_thousandths(str(amount))
        except ValueError:
            raise ValueError(f"{whose} requests {name}={str(amount)!r}: no quantity") from None
    return found
