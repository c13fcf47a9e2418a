"""Effective resource requests of a pod, by Kubernetes' rule.

The request is the larger of two values. The first is the sum of containers and sidecars, which run together. The second
is the largest sum of an init container and the sidecars that started before it. Requests of the pod as a whole replace
that value. The overhead is added.

`needs`, `node_parser` and `free_cpus` call it for the extender, the agent and `podium explain pod`. The operator calls
it before a trial is moved. A resize in progress is not considered: here the spec counts at once. kube-scheduler
takes the larger value until the kubelet has carried out the resize.
"""

from __future__ import annotations

from collections.abc import Mapping

from podium_core.schema.pod import PodRequests
from podium_core.schema.quantity import to_thousandths

_SIDECAR = "Always"  # restart policy of a sidecar
_OF_THE_POD = ("cpu", "memory", "hugepages-")  # requests of a pod as a whole; the last one is a prefix


def requests_of(spec: PodRequests) -> dict[str, int]:
    """Return the requests in thousandths of each resource.

    Raises ValueError with the name of an invalid quantity.
    """
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


def _read(requests: Mapping[str, str | int | float], owner: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, amount in requests.items():
        try:
            amounts[name] = to_thousandths(str(amount))
        except ValueError:
            raise ValueError(f"{owner} requests {name}={str(amount)!r}: not a quantity") from None
    return amounts
