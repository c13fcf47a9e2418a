"""Registry of the placement policies by name. A new policy is added here, and the contract suite tests it.

The extender's settings (`PODIUM_PLACEMENT`) and `podium explain pod --policy` use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from podium_core.placement.policies.auto import AUTO
from podium_core.placement.policies.base import PlacementPolicy
from podium_core.placement.policies.binpack import BINPACK
from podium_core.placement.policies.fill import FILL
from podium_core.placement.policies.fragmentation import FRAGMENTATION
from podium_core.placement.policies.load_balance import LOAD_BALANCE
from podium_core.placement.policies.seeded_random import RANDOM
from podium_core.placement.policies.spread import SPREAD

DEFAULT = AUTO.name
POLICIES: Mapping[str, PlacementPolicy] = MappingProxyType(
    {policy.name: policy for policy in (AUTO, LOAD_BALANCE, FRAGMENTATION, FILL, BINPACK, SPREAD, RANDOM)}
)


class UnknownPlacementError(ValueError):
    """The name of a placement policy is unknown."""

    code = "UnknownPlacement"


def placement_policy(name: str) -> PlacementPolicy:
    """Return the policy of that name. Raises UnknownPlacementError with the known names."""
    policy = POLICIES.get(name)
    if policy is None:
        raise UnknownPlacementError(f"placement policy {name!r} is not known; choose one of: {', '.join(POLICIES)}")
    return policy
